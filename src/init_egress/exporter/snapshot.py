"""What the charm last saw of the cluster: the file by which it tells its exporter.

The charm runs only while it handles an event, so nobody could scrape it. It writes these figures
to a ConfigMap, and init_egress.exporter, which runs all the time, shows them.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FILE = "figures.json"


class BackendEffect(str, Enum):
    """What the charm knows of the backend's effect."""

    ARRIVES = "arrives"
    """A dry run showed that the remedy arrives."""
    MISSING = "missing"
    """It is applied, but a dry run showed no effect; or no replica of the webhook is ready."""
    REJECTED = "rejected"
    """It is applied, and admission takes no Pod where a dry run was tried."""
    UNVERIFIED = "unverified"
    """It is applied, and nothing could be shown, such as while the mesh has no namespace."""
    FAILED = "failed"
    """The charm could not act: what was in force before stays, and nothing comes in its place."""


class AuditCounts(msgspec.Struct, frozen=True):
    """The result of one look at all Pods of the mesh.

    Attributes:
        at: when, in seconds since the epoch.
        pods: how many Pods that haven't finished have each verdict of the rule.
        stuck: how many of them are stuck in an init container for want of network.
    """

    at: float
    pods: dict[str, int]
    stuck: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """All that is told.

    Attributes:
        backend: the backend that was chosen, or for Kyverno its kind of policy; `none` if the
            charm could not act.
        effect: what is known of its effect.
        looked: when the charm last looked, in seconds since the epoch.
        audit: the last audit, if there was one.
    """

    backend: str
    effect: BackendEffect
    looked: float
    audit: AuditCounts | None = None

    def encode(self) -> str:
        """The file's text."""
        return msgspec.json.encode(self).decode()


def decode(text: str | bytes) -> Snapshot:
    """Read the file's text.

    Raises:
        ValueError: it isn't of this form.
    """
    return msgspec.json.decode(text, type=Snapshot)
