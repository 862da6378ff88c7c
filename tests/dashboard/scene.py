"""A cluster with something to see: the charm with its webhook, scraped while Pods are created."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml
from cosl import JujuTopology
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Pod
from ops import testing

from charm import IstioInitEgressCharm
from init_egress.kube.client import POD
from init_egress.observability import scraping
from tests.functional.unit import APPLICATION, Unit
from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, Manifest, control_plane, controller_manager
from tests.testbed.istio import istiod
from tests.testbed.network import enter_private_network
from tests.testbed.process import Process, answers, wait_until
from tests.testbed.workloads import Workloads

MODULES = (build.ETCD, build.KUBERNETES, build.ISTIO, build.PROMETHEUS)
TEAM = "team-a"
IMAGE = "example.com/istio-init-egress-webhook:1"
METRICS = testing.Relation("metrics-endpoint", interface="prometheus_scrape")
SCRAPE_SECONDS = 1
_PORT = 19090


def _pod(name: str, *init: str, **annotations: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "annotations": annotations},
        "spec": {
            "initContainers": [{"name": i, "image": "example.com/i:1"} for i in init],
            "containers": [{"name": "app", "image": "example.com/app:1"}],
        },
    }


# What teams create: many that need the remedy, and some of the others.
PODS = (
    _pod("orders", "wait-for-db"),
    _pod("model", "storage-initializer"),
    _pod("model", "storage-initializer"),
    _pod("web"),
    _pod("minio", "volume-permissions"),
    _pod("own", "fetch", **{"traffic.sidecar.istio.io/excludeOutboundIPRanges": "0.0.0.0/0,::/0"}),
    _pod("native", "fetch", **{"sidecar.istio.io/nativeSidecar": "true"}),
)


@dataclass
class Scene:
    """What runs."""

    plane: ControlPlane
    client: Client
    unit: Unit
    node: Workloads
    prometheus: str

    def ask(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        """Ask Prometheus; gives the series of the answer."""
        with httpx2.Client(trust_env=False) as web:
            answer = web.get(f"{self.prometheus}/api/v1/{path}", params=parameters)
            return answer.raise_for_status().json()["data"]["result"]

    @contextlib.contextmanager
    def creating_pods(self) -> Iterator[None]:
        """Have teams create Pods, in waves, so that there is something to see."""
        over = threading.Event()

        def create() -> None:
            with self.plane.client() as client:
                for number in itertools.count():
                    if over.wait(0.02 if number // 100 % 2 else 0.2):
                        return
                    pod = POD.from_dict(PODS[number % len(PODS)])
                    with contextlib.suppress(ApiError):
                        client.create(pod, namespace=TEAM)

        thread = threading.Thread(target=create)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Run it all; what has to be built is built before."""
    prometheus = build.product(build.PROMETHEUS, "prometheus")
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(control_plane(enter_private_network()))
        os.environ["KUBECONFIG"] = str(plane.kubeconfig())
        stack.enter_context(controller_manager(plane))
        stack.enter_context(istiod(plane))
        node = stack.enter_context(Workloads(plane, {IMAGE: ["python3"]}))
        client = stack.enter_context(plane.client())
        plane.create_namespace(TEAM, {"istio-injection": "enabled"})
        unit = _unit(plane.folder)
        scraping.AUDIT_PERIOD = 0.0  # or the picture would have to wait for it
        _stick(client)
        status = unit.configured(backend="webhook")
        if status.name != "active":
            raise RuntimeError(f"the charm is {status.name}: {status.message}")
        wait_until(lambda: len(_addresses(node)) == 3, "replicas and exporter have addresses")
        config = plane.folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(_config(unit, _addresses(node))))
        command = [
            prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={plane.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{_PORT}",
        ]
        process = stack.enter_context(Process("prometheus", command, plane.folder))
        url = f"http://127.0.0.1:{_PORT}"
        wait_until(lambda: answers(f"{url}/-/ready"), "Prometheus is ready", processes=[process])
        running = Scene(plane, client, unit, node, url)
        wait_until(
            lambda: len(running.ask("query", query="up == 1")) == 4,
            "all targets are scraped",
            processes=[process],
        )
        yield running


def _unit(folder: Path) -> Unit:
    """The charm's leader, with the image and the relation."""
    path = folder / "image.yaml"
    path.write_text(yaml.safe_dump({"registrypath": IMAGE, "username": "", "password": ""}))
    unit = Unit(testing.Context(IstioInitEgressCharm, app_name=APPLICATION))
    image = testing.Resource(name="webhook-image", path=path)
    return unit.having(resources={image}, relations={*unit.state.relations, METRICS})


def _config(unit: Unit, addresses: Mapping[str, str]) -> dict[str, Any]:
    """What the requirer makes of the relation's data (see observability.scrape_jobs).

    There is no cluster DNS here, so a Service is reached at a Pod behind it.
    """
    data = unit.state.get_relation(METRICS.id).local_app_data
    topology = JujuTopology.from_dict(json.loads(data["scrape_metadata"]))
    jobs: list[dict[str, Any]] = json.loads(data["scrape_jobs"])
    for job in jobs:
        for static in job["static_configs"]:
            static["labels"] |= topology.label_matcher_dict
            static["targets"] = [_reached(target, addresses) for target in static["targets"]]
        job["relabel_configs"] = [
            {
                "source_labels": ["juju_model", "juju_model_uuid", "juju_application"],
                "separator": "_",
                "target_label": "instance",
            }
        ]
    seconds = f"{SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": seconds, "scrape_timeout": seconds},
        "scrape_configs": jobs,
    }


def _reached(target: str, addresses: Mapping[str, str]) -> str:
    host, _, port = target.rpartition(":")
    service = host.split(".")[0]
    behind = [address for pod, address in addresses.items() if pod.startswith(f"{service}-")]
    return f"{behind[0]}:{port}" if behind else target


def _addresses(node: Workloads) -> dict[str, str]:
    return {
        str(pod.metadata.name): pod.status.podIP
        for pod in node.pods()
        if pod.metadata and pod.status and pod.status.podIP
    }


def _stick(client: Client) -> None:
    """Leave a Pod as one is stored that was created before the charm was."""
    stuck = _pod("stuck", "fetch", **{"sidecar.istio.io/status": "{}"})
    stuck["metadata"]["name"] = "stuck"
    stuck["metadata"]["labels"] = {"sidecar.istio.io/inject": "false"}
    stuck["spec"]["containers"].append(
        {"name": "istio-proxy", "image": "example.com/p:1", "args": ["proxy", "sidecar"]}
    )
    client.create(POD.from_dict(stuck), namespace="default")
    fetch = {
        **{"name": "fetch", "image": "i", "imageID": "", "ready": False, "restartCount": 3},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    status = {"phase": "Pending", "initContainerStatuses": [fetch]}
    client.patch(Pod.Status, "stuck", {"status": status}, namespace="default")
