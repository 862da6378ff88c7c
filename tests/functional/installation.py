"""What the charm applies, brought into force one configuration at a time."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping

import pytest
from lightkube import Client
from lightkube.resources.core_v1 import Namespace as NamespaceResource

from init_egress.backends.backend import BackendKind
from init_egress.backends.effect import Effect
from init_egress.backends.probe import NO_BACKEND, labelled
from init_egress.backends.reconciler import Reconciler
from init_egress.backends.registry import BACKENDS
from init_egress.backends.verification import Prover
from init_egress.backends.webhook_deployment import Image, WorkloadInputs
from init_egress.config import Config, Settings
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError
from init_egress.rule import istio
from init_egress.rule.pod import Namespace
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.istio import NAMESPACE, Mesh
from tests.testbed.process import wait_until

OPTIONS = {
    BackendKind.NATIVE: {"backend": "native"},
    BackendKind.CLUSTER_POLICY: {"backend": "kyverno", "kyverno-policy-kind": "ClusterPolicy"},
    BackendKind.MUTATING_POLICY: {"backend": "kyverno", "kyverno-policy-kind": "MutatingPolicy"},
    BackendKind.WEBHOOK: {"backend": "webhook", "webhook-replicas": "1"},
}
"""The options that ask for each backend."""
IMAGE = "example.com/istio-init-egress-webhook:1"
_MODEL = "cases"

# Of all of a session, so that no two share a namespace or a policy's name.
_numbers = itertools.count(1)


class Installation:
    """What the charm applies, one configuration at a time, by its own reconciler."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self._plane = plane
        self._client = client
        self._cluster = ApiClient.connect(client.config)
        self._current: tuple[BackendKind, Settings, Application] | None = None
        self._mesh: Mesh | None = None

    def use(
        self, form: BackendKind, config: Mapping[str, str], mesh: Mesh | None = None
    ) -> Settings:
        """Bring a configuration into force, and wait until the one before it is out of force.

        What is applied depends on the mesh too, so another one counts as another configuration.
        """
        if form is BackendKind.WEBHOOK and self._plane.network.address is None:
            pytest.skip(
                "no private network can be made here, and the webhook's Pods need addresses"
            )
        options = {**config, **OPTIONS[form]}
        settings = Config.from_options(options).settings()
        if self._current and (self._mesh, *self._current[:2]) == (mesh, form, settings):
            return settings
        self.remove()
        owner = Application(f"cases-{next(_numbers)}", _MODEL)
        self._current, self._mesh = (form, settings, owner), mesh
        self._plane.create_namespace(_MODEL)
        Reconciler(
            self._cluster, settings, owner, NAMESPACE, WorkloadInputs(Image(IMAGE))
        ).reconcile()
        wait_until(lambda: self._acts(form, settings, owner), f"{form.value} is in force")
        return settings

    def remove(self) -> None:
        """Leave the cluster as if the charm had never been there."""
        if self._current is None:
            return
        form, settings, owner = self._current
        self._current = None
        self._cluster.prune(owner)
        wait_until(lambda: not self._acts(form, settings, owner), f"{form.value} is gone")
        self._client.delete(NamespaceResource, f"{owner.name}-probe")

    def _acts(self, form: BackendKind, settings: Settings, owner: Application) -> bool:
        return acts(self._plane, self._cluster, form, settings, owner)


def acts(
    plane: ControlPlane,
    cluster: Cluster,
    form: BackendKind,
    settings: Settings,
    owner: Application,
) -> bool:
    """Whether it changes a Pod of the shape that Istio makes, be there an istiod or not."""
    labels = {"istio-injection": "enabled", **settings.policy.namespaces.example()}
    namespace = Namespace(f"{owner.name}-probe", labels)
    plane.create_namespace(namespace.name, labels)
    pod = as_injected(settings.policy.pods.example())
    prover = Prover(cluster, settings.policy, owner, BACKENDS[form])
    found = prover.prove(namespace, pod)
    return found.effect is Effect.ARRIVES


def still_acts(
    plane: ControlPlane, cluster: Cluster, settings: Settings, owner: Application
) -> bool:
    """Whether any form of an application's changes a Pod yet, however it was configured.

    Args:
        plane: where; it need have no controllers and no mesh.
        cluster: the same.
        settings: what the Pods that it acts on are selected by.
        owner: the application.
    """
    labels = settings.policy.namespaces.example()
    # One for each selector: a namespace that is there keeps its labels.
    chosen = hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:8]
    namespace = f"{owner.name}-still-acts-{chosen}" if labels else "default"
    plane.create_namespace(namespace, labels)
    # A Pod may ask for injection by itself where the namespace says nothing.
    pod = as_injected({**settings.policy.pods.example(), "sidecar.istio.io/inject": "true"})

    def stored(label: str) -> tuple[object, ...]:
        found = cluster.dry_run(namespace, labelled(pod, label))
        metadata, spec = found["metadata"], found["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(spec, dict)
        containers: list[Manifest] = spec["initContainers"]
        return metadata["annotations"], [c.get("securityContext") for c in containers]

    try:
        untouched = stored(NO_BACKEND)
        return any(
            stored(backend.probe_label(owner)) != untouched for backend in BACKENDS.values()
        )
    except ClusterError:
        return True  # a webhook that is going, and fails closed


def as_injected(labels: dict[str, str]) -> Manifest:
    """A Pod that looks injected and that Istio leaves alone, for it is on the host's network."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "as-injected-",
            "labels": {istio.CANONICAL_NAME: "cases", **labels},
            "annotations": {istio.STATUS: "{}"},
        },
        "spec": {
            "hostNetwork": True,
            "initContainers": [{"name": "cases-fetch", "image": "example.com/fetch:1"}],
            "containers": [
                {
                    "name": "istio-proxy",
                    "image": "example.com/proxy:1",
                    "args": ["proxy", "sidecar"],
                }
            ],
        },
    }
