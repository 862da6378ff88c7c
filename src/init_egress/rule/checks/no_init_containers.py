"""Pods without an init container that could need a network."""

from __future__ import annotations

from collections.abc import Container

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import ISTIO_CONTAINERS
from init_egress.rule.verdict import Verdict


def _holds(found: Inspection) -> bool:
    return not found.user_containers


def _reason(found: Inspection) -> str:
    return "it has only Istio's own and ignored init containers, or none"


def _facts(found: Inspection) -> list[str]:
    return [
        f"init container {container.name}: {_whose(container.name, found.policy.ignored)}"
        for container in found.pod.init_containers
    ] or ["init containers: none"]


def _whose(name: str, ignored: Container[str]) -> str:
    if name in ISTIO_CONTAINERS:
        return "Istio's own"
    return "ignored by ignore-init-containers" if name in ignored else "the user's"


CHECK = Check(
    verdict=Verdict.NO_INIT_CONTAINERS,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=("spec.initContainers[*].name",),
    documentation=(
        f"No init container but Istio's own ({', '.join(ISTIO_CONTAINERS)}) and those named in"
        " `ignore-init-containers`."
    ),
)
