"""Does the remedy arrive? A Pod created by server-side dry run tells, and nothing else does.

A policy that is stored, or even Ready, need not be in effect: the native kinds have no status, an
API server may serve them with the plugin switched off, and Kyverno's Ready outlives Kyverno. So a
Pod is sent through all of admission twice: once labelled so that no backend acts on it, which
shows what Istio makes of it, and once for the backend that is tried. The rule says what the second
must be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from init_egress.backends.backend import Backend
from init_egress.backends.effect import CONNECTED, Effect, Verification
from init_egress.backends.probe import NO_BACKEND, labelled, probe_pod
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Refused
from init_egress.kube.manifest import Manifest
from init_egress.kube.wait import poll
from init_egress.mesh.istiod import Mesh
from init_egress.rule.decision import decide
from init_egress.rule.istio import NATIVE_SIDECAR, SKIP_LABEL, SYSTEM_NAMESPACES
from init_egress.rule.patch import PatchOperation, unescape
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy
from init_egress.rule.verdict import Verdict

SEARCH_SECONDS = 30.0
"""How long namespaces are tried one after another for one where the effect shows."""

_INJECTION_LABELS = ("sidecar.istio.io/inject", "istio.io/rev")


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


@dataclass(frozen=True)
class Prover:
    """Shows by dry runs whether the remedy arrives.

    Attributes:
        cluster: where.
        policy: what the operator configured.
        application: whose backend.
        backend: the backend that is tried.
        timeout: seconds to wait for objects just written to take effect (1 to 3 s for the native
            kinds, 2 to 6 s for a ClusterPolicy).
    """

    cluster: Cluster
    policy: Policy
    application: Application
    backend: Backend
    timeout: float = 0.0

    def verify(self, candidates: Sequence[Namespace]) -> Verification:
        """Show whether the remedy arrives on the cluster.

        Args:
            candidates: namespaces to try; the first that shows whether it does decides.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        if not candidates:
            return Verification(
                Effect.UNVERIFIED, "no namespace of the mesh yet", nothing_to_lose=True
            )
        tried: list[Verification] = []
        end = time.monotonic() + SEARCH_SECONDS
        for namespace in candidates:
            found = self.examine(namespace)
            if found.effect in (Effect.ARRIVES, Effect.MISSING):
                return found
            tried.append(found)
            if time.monotonic() >= end:
                break
        return _summary(tried, complete=len(tried) == len(candidates))

    def examine(self, namespace: Namespace) -> Verification:
        """Show whether the remedy arrives in one namespace; that admission rejects is an answer.

        A Pod like any other is tried first, then one without a native sidecar.

        Args:
            namespace: the namespace, of the mesh or not.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        try:
            found = self.prove(namespace, probe_pod(self.policy))
            if found.verdict is not Verdict.NATIVE_SIDECAR:
                return found
            without = probe_pod(self.policy, annotations={NATIVE_SIDECAR: "false"})
            return replace(self.prove(namespace, without), native_sidecars=True)
        except ClusterError as error:
            if not error.means_rejected:
                raise
            # What isn't a refusal is a webhook that can't be called and fails closed.
            call_failed = not isinstance(error, Refused)
            return Verification(Effect.REJECTED, str(error), call_failed=call_failed)

    def would_recur(self, namespace: Namespace, pod: Pod) -> str:
        """Why a Pod that is recreated might be cut off again; empty if a dry run shows otherwise.

        Args:
            namespace: the Pod's namespace.
            pod: the Pod; what it says about its injection is tried.
        """
        chosen = dict(injection(pod))
        native = {NATIVE_SIDECAR: chosen.pop(NATIVE_SIDECAR)} if NATIVE_SIDECAR in chosen else {}
        probe = probe_pod(self.policy, labels=chosen, annotations=native)
        try:
            found = self.prove(namespace, probe)
        except ClusterError as error:
            return f"whether a Pod recreated gets the remedy is not known: {error}"
        if found.effect is Effect.ARRIVES or found.verdict in CONNECTED:
            return ""
        if found.effect is Effect.MISSING:
            return f"a Pod recreated in {namespace.name} does not get the remedy now"
        return f"whether a Pod recreated gets the remedy is not known: {found.detail}"

    def prove(self, namespace: Namespace, pod: Manifest) -> Verification:
        """Show whether the backend does to a Pod what the rule says.

        Args:
            namespace: the Pod's namespace.
            pod: the Pod, which is never stored.

        Raises:
            Refused: admission rejects the Pod.
            ClusterError: the cluster can't be asked.
        """
        injected = self.cluster.dry_run(namespace.name, labelled(pod, NO_BACKEND))
        decision = decide(Pod.from_dict(injected), namespace, self.policy)
        if decision.verdict is not Verdict.NEEDS_REMEDY:
            detail = (
                f"a Pod in {namespace.name} is {decision.verdict.value} without the charm:"
                f" {decision.reason}"
            )
            return Verification(Effect.UNVERIFIED, detail, verdict=decision.verdict)
        probe = labelled(pod, self.backend.probe_label(self.application))

        def attempt() -> Verification:
            begun = time.monotonic()
            found = self.cluster.dry_run(namespace.name, probe)
            took = round((time.monotonic() - begun) * 1000)
            arrives = all(holds(found, operation) for operation in decision.patch)
            effect = Effect.ARRIVES if arrives else Effect.MISSING
            return Verification(effect, namespace.name, took, decision.verdict)

        return poll(attempt, lambda found: found.effect is Effect.ARRIVES, self.timeout)


def _summary(tried: Sequence[Verification], *, complete: bool) -> Verification:
    """What namespaces show together in none of which the backend had anything to do."""
    first = tried[0]
    rejected = all(found.effect is Effect.REJECTED for found in tried)
    return replace(
        first,
        effect=Effect.REJECTED if rejected else Effect.UNVERIFIED,
        nothing_to_lose=complete and all(found.verdict in CONNECTED for found in tried),
        call_failed=any(found.call_failed for found in tried),
    )


def injection(pod: Pod) -> tuple[tuple[str, str], ...]:
    """The labels and the annotation by which a Pod itself has a say in how Istio injects it."""
    chosen = [(key, pod.labels[key]) for key in _INJECTION_LABELS if key in pod.labels]
    if NATIVE_SIDECAR in pod.annotations:
        chosen.append((NATIVE_SIDECAR, pod.annotations[NATIVE_SIDECAR]))
    return tuple(chosen)


def holds(pod: Manifest, operation: PatchOperation) -> bool:
    """Tell whether the Pod is as a patch operation leaves it; further fields don't matter."""
    found: object = pod
    for step in operation.path.split("/")[1:]:
        found = _child(found, unescape(step))
    if isinstance(operation.value, dict):
        return isinstance(found, dict) and operation.value.items() <= found.items()
    return found == operation.value


def _child(value: object, key: str) -> object:
    if isinstance(value, list):
        return value[int(key)] if int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None
