"""What else limits egress in the mesh: Sidecar objects.

A Sidecar tells the proxies of a namespace which hosts they know
(https://istio.io/latest/docs/reference/config/networking/sidecar/). It binds what goes through a
proxy, and so no init container that goes round it.
"""

from __future__ import annotations

import msgspec

from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, NotFound
from init_egress.kube.kinds import SIDECARS, Resource
from init_egress.kube.objects import ListedMeta, Object
from init_egress.kube.paging import Collection

_SHOWN = 10


class _Spec(Object, frozen=True):
    egress: tuple[msgspec.Raw, ...] | None = None
    outbound_traffic_policy: dict[str, object] | None = None


class _Sidecar(Object, frozen=True):
    metadata: ListedMeta
    spec: _Spec = _Spec()

    @property
    def place(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


def facts(bulk: ApiClient, namespace: str, mesh_namespace: str) -> list[str]:
    """What Sidecar objects say of egress, a sentence each; never raises for want of a right.

    Args:
        bulk: where.
        namespace: whose Pods are asked about; empty for all.
        mesh_namespace: where a Sidecar holds for the whole mesh.
    """
    try:
        limiting = _limiting(bulk, namespace, mesh_namespace)
    except NotFound:
        return []
    except ClusterError as error:
        return [f"Sidecars are not known: {error}"]
    if not limiting:
        return []
    shown = ", ".join(limiting[:_SHOWN])
    more = f" and {len(limiting) - _SHOWN} more" if len(limiting) > _SHOWN else ""
    return [
        f"Sidecars limit egress: {shown}{more}; they bind what goes through the proxy (an"
        " application, an init container behind a native sidecar), not what goes round it"
    ]


def _limiting(bulk: ApiClient, namespace: str, mesh_namespace: str) -> list[str]:
    for version in SIDECARS:
        try:
            # In the mesh namespace a Sidecar holds for every namespace that has none.
            return [
                sidecar.place
                for place in dict.fromkeys([namespace, mesh_namespace] if namespace else [""])
                for sidecar in _sidecars(bulk, place, version)
                if sidecar.spec.egress or sidecar.spec.outbound_traffic_policy
            ]
        except NotFound:
            if version == SIDECARS[-1]:
                raise
    return []


def _sidecars(bulk: ApiClient, namespace: str, version: Resource) -> list[_Sidecar]:
    listed = Collection(version, _Sidecar, namespace)
    return [sidecar for page in bulk.pages(listed) for sidecar in page.items]
