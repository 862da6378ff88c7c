"""What a dry run showed of a backend's effect."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from init_egress.rule.verdict import Verdict

CONNECTED = (
    Verdict.NATIVE_SIDECAR,
    Verdict.NOT_REDIRECTED,
    Verdict.ALREADY_EXEMPT,
    Verdict.ALREADY_EXCLUDED,
)
"""Verdicts on a Pod whose init containers have the network without the charm."""


class Effect(str, Enum):
    """What a dry run showed."""

    ARRIVES = "arrives"
    """The Pod gets the remedy."""
    MISSING = "missing"
    """The Pod needs the remedy and does not get it."""
    REJECTED = "rejected"
    """Admission rejects the Pod."""
    UNVERIFIED = "unverified"
    """The Pod does not need the remedy there, or there is no namespace to try."""


@dataclass(frozen=True)
class Verification:
    """What is known of the effect of one backend.

    Attributes:
        effect: what a dry run showed.
        detail: the namespace where the remedy was seen to arrive; else why it was not, in the API
            server's words where it rejected the Pod.
        milliseconds: how long the creation took, with all of admission; 0 if there was none.
        verdict: the rule's verdict on the Pod without the charm, if there was one.
        native_sidecars: whether Pods have native sidecars there unless they opt out.
        nothing_to_lose: whether no Pod depends on what was in force before.
        call_failed: whether a webhook could not be called and the API server answered 500.
    """

    effect: Effect
    detail: str
    milliseconds: int = 0
    verdict: Verdict | None = None
    native_sidecars: bool = False
    nothing_to_lose: bool = False
    call_failed: bool = False

    @property
    def replaces_predecessor(self) -> bool:
        """Whether what was in force before may be deleted."""
        return self.effect is Effect.ARRIVES or self.nothing_to_lose
