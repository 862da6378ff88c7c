"""Who owns a Pod: the chain of controllers from the Pod up to what its author wrote.

A ReplicaSet is nobody's intention; the Deployment above it is, or the InferenceService above that.
Only metadata are read, and of any kind that the cluster serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError
from init_egress.kube.kinds import Resource
from init_egress.kube.objects import Owned, OwnerReference
from init_egress.kube.paging import Collection
from init_egress.kube.scope import Scope

_MANY = 20
"""From so many objects of a kind on, one list costs less than a request for each."""

_HIGHEST = 10

_Place = tuple[str, OwnerReference]
"""A namespace, and a reference in it. By the uid alone, one reference could stand for another."""


class ControllerChain:
    """Finds controllers and remembers them.

    Args:
        bulk: where.
        scope: in which namespace they are to be looked for when there are many.
    """

    def __init__(self, bulk: ApiClient, scope: Scope) -> None:
        self._bulk = bulk
        self._namespace = scope.namespace
        self._above: dict[_Place, OwnerReference | None] = {}
        self._resources: dict[tuple[str, str], Resource | None] = {}

    def look_up(self, pods: Iterable[tuple[str, OwnerReference]]) -> None:
        """Find all controllers above these, a level at a time, each object read once.

        What can't be read (a name that Kubernetes would not take, a kind that isn't served, no
        right to it) is taken for the top.

        Args:
            pods: the namespaces of Pods, and the Pods' controllers.
        """
        level = set(pods)
        for _ in range(_HIGHEST):
            level = {place for place in level if place not in self._above}
            if not level:
                return
            found: dict[_Place, OwnerReference] = {}
            for places in _by_kind(level):
                found.update(self._read(places))
            self._above.update({place: found.get(place) for place in level})
            level = {(namespace, above) for (namespace, _), above in found.items()}

    def chain(self, namespace: str, controller: OwnerReference | None) -> list[OwnerReference]:
        """The controllers of a Pod, from its own to the topmost.

        Args:
            namespace: the Pod's.
            controller: the Pod's; None if it has none.
        """
        if controller is None:
            return []
        self.look_up([(namespace, controller)])
        chain = [controller]
        while (above := self._above.get((namespace, chain[-1]))) and len(chain) < _HIGHEST:
            chain.append(above)
        return chain

    def _read(self, places: list[_Place]) -> dict[_Place, OwnerReference]:
        """The controllers of some objects of one kind."""
        try:
            resource = self._resource(places[0][1])
            if resource is None or not resource.namespaced:
                return {}
            many = len(places) > _MANY
            return dict(self._listed(resource, places) if many else self._got(resource, places))
        except ClusterError:
            return {}

    def _listed(
        self, resource: Resource, places: list[_Place]
    ) -> Iterator[tuple[_Place, OwnerReference]]:
        wanted = {(namespace, it.name, it.uid): (namespace, it) for namespace, it in places}
        owned = Collection(resource, Owned, self._namespace, metadata_only=True)
        for page in self._bulk.pages(owned):
            for item in page.items:
                meta = item.metadata
                place = wanted.get((meta.namespace, meta.name, meta.uid))
                if place and meta.controller:
                    yield place, meta.controller

    def _got(
        self, resource: Resource, places: list[_Place]
    ) -> Iterator[tuple[_Place, OwnerReference]]:
        for namespace, reference in places:
            try:
                found = self._bulk.read(
                    resource,
                    reference.name,
                    namespace,
                    Owned,
                    uid=reference.uid,
                    metadata_only=True,
                )
            except ClusterError:
                continue
            if above := found.metadata.controller:
                yield (namespace, reference), above

    def _resource(self, reference: OwnerReference) -> Resource | None:
        """An owner's kind; None where it isn't served, or the reference can't be followed."""
        if not reference.is_valid:
            return None
        key = reference.api_version, reference.kind
        if key not in self._resources:
            self._resources[key] = self._bulk.resource(*key)
        return self._resources[key]


def _by_kind(places: Iterable[_Place]) -> Iterable[list[_Place]]:
    kinds: dict[tuple[str, str], list[_Place]] = {}
    for namespace, reference in places:
        if reference.is_valid:
            key = (reference.api_version, reference.kind)
            kinds.setdefault(key, []).append((namespace, reference))
    return kinds.values()
