"""Pods whose cut-off init containers all run as the proxy's user or group.

Traffic of the proxy's user and of its group is never redirected
(https://github.com/istio/istio/blob/master/tools/istio-iptables/pkg/capture/run.go).
"""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Container, Pod
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import names_of


def _holds(found: Inspection) -> bool:
    return not found.unexempt


def _reason(found: Inspection) -> str:
    return f"{names_of(found.cut_off)} run as the proxy's user or group"


def _facts(found: Inspection) -> list[str]:
    return [
        f"never redirected: the proxy's user {found.uid} and group {found.gid}",
        *(f"{c.name} runs as {_identity(c, found.pod)}" for c in found.cut_off),
    ]


def _identity(container: Container, pod: Pod) -> str:
    own, shared = container.security_context, pod.spec.security_context
    user = _effective("user", own and own.run_as_user, shared and shared.run_as_user)
    group = _effective("group", own and own.run_as_group, shared and shared.run_as_group)
    return f"{user} and {group}"


def _effective(title: str, own: int | None, shared: int | None) -> str:
    if own is not None:
        return f"{title} {own}"
    return f"the image's {title}" if shared is None else f"{title} {shared}, which is the Pod's"


CHECK = Check(
    verdict=Verdict.ALREADY_EXEMPT,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(
        "spec.initContainers[*].securityContext.runAsUser",
        "spec.initContainers[*].securityContext.runAsGroup",
        "spec.securityContext.runAsUser",
        "spec.securityContext.runAsGroup",
        "spec.containers[istio-proxy].securityContext",
    ),
    documentation=(
        "Each init container that is cut off runs as the proxy's user or group, whose traffic is"
        " never redirected."
    ),
)
