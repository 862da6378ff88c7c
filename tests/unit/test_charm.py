"""The charm in Juju's hands: every event, relation, status and action, on a cluster in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from ops import testing

import charm
from charm import IstioInitEgressCharm
from init_egress.backends import reconciler
from init_egress.backends.backend import BackendKind, Timeouts
from init_egress.config import Config
from init_egress.kube.application import Application
from init_egress.kube.errors import ClusterError, Forbidden, Unreachable
from init_egress.kube.kinds import CLUSTER_POLICY, NATIVE_POLICY
from tests.fake_cluster import FakeCluster

APP = Application("istio-init-egress", "kubeflow")
GATEWAY_INFO = testing.Relation(
    "gateway-info",
    remote_app_name="istio-pilot",
    remote_app_data={"gateway_namespace": "istio-system"},
)
ISTIO_METADATA = testing.Relation(
    "istio-metadata", remote_app_name="istio-k8s", remote_app_data={"root_namespace": "mesh"}
)
METRICS = testing.Relation("metrics-endpoint", interface="prometheus_scrape")
DASHBOARD = testing.Relation("grafana-dashboard", interface="grafana_dashboard")
LOGGING = testing.Relation("logging", interface="loki_push_api")
CERTIFICATES = testing.Relation("certificates", interface="tls-certificates")
NO_IMAGE = testing.Resource(name="webhook-image", path="/nowhere")
ACTIVE = "native: exclude-ip-ranges 0.0.0.0/0,::/0; verified in team"

Run = Callable[..., testing.State]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    monkeypatch.setattr(charm, "connect", lambda: fake)
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(proof=0, ready=0, rollout=0))
    return fake


@pytest.fixture
def context(cluster: FakeCluster) -> testing.Context[IstioInitEgressCharm]:
    return testing.Context(IstioInitEgressCharm, app_name=APP.name)


def state(*relations: testing.RelationBase, **changes: Any) -> testing.State:
    """A leader's state; related to istio-pilot unless other relations are given."""
    return dataclasses.replace(
        testing.State(
            leader=True,
            planned_units=1,
            model=testing.Model(name=APP.model, type="kubernetes"),
            relations=relations or (GATEWAY_INFO,),
            resources={NO_IMAGE},
        ),
        **changes,
    )


def status(found: testing.State) -> tuple[str, str]:
    return found.unit_status.name, found.unit_status.message


def in_force(cluster: FakeCluster) -> set[BackendKind]:
    return cluster.backends_in_force(APP)


# Events


@pytest.mark.parametrize(
    "event",
    ["install", "start", "upgrade_charm", "config_changed", "leader_elected", "update_status"],
)
def test_every_event_brings_the_cluster_to_what_is_configured(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster, event: str
) -> None:
    found = context.run(getattr(context.on, event)(), state())

    assert status(found) == ("active", ACTIVE)
    assert in_force(cluster) == {BackendKind.NATIVE}


@pytest.mark.parametrize(
    ("relation", "mesh_namespace"),
    [(GATEWAY_INFO, "istio-system"), (ISTIO_METADATA, "mesh")],
    ids=lambda value: value.endpoint if isinstance(value, testing.Relation) else value,
)
@pytest.mark.parametrize("event", ["relation_created", "relation_changed"])
def test_a_relation_to_a_mesh_tells_where_istiod_is(
    context: testing.Context[IstioInitEgressCharm],
    cluster: FakeCluster,
    relation: testing.Relation,
    mesh_namespace: str,
    event: str,
) -> None:
    found = context.run(getattr(context.on, event)(relation), state(relation))

    assert found.unit_status.name == "active"
    assert f"list ConfigMap in {mesh_namespace}" in map(str, cluster.requests)


@pytest.mark.parametrize(
    "relation", [METRICS, DASHBOARD, LOGGING], ids=lambda relation: relation.endpoint
)
@pytest.mark.parametrize("event", ["relation_created", "relation_changed", "relation_broken"])
def test_a_relation_of_observability_reconciles(
    context: testing.Context[IstioInitEgressCharm],
    cluster: FakeCluster,
    relation: testing.Relation,
    event: str,
) -> None:
    found = context.run(getattr(context.on, event)(relation), state(GATEWAY_INFO, relation))

    assert status(found) == ("active", ACTIVE)
    assert in_force(cluster) == {BackendKind.NATIVE}


def test_the_last_relation_to_a_mesh_that_breaks_leaves_what_is_in_force(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    context.run(context.on.install(), state())

    found = context.run(context.on.relation_broken(GATEWAY_INFO), state())

    assert found.unit_status.name == "blocked"
    assert in_force(cluster) == {BackendKind.NATIVE}


def test_a_certificates_relation_that_breaks_reconciles(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    found = context.run(
        context.on.relation_broken(CERTIFICATES), state(GATEWAY_INFO, CERTIFICATES)
    )

    assert status(found) == ("active", ACTIVE)


def test_a_unit_that_does_not_lead_asks_the_cluster_for_nothing(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    found = context.run(context.on.config_changed(), state(leader=False))

    assert status(found) == ("active", "standby: not the leader")
    assert cluster.requests == []


def test_the_option_goes_before_the_relation(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    context.run(context.on.config_changed(), state(config={"mesh-namespace": "elsewhere"}))

    assert "list ConfigMap in elsewhere" in map(str, cluster.requests)


# Statuses


@pytest.mark.parametrize(
    ("relations", "config", "name", "words"),
    [
        (
            (METRICS,),
            {},
            "blocked",
            "juju integrate istio-init-egress:gateway-info istio-pilot:gateway-info",
        ),
        (
            (testing.Relation("gateway-info", remote_app_name="istio-pilot"),),
            {},
            "waiting",
            "istio-pilot to write gateway_namespace on gateway-info",
        ),
        (
            (GATEWAY_INFO, ISTIO_METADATA),
            {},
            "blocked",
            "juju remove-relation istio-init-egress istio-k8s",
        ),
        ((GATEWAY_INFO,), {"exclude-outbound-ip-ranges": "10.0.0.1"}, "blocked", "10.0.0.1/32"),
        ((GATEWAY_INFO,), {"remedy": "magic"}, "blocked", "exclude-ip-ranges"),
        ((GATEWAY_INFO,), {"backend": "webhook"}, "blocked", "juju attach-resource"),
    ],
    ids=["no mesh", "silent mesh", "two meshes", "a bare address", "no remedy", "no image"],
)
def test_what_keeps_it_from_acting_is_said_with_what_helps(
    context: testing.Context[IstioInitEgressCharm],
    cluster: FakeCluster,
    relations: tuple[testing.Relation, ...],
    config: dict[str, str],
    name: str,
    words: str,
) -> None:
    found = context.run(context.on.config_changed(), state(*relations, config=config))

    assert found.unit_status.name == name
    assert words in found.unit_status.message
    assert cluster.written == []


@pytest.mark.parametrize(
    ("error", "name", "words"),
    [
        (Forbidden("can't list: no right", 403), "blocked", "juju trust istio-init-egress"),
        (Unreachable("can't list: no answer"), "waiting", "can't list: no answer"),
        (ClusterError("can't list: no", 409), "blocked", "can't list: no"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_fault_of_the_cluster_is_a_status_and_loses_nothing(
    context: testing.Context[IstioInitEgressCharm],
    cluster: FakeCluster,
    error: ClusterError,
    name: str,
    words: str,
) -> None:
    context.run(context.on.install(), state())
    cluster.fail_on("list", "", error)

    found = context.run(context.on.update_status(), state())

    assert found.unit_status.name == name
    assert words in found.unit_status.message
    cluster.fault = None
    assert in_force(cluster) == {BackendKind.NATIVE}


def test_a_backend_without_effect_is_waited_for_by_name(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    cluster.idle = {NATIVE_POLICY}

    found = context.run(context.on.install(), state())

    assert found.unit_status.name == "waiting"
    assert "native: applied, but not in effect yet (team)" in found.unit_status.message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"remedy": "proxy-group"}, "native: proxy-group"),
        ({"exclude-outbound-ports": "443"}, "and ports 443"),
        ({"exclude-outbound-ip-ranges": "10.0.0.1/8"}, "10.0.0.0/8: host bits are cleared"),
    ],
    ids=["remedy", "ports", "note"],
)
def test_the_status_says_what_is_done(
    context: testing.Context[IstioInitEgressCharm],
    cluster: FakeCluster,
    config: dict[str, str],
    words: str,
) -> None:
    cluster.policy = Config.from_options(config).settings().policy

    found = context.run(context.on.config_changed(), state(config=config))

    assert found.unit_status.name == "active"
    assert words in found.unit_status.message


def test_a_deprecation_of_kyvernos_is_in_the_status(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    cluster.deprecated[CLUSTER_POLICY] = "ClusterPolicy is deprecated"

    found = context.run(context.on.config_changed(), state(config={"backend": "kyverno"}))

    assert found.unit_status.message.endswith("ClusterPolicy is deprecated")


# Removal


def test_the_last_unit_leaves_nothing(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    context.run(context.on.install(), state())

    context.run(context.on.remove(), state(planned_units=0))

    assert cluster.stored == []


def test_a_unit_of_several_leaves_everything(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    context.run(context.on.install(), state())
    before = cluster.stored

    context.run(context.on.remove(), state(planned_units=1))

    assert cluster.stored == before


@pytest.mark.parametrize(
    "error", [Forbidden("no", 403), Unreachable("no"), ValueError("a bug")], ids=repr
)
def test_a_removal_never_fails(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster, error: Exception
) -> None:
    def fault(_: object) -> None:
        raise error

    context.run(context.on.install(), state())
    cluster.fault = fault

    context.run(context.on.remove(), state(planned_units=0))

    assert cluster.requests, "it tried"


# Actions


def test_show_policy_shows_what_is_applied(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    context.run(context.on.action("show-policy"), state())

    results = context.action_results or {}
    assert results["backend"] == "native"
    assert "kind: MutatingAdmissionPolicy\n" in results["policy"]
    assert cluster.written == []


def test_an_action_fails_in_the_words_of_the_status(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    with pytest.raises(testing.ActionFailed, match="juju integrate"):
        context.run(context.on.action("show-policy"), state(METRICS))


def test_only_the_webhook_has_a_certificate_to_rotate(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    with pytest.raises(testing.ActionFailed, match="backend=webhook"):
        context.run(context.on.action("rotate-certificates"), state())


def test_only_the_leader_rotates(
    context: testing.Context[IstioInitEgressCharm], cluster: FakeCluster
) -> None:
    with pytest.raises(testing.ActionFailed, match="juju run istio-init-egress/leader"):
        context.run(context.on.action("rotate-certificates"), state(leader=False))
