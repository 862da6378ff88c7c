"""Pods whose exclude annotations give their init containers what is configured."""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import EXCLUDE_PORTS, EXCLUDE_RANGES
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict


def _holds(found: Inspection) -> bool:
    return REMEDIES[found.policy.remedy].is_satisfied(found)


def _reason(found: Inspection) -> str:
    return REMEDIES[found.policy.remedy].why_satisfied(found.policy)


def _facts(found: Inspection) -> list[str]:
    return REMEDIES[found.policy.remedy].facts_of_satisfaction(found)


CHECK = Check(
    verdict=Verdict.ALREADY_EXCLUDED,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(f"metadata.annotations[{EXCLUDE_RANGES}]", f"metadata.annotations[{EXCLUDE_PORTS}]"),
    documentation=(
        "The Pod's exclude annotations hold all that is configured, or `existing-annotation` is"
        " `keep`."
    ),
)
