"""Whether the webhook should receive reviews."""

from __future__ import annotations

from init_egress.telemetry.plain_http import READY
from init_egress.webhook.inputs import Certificate


class Health:
    """Whether the webhook should receive reviews, and if not, why."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.listening = False
        self.draining = False

    def problem(self) -> str:
        """Why it is not ready; empty if it is. Invalid settings have ended it before this."""
        if self.draining:
            return "shutting down"
        if not self.listening:
            return "not listening yet"
        if self.certificate.expired:
            return f"the certificate expired at {self.certificate.expiry.isoformat()}"
        return ""

    def answer(self, path: str) -> tuple[int, str]:
        """The status and the text for LIVE and READY."""
        problem = self.problem() if path == READY else ""
        return (503, problem + "\n") if problem else (200, "ok\n")
