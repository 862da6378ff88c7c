"""A Pod with the network that a node would give it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lightkube import Client

from init_egress.kube.kinds import POD
from tests.dataplane.cni import Chain, Rules, Stack
from tests.dataplane.namespaces import Identity, NetworkNamespace, Target
from tests.testbed.control_plane import Manifest

SIDECAR = "sidecar"  # the word of what listens where Envoy would
INIT, APP, PROXY = "fetch", "app", "istio-proxy"
# Whom the Pod runs as, where nobody says otherwise.
AUTHORS = Identity(1000, 1000)
INBOUND_PORT = 8080
# Where Envoy and its DNS proxy listen (https://istio.io/latest/docs/ops/deployment/application-requirements/).
_ENVOY = (
    Target("tcp", "127.0.0.1", 15001),
    Target("tcp", "::1", 15001),
    Target("tcp", "0.0.0.0", 15006),
    Target("tcp", "::", 15006),
    Target("tcp", "127.0.0.1", 15053),
    Target("tcp", "::1", 15053),
    Target("udp", "127.0.0.1", 15053),
    Target("udp", "::1", 15053),
)


def manifest(name: str, stack: Stack, annotations: Mapping[str, str] | None = None) -> Manifest:
    """A Pod as its author submits it: an init container that fetches something, and an app."""
    metadata = {"name": name, "annotations": {**_dual_stack(stack), **(annotations or {})}}
    spec = {
        "securityContext": {"runAsUser": AUTHORS.uid, "runAsGroup": AUTHORS.gid},
        "initContainers": [{"name": INIT, "image": "example.com/fetch:1"}],
        "containers": [{"name": APP, "image": "example.com/app:1"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _dual_stack(stack: Stack) -> dict[str, str]:
    """What Istio must be told of a Pod with addresses of both families, or it sees one only."""
    # https://istio.io/latest/docs/setup/additional-setup/dual-stack/
    if stack is not Stack.DUAL:
        return {}
    return {"proxy.istio.io/config": 'proxyMetadata: {ISTIO_DUAL_STACK: "true"}'}


@contextlib.contextmanager
def created(client: Client, namespace: str, pod: Manifest) -> Iterator[Manifest]:
    """A Pod as it is stored, after all who change it."""
    name = client.create(POD.from_dict(pod), namespace=namespace)["metadata"]["name"]
    try:
        yield dict(client.get(POD, name, namespace=namespace))
    finally:
        client.delete(POD, name, namespace=namespace, grace_period=0)


def identity(pod: Manifest, container: str) -> Identity:
    """Whom a container runs as: what it says itself, else what the Pod says.

    Raises:
        KeyError: neither says it.
    """
    spec = pod["spec"]
    (found,) = (
        c for c in (*spec["initContainers"], *spec["containers"]) if c["name"] == container
    )
    context = spec.get("securityContext", {}) | found.get("securityContext", {})
    return Identity(context["runAsUser"], context["runAsGroup"])


@dataclass(frozen=True)
class Sandbox:
    """A Pod's network namespace, with the rules that istio-cni made from the stored Pod."""

    namespace: NetworkNamespace
    addresses: Mapping[str, str]  # by family

    @contextlib.contextmanager
    def sidecar(self, proxy: Identity) -> Iterator[None]:
        """Something that listens where Envoy would, as the user that Envoy runs as."""
        with self.namespace.serve(f"{self.namespace.name}-sidecar", SIDECAR, _ENVOY, proxy):
            yield


@contextlib.contextmanager
def sandbox(
    chain: Chain, folder: Path, pod: Manifest, stack: Stack, rules: Rules
) -> Iterator[Sandbox]:
    """The sandbox of a stored Pod.

    Raises:
        CniError: a plugin refused.
    """
    with NetworkNamespace(f"pod-{pod['metadata']['uid']}", folder) as namespace:
        yield Sandbox(namespace, chain.add(namespace, pod, stack, rules))
