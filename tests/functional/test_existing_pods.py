"""The action `mutate-existing-pods` on a real API server with real controllers and istiod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lightkube import Client
from ops import testing

from init_egress.existing.controllers import RESTARTED_AT
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import OverBudget, Refused
from init_egress.kube.kinds import DEPLOYMENT, POD, Resource
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.functional.load import A_POD
from tests.functional.stuck import get_stuck
from tests.functional.unit import Unit
from tests.testbed.control_plane import STRANGER, ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.process import wait_until

IN_THE_MESH = {"istio-injection": "enabled", "suite": "existing-pods"}
HERE = "suite=existing-pods"
CONTAINER: str = A_POD["spec"]["initContainers"][0]["name"]
RANGES = "0.0.0.0/0,::/0"
# Without a kubelet no Pod becomes ready, so a rolling update would wait for ever.
AT_ONCE = {"type": "Recreate"}


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod) -> str:
    """A namespace of the mesh."""
    return namespace(IN_THE_MESH)


@pytest.fixture
def idle(unit: Unit) -> Unit:
    """The charm, which has not acted yet."""
    return unit.having(config={"namespace-selector": HERE, "backend": "native"})


def workload(kind: str, name: str, namespace: str, **spec: Any) -> Manifest:
    """An owner of Pods that need the remedy."""
    labels = {"app": name}
    template: Manifest = {"metadata": {"labels": labels}, "spec": {**A_POD["spec"]}}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec = {"selector": {"matchLabels": labels}, "replicas": 1, **spec}
    if kind == "StatefulSet":
        spec = {"serviceName": name, **spec}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": template, **spec},
    }


def bare(name: str) -> Any:
    return POD.from_dict({**A_POD, "metadata": {"name": name}})


def pods(client: Client, namespace: str) -> dict[str, Manifest]:
    """The Pods that aren't being deleted, by name."""
    listed = [pod.to_dict() for pod in client.list(POD, namespace=namespace)]
    return {
        pod["metadata"]["name"]: pod
        for pod in listed
        if not pod["metadata"].get("deletionTimestamp")
    }


def versions(client: Client, namespace: str) -> dict[str, str]:
    """The version of each Pod, which changes with every write."""
    found = pods(client, namespace)
    return {name: pod["metadata"]["resourceVersion"] for name, pod in found.items()}


def annotated(pod: Manifest) -> bool:
    return pod["metadata"]["annotations"].get(EXCLUDE_RANGES) == RANGES


def wait_for(client: Client, namespace: str, count: int) -> dict[str, Manifest]:
    """The Pods, once there are so many of them."""

    def enough() -> dict[str, Manifest] | None:
        found = pods(client, namespace)
        return found if len(found) == count else None

    return wait_until(enough, f"{count} Pods in {namespace}")


def all_stuck(client: Client, namespace: str, count: int) -> dict[str, Manifest]:
    """The Pods, once there are so many of them, all of them stuck."""
    for name in wait_for(client, namespace, count):
        get_stuck(client, namespace, name, CONTAINER)
    return pods(client, namespace)


def mutate(unit: Unit, **params: Any) -> tuple[dict[str, Any], dict[str, Manifest]]:
    """The results of a run, and the account of each Pod by its name."""
    results = unit.act("mutate-existing-pods", **params)
    accounts = json.loads(results["document"])["pods"]
    return results, {account["pod"].partition("/")[2]: account for account in accounts}


def test_what_was_stuck_before_the_charm_came_is_recreated_with_the_remedy(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply(
        [
            workload("Deployment", "web", team, replicas=2),
            workload("StatefulSet", "db", team),
            workload("Job", "load", team),
        ]
    )
    client.create(bare("alone"), namespace=team)
    before = all_stuck(client, team, 5)
    assert idle.run("install").name == "active"

    results, accounts = mutate(idle, namespace=team)

    counts = {key: results[key] for key in ("evicted", "patched", "left", "failed", "stuck-still")}
    assert counts == {
        "evicted": "4",
        "patched": "1",
        "left": "0",
        "failed": "0",
        "stuck-still": "1",
    }
    assert "kubectl replace --force" in accounts["alone"]["reason"]
    assert accounts["alone"]["stuck-in"] == f"{CONTAINER} (CrashLoopBackOff, 7 restarts)"
    assert accounts["db-0"]["owner"] == "StatefulSet/db"

    def recreated() -> dict[str, Manifest] | None:
        found = pods(client, team)
        uids = {pod["metadata"]["uid"] for pod in before.values()}
        new = [pod for pod in found.values() if pod["metadata"]["uid"] not in uids]
        return found if len(new) == 4 and len(found) == 5 else None

    after = wait_until(recreated, "four new Pods")
    assert all(annotated(pod) for pod in after.values())
    assert after["alone"]["metadata"]["uid"] == before["alone"]["metadata"]["uid"]

    stored = versions(client, team)
    results, accounts = mutate(idle, namespace=team)
    assert [results[key] for key in ("evicted", "restarted", "patched", "failed")] == ["0"] * 4
    assert list(accounts) == ["alone"]
    assert accounts["alone"]["result"] == "left"
    assert versions(client, team) == stored


def test_a_dry_run_has_the_same_plan_and_writes_nothing(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([workload("Deployment", "web", team), workload("StatefulSet", "db", team)])
    client.create(bare("alone"), namespace=team)
    wait_for(client, team, 3)
    get_stuck(client, team, "db-0", CONTAINER)
    idle.run("install")
    stored = versions(client, team)

    rehearsed, plan = mutate(idle, namespace=team, dry_run=True, restart="all")

    assert versions(client, team) == stored
    template = client.get(DEPLOYMENT, "web", namespace=team)["spec"]["template"]
    assert RESTARTED_AT not in (template["metadata"].get("annotations") or {})
    assert rehearsed["summary"].startswith("Dry run, nothing was changed")

    results, accounts = mutate(idle, namespace=team, restart="all")
    assert accounts == plan
    assert {account["result"] for account in accounts.values()} == {
        "evicted",
        "restarted",
        "patched",
    }
    counts = {key: value for key, value in rehearsed.items() if value.isdecimal()}
    assert {key: results[key] for key in counts} == counts


def test_an_owner_is_restarted_once_for_all_its_pods(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([workload("Deployment", "web", team, replicas=3, strategy=AT_ONCE)])
    before = wait_for(client, team, 3)
    idle.run("install")

    results, _ = mutate(idle, namespace=team, restart="all")

    assert (results["restarted"], results["owners-restarted"]) == ("3", "1")

    def rolled_out() -> bool:
        found = pods(client, team)
        new = not set(found) & set(before) and all(map(annotated, found.values()))
        return new and len(found) == 3

    wait_until(rolled_out, "the roll-out")
    again, _ = mutate(idle, namespace=team, restart="all")
    assert (again["restarted"], again["evicted"], again["patched"]) == ("0", "0", "0")


def test_a_paused_deployment_is_not_restarted_and_the_command_is_said(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([workload("Deployment", "web", team)])
    name = next(iter(wait_for(client, team, 1)))
    cluster.kubectl("rollout", "pause", "deployment/web", "-n", team)
    idle.run("install")

    _, accounts = mutate(idle, namespace=team, restart="all")

    assert accounts[name]["result"] == "patched"
    assert "can't restart paused deployment" in accounts[name]["reason"]
    assert f"kubectl rollout resume deployment/web -n {team}" in accounts[name]["reason"]


def test_a_job_that_an_eviction_would_end_is_left(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([workload("Job", "load", team, backoffLimit=0)])
    (name,) = all_stuck(client, team, 1)
    idle.run("install")

    _, accounts = mutate(idle, namespace=team)

    assert accounts[name]["result"] == "patched"
    assert "would exceed backoffLimit of Job/load" in accounts[name]["reason"]


def test_nothing_is_evicted_where_the_remedy_does_not_arrive(
    idle: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([workload("Deployment", "web", team)])
    (name,) = all_stuck(client, team, 1)

    results, accounts = mutate(idle, namespace=team)  # the charm has applied nothing yet

    assert results["evicted"] == "0"
    assert "does not get the remedy now" in accounts[name]["reason"]


def test_a_live_pod_is_patched_only_if_it_is_as_it_was_seen(
    client: Client, api_server: ControlPlane, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig()))
    client.create(bare("alone"), namespace=team)
    key = f"/metadata/annotations/{EXCLUDE_RANGES.replace('/', '~1')}"
    absent = {"op": "test", "path": key, "value": None}
    add = {"op": "add", "path": key, "value": "10.0.0.0/8"}
    bulk = ApiClient.connect()

    bulk.patch(Resource.of(POD), "alone", team, [absent, add])
    with pytest.raises(Refused) as raised:
        bulk.patch(Resource.of(POD), "alone", team, [absent, add])

    assert raised.value.code == 422


def test_a_disruption_budget_is_respected(
    client: Client,
    api_server: ControlPlane,
    cluster: ControlPlane,
    team: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig()))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": team},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    cluster.apply([budget, workload("Deployment", "web", team)])
    name, pod = next(iter(wait_for(client, team, 1).items()))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    client.patch(POD.Status, name, {"status": running}, namespace=team)
    meta = client.get(POD, name, namespace=team).metadata
    assert meta

    with pytest.raises(OverBudget, match="disruption budget"):
        ApiClient.connect().evict(team, name, str(meta.uid), str(meta.resourceVersion))

    assert pods(client, team)[name]["metadata"]["uid"] == pod["metadata"]["uid"]


def test_without_rights_the_command_that_helps_is_said(
    idle: Unit, api_server: ControlPlane, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(STRANGER)))

    with pytest.raises(testing.ActionFailed, match="juju trust istio-init-egress --scope=cluster"):
        idle.act("mutate-existing-pods", namespace=team)


def test_a_namespace_that_is_not_there_is_named(idle: Unit, istiod: Istiod) -> None:
    with pytest.raises(testing.ActionFailed, match="no-such-team"):
        idle.act("mutate-existing-pods", namespace="no-such-team")
