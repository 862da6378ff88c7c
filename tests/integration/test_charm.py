"""The charm on a real controller, from deployment to removal.

The tests stand in the order of an application's life and share one model. What they need is set
up by fixtures, so a part of them can be run by itself; each leaves the charm as it found it, and
the last one removes it.
"""

from __future__ import annotations

from typing import Any

import jubilant
import pytest
import yaml

from tests.integration import conditions, names
from tests.integration.bench import Bench, configured, wait
from tests.integration.cluster import BACKEND_KINDS, Cluster, Written
from tests.integration.inputs import Deployment
from tests.integration.ledger import Ledger
from tests.integration.names import Action, Endpoint, Option, Result, Value

_REVISION_DEADLINE = 2 * 60.0


@pytest.mark.usefixtures("deployed")
def test_deployed_it_is_blocked_and_names_a_command_that_helps(juju: jubilant.Juju) -> None:
    # It lacks both trust and a mesh; which of them it names first is its own affair.
    wait(juju, conditions.blocked_with_any(names.TRUST_COMMAND, names.INTEGRATE_COMMAND))


@pytest.mark.usefixtures("related")
def test_without_trust_it_is_blocked_and_names_the_command(
    juju: jubilant.Juju, cluster: Cluster, model: str, book: Ledger
) -> None:
    if cluster.may_write_policies(model, names.APP):
        pytest.skip(
            book.could_not_assert(
                "that the charm asks for trust",
                "it may write policies without, as on a cluster that does not enforce RBAC",
            )
        )
    wait(juju, conditions.blocked(names.TRUST_COMMAND))


def test_trusted_and_related_it_remedies_the_next_pod(bench: Bench) -> None:
    bench.wait_for_ranges(names.DEFAULT_RANGES)


def test_a_pod_with_the_skip_label_stays_as_it_is(bench: Bench) -> None:
    assert bench.opted_out_pod().ranges == bench.shape.existing


def test_other_ranges_reach_the_next_pod(bench: Bench) -> None:
    with configured(bench.juju, {Option.RANGES: Value.NARROW_RANGES}):
        bench.wait_for_ranges(Value.NARROW_RANGES)

    bench.wait_for_ranges(names.DEFAULT_RANGES)


def test_ranges_that_istio_would_refuse_block_it_and_leave_the_remedy_in_force(
    bench: Bench,
) -> None:
    with configured(bench.juju, {Option.RANGES: Value.INVALID_RANGES}):
        wait(bench.juju, conditions.blocked(Option.RANGES, Value.INVALID_RANGES))

        assert bench.is_remedied()

    wait(bench.juju, conditions.active)
    assert bench.is_remedied()


def test_the_remedy_proxy_user_runs_the_init_container_as_the_proxys_user(bench: Bench) -> None:
    with configured(bench.juju, {Option.REMEDY: Value.PROXY_USER}):
        bench.wait_for_pod(
            lambda pod: pod.user == pod.proxy_user and pod.ranges == bench.shape.existing
        )

    bench.wait_for_pod(lambda pod: pod.user is None)
    bench.wait_for_ranges(names.DEFAULT_RANGES)


def test_each_backend_remedies_pods_and_the_one_before_it_goes(
    bench: Bench, model: str, book: Ledger
) -> None:
    served = bench.cluster.served_backends()
    if len(served) < 2:
        pytest.skip(
            book.could_not_assert(
                "a change of the backend", f"the cluster serves {', '.join(served)} only"
            )
        )
    for backend in served:
        with configured(bench.juju, {Option.BACKEND: backend}):
            wait(bench.juju, conditions.active_with(backend))

            bench.wait_for_ranges(names.DEFAULT_RANGES)
            kinds = {written.kind for written in bench.cluster.written(model)}
            assert kinds
            assert kinds <= set(BACKEND_KINDS[backend])
    # What `auto` takes comes first.
    wait(bench.juju, conditions.active_with(served[0]))


def test_show_policy_shows_what_is_on_the_cluster(bench: Bench, model: str) -> None:
    wait(bench.juju, conditions.active)

    task = bench.juju.run(f"{names.APP}/leader", Action.SHOW_POLICY)

    shown: list[dict[str, Any]] = list(yaml.safe_load_all(task.results[Result.POLICY]))
    assert {Written(one["kind"], one["metadata"]["name"]) for one in shown} == (
        bench.cluster.written(model)
    )
    assert shown


def test_of_three_units_one_leads_and_the_others_stand_by(bench: Bench) -> None:
    bench.juju.add_unit(names.APP, num_units=2)
    wait(bench.juju, conditions.active_with_standbys(2))

    assert bench.is_remedied()


def test_back_to_one_unit_the_remedy_stays_in_force(bench: Bench) -> None:
    units = len(bench.juju.status().get_units(names.APP))
    if units > 1:
        bench.juju.remove_unit(names.APP, num_units=units - 1)
    wait(bench.juju, conditions.active_with_standbys(0))

    assert bench.is_remedied()


def test_a_refresh_keeps_it_active(bench: Bench, charm: Deployment, book: Ledger) -> None:
    before = conditions.revision(bench.juju.status())
    bench.juju.refresh(names.APP, path=charm.charm, resources=charm.resources or None)
    try:
        bench.juju.wait(
            lambda status: conditions.revision(status) != before, timeout=_REVISION_DEADLINE
        )
    except TimeoutError:
        book.could_not_assert("that a refresh runs", "the same charm got no new revision")
    wait(bench.juju, conditions.active)

    assert bench.is_remedied()


def test_without_a_mesh_it_is_blocked_names_both_commands_and_the_policy_stays(
    bench: Bench,
) -> None:
    bench.juju.remove_relation(names.OURS, names.THEIRS)
    wait(bench.juju, conditions.blocked(names.INTEGRATE_COMMAND, names.MESH_COMMAND))

    assert bench.is_remedied()


def test_the_namespace_of_the_mesh_can_be_configured_instead(bench: Bench, model: str) -> None:
    with configured(bench.juju, {Option.MESH_NAMESPACE: model}):
        wait(bench.juju, conditions.active)

    assert bench.is_remedied()


def test_related_again_it_is_active_again(bench: Bench) -> None:
    if Endpoint.GATEWAY_INFO not in bench.juju.status().apps[names.APP].relations:
        bench.juju.integrate(names.OURS, names.THEIRS)
    wait(bench.juju, conditions.active)

    assert bench.is_remedied()


@pytest.fixture(scope="module")
def removed(deployed: None, juju: jubilant.Juju) -> None:
    """The charm removed; the last fixture that may be asked for."""
    juju.remove_application(names.APP)
    wait(juju, conditions.gone)


@pytest.mark.usefixtures("removed")
def test_removed_it_leaves_nothing_behind(
    juju: jubilant.Juju, cluster: Cluster, model: str
) -> None:
    wait(juju, lambda _: not cluster.written(model))


def test_once_it_is_removed_pods_stay_as_they_are(bench: Bench, removed: None) -> None:
    bench.wait_for_pod(lambda pod: pod.ranges == bench.shape.existing and pod.user is None)
