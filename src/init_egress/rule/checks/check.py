"""What a check is: the question whether one verdict holds, and how it is answered in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from init_egress.rule.inspection import Inspection
from init_egress.rule.verdict import Verdict


@dataclass(frozen=True)
class Check:
    """One question of the rule.

    Attributes:
        verdict: the verdict that is asked about.
        holds: whether it holds for a Pod, given that no verdict before it does.
        reason: why it holds, in one sentence without a full stop.
        facts: what was read to tell, a fact each, for whoever wants an explanation.
        fields: the fields that are read, as `kubectl explain` writes them.
        documentation: when it holds, for an operator; Markdown.
        is_cut_off: whether init containers have no network under this verdict.
    """

    verdict: Verdict
    holds: Callable[[Inspection], bool]
    reason: Callable[[Inspection], str]
    facts: Callable[[Inspection], list[str]]
    fields: tuple[str, ...]
    documentation: str
    is_cut_off: bool = False
