"""Namespaces of Kubernetes itself, which Istio's injector leaves alone too.

`ignoredNamespaces` and the injector's own list:
https://github.com/istio/istio/blob/master/pkg/kube/inject/inject.go (IgnoredNamespaces).
"""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import SYSTEM_NAMESPACES
from init_egress.rule.verdict import Verdict


def _holds(found: Inspection) -> bool:
    return found.namespace.name in SYSTEM_NAMESPACES


def _reason(found: Inspection) -> str:
    return f"{found.namespace.name} is a system namespace"


def _facts(found: Inspection) -> list[str]:
    return [f"namespace: {found.namespace.name}"]


CHECK = Check(
    verdict=Verdict.SYSTEM_NAMESPACE,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=("metadata.namespace",),
    documentation=(
        f"The Pod's namespace is one of {', '.join(SYSTEM_NAMESPACES)}, which Istio passes over"
        " too."
    ),
)
