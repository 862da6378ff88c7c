"""The result of the charm's last reconcile: the file that the exporter reads.

The charm runs only while it handles an event, so Prometheus cannot scrape it. It writes this
snapshot to a ConfigMap, and init_egress.exporter, which always runs, exports it.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FILE = "snapshot.json"


class BackendEffect(str, Enum):
    """The backend's effect, as the charm last verified it."""

    ARRIVES = "arrives"
    """A dry run showed that Pods get the remedy."""
    MISSING = "missing"
    """It is applied, but a dry run showed no effect, or no replica of the webhook is ready."""
    REJECTED = "rejected"
    """It is applied, but admission rejected every Pod of a dry run."""
    UNVERIFIED = "unverified"
    """It is applied but could not be tried, for example because the mesh has no namespace."""
    FAILED = "failed"
    """The charm could not act; what was in force before stays."""


class AuditCounts(msgspec.Struct, frozen=True):
    """The result of one audit of all Pods of the mesh.

    Attributes:
        at: when, in seconds since the epoch.
        pods: the number of unfinished Pods by verdict.
        stuck: the number of them that are stuck in an init container without network.
    """

    at: float
    pods: dict[str, int]
    stuck: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """All that the exporter exports.

    Attributes:
        backend: the backend that was chosen, or for Kyverno its kind of policy; `none` if the
            charm could not act.
        effect: its effect.
        reconciled_at: when the charm last reconciled, in seconds since the epoch.
        audit: the last audit, if there was one.
    """

    backend: str
    effect: BackendEffect
    reconciled_at: float
    audit: AuditCounts | None = None

    def encode(self) -> str:
        """The content of the file."""
        return msgspec.json.encode(self).decode()


def decode(text: str | bytes) -> Snapshot:
    """Read the content of the file.

    Raises:
        ValueError: it is not a snapshot.
    """
    return msgspec.json.decode(text, type=Snapshot)
