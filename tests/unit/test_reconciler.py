"""The order of things: apply, prove, prune; and what is left where a request in between fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from init_egress.backends import registry
from init_egress.backends.backend import BackendKind, Timeouts, Unavailable
from init_egress.backends.effect import Effect
from init_egress.backends.reconciler import NameTaken, Reconciler, ReconcileReport
from init_egress.backends.webhook_deployment import Image, WorkloadInputs
from init_egress.config import BackendChoice, FailurePolicy, PolicyKind, Settings
from init_egress.kube.application import Application
from init_egress.kube.errors import ClusterError, Forbidden, Unreachable
from init_egress.kube.kinds import CLUSTER_POLICY, MUTATING_POLICY, NATIVE_POLICY
from init_egress.kube.manifest import mapping, namespace_of, title_of
from tests.fake_cluster import FakeCluster, Request

APP = Application("istio-init-egress", "kubeflow")
INPUTS = WorkloadInputs(Image("example.com/webhook:1"))
SETTINGS = {
    BackendKind.NATIVE: Settings(backend=BackendChoice.NATIVE),
    BackendKind.CLUSTER_POLICY: Settings(
        backend=BackendChoice.KYVERNO, kyverno_kind=PolicyKind.CLUSTER_POLICY
    ),
    BackendKind.MUTATING_POLICY: Settings(
        backend=BackendChoice.KYVERNO, kyverno_kind=PolicyKind.MUTATING_POLICY
    ),
    BackendKind.WEBHOOK: Settings(backend=BackendChoice.WEBHOOK),
}
BACKENDS = pytest.mark.parametrize("kind", list(BackendKind), ids=lambda kind: kind.value)
SWITCHES = pytest.mark.parametrize(
    ("before", "after"),
    [(a, b) for a in BackendKind for b in BackendKind if a is not b],
    ids=lambda kind: kind.value,
)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def reconcile(cluster: FakeCluster, kind: BackendKind) -> ReconcileReport:
    return reconciler(cluster, kind).reconcile()


def reconciler(
    cluster: FakeCluster, kind: BackendKind, workload: WorkloadInputs | None = INPUTS
) -> Reconciler:
    """In a fake nothing takes time: what is not in effect at once never will be."""
    at_once = Timeouts(proof=0, ready=0, rollout=0)
    return Reconciler(cluster, SETTINGS[kind], APP, "istio-system", workload, at_once)


def in_force(cluster: FakeCluster) -> set[BackendKind]:
    return cluster.backends_in_force(APP)


# The order when all goes well


@BACKENDS
def test_an_installation_is_applied_proved_and_says_where(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    report = reconcile(cluster, kind)

    assert report.plan.backend.kind is kind
    assert report.verification.effect is Effect.ARRIVES
    assert report.verification.detail == "team"
    assert in_force(cluster) == {kind}


@BACKENDS
def test_what_is_applied_is_what_the_plan_shows(cluster: FakeCluster, kind: BackendKind) -> None:
    planned = reconcile(cluster, kind).plan.objects

    names = [f"{o['kind']} {dict(o['metadata'])['name']}" for o in planned]  # type: ignore[call-overload]
    assert cluster.stored == sorted(names)


@BACKENDS
def test_a_plan_changes_nothing(cluster: FakeCluster, kind: BackendKind) -> None:
    reconciler(cluster, kind).plan()

    assert cluster.written == []


@BACKENDS
def test_the_proof_comes_after_the_last_object_is_applied(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    reconcile(cluster, kind)

    verbs = [request.verb for request in cluster.requests]
    assert max(i for i, verb in enumerate(verbs) if verb == "apply") < verbs.index("dry-run")


@SWITCHES
def test_a_successor_is_in_force_before_its_predecessor_goes(
    cluster: FakeCluster, before: BackendKind, after: BackendKind
) -> None:
    reconcile(cluster, before)
    seen: list[set[BackendKind]] = []

    def watch(request: object) -> None:
        seen.append(in_force(cluster))

    cluster.fault = watch
    reconcile(cluster, after)

    assert all(seen), "a moment without a backend"
    assert in_force(cluster) == {after}


@SWITCHES
def test_nothing_of_the_predecessor_is_left(
    cluster: FakeCluster, before: BackendKind, after: BackendKind
) -> None:
    fresh = FakeCluster()
    reconcile(fresh, after)
    reconcile(cluster, before)
    reconcile(cluster, after)

    assert cluster.stored == fresh.stored


# What is not in effect


@SWITCHES
def test_a_successor_without_effect_leaves_its_predecessor(
    cluster: FakeCluster, before: BackendKind, after: BackendKind
) -> None:
    reconcile(cluster, before)
    cluster.idle = {registry.BACKENDS[after].resource}
    cluster.rolls_out = after is not BackendKind.WEBHOOK

    report = reconcile(cluster, after)

    assert report.verification.effect is Effect.MISSING
    assert before in in_force(cluster)


@BACKENDS
def test_without_a_namespace_of_the_mesh_there_is_nothing_to_verify(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.live_namespaces = {"plain": {}}

    report = reconcile(cluster, kind)

    assert report.verification.effect is Effect.UNVERIFIED
    assert report.verification.detail == "no namespace of the mesh yet"


@BACKENDS
def test_a_namespace_that_admits_no_pod_is_passed_over(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.live_namespaces["a-full-one"] = {"istio-injection": "enabled"}
    cluster.refusing["a-full-one"] = "exceeded quota"

    report = reconcile(cluster, kind)

    assert report.verification.effect is Effect.ARRIVES
    assert report.verification.detail == "team"


@pytest.mark.parametrize("kind", [BackendKind.CLUSTER_POLICY, BackendKind.MUTATING_POLICY])
def test_a_policy_that_kyverno_does_not_report_ready_is_not_in_effect(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.live_namespaces = {}
    cluster.kyverno_reports_ready = False

    report = reconcile(cluster, kind)

    assert report.verification.effect is Effect.MISSING
    assert "Kyverno does not report the policy Ready" in report.verification.detail


def test_replicas_that_do_not_come_get_no_reviews(cluster: FakeCluster) -> None:
    cluster.rolls_out = False

    report = reconcile(cluster, BackendKind.WEBHOOK)

    assert report.verification.effect is Effect.MISSING
    assert "0 of 2 replicas ready" in report.verification.detail
    assert not [name for name in cluster.stored if name.startswith("MutatingWebhook")]


def test_a_kind_that_its_authors_deprecate_is_remarked_on(cluster: FakeCluster) -> None:
    cluster.deprecated[CLUSTER_POLICY] = "ClusterPolicy is deprecated"

    assert reconcile(cluster, BackendKind.CLUSTER_POLICY).remarks == (
        "ClusterPolicy is deprecated",
    )


# What a predecessor gives way to


@SWITCHES
def test_a_predecessor_stays_where_admission_rejects_every_probe(
    cluster: FakeCluster, before: BackendKind, after: BackendKind
) -> None:
    reconcile(cluster, before)
    cluster.refusing["team"] = "exceeded quota"

    report = reconcile(cluster, after)

    assert report.verification.effect is Effect.REJECTED
    assert "exceeded quota" in report.message
    assert in_force(cluster) == {before, after}


@SWITCHES
def test_a_predecessor_goes_where_the_mesh_has_no_namespace(
    cluster: FakeCluster, before: BackendKind, after: BackendKind
) -> None:
    reconcile(cluster, before)
    cluster.live_namespaces = {}

    reconcile(cluster, after)

    assert in_force(cluster) == {after}


@BACKENDS
def test_namespaces_are_tried_until_one_shows_the_effect(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    full = [f"a-full-one-{number}" for number in range(20)]
    cluster.live_namespaces |= {name: {"istio-injection": "enabled"} for name in full}
    cluster.refusing = dict.fromkeys(full, "exceeded quota")

    assert reconcile(cluster, kind).verification.effect is Effect.ARRIVES


@BACKENDS
def test_a_namespace_whose_own_webhook_cannot_be_called_is_passed_over(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.live_namespaces["a-broken-one"] = {"istio-injection": "enabled"}
    cluster.failing = {"a-broken-one"}

    assert reconcile(cluster, kind).verification.effect is Effect.ARRIVES


@BACKENDS
def test_where_no_webhook_can_be_called_the_status_says_so_and_nothing_waits(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.failing = {"team"}

    report = reconcile(cluster, kind)

    assert report.in_effect
    assert "not verified: can't create a Pod in team: failed calling webhook" in report.message


# Objects of someone else, and the model's end


@BACKENDS
def test_an_object_of_someone_elses_is_named_and_never_overwritten(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    theirs = reconciler(cluster, kind).plan().objects[-1]
    metadata = {**mapping(theirs["metadata"]), "labels": {"app": "theirs"}}
    cluster.apply([{**theirs, "metadata": metadata}])
    cluster.requests.clear()

    with pytest.raises(NameTaken, match=title_of(theirs)):
        reconcile(cluster, kind)

    assert cluster.written == []


@BACKENDS
def test_what_is_outside_the_models_namespace_goes_with_it(
    cluster: FakeCluster, kind: BackendKind
) -> None:
    cluster.live_namespaces[APP.model] = {}

    for manifest in reconcile(cluster, kind).plan.objects:
        owners = mapping(manifest["metadata"]).get("ownerReferences", [])
        owned = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "name": APP.model,
            "uid": f"uid-of-{APP.model}",
        }
        assert owners == ([] if namespace_of(manifest) else [owned])


# failure-policy=fail


FAILING = Settings(backend=BackendChoice.WEBHOOK, failure_policy=FailurePolicy.FAIL)


def reconcile_failing(cluster: FakeCluster) -> ReconcileReport:
    at_once = Timeouts(proof=0, ready=0, rollout=0)
    return Reconciler(cluster, FAILING, APP, "istio-system", INPUTS, at_once).reconcile()


def failure_policy(cluster: FakeCluster) -> object:
    name = registry.WEBHOOK.object_name(APP)
    stored = cluster.get(registry.WEBHOOK.resource, name) or {}
    (webhook,) = cast("list[dict[str, object]]", stored["webhooks"])
    return webhook["failurePolicy"]


def test_pods_are_refused_only_once_the_remedy_was_seen_to_arrive(cluster: FakeCluster) -> None:
    proved: list[object] = []

    def watch(request: Request) -> None:
        if request.verb == "dry-run":
            proved.append(failure_policy(cluster))

    cluster.fault = watch
    report = reconcile_failing(cluster)

    assert set(proved) == {"Ignore"}
    assert failure_policy(cluster) == "Fail"
    assert "suspended" not in report.message


def test_what_is_proved_stays_in_force_through_the_next_proof(cluster: FakeCluster) -> None:
    reconcile_failing(cluster)
    seen: set[object] = set()

    def watch(request: Request) -> None:
        if request.verb != "get":
            seen.add(failure_policy(cluster))

    cluster.fault = watch
    reconcile_failing(cluster)

    assert seen == {"Fail"}


def idle(cluster: FakeCluster) -> None:
    """The API server reaches no replica, though they are ready."""
    cluster.idle = {registry.WEBHOOK.resource}


def failing(cluster: FakeCluster) -> None:
    """Calls fail, and so no Pod is created."""
    cluster.failing = {"team"}


def not_rolled_out(cluster: FakeCluster) -> None:
    """No replica becomes ready."""
    cluster.rolls_out = False


@pytest.mark.parametrize("broken", [idle, failing, not_rolled_out])
def test_a_proof_that_fails_takes_it_back_in_the_same_event(
    cluster: FakeCluster, broken: Callable[[FakeCluster], None]
) -> None:
    reconcile_failing(cluster)
    broken(cluster)

    reconcile_failing(cluster)

    assert failure_policy(cluster) == "Ignore"


def test_what_could_not_be_proved_yet_is_said_to_be_suspended(cluster: FakeCluster) -> None:
    cluster.live_namespaces = {}

    report = reconcile_failing(cluster)

    assert failure_policy(cluster) == "Ignore"
    assert "failure-policy=fail is suspended until the remedy is seen to arrive" in report.message


# What cannot be had


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (BackendKind.NATIVE, {NATIVE_POLICY}),
        (BackendKind.CLUSTER_POLICY, {CLUSTER_POLICY}),
        (BackendKind.MUTATING_POLICY, {MUTATING_POLICY}),
    ],
    ids=lambda value: value.value if isinstance(value, BackendKind) else "",
)
def test_a_kind_that_is_not_served_changes_nothing(
    cluster: FakeCluster, kind: BackendKind, missing: set[type]
) -> None:
    reconcile(cluster, BackendKind.WEBHOOK)
    before = cluster.stored
    cluster.served -= missing

    with pytest.raises(Unavailable, match="juju config istio-init-egress"):
        reconcile(cluster, kind)

    assert cluster.stored == before


def test_a_webhook_without_an_image_names_the_command_that_helps(cluster: FakeCluster) -> None:
    with pytest.raises(Unavailable, match="juju attach-resource istio-init-egress webhook-image="):
        reconciler(cluster, BackendKind.WEBHOOK, None).plan()


# Requests that fail

FAULTS = (
    Forbidden("can't do it: no right", 403),
    Unreachable("can't do it: no answer"),
)


@SWITCHES
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_request_that_fails_leaves_a_backend_and_the_next_event_gets_there(
    before: BackendKind, after: BackendKind, fault: ClusterError
) -> None:
    for number, cluster in broken_off(before, after, fault):
        assert in_force(cluster), f"no backend after request {number} failed"
        cluster.fault = None

        reconcile(cluster, after)

        assert in_force(cluster) == {after}, f"not reached after request {number} failed"


@BACKENDS
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_an_installation_that_fails_is_completed_by_the_next_event(
    kind: BackendKind, fault: ClusterError
) -> None:
    for number, cluster in broken_off(None, kind, fault):
        cluster.fault = None

        reconcile(cluster, kind)

        assert in_force(cluster) == {kind}, f"not reached after request {number} failed"


def broken_off(
    before: BackendKind | None, after: BackendKind, fault: ClusterError
) -> Iterator[tuple[int, FakeCluster]]:
    """A cluster for each request of the way from one backend to another, which failed there."""
    for number in range(1000):
        cluster = FakeCluster()
        if before:
            reconcile(cluster, before)
        cluster.requests.clear()
        cluster.fail_once(number, fault)
        try:
            reconcile(cluster, after)
        except ClusterError:
            yield number, cluster
            continue
        if len(cluster.requests) <= number:  # it was over before its turn came
            return
        yield number, cluster  # what fails may be told otherwise than by an exception
    raise AssertionError("it never ends")
