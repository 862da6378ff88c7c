"""A cluster with a real node and a mesh, and how a person would look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lightkube import Client
from lightkube.resources.core_v1 import Service

from tests.node.programs import PORT, serving
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.node import Node
from tests.testbed.process import answers, wait_until

MODEL = "egress"  # the charm's
STORY = "story"  # a property of a test: a line for the end of the run
RecordProperty = Callable[[str, object], None]  # what pytest's fixture record_property is


@dataclass(frozen=True)
class Site:
    """The cluster, its administrator's client, and its node."""

    plane: ControlPlane
    client: Client
    node: Node

    def deploy(self, namespace: str, name: str, pod: Manifest) -> None:
        """Make a Deployment of one Pod with this spec."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }
        self.plane.apply([deployment])

    def shown(self, namespace: str) -> dict[str, str]:
        """The Pods of a namespace, and what `kubectl get pods` says is their STATUS."""
        lines = self.plane.kubectl("get", "pods", f"--namespace={namespace}", "--no-headers")
        rows = [line.split() for line in lines.splitlines()]
        return {row[0]: row[2] for row in rows}

    def wait_shown(self, namespace: str, *statuses: str) -> str:
        """The name of a Pod of a namespace, once kubectl shows it with one of these statuses."""

        def found() -> str | None:
            shown = self.shown(namespace).items()
            return next((name for name, status in shown if status in statuses), None)

        try:
            return wait_until(found, f"a Pod is {' or '.join(statuses)}", deadline=120)
        except TimeoutError as error:
            seen = self.plane.kubectl("describe", "pods", f"--namespace={namespace}")
            raise TimeoutError(f"{error}\n{seen}") from None

    def logs(self, namespace: str, pod: str, container: str) -> str:
        """What a container has written."""
        return self.plane.kubectl("logs", f"--namespace={namespace}", pod, f"-c={container}")

    def serve(self, namespace: str, name: str) -> str:
        """Make a Deployment that answers every request, and a Service; returns its URL."""
        self.deploy(namespace, name, {"containers": [serving(name)]})
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}]},
        }
        self.plane.apply([service])
        found = self.client.get(Service, name, namespace=namespace).to_dict()
        url = f"http://{found['spec']['clusterIP']}"
        wait_until(lambda: answers(url), f"{name} answers at its Service's address")
        return url


def is_ready(pod: Manifest) -> bool:
    """Whether a Pod answers, by its own account."""
    conditions = pod["status"].get("conditions") or []
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)
