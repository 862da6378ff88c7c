"""Does the remedy arrive? A Pod created by server-side dry run tells, and nothing else does.

A policy that is stored, or even Ready, need not be in effect: the native kinds have no status, an
API server may serve them with the plugin switched off, and Kyverno's Ready outlives Kyverno. So a
Pod is sent through all of admission twice: once labelled so that no policy of ours acts on it,
which shows what Istio makes of it, and once for the policy that is asked about alone. The rule
says what the second must be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from init_egress.backends import manifests
from init_egress.backends.manifests import Application, BackendKind, Manifest
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Refused
from init_egress.kube.wait import poll
from init_egress.mesh.istiod import Mesh
from init_egress.rule.decision import decide
from init_egress.rule.istio import NATIVE_SIDECAR, SKIP_LABEL, SYSTEM_NAMESPACES
from init_egress.rule.patch import PatchOperation
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

NOBODY = "none"
"""The probe label that no policy answers."""

_NAMESPACES_TRIED = 5
_INJECTION_LABELS = ("sidecar.istio.io/inject", "istio.io/rev")
_CONNECTED = (
    Verdict.NATIVE_SIDECAR,
    Verdict.NOT_REDIRECTED,
    Verdict.ALREADY_EXEMPT,
    Verdict.ALREADY_EXCLUDED,
)
"""Verdicts on a Pod whose init containers have the network without the charm."""


class Effect(str, Enum):
    """What a dry run showed."""

    ARRIVES = "arrives"
    MISSING = "missing"
    REJECTED = "rejected"
    UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Verification:
    """What is known of the effect of one form.

    Attributes:
        effect: what the dry run showed.
        detail: where, or why nothing could be shown, in the API server's words if it said no.
        milliseconds: how long the creation took, with all of admission; 0 if there was none.
        verdict: the rule's verdict on the Pod without the charm, if there was one.
        native_sidecars: whether Pods have native sidecars there unless they opt out.
    """

    effect: Effect
    detail: str
    milliseconds: int = 0
    verdict: Verdict | None = None
    native_sidecars: bool = False


def mesh_namespaces(
    namespaces: Iterable[Namespace], policy: Policy, mesh: Mesh
) -> list[Namespace]:
    """The namespaces that Istio injects as a whole and that the charm may act in."""
    return [
        namespace
        for namespace in namespaces
        if namespace.name not in SYSTEM_NAMESPACES
        and namespace.labels.get(SKIP_LABEL) != "true"
        and policy.namespaces.matches(namespace.labels)
        and _is_injected(namespace, mesh)
    ]


def _is_injected(namespace: Namespace, mesh: Mesh) -> bool:
    injection = namespace.labels.get("istio-injection")
    if injection is not None:
        return injection == "enabled"
    return "istio.io/rev" in namespace.labels or mesh.injects_by_default


def verify(
    cluster: Cluster,
    candidates: Sequence[Namespace],
    policy: Policy,
    owner: Application,
    form: BackendKind,
    patience: float,
) -> Verification:
    """Show whether the remedy arrives by one form.

    Args:
        cluster: where.
        candidates: namespaces to try; the first that shows anything decides.
        policy: what the operator configured.
        owner: whose objects.
        form: which of them.
        patience: seconds to wait for objects just written to take effect (1 to 3 s for the native
            kinds, 2 to 6 s for a ClusterPolicy).

    Raises:
        ClusterError: the cluster can't be asked.
    """
    if not candidates:
        return Verification(Effect.UNVERIFIED, "no namespace of the mesh yet")
    reasons: list[str] = []
    for namespace in candidates[:_NAMESPACES_TRIED]:
        found = examine(cluster, namespace, policy, owner.probe(form), patience)
        if found.effect in (Effect.ARRIVES, Effect.MISSING):
            return found
        reasons.append(found.detail)
    return Verification(Effect.UNVERIFIED, reasons[0])


def examine(
    cluster: Cluster, namespace: Namespace, policy: Policy, label: str, patience: float
) -> Verification:
    """Show whether the remedy arrives in one namespace; that admission says no is an answer too.

    A Pod like any other is asked about first, then one without a native sidecar.

    Args:
        cluster: where.
        namespace: the namespace, of the mesh or not.
        policy: what the operator configured.
        label: the probe label of the form that is asked about.
        patience: seconds to wait for it to take effect.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    try:
        found = prove(cluster, namespace, policy, manifests.probe_pod(policy), label, patience)
        if found.verdict is not Verdict.NATIVE_SIDECAR:
            return found
        without = manifests.probe_pod(policy, annotations={NATIVE_SIDECAR: "false"})
        found = prove(cluster, namespace, policy, without, label, patience)
        return replace(found, native_sidecars=True)
    except Refused as refused:
        return Verification(Effect.REJECTED, str(refused))


def injection(pod: Pod) -> tuple[tuple[str, str], ...]:
    """The labels and the annotation by which a Pod itself has a say in how Istio injects it."""
    chosen = [(key, pod.labels[key]) for key in _INJECTION_LABELS if key in pod.labels]
    if NATIVE_SIDECAR in pod.annotations:
        chosen.append((NATIVE_SIDECAR, pod.annotations[NATIVE_SIDECAR]))
    return tuple(chosen)


def doubt(
    cluster: Cluster, namespace: Namespace, policy: Policy, pod: Pod, label: str, patience: float
) -> str:
    """Why a Pod that is made anew might be cut off again; empty if a dry run shows that it isn't.

    Args:
        cluster: where.
        namespace: the Pod's namespace.
        policy: what the operator configured.
        pod: the Pod; what it says about its injection is tried.
        label: the probe label of the form that is in force.
        patience: seconds to wait for the form to take effect.
    """
    chosen = dict(injection(pod))
    native = {NATIVE_SIDECAR: chosen.pop(NATIVE_SIDECAR)} if NATIVE_SIDECAR in chosen else {}
    probe = manifests.probe_pod(policy, labels=chosen, annotations=native)
    try:
        found = prove(cluster, namespace, policy, probe, label, patience)
    except ClusterError as error:
        return f"whether a Pod made anew gets the remedy is not known: {error}"
    if found.effect is Effect.ARRIVES or found.verdict in _CONNECTED:
        return ""
    if found.effect is Effect.MISSING:
        return f"a Pod made anew in {namespace.name} does not get the remedy now"
    return f"whether a Pod made anew gets the remedy is not known: {found.detail}"


def prove(
    cluster: Cluster,
    namespace: Namespace,
    policy: Policy,
    pod: Manifest,
    label: str,
    patience: float,
) -> Verification:
    """Show whether one form does to a Pod what the rule says.

    Args:
        cluster: where.
        namespace: the Pod's namespace.
        policy: what the operator configured.
        pod: the Pod, which is never stored.
        label: the probe label of the form that is asked about.
        patience: seconds to wait for it to take effect.

    Raises:
        Refused: admission rejects the Pod.
        ClusterError: the cluster can't be asked.
    """
    injected = cluster.dry_run(namespace.name, manifests.labelled(pod, NOBODY))
    decision = decide(Pod.from_dict(injected), namespace, policy)
    if decision.verdict is not Verdict.NEEDS_REMEDY:
        detail = (
            f"a Pod in {namespace.name} is {decision.verdict.value} without the charm:"
            f" {decision.reason}"
        )
        return Verification(Effect.UNVERIFIED, detail, verdict=decision.verdict)

    def attempt() -> Verification:
        begun = time.monotonic()
        found = cluster.dry_run(namespace.name, manifests.labelled(pod, label))
        took = round((time.monotonic() - begun) * 1000)
        arrives = all(holds(found, operation) for operation in decision.patch)
        effect = Effect.ARRIVES if arrives else Effect.MISSING
        return Verification(effect, namespace.name, took, decision.verdict)

    return poll(attempt, lambda found: found.effect is Effect.ARRIVES, patience)


def holds(pod: Manifest, operation: PatchOperation) -> bool:
    """Tell whether the Pod is as a patch operation leaves it; further fields don't matter."""
    found: object = pod
    for step in operation.path.split("/")[1:]:
        found = _child(found, step.replace("~1", "/").replace("~0", "~"))
    if isinstance(operation.value, dict):
        return isinstance(found, dict) and operation.value.items() <= found.items()
    return found == operation.value


def _child(value: object, key: str) -> object:
    if isinstance(value, list):
        return value[int(key)] if int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None
