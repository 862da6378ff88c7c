"""exclude-ip-ranges: annotations that exclude ranges and ports from redirection.

The CNI plugin reads them when it sets up the Pod's network
(https://istio.io/latest/docs/setup/additional-setup/cni/#compatibility-with-application-init-containers).
"""

from __future__ import annotations

from collections.abc import Sequence

from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import EXCLUDE_PORTS, EXCLUDE_RANGES, ISTIO_INIT
from init_egress.rule.patch import PatchOperation, annotation_path, unescape
from init_egress.rule.pod import Pod
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind
from init_egress.rule.remedies.remedy import Configure, Remedy
from init_egress.rule.words import annotation, joined, presence


class ExcludeIpRanges(Remedy):
    """Excludes ranges and ports from redirection by annotations."""

    kind = RemedyKind.EXCLUDE_IP_RANGES
    documentation = (
        "It excludes `exclude-outbound-ip-ranges` and `exclude-outbound-ports` from redirection by"
        " annotations. The application's own traffic to them leaves the mesh as well."
    )
    cel_variables = ("cel/variables.yaml.j2", "cel/exclude-annotations.yaml.j2")
    cel_mutation = "cel/exclude-mutation.cel.j2"

    def is_satisfied(self, found: Inspection) -> bool:
        """Whether the annotations are as they should be."""
        return not found.exclude_changes

    def can_help(self, found: Inspection) -> bool:
        """Not where istio-init is: its arguments hold the ranges, and it reads no annotations."""
        return ISTIO_INIT not in found.index

    def patch(self, found: Inspection) -> tuple[PatchOperation, ...]:
        """Set each annotation that is not as it should be."""
        # The map of annotations is there: an injected Pod has at least Istio's status in it.
        return tuple(
            [
                PatchOperation("add", annotation_path(key), value)
                for key, value in found.exclude_changes.items()
            ]
        )

    def why_satisfied(self, policy: Policy) -> str:
        """It holds what is configured, or what is there is kept."""
        if policy.existing is ExistingAnnotation.KEEP:
            return "its exclude annotations stay as they are (existing-annotation=keep)"
        return "its exclude annotations hold all that is configured"

    def why_beyond(self, names: Sequence[str]) -> str:
        """It is too late for annotations."""
        return (
            f"{joined(names)}: istio-init runs first, and its arguments were set at injection, so"
            " annotations have no effect"
        )

    def facts_of_satisfaction(self, found: Inspection) -> list[str]:
        """Both annotations and the configuration."""
        policy = found.policy
        return [
            annotation(found.pod, EXCLUDE_RANGES),
            f"configured ranges: {','.join(policy.ranges) or 'none'}",
            annotation(found.pod, EXCLUDE_PORTS),
            f"configured ports: {','.join(policy.ports) or 'none'}",
            f"existing-annotation: {policy.existing.value}",
        ]

    def facts_of_help(self, found: Inspection) -> list[str]:
        """Whether istio-init is there."""
        return [f"init container {ISTIO_INIT}: {presence(ISTIO_INIT in found.index)}"]

    def status(self, policy: Policy) -> str:
        """The ranges and the ports."""
        ranges = ",".join(policy.ranges) or "no ranges"
        ports = f" and ports {','.join(policy.ports)}" if policy.ports else ""
        return f"{self.kind.value} {ranges}{ports}"

    def warning(self, pod: Pod, patch: Sequence[PatchOperation]) -> str:
        """The annotations with their new values."""
        prefix = len(annotation_path(""))
        return "set " + ", ".join(f"{unescape(o.path[prefix:])}={o.value}" for o in patch)

    def advice(self, names: Sequence[str], configure: Configure) -> str:
        """Another way of redirection, or another remedy."""
        other = configure("remedy", RemedyKind.PROXY_GROUP.value)
        return f"turn on the mesh's CNI plugin or native sidecars, or: {other}"
