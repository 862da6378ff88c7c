"""What the audit says of a Pod, of the mesh, and in what order."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import httpx2
import msgspec
import pytest

from init_egress.existing.advice import Juju, Kubectl
from init_egress.existing.audit import audit, document, excludes, find, table
from init_egress.existing.owners import ControllerChain
from init_egress.existing.survey import JudgedPod, Stuck
from init_egress.kube.client import ApiClient
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.kube.scope import Scope
from init_egress.mesh import sidecars
from init_egress.mesh.istiod import Mesh, Revision
from init_egress.results import WIDEST, columns
from init_egress.rule.decision import Decision
from init_egress.rule.istio import EXCLUDE_PORTS, EXCLUDE_RANGES, STATUS
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.verdict import Verdict

CRASHED = Stuck("fetch", "CrashLoopBackOff", 3, datetime(2026, 1, 2, tzinfo=timezone.utc))
NO_IMAGE = Stuck("fetch", "ImagePullBackOff", 0, None)
CONTROLLED: Any = {
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    ]
}
NEEDS, EXCLUDED, BEYOND = (
    Decision(verdict, "why", ("fetch",))
    for verdict in (Verdict.NEEDS_REMEDY, Verdict.ALREADY_EXCLUDED, Verdict.BEYOND_REMEDY)
)


def pod(phase: str = "Pending", **metadata: Any) -> StoredPod:
    found = {
        "metadata": {"name": "web", "namespace": "team", **metadata},
        "spec": {"initContainers": [], "containers": []},
        "status": {"phase": phase},
    }
    return msgspec.convert(found, StoredPod)


def seen(
    found: StoredPod, decision: Decision, stuck: Stuck | None = None, *, too_late: bool = False
) -> JudgedPod:
    return JudgedPod(found, Namespace("team"), decision, stuck, too_late)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (seen(pod(**CONTROLLED), NEEDS, CRASHED), "mutate-existing-pods namespace=team"),
        (seen(pod(), NEEDS, CRASHED), "delete it and create it again; no controller would"),
        (seen(pod("Running", **CONTROLLED), NEEDS), "restart=all"),
        (seen(pod(**CONTROLLED), NEEDS), "wait; if it gets stuck"),
        (seen(pod(**CONTROLLED), NEEDS, NO_IMAGE), "not for want of network"),
        (seen(pod(**CONTROLLED), EXCLUDED, CRASHED, too_late=True), "mutate-existing-pods"),
        (seen(pod(**CONTROLLED), EXCLUDED, CRASHED), "kubectl logs -n team web -c fetch"),
        (seen(pod("Running"), EXCLUDED, too_late=True), "nothing now"),
        (seen(pod("Running"), EXCLUDED), "nothing"),
        (seen(pod("Succeeded"), NEEDS), "it has finished"),
        (seen(pod(deletionTimestamp="2026-01-02T03:04:05Z"), NEEDS), "being deleted"),
        (seen(pod(), BEYOND), "remedy=proxy-group"),
    ],
)
def test_one_line_says_what_to_do(found: JudgedPod, words: str) -> None:
    assert words in find(found, Policy(), Juju("egress")).todo


def test_without_juju_the_commands_are_kubectls() -> None:
    stuck = find(seen(pod(**CONTROLLED), NEEDS, CRASHED), Policy(), Kubectl())
    running = find(seen(pod("Running", **CONTROLLED), NEEDS), Policy(), Kubectl())
    assert "kubectl delete pod -n team web" in stuck.todo
    assert "kubectl rollout restart -n team" in running.todo


def test_beyond_a_proxy_remedy_the_other_one_is_offered() -> None:
    found = find(seen(pod(), BEYOND), Policy(remedy=RemedyKind.PROXY_USER), Juju("egress"))
    assert "remedy=exclude-ip-ranges" in found.todo


@pytest.mark.parametrize(
    ("annotations", "args", "expected"),
    [
        ({}, None, None),
        ({STATUS: "{}"}, None, None),
        ({STATUS: "{}", EXCLUDE_RANGES: "10.0.0.0/8"}, None, "10.0.0.0/8"),
        ({STATUS: "{}", EXCLUDE_PORTS: "53"}, None, "ports 53"),
        ({STATUS: "{}", EXCLUDE_RANGES: "::/0", EXCLUDE_PORTS: "53"}, None, "::/0 ports 53"),
        ({STATUS: "{}", EXCLUDE_RANGES: "::/0"}, ["-x", "10.0.0.0/8", "-o"], "10.0.0.0/8"),
        ({STATUS: "{}", EXCLUDE_RANGES: "::/0"}, [], None),
    ],
)
def test_what_is_in_effect_is_what_the_redirecting_part_was_told(
    annotations: dict[str, str], args: list[str] | None, expected: str | None
) -> None:
    init = [] if args is None else [{"name": "istio-init", "args": args}]
    found = msgspec.convert(
        {"metadata": {"annotations": annotations}, "spec": {"initContainers": init}}, StoredPod
    )
    effective = excludes(found)
    assert (str(effective) if effective else None) == expected


# --- A cluster that answers as it is told --------------------------------------------------------


def cluster(answers: dict[str, Any]) -> ApiClient:
    """Answers each path with an object; another with 404."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        found = answers.get(request.url.path)
        if isinstance(found, int):
            return httpx2.Response(found, json={"message": "no"})
        return httpx2.Response(404, json={}) if found is None else httpx2.Response(200, json=found)

    transport = httpx2.MockTransport(answer)
    return ApiClient(httpx2.Client(transport=transport, base_url="http://x"), sleep=lambda _: None)


def owned(kind: str, name: str, by: dict[str, Any] | None = None) -> dict[str, Any]:
    references = [by] if by else []
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"{kind}/{name}",
            "ownerReferences": references,
        }
    }


def reference(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": f"{kind}/{name}",
        "controller": True,
    }


def served(kind: str, plural: str) -> dict[str, Any]:
    status = {"name": f"{plural}/status", "kind": kind, "namespaced": True}
    return {"resources": [status, {"name": plural, "kind": kind, "namespaced": True}]}


SERVICE = reference("serving.kserve.io/v1beta1", "InferenceService", "model")
DEPLOYMENT = reference("apps/v1", "Deployment", "model")
REPLICA_SET = reference("apps/v1", "ReplicaSet", "model-1")
KSERVE = {
    "/apis/apps/v1": {
        "resources": [
            *served("ReplicaSet", "replicasets")["resources"],
            *served("Deployment", "deployments")["resources"],
        ]
    },
    "/apis/apps/v1/namespaces/team/replicasets/model-1": owned(
        "ReplicaSet", "model-1", DEPLOYMENT
    ),
    "/apis/apps/v1/namespaces/team/deployments/model": owned("Deployment", "model", SERVICE),
    "/apis/serving.kserve.io/v1beta1": served("InferenceService", "inferenceservices"),
    "/apis/serving.kserve.io/v1beta1/namespaces/team/inferenceservices/model": owned(
        "InferenceService", "model"
    ),
}


def chain(answers: dict[str, Any], controller: dict[str, Any]) -> list[str]:
    owners = ControllerChain(cluster(answers), Scope())
    found = owners.chain("team", msgspec.convert(controller, OwnerReference))
    return [f"{owner.kind}/{owner.name}" for owner in found]


def test_owners_are_followed_up_to_what_an_author_wrote() -> None:
    expected = ["ReplicaSet/model-1", "Deployment/model", "InferenceService/model"]
    assert chain(KSERVE, REPLICA_SET) == expected


@pytest.mark.parametrize("gone", [None, 403, 503])
def test_an_owner_that_cannot_be_read_is_the_top(gone: int | None) -> None:
    answers = {**KSERVE, "/apis/apps/v1/namespaces/team/deployments/model": gone}
    assert chain(answers, REPLICA_SET) == ["ReplicaSet/model-1", "Deployment/model"]


def test_a_kind_that_is_not_served_is_the_top() -> None:
    answers = {**KSERVE, "/apis/apps/v1": None}
    assert chain(answers, REPLICA_SET) == ["ReplicaSet/model-1"]


def test_owners_that_own_each_other_end_somewhere() -> None:
    replica_set = owned("ReplicaSet", "model-1", REPLICA_SET)
    answers = {**KSERVE, "/apis/apps/v1/namespaces/team/replicasets/model-1": replica_set}
    assert chain(answers, REPLICA_SET)[0] == "ReplicaSet/model-1"


def test_many_owners_of_a_kind_are_read_by_one_list() -> None:
    sets = [owned("ReplicaSet", f"model-{n}", DEPLOYMENT) for n in range(100)]
    bulk = cluster({**KSERVE, "/apis/apps/v1/replicasets": {"items": sets}})
    owners = ControllerChain(bulk, Scope())
    controllers = [
        msgspec.convert(reference("apps/v1", "ReplicaSet", f"model-{n}"), OwnerReference)
        for n in range(100)
    ]
    owners.look_up(("team", controller) for controller in controllers)
    found = [owners.chain("team", controller)[-1].kind for controller in controllers]
    assert found == ["InferenceService"] * 100
    assert bulk.requests < 10


def test_counts_are_whole_also_where_the_list_is_cut() -> None:
    pods = [
        {"metadata": {"name": f"web-{n:03}", "namespace": "team"}, "status": {"phase": "Running"}}
        for n in range(50)
    ]
    namespaces = [{"metadata": {"name": "team"}}]
    bulk = cluster({"/api/v1/pods": {"items": pods}, "/api/v1/namespaces": {"items": namespaces}})

    found = audit(bulk, Policy(), Scope(), Juju("egress"), limit=2_000)

    shown = json.loads(msgspec.json.encode(document(found, ["a fact"])))
    assert shown["verdicts"] == {"not-injected": 50}
    assert 0 < len(shown["pods"]) < 50
    assert shown["left-out"] == 50 - len(shown["pods"])
    assert "narrow by namespace" in shown["narrow"]
    assert "left out" in table(found, []).splitlines()[-1]


def test_a_table_fits_however_wide_its_cells_are() -> None:
    ranges = ",".join(f"10.{n}.0.0/16" for n in range(200))
    pods = [
        {
            "metadata": {
                "name": f"web-{n:03}",
                "namespace": f"{'n' * 55}-{n:03}",
                "annotations": {STATUS: "{}", EXCLUDE_RANGES: ranges},
            }
        }
        for n in range(300)
    ]
    bulk = cluster({"/api/v1/pods": {"items": pods}, "/api/v1/namespaces": {"items": None}})

    found = audit(bulk, Policy(), Scope(), Juju("egress"))
    cut = table(found, ["a fact"], limit=40_000)

    assert len(cut.encode()) < 40_100
    shown = sum(line.startswith("n") and " web-" in line for line in cut.splitlines())
    assert 0 < shown < 300
    assert f"{300 - shown} Pods left out" in cut.splitlines()[-1]
    assert "left out" not in table(found, [])
    assert len(msgspec.json.encode({**document(found, []), "pods": []})) < 30_000


def test_it_says_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("init_egress.existing.audit.PROGRESS_EVERY", 2)
    pods = [{"metadata": {"name": f"web-{n}", "namespace": "team"}} for n in range(5)]
    told: list[str] = []
    bulk = cluster({"/api/v1/pods": {"items": pods}, "/api/v1/namespaces": {"items": None}})

    audit(bulk, Policy(), Scope(), Juju("egress"), progress=told.append)

    assert [line.split()[0] for line in told] == ["2", "4"]


# --- The mesh ------------------------------------------------------------------------------------


def test_all_that_matters_of_the_mesh_is_said() -> None:
    injected = {EXCLUDE_RANGES: "0.0.0.0/0"}
    revision = Revision(
        "", cni=True, injected=injected, dns_capture=True, registry_only=True, excluded=("::/0",)
    )
    facts = "\n".join(Mesh("mesh", (revision, Revision("canary", cni=False))).facts())
    for words in (
        "several revisions: default, canary",
        "revision default: the CNI plugin redirects",
        "revision canary: istio-init redirects",
        "mesh-wide excludes: ::/0",
        "injectedAnnotations write traffic.sidecar.istio.io/excludeOutboundIPRanges='0.0.0.0/0'",
        "port 53 goes to the proxy whatever ranges are excluded",
        "REGISTRY_ONLY",
        "native sidecars: left to its version",
    ):
        assert words in facts


def sidecar(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_sidecars_that_limit_egress_are_named_and_others_are_not() -> None:
    items = [
        sidecar("a", "default", egress=[{"hosts": ["./*"]}]),
        sidecar("b", "policy", outboundTrafficPolicy={"mode": "REGISTRY_ONLY"}),
        sidecar("c", "inbound", ingress=[]),
    ]
    (fact,) = sidecars.facts(
        cluster({"/apis/networking.istio.io/v1/sidecars": {"items": items}}), "", "mesh"
    )
    assert "a/default, b/policy;" in fact


def test_one_namespace_is_limited_by_its_own_and_by_the_meshs() -> None:
    path = "/apis/networking.istio.io/v1beta1/namespaces/{}/sidecars"
    own, root = sidecar("team", "own", egress=[{}]), sidecar("mesh", "root", egress=[{}])
    answers = {path.format("team"): {"items": [own]}, path.format("mesh"): {"items": [root]}}
    (fact,) = sidecars.facts(cluster(answers), "team", "mesh")
    assert "team/own, mesh/root;" in fact


def test_without_sidecars_nothing_is_said_and_without_the_right_that_is() -> None:
    assert sidecars.facts(cluster({}), "", "mesh") == []
    forbidden = {"/apis/networking.istio.io/v1/sidecars": 403}
    (fact,) = sidecars.facts(cluster(forbidden), "", "mesh")
    assert "not known" in fact


def test_all_but_the_last_column_are_cut_to_a_width_that_can_be_read() -> None:
    wide = "w" * 500
    (_, row) = columns(["A", "B"], [[wide, wide]]).splitlines()
    assert row == f"{'w' * (WIDEST - 1)}…   {wide}"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(["A", "B"], [["long", ""], ["x", "y"]]) == "A      B\nlong   -\nx      y"
