"""KWOK's nodes: which Pods get stuck there, and a cluster full of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from lightkube import Client
from lightkube.resources.apps_v1 import Deployment, ReplicaSet
from lightkube.resources.core_v1 import Pod

from benchmarks.population import (
    Population,
    Shape,
    author,
    populate,
    recorded,
    wait_until_started,
)
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.testbed.control_plane import ControlPlane, Manifest, control_plane, controller_manager
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.kwok import Kwok
from tests.testbed.kwok import kwok as run_kwok
from tests.testbed.network import Network
from tests.testbed.process import wait_until

IN_MESH = {"istio-injection": "enabled"}
EXCLUDED = {EXCLUDE_RANGES: "0.0.0.0/0,::/0"}
FETCH: Manifest = {"name": "fetch", "image": "example.com/fetch:1"}
APP: Manifest = {"name": "app", "image": "example.com/app:1"}
WORKLOADS = ("Deployment", "StatefulSet", "Job", "Pod")


@pytest.fixture
def mesh_namespace(kwok: Kwok, istiod: Istiod, namespace: MakeNamespace) -> str:
    """A namespace of the mesh, whose Pods can be on KWOK's nodes."""
    return namespace(IN_MESH)


def workload(
    kind: str, node: str, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Manifest:
    """A workload of one Pod, which has an init container and is on a node."""
    metadata: Manifest = {"labels": {"app": "model"}, "annotations": dict(annotations or {})}
    restarts = {"restartPolicy": "OnFailure"} if kind == "Job" else {}
    pod = {"initContainers": [FETCH], "containers": [APP], "nodeName": node, **restarts, **spec}
    if kind == "Pod":
        metadata["name"] = "model"
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pod}
    chosen = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "model"}}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "model"},
        "spec": {**chosen, "template": {"metadata": metadata, "spec": pod}},
    }


def the_pod(client: Client, namespace: str) -> Manifest | None:
    """The only Pod of a namespace, once it has started."""
    pods = [pod.to_dict() for pod in client.list(Pod, namespace=namespace)]
    return next((pod for pod in pods if len(pods) == 1 and pod["status"].get("startTime")), None)


def started(client: Client, namespace: str) -> Manifest:
    """The only Pod of a namespace, which has started."""
    return wait_until(lambda: the_pod(client, namespace), "a Pod has started")


def conditions(pod: Manifest) -> dict[str, str]:
    """The conditions of a Pod."""
    return {item["type"]: item["status"] for item in pod["status"]["conditions"]}


class TestStages:
    @pytest.mark.parametrize("kind", WORKLOADS)
    def test_a_pod_without_the_annotation_is_stuck(
        self, cluster: ControlPlane, client: Client, kwok: Kwok, mesh_namespace: str, kind: str
    ) -> None:
        cluster.apply([in_namespace(workload(kind, kwok.node), mesh_namespace)])
        pod = started(client, mesh_namespace)
        printed = cluster.kubectl("get", "pods", "-n", mesh_namespace, "--no-headers")
        assert printed.split()[2] == "Init:CrashLoopBackOff"
        validation, fetch = pod["status"]["initContainerStatuses"]
        assert validation["state"]["terminated"]["exitCode"] == 0
        assert (fetch["name"], fetch["restartCount"] > 0) == ("fetch", True)
        assert fetch["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert fetch["lastState"]["terminated"]["reason"] == "Error"
        assert pod["status"]["phase"] == "Pending"
        assert conditions(pod)["Initialized"] == "False"

    @pytest.mark.parametrize(
        ("annotations", "spec"),
        [
            pytest.param(EXCLUDED, {}, id="excluded"),
            pytest.param(
                {},
                {"initContainers": [{**FETCH, "securityContext": {"runAsGroup": 1337}}]},
                id="as-the-proxys-group",
            ),
            pytest.param({}, {"securityContext": {"runAsUser": 1337}}, id="as-the-proxys-user"),
            pytest.param({"sidecar.istio.io/nativeSidecar": "true"}, {}, id="native-sidecar"),
            pytest.param({"sidecar.istio.io/inject": "false"}, {}, id="not-injected"),
            pytest.param({}, {"initContainers": []}, id="no-init-containers"),
        ],
    )
    def test_a_pod_that_has_network_runs(
        self,
        cluster: ControlPlane,
        client: Client,
        kwok: Kwok,
        mesh_namespace: str,
        annotations: dict[str, str],
        spec: Manifest,
    ) -> None:
        pod = workload("Pod", kwok.node, annotations, **spec)
        cluster.apply([in_namespace(pod, mesh_namespace)])
        found = started(client, mesh_namespace)
        assert found["status"]["phase"] == "Running"
        assert set(conditions(found).values()) == {"True"}
        assert all(status["ready"] for status in found["status"]["containerStatuses"])

    def test_a_stuck_pod_stays_stuck_when_it_is_annotated(
        self, cluster: ControlPlane, client: Client, kwok: Kwok, mesh_namespace: str
    ) -> None:
        cluster.apply([in_namespace(workload("Pod", kwok.node), mesh_namespace)])
        started(client, mesh_namespace)
        change = {"metadata": {"annotations": EXCLUDED}}
        client.patch(Pod, "model", change, namespace=mesh_namespace)
        later = workload("Pod", kwok.node, EXCLUDED)
        later["metadata"]["name"] = "later"
        cluster.apply([in_namespace(later, mesh_namespace)])
        wait_until(lambda: phase(client, "later", mesh_namespace) == "Running", "the other runs")
        assert phase(client, "model", mesh_namespace) == "Pending"


@pytest.mark.nightly
class TestPopulation:
    def test_its_pods_are_as_istiod_injects_them(
        self, cluster: ControlPlane, client: Client, mesh_namespace: str
    ) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", **author()}
        pod["metadata"] |= {"name": "model", "namespace": mesh_namespace}
        cluster.apply([pod])
        real = client.get(Pod, "model", namespace=mesh_namespace).to_dict()
        written = recorded()
        assert containers(written) == containers(real)
        assert written["metadata"]["annotations"].keys() == real["metadata"]["annotations"].keys()
        assert 6_000 < len(json.dumps(real, separators=(",", ":"))) < 12_000

    @pytest.mark.usefixtures("kwok")  # has it built
    def test_the_controllers_take_it_for_their_own(self, network: Network) -> None:
        population = Population(pods=22, namespaces=3, shapes=tuple(Shape))
        with control_plane(network) as plane, run_kwok(plane) as kwok, plane.client() as client:
            populate(plane, population, kwok.nodes)
            wait_until_started(client, [kwok.process])
            made = pods_by_namespace(client)
            stuck = [name for name, phase in made.items() if phase == "Pending"]
            assert len(made) == 22
            assert len(stuck) == population.count(Shape.CUT_OFF)
            with controller_manager(plane):
                wait_until(lambda: observed(client), "the controllers have seen all of it")
                assert pods_by_namespace(client) == made
                namespace, name = stuck[0]
                client.delete(Pod, name, namespace=namespace)
                wait_until(
                    lambda: len(pods_by_namespace(client).keys() - made.keys()) == 1,
                    "another Pod takes its place",
                )


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    """The same object in a namespace."""
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def phase(client: Client, name: str, namespace: str) -> str:
    """The phase of a Pod."""
    status = client.get(Pod, name, namespace=namespace).status
    return (status and status.phase) or ""


def containers(pod: Manifest) -> dict[str, list[str]]:
    """The names of a Pod's containers, and of Istio's variables in each."""
    spec = pod["spec"]
    return {
        container["name"]: sorted(variable["name"] for variable in container.get("env", []))
        for container in [*spec["initContainers"], *spec["containers"]]
    }


def pods_by_namespace(client: Client) -> dict[tuple[str, str], str]:
    """The phase of each Pod, by its namespace and name."""
    pods = [pod.to_dict() for pod in client.list(Pod, namespace="*")]
    return {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["status"]["phase"]
        for pod in pods
    }


def observed(client: Client) -> bool:
    """Whether each Deployment's controller has counted its Pods, by way of one ReplicaSet."""
    found = [item.to_dict() for item in client.list(Deployment, namespace="*")]
    sets = list(client.list(ReplicaSet, namespace="*"))
    return len(sets) == len(found) and all(
        item.get("status", {}).get("updatedReplicas") == item["spec"]["replicas"] for item in found
    )
