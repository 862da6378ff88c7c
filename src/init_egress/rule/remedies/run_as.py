"""What proxy-user and proxy-group share: a container runs with an identity of the proxy's.

Traffic of the proxy's user and of its group is never redirected
(https://github.com/istio/istio/blob/master/tools/istio-iptables/pkg/capture/run.go).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from init_egress.rule.excludes import holds_all_ranges
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import EXCLUDE_RANGES
from init_egress.rule.patch import PatchOperation
from init_egress.rule.pod import Container, Pod
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.remedies.remedy import Configure, Identity, Remedy
from init_egress.rule.words import annotation, joined


class RunAsProxy(Remedy):
    """Sets a field of a container's securityContext where its author left it out."""

    cel_variables = ("cel/variables.yaml.j2",)
    cel_mutation = "cel/identity-mutation.cel.j2"

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """The field that it sets on containers."""

    @abstractmethod
    def named(self, container: Container) -> int | None:
        """The identity that the container's author gave it; None if none."""

    @abstractmethod
    def of_proxy(self, found: Inspection) -> int:
        """The proxy's identity."""

    def is_satisfied(self, found: Inspection) -> bool:
        """Whether the ranges annotation holds every configured range."""
        return holds_all_ranges(found.pod.annotations, found.policy)

    def can_help(self, found: Inspection) -> bool:
        """Whether some init container that isn't exempt names no identity of its own."""
        return any(self.named(container) is None for container in found.unexempt)

    def patch(self, found: Inspection) -> tuple[PatchOperation, ...]:
        """Set the field on each container that isn't exempt and doesn't name it."""
        identity, field = self.of_proxy(found), self.identity.field
        patch: list[PatchOperation] = []
        for container in found.unexempt:
            path = f"/spec/initContainers/{found.index[container.name]}/securityContext"
            if container.security_context is None:
                patch.append(PatchOperation("add", path, {field: identity}))
            elif self.named(container) is None:
                patch.append(PatchOperation("add", f"{path}/{field}", identity))
        return tuple(patch)

    def why_satisfied(self, policy: Policy) -> str:
        """Its ranges suffice."""
        return "its exclude annotations hold all that is configured"

    def why_beyond(self, names: Sequence[str]) -> str:
        """What an author set is left alone."""
        return (
            f"{joined(names)} set {self.identity.field} already, which {self.kind.value} does not"
            " change"
        )

    def facts_of_satisfaction(self, found: Inspection) -> list[str]:
        """The ranges, as annotated and as configured."""
        return [
            annotation(found.pod, EXCLUDE_RANGES),
            f"configured ranges: {','.join(found.policy.ranges) or 'none'}",
        ]

    def facts_of_help(self, found: Inspection) -> list[str]:
        """What each container names."""
        return [self._fact(container) for container in found.unexempt]

    def status(self, policy: Policy) -> str:
        """Its name says it all."""
        return self.kind.value

    def warning(self, pod: Pod, patch: Sequence[PatchOperation]) -> str:
        """The identity, and who got it."""
        value = patch[0].value
        identity = next(iter(value.values())) if isinstance(value, dict) else value
        # A path is /spec/initContainers/<index>/securityContext, and maybe a field.
        names = [pod.init_containers[int(o.path.split("/")[3])].name for o in patch]
        return f"set {self.identity.field} {identity} on {joined(names)}"

    def advice(self, names: Sequence[str], configure: Configure) -> str:
        """The author's part, or another remedy."""
        other = configure("remedy", RemedyKind.EXCLUDE_IP_RANGES.value)
        return f"run {joined(names)} as the proxy's user or group in its own manifest, or: {other}"

    def _fact(self, container: Container) -> str:
        named = self.named(container)
        value = "absent" if named is None else named
        return f"{self.identity.field} of {container.name}: {value}"
