"""Pods for which the remedy in force can change nothing."""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict


def _holds(found: Inspection) -> bool:
    return not REMEDIES[found.policy.remedy].can_help(found)


def _reason(found: Inspection) -> str:
    return REMEDIES[found.policy.remedy].why_beyond(found.unexempt_names)


def _facts(found: Inspection) -> list[str]:
    remedy = REMEDIES[found.policy.remedy]
    return [f"remedy: {remedy.kind.value}", *remedy.facts_of_help(found)]


CHECK = Check(
    verdict=Verdict.BEYOND_REMEDY,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(
        "spec.initContainers[*].name",
        "spec.initContainers[*].securityContext",
    ),
    documentation=(
        "Cut off, but the remedy in force can change nothing for it: annotations behind"
        " `istio-init`, whose arguments are fixed; a user or group that the author named."
    ),
    is_cut_off=True,
)
