"""The cluster as the API server shows it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import httpx2
import lightkube
from lightkube.core.exceptions import ApiError
from lightkube.core.resource import GlobalResource, NamespacedResource
from lightkube.generic_resource import create_global_resource
from lightkube.models.authorization_v1 import ResourceAttributes, SubjectAccessReviewSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.admissionregistration_v1 import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    MutatingWebhookConfiguration,
)
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.authorization_v1 import SubjectAccessReview
from lightkube.resources.core_v1 import (
    ConfigMap,
    Namespace,
    Pod,
    Secret,
    Service,
    ServiceAccount,
)
from lightkube.resources.networking_v1 import NetworkPolicy
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.integration import names
from tests.integration.pods import INJECTED_NAMESPACE_LABELS, StoredPod

CLUSTER_POLICY = create_global_resource("kyverno.io", "v1", "ClusterPolicy", "clusterpolicies")
MUTATING_POLICY = create_global_resource(
    "policies.kyverno.io", "v1", "MutatingPolicy", "mutatingpolicies"
)

KINDS: Mapping[str, type[GlobalResource]] = {
    "MutatingAdmissionPolicy": MutatingAdmissionPolicy,
    "MutatingAdmissionPolicyBinding": MutatingAdmissionPolicyBinding,
    "MutatingWebhookConfiguration": MutatingWebhookConfiguration,
    "ClusterPolicy": CLUSTER_POLICY,
    "MutatingPolicy": MUTATING_POLICY,
}
"""Every cluster-wide kind that a backend may write."""

WORKLOAD_KINDS: Mapping[str, type[NamespacedResource]] = {
    "ConfigMap": ConfigMap,
    "Deployment": Deployment,
    "NetworkPolicy": NetworkPolicy,
    "PodDisruptionBudget": PodDisruptionBudget,
    "Secret": Secret,
    "Service": Service,
    "ServiceAccount": ServiceAccount,
}
"""What the webhook's workload is made of."""

BACKEND_KINDS: Mapping[str, tuple[str, ...]] = {
    "native": ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    "kyverno": ("ClusterPolicy", "MutatingPolicy"),
    "webhook": ("MutatingWebhookConfiguration", *WORKLOAD_KINDS),
}


class Written(NamedTuple):
    """An object of the charm's on the cluster."""

    kind: str
    name: str


class Cluster:
    """Asks the API server of the user's kubeconfig."""

    def __init__(self, client: lightkube.Client) -> None:
        self._client = client

    def served_backends(self) -> tuple[str, ...]:
        """The backends whose kinds this cluster serves, in the order of `auto`."""
        return tuple(
            backend
            for backend, kinds in BACKEND_KINDS.items()
            if any(self._list(kind) is not None for kind in kinds if kind in KINDS)
        )

    def written(self, model: str) -> set[Written]:
        """All that the application of a model wrote; a kind that isn't served holds nothing."""
        labels = {names.APPLICATION_LABEL: names.APP, names.MODEL_LABEL: model}
        policies = {
            Written(kind, item.metadata.name)
            for kind in KINDS
            for item in self._list(kind, labels) or ()
        }
        workload = {
            Written(kind, item.metadata.name)
            for kind in WORKLOAD_KINDS
            for item in self._everywhere(kind, labels)
        }
        return policies | workload

    def may_write_policies(self, namespace: str, account: str) -> bool:
        """Whether a service account may create what the native backend writes."""
        review = SubjectAccessReview(
            spec=SubjectAccessReviewSpec(
                user=f"system:serviceaccount:{namespace}:{account}",
                groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
                resourceAttributes=ResourceAttributes(
                    group="admissionregistration.k8s.io",
                    version="v1",
                    resource="mutatingadmissionpolicies",
                    verb="create",
                ),
            )
        )
        answer = self._client.create(review).status
        return answer is not None and answer.allowed

    @contextmanager
    def mesh_namespace(self) -> Iterator[str]:
        """A namespace that Istio injects into, if it is there; deleted at the end."""
        name = f"init-egress-{secrets.token_hex(4)}"
        labels = dict(INJECTED_NAMESPACE_LABELS)
        self._client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
        try:
            yield name
        finally:
            self._client.delete(Namespace, name)

    def has_namespace(self, name: str) -> bool:
        """Whether there is such a namespace."""
        return any(self._client.list(Namespace, fields={"metadata.name": name}))

    def takes_pods(self, namespace: str) -> bool:
        """Whether the namespace has the service account that every Pod in it needs."""
        return any(
            self._client.list(
                ServiceAccount, namespace=namespace, fields={"metadata.name": "default"}
            )
        )

    def create(self, pod: Mapping[str, Any], namespace: str) -> StoredPod:
        """What the API server makes of a Pod, without anything being started."""
        try:
            stored = self._client.create(_typed(pod), namespace=namespace, dry_run=True)
        except ApiError as error:
            if not _refuses_dry_runs(error):
                raise
            return self._create_and_delete(pod, namespace)
        return StoredPod.from_dict(stored.to_dict())

    def _create_and_delete(self, pod: Mapping[str, Any], namespace: str) -> StoredPod:
        stored = self._client.create(_typed(pod), namespace=namespace)
        read = StoredPod.from_dict(stored.to_dict())
        if stored.metadata is not None and stored.metadata.name:
            self._client.delete(Pod, stored.metadata.name, namespace=namespace, grace_period=0)
        return read

    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Any] | None:
        """The objects of a kind; None where the cluster does not serve it."""
        try:
            return list(self._client.list(KINDS[kind], labels=dict(labels or {})))
        except httpx2.HTTPStatusError as error:
            # No ApiError: the API server answers for a kind that it does not know in plain text.
            if error.response.status_code == 404:
                return None
            raise

    def _everywhere(self, kind: str, labels: Mapping[str, str]) -> list[Any]:
        """The objects of a kind of the workload, in whatever namespace."""
        return list(self._client.list(WORKLOAD_KINDS[kind], namespace="*", labels=dict(labels)))


def _typed(pod: Mapping[str, Any]) -> Pod:
    # lightkube says of from_dict that it returns any of its classes.
    return cast("Pod", Pod.from_dict(dict(pod)))


def _refuses_dry_runs(error: ApiError) -> bool:
    """Whether a webhook on the cluster has side effects that a dry run would set off."""
    return error.status.code == 400 and "dry run" in (error.status.message or "")
