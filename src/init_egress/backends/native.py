"""The native backend: Kubernetes' own MutatingAdmissionPolicy, with a binding for each injection.

Kubernetes has no status for these kinds, so only a dry run shows whether they are in effect.
"""

from __future__ import annotations

from init_egress.backends.backend import BackendKind, Capabilities
from init_egress.backends.policy import PolicyBackend
from init_egress.config import BackendChoice
from init_egress.kube.kinds import NATIVE_POLICY


class NativeBackend(PolicyBackend):
    """A MutatingAdmissionPolicy and its bindings."""

    kind = BackendKind.NATIVE
    title = "native"
    choice = BackendChoice.NATIVE
    resource = NATIVE_POLICY
    requires = "MutatingAdmissionPolicy (Kubernetes 1.36 or later)"
    capabilities = Capabilities()
    templates = ("native/policy.yaml.j2", "native/bindings.yaml.j2")
