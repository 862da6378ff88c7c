"""Pods that could not be decoded: counted, and the first of them named."""

from __future__ import annotations

from dataclasses import dataclass, field

from init_egress.kube.paging import UnreadableObject
from init_egress.kube.paths import shown
from init_egress.results import count

_NAMED = 10


@dataclass
class UnreadableObjects:
    """Pods that could not be decoded.

    Attributes:
        count: how many.
        named: the first of them, with the reason.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, found: UnreadableObject) -> None:
        """Count one."""
        self.count += 1
        if len(self.named) < _NAMED:
            self.named.append(f"{found}: {shown(found.reason)}")

    @property
    def summary(self) -> str:
        """How many there are, and which is the first."""
        first = self.named[0].partition(": ")[0] if self.named else ""
        return f"{count(self.count, 'Pod')} could not be read, such as {first}"
