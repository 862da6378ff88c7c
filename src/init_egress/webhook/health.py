"""Whether the webhook should receive reviews, and whether it should be restarted."""

from __future__ import annotations

import time

from init_egress.telemetry.plain_http import READY
from init_egress.webhook.inputs import Certificate

READY_SECONDS = 6.0
"""A replica whose HTTPS port has not answered for this long leaves the endpoints."""
LIVE_SECONDS = 30.0
"""A replica whose HTTPS port has not answered for this long is restarted."""


class Health:
    """What the probes are answered with.

    The probes are answered by another thread and on another port than reviews, so their answer
    rests on the last time that the HTTPS port answered a request of the self-check.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.draining = False
        self._answered_at: float | None = None

    def answered(self) -> None:
        """Note that the HTTPS port has answered the self-check."""
        self._answered_at = time.monotonic()

    @property
    def listening(self) -> bool:
        """Whether the HTTPS port has ever answered."""
        return self._answered_at is not None

    def not_live(self) -> str:
        """Why it should be restarted; empty if it should not."""
        silence = self._silence()
        return "" if self.draining or silence <= LIVE_SECONDS else _silent(silence)

    def not_ready(self) -> str:
        """Why it should receive no reviews; empty if it should. Invalid settings have ended it."""
        if self.draining:
            return "shutting down"
        if not self.listening:
            return "not listening yet"
        silence = self._silence()
        if silence > READY_SECONDS:
            return _silent(silence)
        if self.certificate.expired:
            return f"the certificate expired at {self.certificate.expiry.isoformat()}"
        return ""

    def answer(self, path: str) -> tuple[int, str]:
        """The status and the text for LIVE and READY."""
        problem = self.not_ready() if path == READY else self.not_live()
        return (503, problem + "\n") if problem else (200, "ok\n")

    def _silence(self) -> float:
        """Seconds since the HTTPS port answered; 0 before the first time."""
        return 0.0 if self._answered_at is None else time.monotonic() - self._answered_at


def _silent(seconds: float) -> str:
    return f"the HTTPS port has not answered for {seconds:.0f} s"
