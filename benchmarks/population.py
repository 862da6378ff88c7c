"""A cluster full of Pods, fast: owners and Pods as their controllers and istiod would leave them.

Each Pod is written as istiod injects it (`injected.yaml`, recorded from the istiod of
`modules/istio`), for ten thousand Pods don't go through a webhook in a minute. They belong to
ReplicaSets of Deployments, which are written too, so a controller manager that is started
afterwards finds nothing to do. One that runs already would make Pods of its own meanwhile.

With KWOK the Pods start at once, each as its shape and `stages/pod.yaml` say.
"""

import copy
import functools
import itertools
import json
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import monotonic

import httpx2
from lightkube import Client
from lightkube.resources.core_v1 import Pod

from tests.testbed.control_plane import ADMIN, ControlPlane, Manifest, load_manifests
from tests.testbed.process import Process, wait_until

MESH = {"istio-injection": "enabled"}
EXCLUDE_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
_TEMPLATE = Path(__file__).with_name("injected.yaml")
_HASH = "7d9c5b8f64"  # a Deployment's controller names it, and goes by the template
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Shape(Enum):
    """What a Pod is like."""

    CUT_OFF = "an init container without network: stuck"
    EXCLUDED = "the same with the annotation: runs"
    PLAIN = "no init container but Istio's: runs"
    OUTSIDE = "not injected: runs"


@dataclass(frozen=True)
class Population:
    """How many Pods, in how many namespaces of a mesh, and of which shapes, in turn.

    A Deployment's Pods are of one shape; the last Deployment may have fewer.
    """

    pods: int
    namespaces: int = 200
    replicas: int = 5
    shapes: Sequence[Shape] = (Shape.CUT_OFF,)
    prefix: str = "team"

    @property
    def names(self) -> list[str]:
        """The namespaces' names."""
        return [f"{self.prefix}-{number}" for number in range(self.namespaces)]

    def owners(self) -> Iterator["Owner"]:
        """The Deployments, one after the other in each namespace and of each shape."""
        for number, first in enumerate(range(0, self.pods, self.replicas)):
            replicas = min(self.replicas, self.pods - first)
            namespace = self.names[number % self.namespaces]
            # Shifted with each round, so that every namespace gets all shapes.
            shape = self.shapes[(number + number // self.namespaces) % len(self.shapes)]
            yield Owner(number, namespace, replicas, shape)

    def count(self, shape: Shape) -> int:
        """How many Pods there are of a shape."""
        found: Counter[Shape] = Counter()
        for owner in self.owners():
            found[owner.shape] += owner.replicas
        return found[shape]


@dataclass(frozen=True)
class Owner:
    """A Deployment with its ReplicaSet and its Pods."""

    number: int
    namespace: str
    replicas: int
    shape: Shape

    @property
    def name(self) -> str:
        """The Deployment's name."""
        return f"app-{self.number}"

    def deployment(self, node: str) -> Manifest:
        """The Deployment."""
        return self._workload("Deployment", self.name, {"app": self.name}, {}, node)

    def replica_set(self, node: str, deployment_uid: str) -> Manifest:
        """The ReplicaSet that its controller makes."""
        annotations = {"deployment.kubernetes.io/revision": "1"}
        made = self._workload(
            "ReplicaSet", f"{self.name}-{_HASH}", self._labels, annotations, node
        )
        made["metadata"]["ownerReferences"] = [_owned_by("Deployment", self.name, deployment_uid)]
        return made

    def pods(self, node: str, replica_set_uid: str) -> Iterator[Manifest]:
        """The Pods, as they are sent to be stored."""
        name = f"{self.name}-{_HASH}"
        for number in range(self.replicas):
            pod = self._pod(node)
            pod["apiVersion"], pod["kind"] = "v1", "Pod"
            pod["metadata"]["name"] = f"{name}-{number:05}"
            pod["metadata"]["ownerReferences"] = [_owned_by("ReplicaSet", name, replica_set_uid)]
            yield pod

    @property
    def _labels(self) -> dict[str, str]:
        return {"app": self.name, "pod-template-hash": _HASH}

    def _workload(
        self,
        kind: str,
        name: str,
        labels: dict[str, str],
        annotations: dict[str, str],
        node: str,
    ) -> Manifest:
        template = {
            "metadata": {
                "labels": {**labels, **self._inject},
                "annotations": self._annotations,
            },
            "spec": {**_authored(self._has_init_containers), "nodeName": node},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }

    def _pod(self, node: str) -> Manifest:
        pod = author() if self.shape is Shape.OUTSIDE else recorded()
        metadata, spec = pod["metadata"], pod["spec"]
        metadata["labels"] |= {**self._labels, **self._inject}
        metadata.setdefault("annotations", {}).update(self._annotations)
        spec["nodeName"] = node
        if not self._has_init_containers:
            spec["initContainers"] = [x for x in spec["initContainers"] if x["name"] != "fetch"]
        return pod

    @property
    def _has_init_containers(self) -> bool:
        return self.shape is not Shape.PLAIN

    @property
    def _inject(self) -> dict[str, str]:
        return {"sidecar.istio.io/inject": "false"} if self.shape is Shape.OUTSIDE else {}

    @property
    def _annotations(self) -> dict[str, str]:
        return {EXCLUDE_RANGES: "0.0.0.0/0,::/0"} if self.shape is Shape.EXCLUDED else {}


def author() -> Manifest:
    """A Pod as its author writes it."""
    return {"metadata": {"labels": {"app": "model"}}, "spec": _authored(True)}


def recorded() -> Manifest:
    """The same Pod as istiod injected it."""
    return copy.deepcopy(_recorded())


@functools.cache
def _recorded() -> Manifest:
    return load_manifests(_TEMPLATE.read_text())[0]


def populate(
    plane: ControlPlane,
    population: Population,
    nodes: Sequence[str],
    *,
    connections: int = 8,
    tell: Callable[[str], None] = lambda _: None,
) -> float:
    """Write the namespaces, and in them the owners and their Pods; returns the seconds it took.

    The namespaces are labelled for injection last, so that an istiod that runs already is not
    asked about any of the Pods.
    """
    began = monotonic()
    owners, names = list(population.owners()), population.names
    count = itertools.count(1)

    def work(worker: int) -> None:
        with http_client(plane) as http:
            for owner in owners[worker::connections]:
                _create_owned(http, owner, nodes)
                if (done := next(count)) % max(1, len(owners) // 10) == 0:
                    tell(f"{done} of {len(owners)} Deployments, {monotonic() - began:.0f} s")

    def prepare(worker: int) -> None:
        with http_client(plane) as http:
            for name in names[worker::connections]:
                _create(http, "/api/v1/namespaces", {"metadata": {"name": name}})
                accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
                _create(http, accounts, {"metadata": {"name": "default"}})

    def label(worker: int) -> None:
        with http_client(plane) as http:
            for name in names[worker::connections]:
                http.patch(
                    f"/api/v1/namespaces/{name}",
                    content=json.dumps({"metadata": {"labels": MESH}}),
                    headers={"Content-Type": "application/merge-patch+json"},
                ).raise_for_status()

    with ThreadPoolExecutor(connections) as pool:
        for step in (prepare, work, label):
            list(pool.map(step, range(connections)))  # list: raises what was raised
    return monotonic() - began


def wait_until_started(
    client: Client, processes: Sequence[Process] = (), deadline: float = 600
) -> None:
    """Wait until every Pod of the cluster that has a node has started there, be it to fail."""
    wait_until(
        lambda: not _some_wait(client),
        "all Pods have started",
        deadline=deadline,
        processes=processes,
    )


def _some_wait(client: Client) -> bool:
    found = client.list(Pod, namespace="*", fields={"status.podIP": ""}, chunk_size=1)
    return next(iter(found), None) is not None


def _create_owned(http: httpx2.Client, owner: Owner, nodes: Sequence[str]) -> None:
    node = nodes[owner.number % len(nodes)]
    workloads = f"/apis/apps/v1/namespaces/{owner.namespace}"
    deployment = _create(http, f"{workloads}/deployments", owner.deployment(node))
    replica_set = owner.replica_set(node, deployment)
    uid = _create(http, f"{workloads}/replicasets", replica_set)
    for pod in owner.pods(node, uid):
        _create(http, f"/api/v1/namespaces/{owner.namespace}/pods", pod)


def _create(http: httpx2.Client, path: str, body: Manifest) -> str:
    """Create an object that may be there already; returns its uid, if it was not."""
    answer = http.post(path, content=json.dumps(body), headers={"Accept": _METADATA})
    if answer.status_code == httpx2.codes.CONFLICT:
        return ""
    answer.raise_for_status()
    return answer.json()["metadata"]["uid"]


def http_client(plane: ControlPlane) -> httpx2.Client:
    """A client without models in between: they would take longer than the API server does."""
    return httpx2.Client(
        base_url=plane.url,
        verify=ssl.create_default_context(cafile=plane.certificate),
        headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"},
        timeout=60,
        trust_env=False,
    )


def _owned_by(kind: str, name: str, uid: str) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _authored(with_init_container: bool) -> Manifest:
    """What the author of a model's server writes, with the size of such Pods."""
    mounts = [{"name": "models", "mountPath": "/mnt/models"}]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    variables = [{"name": f"SETTING_{number}", "value": "of usual length"} for number in range(12)]
    resources = {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }
    fetch = {
        "name": "fetch",
        "image": "example.com/fetch:1",
        "args": ["s3://models/iris", "/mnt/models"],
        "env": [{"name": "S3_ENDPOINT", "value": "https://minio.example.com"}],
        "volumeMounts": mounts,
        "resources": resources,
    }
    return {
        "initContainers": [fetch] if with_init_container else [],
        "containers": [
            {
                "name": "app",
                "image": "example.com/app:1",
                "args": ["--model-name=iris", "--model-dir=/mnt/models"],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": variables,
                "volumeMounts": mounts,
                "resources": resources,
                "readinessProbe": probe,
            }
        ],
        "volumes": [{"name": "models", "emptyDir": {}}],
    }
