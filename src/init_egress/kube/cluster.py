"""What the charm asks of a cluster: a protocol, so that tests can have one in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from init_egress.kube.application import Application
from init_egress.kube.kinds import GlobalKind, Kind
from init_egress.kube.manifest import Manifest
from init_egress.rule.pod import Namespace


class Cluster(Protocol):
    """The operations on a cluster that backends, the mesh and observability need.

    Raises:
        ClusterError: from every method: Forbidden, Unreachable or Refused.
    """

    def serves(self, kind: GlobalKind) -> bool:
        """Tell whether the cluster serves a kind."""
        ...

    def deprecation(self, kind: GlobalKind) -> str:
        """What the authors of a custom resource say of its being deprecated; empty if nothing."""
        ...

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply objects by server-side apply; fields that others hold and we set become ours."""
        ...

    def get(self, kind: Kind, name: str, namespace: str = "") -> Manifest | None:
        """Read one object, of a namespace if its kind has one; None if it isn't there."""
        ...

    def prune(self, application: Application, keep: Iterable[Manifest] = ()) -> list[str]:
        """Delete the application's objects but those to keep.

        Whatever fails, the others are deleted; only the workload stays if a webhook configuration
        does, since the API server would still call it and might refuse Pods for want of an answer.
        A kind that isn't served is no error.

        Returns:
            What was deleted, as `Kind name`.

        Raises:
            ClusterError: some could not be deleted; the message names each, and why.
        """
        ...

    def namespaces(self) -> list[Namespace]:
        """The namespaces that aren't being deleted, by name."""
        ...

    def labelled_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """The Pods of a namespace with these labels, by name, but those that are being deleted."""
        ...

    def config_maps(self, namespace: str) -> dict[str, Mapping[str, str]]:
        """Name and data of the ConfigMaps of a namespace."""
        ...

    def dry_run(self, namespace: str, pod: Manifest) -> Manifest:
        """Create a Pod by server-side dry run: all of admission runs, nothing is stored.

        Returns:
            The Pod as it would be stored.
        """
        ...
