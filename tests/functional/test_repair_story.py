"""The operator's story on KWOK's nodes: stuck, then the charm comes, then the action.

What a Pod's status says is KWOK's doing, by what is stored of the Pod (`testbed/stages/pod.yaml`):
nobody here tells a Pod that it is stuck, or that it runs.
"""

from __future__ import annotations

import json

import pytest
from lightkube import Client

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.functional.load import A_POD
from tests.functional.unit import Unit
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.kwok import Kwok
from tests.testbed.process import wait_until

IN_THE_MESH = {"istio-injection": "enabled", "suite": "repair-story"}
STUCK = "Init:CrashLoopBackOff"
OWNERS = ("Deployment", "StatefulSet", "Job")


def workload(kind: str, node: str, namespace: str) -> Manifest:
    """A workload of one Pod, named like its kind."""
    name, labels = kind.lower(), {"app": kind.lower()}
    spec: Manifest = {**A_POD["spec"], "nodeName": node}
    metadata: Manifest = {"name": name, "namespace": namespace}
    if kind == "Pod":
        return {**A_POD, "metadata": {**metadata, "labels": labels}, "spec": spec}
    template = {"metadata": {"labels": labels}, "spec": spec}
    if kind == "Job":
        spec["restartPolicy"] = "OnFailure"
        return {
            "apiVersion": "batch/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": {"template": template},
        }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def shown(cluster: ControlPlane, namespace: str) -> dict[str, str]:
    """What `kubectl get pods` says of each workload's Pod, by the workload's name."""
    printed = cluster.kubectl("get", "pods", "-n", namespace, "--no-headers")
    rows = [line.split() for line in printed.splitlines()]
    return {row[0].partition("-")[0]: row[2] for row in rows if row[2] != "Terminating"}


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod) -> str:
    """A namespace of the mesh."""
    return namespace(IN_THE_MESH)


def test_what_was_stuck_runs_after_the_action_and_the_bare_pod_is_reported(
    unit: Unit, cluster: ControlPlane, client: Client, kwok: Kwok, team: str
) -> None:
    names = [kind.lower() for kind in (*OWNERS, "Pod")]
    cluster.apply([workload(kind, kwok.node, team) for kind in (*OWNERS, "Pod")])
    wait_until(
        lambda: shown(cluster, team) == dict.fromkeys(names, STUCK), "all are stuck", deadline=120
    )
    before = shown(cluster, team)

    unit.configured(backend="native", namespace_selector="suite=repair-story")
    results = unit.act("mutate-existing-pods", namespace=team)

    expected = {"deployment": "Running", "statefulset": "Running", "job": "Completed"}
    wait_until(
        lambda: shown(cluster, team) == {**expected, "pod": STUCK}, "three run", deadline=120
    )
    after = shown(cluster, team)
    for name in names:
        print(f"{name}: {before[name]} -> {after[name]}")
    assert (results["evicted"], results["failed"]) == ("3", "0")
    accounts = {item["pod"]: item for item in json.loads(results["document"])["pods"]}
    assert "no controller" in json.dumps(accounts[f"{team}/pod"])
    for pod in client.list(POD, namespace=team):
        assert pod.metadata
        assert (pod.metadata.annotations or {})[EXCLUDE_RANGES] == "0.0.0.0/0,::/0"

    again = unit.act("mutate-existing-pods", namespace=team)
    assert [again[key] for key in ("evicted", "restarted", "patched")] == ["0", "0", "0"]
