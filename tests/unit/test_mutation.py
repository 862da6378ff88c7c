"""What is done to existing Pods: the plan, Pod by Pod, and the faults that it meets on its way."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import httpx2
import msgspec
import pytest

from init_egress.existing import survey
from init_egress.existing.controllers import RESTARTED_AT
from init_egress.existing.mutation import Disruptions, Mutation
from init_egress.existing.mutation_plan import Action, Restart, guarded_patch, plan
from init_egress.existing.mutation_plan import is_considered as considered
from init_egress.existing.mutation_report import MutationReport, MutationResult, PodResult
from init_egress.existing.survey import JudgedPod
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import Forbidden
from init_egress.kube.objects import StoredPod
from init_egress.kube.scope import Scope
from init_egress.rule.istio import EXCLUDE_RANGES, SKIP_LABEL, STATUS
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy, RemedyKind

Manifest = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
TEAM = Namespace("team")
RANGES = "0.0.0.0/0,::/0"
CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web"}
STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db"}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "log"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "load"}
PYTORCH_JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "fit", "uid": "fit"}
WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "wf", "uid": "wf"}
OTHER = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "it", "uid": "it"}


def a_pod(
    name: str = "web-1-a",
    owner: Manifest | None = REPLICA_SET,
    *,
    stuck: bool = True,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    version: str = "1",
    phase: str = "Pending",
    **metadata: Any,
) -> Manifest:
    """A Pod that needs the remedy, as the API server has it."""
    statuses = [{"name": "fetch", "restartCount": 7, "state": CRASHED}]
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-03-01T11:00:00Z",
            "annotations": {STATUS: "{}", **(annotations or {})},
            "labels": dict(labels or {}),
            **({"ownerReferences": [{**owner, "controller": True}]} if owner else {}),
            **metadata,
        },
        "spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "istio-proxy"}]},
        "status": {"phase": phase, **({"initContainerStatuses": statuses} if stuck else {})},
    }


def late(pod: Manifest) -> Manifest:
    """The Pod, annotated after its network was made."""
    fields = {"f:metadata": {"f:annotations": {f"f:{EXCLUDE_RANGES}": {}}}}
    pod["metadata"]["annotations"][EXCLUDE_RANGES] = RANGES
    pod["metadata"]["managedFields"] = [{"time": "2026-03-01T11:30:00Z", "fieldsV1": fields}]
    return pod


def seen(pod: Manifest, policy: Policy = Policy()) -> JudgedPod:  # noqa: B008 - it is frozen
    stored = msgspec.json.decode(json.dumps(pod), type=StoredPod)
    return survey.judge(stored, TEAM, policy, NOW)


# The plan


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        pytest.param(a_pod(phase="Succeeded"), Policy(), id="finished well"),
        pytest.param(a_pod(phase="Failed"), Policy(), id="finished badly"),
        pytest.param(a_pod(deletionTimestamp="2026-03-01T11:59:00Z"), Policy(), id="going"),
        pytest.param(a_pod(labels={SKIP_LABEL: "true"}), Policy(), id="opted out"),
        pytest.param(late(a_pod(labels={SKIP_LABEL: "true"})), Policy(), id="late and opted out"),
        pytest.param(a_pod(annotations={EXCLUDE_RANGES: RANGES}), Policy(), id="excluded in time"),
    ],
)
def test_pods_that_nothing_is_to_be_done_to_are_passed_over(pod: Manifest, policy: Policy) -> None:
    assert not considered(seen(pod, policy))


PLANS = [
    # Pod, remedy, restart, deed, words of the reason
    (a_pod(), "exclude-ip-ranges", "stuck", Action.EVICT, "fetch"),
    (a_pod(), "exclude-ip-ranges", "all", Action.EVICT, "fetch"),
    (a_pod(), "exclude-ip-ranges", "none", Action.PATCH, "restart=none"),
    (a_pod(stuck=False), "exclude-ip-ranges", "stuck", Action.PATCH, "restart=all restarts its"),
    (a_pod(stuck=False), "exclude-ip-ranges", "none", Action.PATCH, "no effect until"),
    (a_pod(stuck=False), "exclude-ip-ranges", "all", Action.RESTART, "fetch"),
    (a_pod(owner=None), "exclude-ip-ranges", "stuck", Action.PATCH, "kubectl replace --force"),
    (a_pod(owner=None), "exclude-ip-ranges", "all", Action.PATCH, "no controller recreates it"),
    (
        a_pod(annotations={"kubernetes.io/config.mirror": "x"}),
        "exclude-ip-ranges",
        "all",
        Action.PATCH,
        "the kubelet of its node runs it from a file",
    ),
    (a_pod(), "proxy-user", "stuck", Action.EVICT, "fetch"),
    (a_pod(stuck=False), "proxy-user", "stuck", Action.LEAVE, "only a new Pod"),
    (a_pod(owner=None), "proxy-group", "stuck", Action.LEAVE, "only a new Pod"),
    (late(a_pod()), "exclude-ip-ranges", "stuck", Action.EVICT, "hold all that is configured"),
    (late(a_pod(stuck=False)), "exclude-ip-ranges", "stuck", Action.LEAVE, "annotated too late"),
    (late(a_pod(stuck=False)), "exclude-ip-ranges", "all", Action.RESTART, "hold all"),
    (late(a_pod(owner=None)), "exclude-ip-ranges", "all", Action.LEAVE, "kubectl replace --force"),
]


@pytest.mark.parametrize(("pod", "remedy", "restart", "deed", "words"), PLANS)
def test_the_plan(pod: Manifest, remedy: str, restart: str, deed: Action, words: str) -> None:
    judged = seen(pod, Policy(remedy=RemedyKind(remedy)))
    assert considered(judged)

    step = plan(judged, Restart(restart))

    assert step.action is deed
    assert words in step.reason


def test_a_pod_beyond_remedy_is_left_for_the_reason_that_the_rule_gives() -> None:
    pod = a_pod()
    pod["spec"]["initContainers"].insert(0, {"name": "istio-init"})

    step = plan(seen(pod), Restart.ALL)

    assert (step.action, step.reason) == (
        Action.LEAVE,
        "fetch: istio-init runs first, and its arguments were set at injection, so annotations"
        " have no effect",
    )


def test_a_patch_tests_the_pod_and_what_it_changes() -> None:
    pod = seen(a_pod(annotations={EXCLUDE_RANGES: "10.0.0.0/8"}))
    path = "/metadata/annotations/traffic.sidecar.istio.io~1excludeOutboundIPRanges"

    assert msgspec.to_builtins(guarded_patch(pod)) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-web-1-a"},
        {"op": "test", "path": path, "value": "10.0.0.0/8"},
        {"op": "add", "path": path, "value": f"10.0.0.0/8,{RANGES}"},
    ]


# The run, against an API server that is made up


class Server:
    """A few objects, and faults in the place of answers."""

    def __init__(self, *pods: Manifest, owners: Mapping[str, Manifest] | None = None) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        self.owners = dict(owners or {})
        self.faults: list[tuple[str, str, httpx2.Response | Callable[[], None]]] = []
        self.written: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self._lock = threading.Lock()

    def fail(self, method: str, path: str, *answers: httpx2.Response | Callable[[], None]) -> None:
        """Answer the next requests whose path ends so; a function is called, then all is well."""
        self.faults += [(method, path, answer) for answer in answers]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        with self._lock:
            return self._answer(request)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path, method = request.url.path, request.method
        for fault in self.faults:
            if fault[0] == method and path.endswith(fault[1]):
                self.faults.remove(fault)
                if isinstance(fault[2], httpx2.Response):
                    return fault[2]
                fault[2]()
                break
        if method != "GET":
            self.written.append((method, path.rpartition("/namespaces/team/")[2]))
            self.bodies.append(json.loads(request.content))
            return httpx2.Response(200, json={})
        if path == "/api/v1/namespaces/team":
            return httpx2.Response(200, json={"metadata": {"name": "team"}})
        if path.endswith("/pods"):
            return httpx2.Response(200, json={"items": list(self.pods.values()), "metadata": {}})
        kind, name = path.split("/")[-2:]
        found = self.pods.get(name) if kind == "pods" else self.owners.get(f"{kind}/{name}")
        return httpx2.Response(200, json=found) if found else status(404, "not found")


def status(code: int, message: str = "", **more: Any) -> httpx2.Response:
    return httpx2.Response(code, json={"message": message, **more})


def an_owner(reference: Manifest, above: Manifest | None = None, **fields: Any) -> Manifest:
    metadata = fields.pop("metadata", {})
    if above:
        metadata = {"ownerReferences": [{**above, "controller": True}], **metadata}
    own = {"namespace": "team", "name": reference["name"], "uid": reference["uid"]}
    return {"metadata": {**own, **metadata}, **fields}


OWNERS = {
    "replicasets/web-1": an_owner(REPLICA_SET, DEPLOYMENT),
    "deployments/web": an_owner(DEPLOYMENT),
    "statefulsets/db": an_owner(STATEFUL_SET),
    "daemonsets/log": an_owner(DAEMON_SET),
    "jobs/load": an_owner(JOB, spec={"backoffLimit": 3}),
    "pytorchjobs/fit": an_owner(PYTORCH_JOB),
}


def run(
    server: Server,
    restart: str = "stuck",
    *,
    policy: Policy = Policy(),  # noqa: B008 - it is frozen
    doubt: str = "",
    limit: int | None = None,
    dry_run: bool = False,
    max_disruptions: int = 50,
) -> tuple[MutationReport, dict[str, PodResult]]:
    """Run over the Pods of the team; the report, and the accounts by the Pods' names."""
    client = httpx2.Client(transport=httpx2.MockTransport(server), base_url="https://api")
    bulk = ApiClient(client, lambda _: None, dry_run=dry_run)
    report = MutationReport(Scope("team"), dry_run, limit)
    Mutation(
        bulk,
        policy,
        report.scope,
        Restart(restart),
        lambda namespace, pod: doubt,
        report,
        Disruptions(max_disruptions),
        lambda _: None,
        now=lambda: NOW,
    ).run()
    return report, {outcome.pod.partition("/")[2]: outcome for outcome in report.pods}


def test_a_stuck_pod_is_evicted_as_it_was_seen() -> None:
    server = Server(a_pod(version="42"), owners=OWNERS)

    _, outcomes = run(server)

    assert server.written == [("POST", "pods/web-1-a/eviction")]
    preconditions = {"uid": "uid-web-1-a", "resourceVersion": "42"}
    assert server.bodies[0]["deleteOptions"]["preconditions"] == preconditions
    assert outcomes["web-1-a"] == PodResult(
        "team/web-1-a",
        MutationResult.EVICTED,
        "ReplicaSet/web-1 recreates it with the remedy",
        "ReplicaSet/web-1",
        "fetch (CrashLoopBackOff, 7 restarts)",
    )


@pytest.mark.parametrize(
    ("owner", "changed", "words"),
    [
        (REPLICA_SET, {"replicasets/web-1": None}, "ReplicaSet/web-1 is gone"),
        (
            REPLICA_SET,
            {"replicasets/web-1": an_owner({**REPLICA_SET, "uid": "another"})},
            "ReplicaSet/web-1 is gone",
        ),
        (
            STATEFUL_SET,
            {
                "statefulsets/db": an_owner(
                    STATEFUL_SET, metadata={"deletionTimestamp": "2026-03-01T11:59:00Z"}
                )
            },
            "StatefulSet/db is being deleted",
        ),
        (JOB, {"jobs/load": an_owner(JOB, spec={"suspend": True})}, "Job/load is suspended"),
        (
            JOB,
            {
                "jobs/load": an_owner(
                    JOB, status={"conditions": [{"type": "FailureTarget", "status": "True"}]}
                )
            },
            "Job/load has ended (FailureTarget)",
        ),
        (
            JOB,
            {"jobs/load": an_owner(JOB, spec={"backoffLimit": 3}, status={"failed": 3})},
            "would exceed backoffLimit of Job/load (3 of 3 failures)",
        ),
        (
            PYTORCH_JOB,
            {"pytorchjobs/fit": an_owner(PYTORCH_JOB, spec={"runPolicy": {"suspend": True}})},
            "PyTorchJob/fit is suspended",
        ),
        (WORKFLOW, {}, "argo stop wf -n team && argo retry wf -n team"),
        (OTHER, {}, "Thing/it may not recreate it; if it does: kubectl delete pod"),
        (None, {}, "no controller recreates it"),
    ],
)
def test_a_stuck_pod_that_nobody_would_recreate_is_annotated_and_told(
    owner: Manifest | None, changed: Mapping[str, Manifest | None], words: str
) -> None:
    owners = {path: it for path, it in {**OWNERS, **changed}.items() if it}
    server = Server(a_pod("p", owner), owners=owners)

    report, outcomes = run(server)

    assert server.written == [("PATCH", "pods/p")]
    assert outcomes["p"].result is MutationResult.PATCHED
    assert words in outcomes["p"].reason
    assert report.counts()["stuck-still"] == 1


@pytest.mark.parametrize("owner", [REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, PYTORCH_JOB])
def test_a_pod_of_a_known_kind_is_evicted(owner: Manifest) -> None:
    server = Server(a_pod("p", owner), owners=OWNERS)

    _, outcomes = run(server)

    assert outcomes["p"].result is MutationResult.EVICTED


IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("spec", "annotations", "result"),
    [
        ({"podFailurePolicy": {"rules": [IGNORE]}, "backoffLimit": 0}, {}, MutationResult.EVICTED),
        (
            {
                "podFailurePolicy": {
                    "rules": [
                        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                        IGNORE,
                    ]
                },
                "backoffLimit": 0,
            },
            {},
            MutationResult.EVICTED,
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [
                        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}},
                        IGNORE,
                    ]
                }
            },
            {},
            MutationResult.PATCHED,
        ),
        (
            {"podFailurePolicy": {"rules": [{**IGNORE, "action": "FailJob"}]}},
            {},
            MutationResult.PATCHED,
        ),
        (
            {"podFailurePolicy": {"rules": [{**IGNORE, "action": "Count"}]}},
            {},
            MutationResult.EVICTED,
        ),
        ({"backoffLimitPerIndex": 1}, {}, MutationResult.EVICTED),
        (
            {"backoffLimitPerIndex": 1},
            {"batch.kubernetes.io/job-index-failure-count": "1"},
            MutationResult.PATCHED,
        ),
        ({}, {}, MutationResult.EVICTED),
    ],
)
def test_a_job_is_not_made_to_fail(
    spec: Manifest, annotations: Mapping[str, str], result: MutationResult
) -> None:
    owners = {"jobs/load": an_owner(JOB, spec=spec)}
    server = Server(a_pod("p", JOB, annotations=annotations), owners=owners)

    _, outcomes = run(server)

    assert outcomes["p"].result is result


def test_several_pods_of_a_job_are_evicted_only_as_far_as_it_goes() -> None:
    owners = {"jobs/load": an_owner(JOB, spec={"backoffLimit": 2})}
    server = Server(*(a_pod(f"p{n}", JOB) for n in range(5)), owners=owners)

    report, _ = run(server)

    assert (report.results[MutationResult.EVICTED], report.results[MutationResult.PATCHED]) == (
        2,
        3,
    )


def test_where_the_remedy_does_not_arrive_nothing_is_evicted() -> None:
    server = Server(a_pod(), owners=OWNERS)

    _, outcomes = run(server, doubt="a Pod recreated in team does not get the remedy now")

    assert [method for method, _ in server.written] == ["PATCH"]
    assert "does not get the remedy now" in outcomes["web-1-a"].reason


def test_a_budget_that_forbids_it_leaves_the_pod_for_another_run() -> None:
    server = Server(a_pod(), a_pod("web-1-b"), owners=OWNERS)
    causes = [{"reason": "DisruptionBudget"}]
    server.fail(
        "POST", "web-1-a/eviction", status(429, "violates the budget", details={"causes": causes})
    )

    _, outcomes = run(server)

    assert "run again later" in outcomes["web-1-a"].reason
    assert "violates the budget" in outcomes["web-1-a"].reason
    assert outcomes["web-1-b"].result is MutationResult.EVICTED


# Restarts


def test_a_run_evicts_no_more_than_it_may_and_the_next_one_goes_on() -> None:
    server = Server(*(a_pod(f"web-1-{n}") for n in range(5)), owners=OWNERS)

    report, outcomes = run(server, max_disruptions=2)

    assert report.results[MutationResult.EVICTED] == 2
    left = [outcome for outcome in outcomes.values() if outcome.result is MutationResult.PATCHED]
    assert len(left) == 3
    assert all("max-disruptions=2 is reached; run again to go on" in it.reason for it in left)
    assert report.stuck == 3


def test_a_fault_of_the_charm_with_one_pod_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(*(a_pod(f"web-1-{n}") for n in range(3)), owners=OWNERS)
    guard = Mutation._act

    def failing(self: Mutation, judged: JudgedPod) -> PodResult:
        if judged.pod.metadata.name == "web-1-1":
            raise ValueError("a bug")
        return guard(self, judged)

    monkeypatch.setattr(Mutation, "_act", failing)
    report, outcomes = run(server)

    assert report.results[MutationResult.EVICTED] == 2
    assert outcomes["web-1-1"].result is MutationResult.FAILED
    assert outcomes["web-1-1"].reason == "a fault of the charm, see its log: ValueError"


def test_a_restart_of_an_owner_counts_once_for_all_its_pods() -> None:
    pods = [a_pod(f"web-1-{n}", stuck=False, phase="Running") for n in range(3)]
    pods += [a_pod(f"db-{n}", STATEFUL_SET, stuck=False, phase="Running") for n in range(3)]
    server = Server(*pods, owners=OWNERS)

    report, _ = run(server, "all", max_disruptions=1)

    assert report.owners == 1
    assert report.results[MutationResult.RESTARTED] == 3


def test_an_eviction_that_a_budget_forbids_does_not_count() -> None:
    disruptions = Disruptions(1)

    assert disruptions.take()
    assert not disruptions.take()
    disruptions.give_back()
    assert disruptions.take()


def test_owners_are_restarted_once_each_and_before_stuck_pods_are_evicted() -> None:
    server = Server(
        a_pod("a-stuck", STATEFUL_SET),
        a_pod("db-1", STATEFUL_SET, stuck=False),
        *(a_pod(f"web-1-{n}", stuck=False) for n in range(20)),
        a_pod("log-1", DAEMON_SET, stuck=False),
        owners=OWNERS,
    )

    report, outcomes = run(server, "all")

    assert sorted(server.written[:3]) == [
        ("PATCH", "daemonsets/log"),
        ("PATCH", "deployments/web"),
        ("PATCH", "statefulsets/db"),
    ]
    assert server.written[3:] == [("POST", "pods/a-stuck/eviction")]
    assert server.bodies[0]["spec"]["template"]["metadata"]["annotations"] == {
        RESTARTED_AT: "2026-03-01T12:00:00Z"
    }
    assert report.counts()["owners-restarted"] == 3
    assert report.results[MutationResult.RESTARTED] == 22
    assert outcomes["web-1-3"].owner == "Deployment/web"


def restarted(at: str) -> Manifest:
    return {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}}


RESTARTED = restarted("2026-03-01T11:30:00Z")


@pytest.mark.parametrize(
    ("owner", "changed", "words"),
    [
        (
            REPLICA_SET,
            {"deployments/web": an_owner(DEPLOYMENT, spec={"paused": True})},
            "can't restart paused deployment (run rollout resume first)",
        ),
        (REPLICA_SET, {"replicasets/web-1": an_owner(REPLICA_SET)}, "knows no ReplicaSet/web-1"),
        (
            REPLICA_SET,
            {
                "deployments/web": an_owner(
                    DEPLOYMENT, spec=RESTARTED, status={"replicas": 2, "updatedReplicas": 1}
                )
            },
            "kubectl rollout status deployment/web -n team",
        ),
        (
            REPLICA_SET,
            {
                "deployments/web": an_owner(
                    DEPLOYMENT,
                    {
                        "apiVersion": "serving.knative.dev/v1",
                        "kind": "Revision",
                        "name": "isvc-1",
                        "uid": "r",
                    },
                )
            },
            "Knative's Revision/isvc-1",
        ),
        (
            STATEFUL_SET,
            {
                "statefulsets/db": an_owner(
                    STATEFUL_SET, spec={"updateStrategy": {"type": "OnDelete"}}
                )
            },
            "only when they are deleted (updateStrategy OnDelete): kubectl delete pod p-0 -n team",
        ),
        (
            STATEFUL_SET,
            {
                "statefulsets/db": an_owner(
                    STATEFUL_SET, spec={"updateStrategy": {"rollingUpdate": {"partition": 1}}}
                )
            },
            "below its partition 1",
        ),
        (
            STATEFUL_SET,
            {
                "statefulsets/db": an_owner(
                    STATEFUL_SET,
                    spec=RESTARTED,
                    status={"currentRevision": "1", "updateRevision": "2"},
                )
            },
            "its roll-out is under way",
        ),
        (
            DAEMON_SET,
            {"daemonsets/log": an_owner(DAEMON_SET, spec=RESTARTED, metadata={"generation": 2})},
            "its roll-out is under way",
        ),
        (JOB, {}, "Job/load runs to its end as it is"),
        (OTHER, {}, "knows no Thing/it"),
        (REPLICA_SET, {"deployments/web": None}, "Deployment/web is gone"),
    ],
)
def test_what_a_restart_would_not_help_is_annotated_and_told(
    owner: Manifest, changed: Mapping[str, Manifest | None], words: str
) -> None:
    owners = {path: it for path, it in {**OWNERS, **changed}.items() if it}
    server = Server(a_pod("p-0", owner, stuck=False), owners=owners)

    _, outcomes = run(server, "all")

    assert server.written == [("PATCH", "pods/p-0")]
    assert words in outcomes["p-0"].reason


@pytest.mark.parametrize(
    "owner",
    [
        an_owner(DEPLOYMENT, spec=RESTARTED, status={"replicas": 2, "updatedReplicas": 2}),
        an_owner(
            DEPLOYMENT,
            spec={
                "template": {"metadata": {"annotations": {RESTARTED_AT: "2026-03-01T10:00:00Z"}}}
            },
            status={"replicas": 2, "updatedReplicas": 1},
        ),
        an_owner(
            DEPLOYMENT,
            spec=restarted("yesterday"),
            status={"replicas": 2, "updatedReplicas": 1},
        ),
    ],
)
def test_an_owner_whose_restart_is_over_is_restarted_again(owner: Manifest) -> None:
    server = Server(a_pod(stuck=False), owners={**OWNERS, "deployments/web": owner})

    _, outcomes = run(server, "all")

    assert outcomes["web-1-a"].result is MutationResult.RESTARTED


def test_a_restart_that_fails_is_told_of_each_of_the_pods_and_stops_no_other() -> None:
    server = Server(
        a_pod("web-1-a", stuck=False),
        a_pod("web-1-b", stuck=False),
        a_pod("db-0", STATEFUL_SET, stuck=False),
        owners=OWNERS,
    )
    server.fail("PATCH", "deployments/web", status(403, "denied by policy"))

    report, outcomes = run(server, "all")

    assert outcomes["web-1-a"].result is outcomes["web-1-b"].result is MutationResult.FAILED
    assert "denied by policy" in outcomes["web-1-b"].reason
    assert outcomes["db-0"].result is MutationResult.RESTARTED
    assert report.counts()["owners-restarted"] == 1


def test_a_stuck_pod_that_a_rollout_has_taken_away_is_gone() -> None:
    server = Server(a_pod("web-1-a"), a_pod("web-1-b", stuck=False), owners=OWNERS)
    server.fail("PATCH", "deployments/web", server.pods.clear)

    _, outcomes = run(server, "all")

    assert outcomes["web-1-a"].result is MutationResult.GONE
    assert [method for method, _ in server.written] == ["PATCH"]


# Faults


def test_a_pod_that_was_annotated_meanwhile_is_not_written_over() -> None:
    pod = a_pod(owner=None)
    server = Server(pod)

    def annotate() -> None:
        pod["metadata"]["annotations"][EXCLUDE_RANGES] = "10.0.0.0/8"

    server.fail("PATCH", "web-1-a", status(422, "testing value failed"))
    server.fail("GET", "pods/web-1-a", annotate)

    _, outcomes = run(server)

    assert outcomes["web-1-a"].result is MutationResult.PATCHED
    assert server.bodies[-1][1]["value"] == "10.0.0.0/8"
    assert server.bodies[-1][2]["value"] == f"10.0.0.0/8,{RANGES}"


def test_a_pod_that_recovered_meanwhile_is_not_evicted() -> None:
    pod = a_pod()
    server = Server(pod, owners=OWNERS)

    def recover() -> None:
        pod["status"] = {"phase": "Running"}

    server.fail("POST", "eviction", status(409, "the object has been modified"))
    server.fail("GET", "pods/web-1-a", recover)

    _, outcomes = run(server)

    assert server.written == [("PATCH", "pods/web-1-a")]
    assert outcomes["web-1-a"].result is MutationResult.PATCHED


def test_a_pod_that_changes_again_and_again_is_given_up() -> None:
    server = Server(a_pod(), owners=OWNERS)
    server.fail("POST", "eviction", *[status(409, "the object has been modified")] * 9)

    _, outcomes = run(server)

    assert outcomes["web-1-a"].result is MutationResult.FAILED
    assert "after 5 tries: can't evict Pod team/web-1-a" in outcomes["web-1-a"].reason


def test_another_pod_of_the_same_name_is_left_alone() -> None:
    pod = a_pod("db-0", STATEFUL_SET)
    server = Server(pod, owners=OWNERS)

    def replace_it() -> None:
        pod["metadata"]["uid"] = "another"

    server.fail("POST", "eviction", status(409, "the UID in the precondition does not match"))
    server.fail("GET", "pods/db-0", replace_it)

    _, outcomes = run(server)

    assert outcomes["db-0"] == PodResult(
        "team/db-0",
        MutationResult.GONE,
        "gone meanwhile",
        "StatefulSet/db",
        "fetch (CrashLoopBackOff, 7 restarts)",
    )
    assert server.written == []


def test_faults_in_the_middle_stop_nothing() -> None:
    server = Server(*(a_pod(f"web-1-{letter}") for letter in "abcdef"), owners=OWNERS)
    no_right = 'User "x" cannot create resource "pods/eviction"'
    server.fail("POST", "web-1-b/eviction", status(404, "not found"))
    server.fail("POST", "web-1-c/eviction", status(403, no_right))
    server.fail("POST", "web-1-d/eviction", status(429, "slow down"), status(503, "not yet"))
    server.fail("POST", "web-1-e/eviction", *[status(500, "broken")] * 5)

    report, outcomes = run(server)

    results = {name[-1]: outcome.result.value for name, outcome in outcomes.items()}
    assert results == {
        "a": "evicted",
        "b": "gone",
        "c": "failed",
        "d": "evicted",
        "e": "failed",
        "f": "evicted",
    }
    assert no_right in outcomes["web-1-c"].reason
    assert [outcome.result for outcome in report.pods[:2]] == [MutationResult.FAILED] * 2


def test_without_the_right_to_read_pods_nothing_is_done() -> None:
    server = Server(a_pod())
    server.fail("GET", "/pods", status(403, 'User "x" cannot list resource "pods"'))

    with pytest.raises(Forbidden):
        run(server)


def test_a_list_that_breaks_off_is_told_and_what_was_done_is_not_lost() -> None:
    server = Server(a_pod(), owners=OWNERS)
    first = {"items": [a_pod()], "metadata": {"continue": "more"}}
    server.fail("GET", "/pods", httpx2.Response(200, json=first), *[status(500, "broken")] * 5)

    report, outcomes = run(server)

    assert outcomes["web-1-a"].result is MutationResult.EVICTED
    assert "run it again: can't list pods: broken" in report.summary()
    assert json.loads(report.document())["broken-off"] == "can't list pods: broken"


# The report


def test_a_long_report_keeps_what_matters_most_and_says_how_to_see_the_rest() -> None:
    server = Server(
        *(a_pod(f"p{n:04}", owner=None, stuck=False) for n in range(300)),
        a_pod("zzz"),
        owners=OWNERS,
    )
    server.fail("POST", "zzz/eviction", status(400, "no"))

    report, _ = run(server, limit=4000)

    document = json.loads(report.document())
    assert document["pods"][0]["pod"] == "team/zzz"
    assert document["left-out"] == 301 - len(document["pods"]) > 250
    assert "namespace=" in document["hint"]
    assert document["patched"] == 300
    assert len(json.dumps(document["pods"])) < 6000


def test_the_summary_of_a_run_with_nothing_to_do_is_short() -> None:
    report, _ = run(Server(a_pod(annotations={EXCLUDE_RANGES: RANGES})))

    assert report.summary() == (
        "namespace team: 1 Pod seen: 0 evicted, 0 restarted, 0 patched, 0 left, 0 failed"
    )


def test_progress_is_told_now_and_then() -> None:
    server = Server(*(a_pod(f"p{n}", owner=None) for n in range(10)))
    client = httpx2.Client(transport=httpx2.MockTransport(server), base_url="https://api")
    bulk = ApiClient(client, lambda _: None)
    told: list[str] = []
    time = itertools.count(0.0)
    report = MutationReport(Scope("team"), dry_run=False)

    Mutation(
        bulk,
        Policy(),
        report.scope,
        Restart.NONE,
        lambda namespace, pod: "",
        report,
        Disruptions(50),
        told.append,
        clock=lambda: next(time),
    ).run()

    # Twenty looks at a clock that goes on by a second at each: once seen, once done, for each Pod.
    assert len(told) == 4
    assert told[-1].startswith("10 Pods seen")
