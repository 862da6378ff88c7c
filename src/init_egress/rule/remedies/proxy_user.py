"""proxy-user: the init container runs as the proxy's user, whose traffic is never redirected."""

from __future__ import annotations

from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Container
from init_egress.rule.policy import RemedyKind
from init_egress.rule.remedies.remedy import Identity
from init_egress.rule.remedies.run_as import RunAsProxy


class ProxyUser(RunAsProxy):
    """Sets runAsUser on each cut-off init container that names no user."""

    kind = RemedyKind.PROXY_USER
    documentation = (
        "It runs the init container as the proxy's user, if it names none. Only the init container"
        " leaves the mesh; files that it writes belong to that user."
    )

    @property
    def identity(self) -> Identity:
        """It sets runAsUser."""
        return Identity("runAsUser", "uid")

    def named(self, container: Container) -> int | None:
        """The user that the container's author gave it."""
        context = container.security_context
        return context.run_as_user if context else None

    def of_proxy(self, found: Inspection) -> int:
        """The proxy's user."""
        return found.uid
