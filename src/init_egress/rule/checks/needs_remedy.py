"""All other Pods: some init container is cut off, and the remedy can help."""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import change, joined, names_of


def _holds(_: Inspection) -> bool:
    return True


def _reason(found: Inspection) -> str:
    return f"{joined(found.unexempt_names)} cut off before the sidecar runs"


def _facts(found: Inspection) -> list[str]:
    patch = REMEDIES[found.policy.remedy].patch(found)
    return [
        f"cut off and not exempt: {names_of(found.unexempt)}",
        *(f"the remedy sets {change(found.pod, operation)}" for operation in patch),
    ]


CHECK = Check(
    verdict=Verdict.NEEDS_REMEDY,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(),
    documentation="Everything else: the charm changes the Pod as it is created.",
    is_cut_off=True,
)
