"""Pods whose init containers all start after a native sidecar.

A restartable init container has started before the next one does
(https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/).
"""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import ISTIO_PROXY
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import names_of


def _holds(found: Inspection) -> bool:
    end = found.index.get(ISTIO_PROXY)
    if end is None or found.cut_off:
        return False
    return all(found.index[container.name] >= end for container in found.user_containers)


def _reason(found: Inspection) -> str:
    return f"{names_of(found.user_containers)} start after the native sidecar {ISTIO_PROXY}"


def _facts(found: Inspection) -> list[str]:
    return [
        f"order of init containers: {names_of(found.pod.init_containers)}",
        f"cut off: {names_of(found.cut_off)}",
    ]


CHECK = Check(
    verdict=Verdict.NATIVE_SIDECAR,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=("spec.initContainers[*].name",),
    documentation=(
        "Each init container starts after a native `istio-proxy`, and has the sidecar's network."
    ),
)
