"""The Kyverno backends: a policy of either of Kyverno's kinds.

Kyverno says in the policy's status whether it is ready. That is asked only where a dry run shows
nothing, since the status outlives Kyverno.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from init_egress.backends.backend import BackendKind, Capabilities
from init_egress.backends.policy import PolicyBackend
from init_egress.config import BackendChoice, PolicyKind
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import CLUSTER_POLICY, MUTATING_POLICY
from init_egress.kube.manifest import mapping
from init_egress.kube.wait import poll

_OWN_OPTIONS = frozenset({"kyverno-policy-kind"})


class _KyvernoBackend(PolicyBackend, ABC):
    choice = BackendChoice.KYVERNO
    remedy_for_absence = "install Kyverno"

    def why_not_ready(self, cluster: Cluster, application: Application, timeout: float) -> str:
        """See `Backend.why_not_ready`."""

        def read() -> bool:
            policy = cluster.get(self.resource, self.object_name(application))
            return self._is_ready(mapping((policy or {}).get("status")))

        if poll(read, lambda ready: ready, timeout):
            return ""
        return "Kyverno does not report the policy Ready"

    def deprecation(self, cluster: Cluster) -> str:
        """See `Backend.deprecation`."""
        return cluster.deprecation(self.resource)

    @abstractmethod
    def _is_ready(self, status: Mapping[str, object]) -> bool:
        """Whether the policy's status says Ready."""


class ClusterPolicyBackend(_KyvernoBackend):
    """A ClusterPolicy, with the rule in JMESPath."""

    kind = BackendKind.CLUSTER_POLICY
    title = "kyverno (ClusterPolicy)"
    policy_kind = PolicyKind.CLUSTER_POLICY
    resource = CLUSTER_POLICY
    requires = "ClusterPolicy"
    capabilities = Capabilities(own_options=_OWN_OPTIONS)
    templates = ("kyverno/cluster-policy.yaml.j2",)

    def _is_ready(self, status: Mapping[str, object]) -> bool:
        conditions = status.get("conditions")
        if not isinstance(conditions, list):
            return False
        return any((c.get("type"), c.get("status")) == ("Ready", "True") for c in conditions)


class MutatingPolicyBackend(_KyvernoBackend):
    """A MutatingPolicy, with the rule in CEL.

    Kyverno does not ask the API server to call it again for these policies, so it misses what a
    later webhook adds (https://github.com/kyverno/kyverno/issues/17282).
    """

    kind = BackendKind.MUTATING_POLICY
    title = "kyverno (MutatingPolicy)"
    policy_kind = PolicyKind.MUTATING_POLICY
    resource = MUTATING_POLICY
    requires = "MutatingPolicy"
    capabilities = Capabilities(own_options=_OWN_OPTIONS, sees_later_webhooks=False)
    templates = ("kyverno/mutating-policy.yaml.j2",)

    def _is_ready(self, status: Mapping[str, object]) -> bool:
        return mapping(status.get("conditionStatus")).get("ready") is True
