"""proxy-group: the init container runs as the proxy's group, whose traffic is never redirected."""

from __future__ import annotations

from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Container
from init_egress.rule.policy import RemedyKind
from init_egress.rule.remedies.remedy import Identity
from init_egress.rule.remedies.run_as import RunAsProxy


class ProxyGroup(RunAsProxy):
    """Sets runAsGroup on each cut-off init container that names no group."""

    kind = RemedyKind.PROXY_GROUP
    documentation = (
        "It runs the init container as the proxy's group, if it names none. Only the init"
        " container leaves the mesh, and its user stays."
    )

    @property
    def identity(self) -> Identity:
        """It sets runAsGroup."""
        return Identity("runAsGroup", "gid")

    def named(self, container: Container) -> int | None:
        """The group that the container's author gave it."""
        context = container.security_context
        return context.run_as_group if context else None

    def of_proxy(self, found: Inspection) -> int:
        """The proxy's group."""
        return found.gid
