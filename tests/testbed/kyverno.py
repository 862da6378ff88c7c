"""Kyverno's admission controller and background controller."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lightkube.resources.admissionregistration_v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)

from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, Manifest, load_manifests
from tests.testbed.network import free_port
from tests.testbed.process import Process, answers, wait_until

NAMESPACE = "kyverno"
RESOURCE_WEBHOOK_CONFIGURATION = "kyverno-resource-mutating-webhook-cfg"
OLD_POLICIES = ("clusterpolicies.kyverno.io", "policies.kyverno.io")
_POLICY_WEBHOOK_CONFIGURATION = "kyverno-policy-validating-webhook-cfg"


@dataclass(frozen=True)
class Kyverno:
    """A Kyverno that answers."""

    admission_controller: Process
    background_controller: Process

    @property
    def processes(self) -> tuple[Process, Process]:
        """Both of its processes."""
        return self.admission_controller, self.background_controller


@contextmanager
def kyverno(plane: ControlPlane, *, without: Sequence[str] = ()) -> Iterator[Kyverno]:
    """Run Kyverno, which takes policies when this returns; its webhooks are gone afterwards.

    It needs the controller manager, which fills its aggregated ClusterRoles. The CRDs in `without`
    are removed again: with OLD_POLICIES it is what a Kyverno may be that has dropped them. Kyverno
    1.19 asks for them only when it starts (sanityChecks in its cmd/kyverno/main.go).
    """
    plane.apply(_manifests())
    port = free_port()
    admission_command, background_command = _admission(plane, port), _background(plane)
    try:
        with (
            _process("admission", admission_command, plane) as admission,
            _process("background", background_command, plane) as background,
        ):
            running = Kyverno(admission, background)
            url = f"https://127.0.0.1:{port}/health/readiness"
            wait_until(lambda: answers(url), "Kyverno is ready", processes=running.processes)
            wait_until(
                lambda: _takes_policies(plane),
                "Kyverno takes policies",
                processes=running.processes,
            )
            if without:
                plane.kubectl("delete", "customresourcedefinition", *without)
            yield running
    finally:
        _remove_webhooks(plane)


def _manifests() -> list[Manifest]:
    """Kyverno's own manifest, without what would run it on a node."""
    manifests = load_manifests(build.product(build.KYVERNO, "kyverno.yaml").read_text())
    return [item for item in manifests if item["kind"] != "Deployment"]


def _process(component: str, command: list[str], plane: ControlPlane) -> Process:
    environment = {
        "KYVERNO_NAMESPACE": NAMESPACE,
        "KYVERNO_SERVICEACCOUNT_NAME": f"kyverno-{component}-controller",
        "KYVERNO_DEPLOYMENT": f"kyverno-{component}-controller",
        "KYVERNO_POD_NAME": f"{component}-0",
        "INIT_CONFIG": "kyverno",
        "METRICS_CONFIG": "kyverno-metrics",
        "BACKGROUND_SCAN_INTERVAL": "30s",
    }
    return Process(f"kyverno-{component}", command, plane.folder, environment=environment)


def _admission(plane: ControlPlane, port: int) -> list[str]:
    account = f"system:serviceaccount:{NAMESPACE}:kyverno"
    return [
        str(build.product(build.KYVERNO, "kyverno")),
        f"--kubeconfig={plane.kubeconfig()}",
        f"--serverIP=127.0.0.1:{port}",
        f"--webhookServerPort={port}",
        f"--backgroundServiceAccountName={account}-background-controller",
        f"--reportsServiceAccountName={account}-reports-controller",
        f"--caSecretName=kyverno-svc.{NAMESPACE}.svc.kyverno-tls-ca",
        f"--tlsSecretName=kyverno-svc.{NAMESPACE}.svc.kyverno-tls-pair",
        "--controllerRuntimeMetricsAddress=0",
        f"--metricsPort={free_port()}",
        "--admissionReports=false",
    ]


def _background(plane: ControlPlane) -> list[str]:
    return [
        str(build.product(build.KYVERNO, "background-controller")),
        f"--kubeconfig={plane.kubeconfig()}",
        "--controllerRuntimeMetricsAddress=0",
        f"--metricsPort={free_port()}",
    ]


def _takes_policies(plane: ControlPlane) -> bool:
    """Whether its webhook for policies is registered with a certificate."""
    with plane.client() as client:
        found = client.get(ValidatingWebhookConfiguration, _POLICY_WEBHOOK_CONFIGURATION)
    return all(webhook.clientConfig.caBundle for webhook in found.webhooks or [])


def _remove_webhooks(plane: ControlPlane) -> None:
    """Do what Kyverno leaves undone when it is told its address: see --serverIP in its main.go."""
    with plane.client() as client:
        for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration):
            for item in client.list(kind):
                name = (item.metadata and item.metadata.name) or ""
                if name.startswith("kyverno-"):
                    client.delete(kind, name)
