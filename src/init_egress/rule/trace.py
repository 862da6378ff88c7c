"""Why a Pod has its verdict: the rule's checks in order, with what was read for each."""

from __future__ import annotations

import msgspec

from init_egress.rule.checks import CHECKS
from init_egress.rule.inspection import Inspection
from init_egress.rule.verdict import Verdict


class TraceStep(msgspec.Struct, frozen=True):
    """One check of the rule.

    Attributes:
        verdict: the verdict that is asked about.
        fits: whether it holds; then it is the last one.
        read: what was read to tell, a fact each.
    """

    verdict: Verdict
    fits: bool
    read: tuple[str, ...]


def trace(found: Inspection) -> tuple[TraceStep, ...]:
    """Walk the checks up to the first that holds; its verdict is that of `decision.decide_on`.

    Args:
        found: the Pod under inspection.
    """
    steps: list[TraceStep] = []
    for check in CHECKS:
        fits = check.holds(found)
        steps.append(TraceStep(check.verdict, fits, tuple(check.facts(found))))
        if fits:
            break
    return tuple(steps)
