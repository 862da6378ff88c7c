"""The rule: which Pods need a remedy, why, and what the remedy changes.

One rule decides about every Pod, in every backend, in the audit and in the actions. It looks at
the Pod as Istio injected it and never guesses what Istio will do. It is pure: it knows no cluster
and no charm. Its questions are in `init_egress.rule.checks`, asked in order.
"""

from __future__ import annotations

import msgspec

from init_egress.rule.checks import CHECKS
from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.patch import PatchOperation
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict

*_ASKED, _LAST = CHECKS  # the last one always holds


class Decision(msgspec.Struct, frozen=True):
    """The verdict on one Pod.

    Attributes:
        verdict: the first verdict that fits.
        reason: why, in one sentence without a full stop.
        cut_off: names of the init containers that have no network and aren't exempt.
        patch: what the remedy changes; empty unless the verdict is needs-remedy.
    """

    verdict: Verdict
    reason: str
    cut_off: tuple[str, ...] = ()
    patch: tuple[PatchOperation, ...] = ()


def decide(pod: Pod, namespace: Namespace, policy: Policy) -> Decision:
    """Decide about one Pod.

    Args:
        pod: the Pod as injected: in the last admission round, or as stored.
        namespace: the namespace it is created in (its own metadata may not name one yet).
        policy: what the operator configured.
    """
    return decide_on(Inspection(pod, namespace, policy))


def decide_on(found: Inspection) -> Decision:
    """Decide about a Pod under inspection, whose facts are of use to the caller as well."""
    check = _first_that_holds(found)
    if not check.is_cut_off:
        return Decision(check.verdict, check.reason(found))
    patch: tuple[PatchOperation, ...] = ()
    if check.verdict is Verdict.NEEDS_REMEDY:
        patch = REMEDIES[found.policy.remedy].patch(found)
    return Decision(check.verdict, check.reason(found), found.unexempt_names, patch)


def _first_that_holds(found: Inspection) -> Check:
    """The check whose verdict the Pod gets."""
    for check in _ASKED:
        if check.holds(found):
            return check
    return _LAST
