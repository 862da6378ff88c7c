"""Pods that their author, their namespace or the operator's selectors leave out."""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import SKIP_LABEL
from init_egress.rule.verdict import Verdict


def _holds(found: Inspection) -> bool:
    return bool(_reason(found))


def _reason(found: Inspection) -> str:
    """Why the Pod is left out; empty if it isn't."""
    pod, namespace, policy = found.pod, found.namespace, found.policy
    if pod.labels.get(SKIP_LABEL) == "true":
        return f"the Pod is labelled {SKIP_LABEL}=true"
    if namespace.labels.get(SKIP_LABEL) == "true":
        return f"namespace {namespace.name} is labelled {SKIP_LABEL}=true"
    if not policy.namespaces.matches(namespace.labels):
        return f"namespace-selector {policy.namespaces} does not match {namespace.name}"
    if not policy.pods.matches(pod.labels):
        return f"pod-selector {policy.pods} does not match the Pod"
    return ""


def _facts(found: Inspection) -> list[str]:
    pod, namespace, policy = found.pod, found.namespace, found.policy
    facts = [
        f"label {SKIP_LABEL} of the Pod: {pod.labels.get(SKIP_LABEL, 'absent')}",
        f"label {SKIP_LABEL} of namespace {namespace.name}:"
        f" {namespace.labels.get(SKIP_LABEL, 'absent')}",
    ]
    if policy.namespaces.requirements:
        matches = policy.namespaces.matches(namespace.labels)
        facts.append(f"namespace-selector {policy.namespaces}: {_matching(matches)}")
    if policy.pods.requirements:
        matches = policy.pods.matches(pod.labels)
        facts.append(f"pod-selector {policy.pods}: {_matching(matches)}")
    return facts


def _matching(matches: bool) -> str:
    return "matches" if matches else "does not match"


CHECK = Check(
    verdict=Verdict.OPTED_OUT,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=("metadata.labels", "the Namespace's metadata.labels"),
    documentation=(
        f'The label `{SKIP_LABEL}: "true"` is on the Pod or on its namespace, or'
        " `namespace-selector` or `pod-selector` does not match."
    ),
)
