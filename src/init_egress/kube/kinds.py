"""The kinds of objects that are read or written: group, version, kind, plural and scope.

The only table of them. Kinds that are served by the cluster and stand in no table here are found
by discovery (`ApiClient.resource`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lightkube.core.resource import api_info
from lightkube.generic_resource import (
    GenericGlobalResource,
    GenericNamespacedResource,
    create_global_resource,
    create_namespaced_resource,
)

GlobalKind = type[GenericGlobalResource]
NamespacedKind = type[GenericNamespacedResource]
Kind = GlobalKind | NamespacedKind
"""A kind as lightkube has it."""

_ADMISSION = "admissionregistration.k8s.io"

NATIVE_POLICY = create_global_resource(
    _ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"
)
NATIVE_BINDING = create_global_resource(
    _ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"
)
CLUSTER_POLICY = create_global_resource("kyverno.io", "v1", "ClusterPolicy", "clusterpolicies")
MUTATING_POLICY = create_global_resource(
    "policies.kyverno.io", "v1", "MutatingPolicy", "mutatingpolicies"
)
WEBHOOK_CONFIGURATION = create_global_resource(
    _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"
)
DEPLOYMENT = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
DISRUPTION_BUDGET = create_namespaced_resource(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"
)
NETWORK_POLICY = create_namespaced_resource(
    "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"
)
SERVICE = create_namespaced_resource("", "v1", "Service", "services")
CONFIG_MAP = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
SECRET = create_namespaced_resource("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = create_namespaced_resource("", "v1", "ServiceAccount", "serviceaccounts")
POD = create_namespaced_resource("", "v1", "Pod", "pods")
NAMESPACE = create_global_resource("", "v1", "Namespace", "namespaces")
CRD = create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)

# In the order in which they are pruned: what sends Pods to something goes before it does.
OURS = (
    WEBHOOK_CONFIGURATION,
    NATIVE_BINDING,
    NATIVE_POLICY,
    CLUSTER_POLICY,
    MUTATING_POLICY,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
)


@dataclass(frozen=True)
class Resource:
    """A kind as it stands in paths.

    Attributes:
        group: its API group; empty for Kubernetes' core.
        version: such as `v1`.
        kind: such as `StatefulSet`.
        plural: its name in paths, such as `statefulsets`.
        namespaced: whether its objects are in a namespace.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @classmethod
    def of(cls, kind: Kind) -> Resource:
        """The kind of one of lightkube's classes."""
        info = api_info(kind)
        group, version, name = info.resource
        return cls(group, version, name, info.plural, is_namespaced(kind))

    @property
    def api_version(self) -> str:
        """The group and version as objects name them, such as `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


def is_namespaced(kind: Kind) -> bool:
    """Whether objects of this kind are in a namespace."""
    return issubclass(kind, GenericNamespacedResource)


REPLICATION_CONTROLLER = Resource("", "v1", "ReplicationController", "replicationcontrollers")
REPLICA_SET = Resource("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SET = Resource("apps", "v1", "StatefulSet", "statefulsets")
DAEMON_SET = Resource("apps", "v1", "DaemonSet", "daemonsets")
JOB = Resource("batch", "v1", "Job", "jobs")
RAY_CLUSTER = Resource("ray.io", "v1", "RayCluster", "rayclusters")
TRAINING_JOBS = tuple(
    Resource("kubeflow.org", "v1", kind, f"{kind.lower()}s")
    for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
)

CONTROLLERS: Mapping[tuple[str, str], Resource] = MappingProxyType(
    {
        (resource.group, resource.kind): resource
        for resource in (
            REPLICATION_CONTROLLER,
            REPLICA_SET,
            STATEFUL_SET,
            DAEMON_SET,
            Resource.of(DEPLOYMENT),
            JOB,
            RAY_CLUSTER,
            *TRAINING_JOBS,
        )
    }
)
"""The kinds that make Pods, by group and kind."""

SIDECARS = tuple(
    Resource("networking.istio.io", version, "Sidecar", "sidecars")
    for version in ("v1", "v1beta1")
)
"""Istio's Sidecar, in the versions that a cluster may serve, the newest first."""

_BY_KIND = {(Resource.of(kind).api_version, Resource.of(kind).kind): kind for kind in OURS}


def kind_of(manifest: Mapping[str, object]) -> Kind:
    """The kind of one of our objects.

    Raises:
        KeyError: it is of none of the kinds in `OURS`.
    """
    return _BY_KIND[(str(manifest["apiVersion"]), str(manifest["kind"]))]
