"""Pods that Istio did not inject.

Istio writes the annotation on every Pod that it injects, whatever the template
(https://github.com/istio/istio/blob/master/pkg/kube/inject/webhook.go, applyMetadata).
"""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import STATUS
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import presence


def _holds(found: Inspection) -> bool:
    return not found.is_injected


def _reason(found: Inspection) -> str:
    return f"Istio did not inject it: no annotation {STATUS}"


def _facts(found: Inspection) -> list[str]:
    return [f"annotation {STATUS}: {presence(found.is_injected)}"]


CHECK = Check(
    verdict=Verdict.NOT_INJECTED,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(f"metadata.annotations[{STATUS}]",),
    documentation=(
        f"The annotation `{STATUS}` is absent: hostNetwork, injection switched off, a namespace"
        " outside the mesh, or ambient."
    ),
)
