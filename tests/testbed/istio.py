"""istiod, configured as the istio-pilot charm configures it."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, Manifest, load_manifests
from tests.testbed.network import free_port
from tests.testbed.process import Process, answers, wait_until

NAMESPACE = "kubeflow"
WEBHOOK_CONFIGURATION = f"istio-sidecar-injector-{NAMESPACE}"
INJECTED = "sidecar.istio.io/status"
# What would run istiod on a node; here it is a process.
_WORKLOADS = ("Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "DaemonSet")
# They stay for the next istiod: to remove a CRD takes long, and changes nothing for a Pod.
_LASTING = ("CustomResourceDefinition", "Namespace")


@dataclass(frozen=True)
class Mesh:
    """How a mesh is configured; `values` are further settings for `istioctl --set`."""

    cni: bool = True
    native_sidecars: bool = False
    values: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """All that is set with istioctl."""
        return {
            "profile": "minimal",
            "values.global.istioNamespace": NAMESPACE,
            "components.cni.enabled": str(self.cni).lower(),
            **self.values,
        }


@dataclass(frozen=True)
class Istiod:
    """An istiod that injects Pods on a control plane."""

    mesh: Mesh
    process: Process


class Meshes:
    """The istiod of a control plane, of which there is one at a time."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._running = ExitStack()
        self._istiod: Istiod | None = None

    def use(self, mesh: Mesh) -> Istiod:
        """Run an istiod that is configured so, in place of one that is configured otherwise."""
        if self._istiod is None or self._istiod.mesh != mesh:
            self.stop()
            self._istiod = self._running.enter_context(istiod(self._plane, mesh))
        return self._istiod

    def stop(self) -> None:
        """Leave the control plane without a mesh."""
        self._istiod = None
        self._running.close()


@contextmanager
def istiod(plane: ControlPlane, mesh: Mesh | None = None) -> Iterator[Istiod]:
    """Run istiod, which injects Pods when this returns; afterwards its configuration is gone."""
    mesh = mesh or Mesh()
    ports = _Ports()
    manifests = [item for item in _manifests(mesh) if item["kind"] not in _WORKLOADS]
    if plane.network.address is None:
        manifests = [_reached_by_url(item, ports.https) for item in manifests]
    manifests += plane.endpoints("istiod", NAMESPACE, {"https-webhook": ports.https})
    command, environment = _command(plane, ports), _environment(mesh, ports)
    plane.create_namespace(NAMESPACE)
    plane.apply(manifests)
    with Process("istiod", command, plane.folder, environment=environment) as process:
        url = f"http://127.0.0.1:{ports.http}/ready"
        try:
            wait_until(lambda: answers(url), "istiod is ready", processes=[process])
            wait_until(lambda: _injects(plane), "istiod injects a Pod", processes=[process])
            yield Istiod(mesh, process)
        finally:
            # While it still answers, so that meanwhile no Pod is refused for want of an answer.
            plane.delete(item for item in manifests if item["kind"] not in _LASTING)
            wait_until(lambda: not _injects(plane), "the API server has forgotten istiod")


@dataclass(frozen=True)
class _Ports:
    http: int = field(default_factory=free_port)
    https: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)
    secure_grpc: int = field(default_factory=free_port)
    monitoring: int = field(default_factory=free_port)


def _manifests(mesh: Mesh) -> list[Manifest]:
    command: list[str] = [str(build.product(build.ISTIO, "istioctl")), "manifest", "generate"]
    for key, value in mesh.settings().items():
        command += ["--set", f"{key}={value}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return load_manifests(text)


def _reached_by_url(item: Manifest, port: int) -> Manifest:
    """Let a webhook configuration name the process itself where no Service can be routed to it."""
    if not item["kind"].endswith("WebhookConfiguration"):
        return item
    webhooks: Sequence[Manifest] = item["webhooks"]
    return {
        **item,
        "webhooks": [
            {
                **webhook,
                "clientConfig": {
                    "url": f"https://localhost:{port}{webhook['clientConfig']['service']['path']}"
                },
            }
            for webhook in webhooks
        ],
    }


def _command(plane: ControlPlane, ports: _Ports) -> list[str]:
    return [
        str(build.product(build.ISTIO, "pilot-discovery")),
        "discovery",
        f"--kubeconfig={plane.kubeconfig()}",
        f"--namespace={NAMESPACE}",
        f"--httpAddr=:{ports.http}",
        f"--httpsAddr=:{ports.https}",
        f"--grpcAddr=:{ports.grpc}",
        f"--secureGRPCAddr=:{ports.secure_grpc}",
        f"--monitoringAddr=:{ports.monitoring}",
        "--ctrlz_port=0",
        "--domain=cluster.local",
        "--shutdownDuration=0s",
    ]


def _environment(mesh: Mesh, ports: _Ports) -> dict[str, str]:
    return {
        "POD_NAMESPACE": NAMESPACE,
        "POD_NAME": "istiod-0",
        "REVISION": "default",
        "CLUSTER_ID": "Kubernetes",
        "PILOT_CERT_PROVIDER": "istiod",
        "ISTIOD_ADDR": f"localhost:{ports.secure_grpc}",
        "ISTIOD_CUSTOM_HOST": "localhost",
        "INJECTION_WEBHOOK_CONFIG_NAME": WEBHOOK_CONFIGURATION,
        "ENABLE_NATIVE_SIDECARS": str(mesh.native_sidecars).lower(),
    }


def _injects(plane: ControlPlane) -> bool:
    metadata = plane.try_pod(NAMESPACE, {"sidecar.istio.io/inject": "true"}).metadata
    return bool(metadata and INJECTED in (metadata.annotations or {}))
