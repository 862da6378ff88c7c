"""What a run did, and what it could not assert."""

from __future__ import annotations

from dataclasses import dataclass, field

TITLE = "could not be asserted on this cluster"


@dataclass
class Ledger:
    """Kept over a session.

    Attributes:
        collected: how many integration tests there are.
        ran: how many of them came to an end, passed or failed.
        unasserted: what could not be asserted, with the reason.
    """

    collected: int = 0
    ran: int = 0
    unasserted: dict[str, str] = field(default_factory=dict)

    @property
    def tested_nothing(self) -> bool:
        """Whether there were tests and none of them ran."""
        return self.collected > 0 and self.ran == 0

    def could_not_assert(self, what: str, why: str) -> str:
        """Note what the cluster or the controller does not let a test see; returns it as text."""
        self.unasserted[what] = why
        return f"could not assert {what}: {why}"

    def lines(self) -> list[str]:
        """The summary."""
        return [f"* {what}: {why}" for what, why in self.unasserted.items()]
