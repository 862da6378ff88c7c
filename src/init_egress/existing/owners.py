"""Who owns a Pod: the chain of controllers from the Pod up to what its author wrote.

A ReplicaSet is nobody's intention; the Deployment above it is, or the InferenceService above that.
Only metadata are read, and of any kind that the cluster serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from init_egress.existing.survey import OwnerReference, Scope, StoredMeta
from init_egress.kube.client import ClusterError
from init_egress.kube.paging import ApiClient, Collection

_MANY = 20
"""From so many objects of a kind on, one list costs less than a request for each."""

_HIGHEST = 10


class _Owned(msgspec.Struct, frozen=True):
    metadata: StoredMeta


class _Resource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = False


class _Resources(msgspec.Struct, frozen=True):
    """metav1.APIResourceList: what a group and version serve."""

    resources: tuple[_Resource, ...] = ()


class ControllerChain:
    """Finds controllers and remembers them.

    Args:
        bulk: where.
        scope: in which namespace they are to be looked for when there are many.
    """

    def __init__(self, bulk: ApiClient, scope: Scope) -> None:
        self._bulk = bulk
        self._scope = Scope(scope.namespace)
        self._above: dict[str, OwnerReference | None] = {}
        self._plurals: dict[tuple[str, str], str] = {}

    def look_up(self, pods: Iterable[tuple[str, OwnerReference]]) -> None:
        """Find all controllers above these, a level at a time, each object read once.

        What can't be read (a kind that is gone, no right to it) is taken for the top.

        Args:
            pods: the namespaces of Pods, and the Pods' controllers.
        """
        level = {reference.uid: (namespace, reference) for namespace, reference in pods}
        for _ in range(_HIGHEST):
            level = {uid: item for uid, item in level.items() if uid not in self._above}
            if not level:
                return
            above: dict[str, tuple[str, OwnerReference]] = {}
            for kind in _by_kind(level.values()):
                found = self._read(kind)
                for namespace, reference in kind:
                    controller = found.get(reference.uid)
                    self._above[reference.uid] = controller
                    if controller:
                        above[controller.uid] = (namespace, controller)
            level = above

    def chain(self, namespace: str, controller: OwnerReference | None) -> list[OwnerReference]:
        """The controllers of a Pod, from its own to the topmost.

        Args:
            namespace: the Pod's.
            controller: the Pod's; None if nobody makes it anew.
        """
        if controller is None:
            return []
        self.look_up([(namespace, controller)])
        chain = [controller]
        while (above := self._above.get(chain[-1].uid)) and len(chain) < _HIGHEST:
            chain.append(above)
        return chain

    def _read(self, kind: list[tuple[str, OwnerReference]]) -> dict[str, OwnerReference]:
        """The controllers of some objects of one kind, by the objects' uids."""
        _, first = kind[0]
        try:
            plural = self._plural(first)
            if not plural:
                return {}
            wanted = {reference.uid for _, reference in kind}
            metadata = (
                self._listed(first, plural) if len(kind) > _MANY else self._got(kind, plural)
            )
            return {m.uid: m.controller for m in metadata if m.controller and m.uid in wanted}
        except ClusterError:
            return {}

    def _listed(self, reference: OwnerReference, plural: str) -> Iterator[StoredMeta]:
        path = self._scope.path(_group(reference), plural)
        owned = Collection(
            path,
            _Owned,
            lambda item: f"{item.metadata.namespace}/{item.metadata.name}",
            f"{reference.kind}s",
            metadata_only=True,
        )
        for page in self._bulk.pages(owned):
            for item in page:
                yield item.metadata

    def _got(self, kind: list[tuple[str, OwnerReference]], plural: str) -> Iterator[StoredMeta]:
        for namespace, reference in kind:
            path = f"{Scope(namespace).path(_group(reference), plural)}/{reference.name}"
            what = f"{reference.kind} {namespace}/{reference.name}"
            try:
                yield self._bulk.get(path, _Owned, what, metadata_only=True).metadata
            except ClusterError:
                continue

    def _plural(self, reference: OwnerReference) -> str:
        """A kind's name in paths; empty where it has no namespace, or isn't served."""
        key = reference.api_version, reference.kind
        if key not in self._plurals:
            served = self._bulk.get(
                f"/{_group(reference)}", _Resources, f"the kinds of {reference.api_version}"
            )
            self._plurals[key] = next(
                (
                    resource.name
                    for resource in served.resources
                    if resource.kind == reference.kind
                    and resource.namespaced
                    and "/" not in resource.name
                ),
                "",
            )
        return self._plurals[key]


def _by_kind(
    owners: Iterable[tuple[str, OwnerReference]],
) -> Iterable[list[tuple[str, OwnerReference]]]:
    kinds: dict[tuple[str, str], list[tuple[str, OwnerReference]]] = {}
    for namespace, reference in owners:
        kinds.setdefault((reference.api_version, reference.kind), []).append(
            (namespace, reference)
        )
    return kinds.values()


def _group(reference: OwnerReference) -> str:
    prefix = "apis" if "/" in reference.api_version else "api"
    return f"{prefix}/{reference.api_version}"
