"""Pods whose init containers are not cut off for another reason.

When the CNI plugin leaves a Pod alone:
https://github.com/istio/istio/blob/master/cni/pkg/plugin/plugin.go (doAddRun).
"""

from __future__ import annotations

from init_egress.rule.checks.check import Check
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import (
    INCLUDE_PORTS,
    INCLUDE_RANGES,
    INTERCEPTION_MODE,
    ISTIO_INIT,
    ISTIO_PROXY,
)
from init_egress.rule.pod import Container
from init_egress.rule.verdict import Verdict
from init_egress.rule.words import annotation, names_of, presence, quoted


def _holds(found: Inspection) -> bool:
    return not found.cut_off


def _reason(found: Inspection) -> str:
    return f"the traffic of {names_of(found.user_containers)} is not redirected to a proxy"


def _facts(found: Inspection) -> list[str]:
    proxy, pod = found.proxy, found.pod
    facts = [f"container {ISTIO_PROXY}: {presence(proxy is not None)}"]
    if proxy:
        facts += [
            f"its first arguments: {_arguments(proxy)}",
            f"its variable DISABLE_ENVOY: {_disable_envoy(proxy)}",
        ]
    return [
        *facts,
        annotation(pod, INTERCEPTION_MODE),
        annotation(pod, INCLUDE_RANGES),
        annotation(pod, INCLUDE_PORTS),
        f"init container {ISTIO_INIT}: {presence(ISTIO_INIT in found.index)}",
        f"cut off: {names_of(found.cut_off)}",
    ]


def _arguments(proxy: Container) -> str:
    first = " ".join((proxy.args or ())[:2])
    return quoted(first) if first else "none"


def _disable_envoy(proxy: Container) -> str:
    values = [variable.value for variable in proxy.env or () if variable.name == "DISABLE_ENVOY"]
    return quoted(values[-1]) if values else "absent"


CHECK = Check(
    verdict=Verdict.NOT_REDIRECTED,
    holds=_holds,
    reason=_reason,
    facts=_facts,
    fields=(
        "spec.containers[istio-proxy].args",
        "spec.containers[istio-proxy].env[DISABLE_ENVOY]",
        f"metadata.annotations[{INTERCEPTION_MODE}]",
        f"metadata.annotations[{INCLUDE_RANGES}]",
        f"metadata.annotations[{INCLUDE_PORTS}]",
        "spec.initContainers[*].name",
    ),
    documentation=(
        "None is cut off for another reason: no `istio-proxy` of the type sidecar,"
        " `DISABLE_ENVOY`, `interceptionMode: NONE`, nothing included, or `istio-init` runs later."
    ),
)
