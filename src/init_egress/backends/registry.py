"""All backends, in the order in which `backend=auto` prefers them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from init_egress.backends.backend import Backend, BackendKind
from init_egress.backends.kyverno import ClusterPolicyBackend, MutatingPolicyBackend
from init_egress.backends.native import NativeBackend
from init_egress.backends.policy import PolicyBackend
from init_egress.backends.webhook import WebhookBackend

NATIVE = NativeBackend()
CLUSTER_POLICY = ClusterPolicyBackend()
MUTATING_POLICY = MutatingPolicyBackend()
WEBHOOK = WebhookBackend()

BACKENDS: Mapping[BackendKind, Backend] = MappingProxyType(
    {backend.kind: backend for backend in (NATIVE, CLUSTER_POLICY, MUTATING_POLICY, WEBHOOK)}
)
POLICY_BACKENDS: tuple[PolicyBackend, ...] = (NATIVE, CLUSTER_POLICY, MUTATING_POLICY)
"""Those that can be rendered without a cluster."""
