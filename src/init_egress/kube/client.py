"""The cluster, through lightkube: apply, find, prune, dry run.

Every fault of the API server becomes one of three, by what the operator can do about it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import httpx2
from lightkube import ApiError, Client
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.client import LabelValue
from lightkube.core.exceptions import ConfigError as KubeconfigError
from lightkube.core.resource import api_info
from lightkube.generic_resource import (
    GenericGlobalResource,
    GenericNamespacedResource,
    create_global_resource,
    create_namespaced_resource,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from init_egress.backends.manifests import Application, Manifest
from init_egress.rule.pod import Namespace

logger = logging.getLogger(__name__)

FIELD_MANAGER = "istio-init-egress"

NATIVE_POLICY = create_global_resource(
    "admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"
)
NATIVE_BINDING = create_global_resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
)
CLUSTER_POLICY = create_global_resource("kyverno.io", "v1", "ClusterPolicy", "clusterpolicies")
MUTATING_POLICY = create_global_resource(
    "policies.kyverno.io", "v1", "MutatingPolicy", "mutatingpolicies"
)
WEBHOOK_CONFIGURATION = create_global_resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
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
_CRD = create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)
_NAMESPACE = create_global_resource("", "v1", "Namespace", "namespaces")

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
_BY_KIND = {
    (api_info(kind).resource.api_version, api_info(kind).resource.kind): kind for kind in OURS
}

GlobalKind = type[GenericGlobalResource]
NamespacedKind = type[GenericNamespacedResource]
Kind = GlobalKind | NamespacedKind


class ClusterError(Exception):
    """The cluster did not do what it was asked; the message says what and why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """The HTTP status that the API server answered with; 0 where it did not answer."""


class Forbidden(ClusterError):
    """The charm has no right to do it."""


class Unreachable(ClusterError):
    """The API server did not answer, or could not answer now; trying again may help."""


class Refused(ClusterError):
    """The API server, or an admission webhook, said no."""


class NotFound(Refused):
    """404: the object, or the whole kind, isn't there."""


class Cluster:
    """The operations on a cluster that the charm needs.

    Raises:
        ClusterError: from every method: Forbidden, Unreachable or Refused.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> Cluster:
        """Connect as the Pod's service account, or else as KUBECONFIG says."""
        with _translated("connect to the cluster"):
            return cls(Client(field_manager=FIELD_MANAGER))

    @classmethod
    def of(cls, config: SingleConfig) -> Cluster:
        """Connect as a kubeconfig says."""
        return cls(Client(config=config, field_manager=FIELD_MANAGER))

    def serves(self, kind: GlobalKind) -> bool:
        """Tell whether the cluster serves a kind."""
        try:
            self._first(kind)
        except NotFound:
            return False
        return True

    def deprecation(self, kind: GlobalKind) -> str:
        """What the authors of a custom resource say of its being deprecated; empty if nothing."""
        info = api_info(kind)
        name = f"{info.plural}.{info.resource.group}"
        spec = (self.get(_CRD, name) or {}).get("spec")
        versions = spec.get("versions", []) if isinstance(spec, dict) else []
        for version in versions:
            if version["name"] == info.resource.version and version.get("deprecated"):
                return version.get("deprecationWarning") or f"{info.resource.kind} is deprecated"
        return ""

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply objects by server-side apply; fields that others hold and we set become ours."""
        for manifest in manifests:
            kind = _BY_KIND[(str(manifest["apiVersion"]), str(manifest["kind"]))]
            what = f"apply {manifest['kind']} {_name(manifest)}"
            for attempt in _transient():
                with attempt, _translated(what):
                    self._client.apply(kind.from_dict(manifest), force=True)
            logger.info("applied %s %s", manifest["kind"], _name(manifest))

    def get(self, kind: Kind, name: str, namespace: str = "") -> Manifest | None:
        """Read one object, of a namespace if its kind has one; None if it isn't there."""
        try:
            with _translated(f"read {api_info(kind).resource.kind} {name}"):
                if issubclass(kind, GenericNamespacedResource):
                    return dict(self._client.get(kind, name, namespace=namespace))
                return dict(self._client.get(kind, name))
        except NotFound:
            return None

    def prune(self, owner: Application, keep: Iterable[Manifest] = ()) -> list[str]:
        """Delete the owner's objects but those to keep; a kind that isn't served is no error.

        Returns:
            What was deleted, as `Kind name`.
        """
        kept = {(str(manifest["kind"]), _name(manifest)) for manifest in keep}
        pruned: list[str] = []
        for kind in OURS:
            title = api_info(kind).resource.kind
            for name in self._owned(kind, owner):
                if (title, name) in kept:
                    continue
                self._delete(kind, name, owner.model)
                pruned.append(f"{title} {name}")
                logger.info("deleted %s %s", title, name)
        return pruned

    def namespaces(self) -> list[Namespace]:
        """The namespaces that aren't being deleted, by name."""
        with _translated("list Namespaces"):
            found = [
                Namespace(str(item.metadata.name), item.metadata.labels or {})
                for item in self._client.list(_NAMESPACE, chunk_size=500)
                if item.metadata and not item.metadata.deletionTimestamp
            ]
        return sorted(found, key=lambda namespace: namespace.name)

    def labelled_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """The Pods of a namespace with these labels, by name, but those that are being deleted."""
        with _translated(f"list Pods in {namespace}"):
            listed = self._client.list(POD, namespace=namespace, labels={**labels}, chunk_size=100)
            found = [
                dict(item)
                for item in listed
                if item.metadata and not item.metadata.deletionTimestamp
            ]
        return sorted(found, key=_name)

    def config_maps(self, namespace: str) -> dict[str, Mapping[str, str]]:
        """Name and data of the ConfigMaps of a namespace."""
        with _translated(f"list ConfigMaps in {namespace}"):
            listed = self._client.list(CONFIG_MAP, namespace=namespace, chunk_size=100)
            return {
                str(item.metadata.name): item.get("data") or {} for item in listed if item.metadata
            }

    def dry_run(self, namespace: str, pod: Manifest) -> Manifest:
        """Create a Pod by server-side dry run: all of admission runs, nothing is stored.

        Returns:
            The Pod as it would be stored.
        """

        def once() -> Manifest:
            with _translated(f"create a Pod in {namespace} by dry run"):
                return dict(
                    self._client.create(POD.from_dict(pod), namespace=namespace, dry_run=True)
                )

        return _transient()(once)

    def _first(self, kind: GlobalKind) -> None:
        title = api_info(kind).resource.kind
        for attempt in _transient():
            with attempt, _translated(f"list {title}"):
                next(iter(self._client.list(kind, chunk_size=1)), None)

    def _owned(self, kind: Kind, owner: Application) -> list[str]:
        labels: dict[str, LabelValue] = {**owner.labels}
        try:
            with _translated(f"list {api_info(kind).resource.kind}"):
                if issubclass(kind, GenericNamespacedResource):
                    found = self._client.list(
                        kind, labels=labels, namespace=owner.model, chunk_size=100
                    )
                else:
                    found = self._client.list(kind, labels=labels, chunk_size=100)
                return [str(item.metadata.name) for item in found if item.metadata]
        except NotFound:
            return []

    def _delete(self, kind: Kind, name: str, namespace: str) -> None:
        try:
            with _translated(f"delete {api_info(kind).resource.kind} {name}"):
                if issubclass(kind, GenericNamespacedResource):
                    self._client.delete(kind, name, namespace=namespace)
                else:
                    self._client.delete(kind, name)
        except NotFound:
            logger.debug("%s was deleted by somebody else", name)


@contextmanager
def _translated(action: str) -> Iterator[None]:
    """Turn a fault into a ClusterError that says what could not be done."""
    try:
        yield
    except ApiError as error:
        raise fault(action, error.status.code or 0, error.status.message or "") from error
    except httpx2.HTTPStatusError as error:
        # Not every answer is a Status object: a group that isn't served is a plain 404.
        raise fault(action, error.response.status_code, error.response.text) from error
    except httpx2.HTTPError as error:
        raise Unreachable(f"can't {action}: {error or type(error).__name__}") from error
    except KubeconfigError as error:
        raise Unreachable(f"can't {action}: {error}") from error


def fault(action: str, code: int, message: str) -> ClusterError:
    """The ClusterError that an answer of the API server is.

    Args:
        action: what was asked for, as it follows on `can't`.
        code: the HTTP status.
        message: what the answer says; may be empty.
    """
    text = f"can't {action}: {message.strip() or f'the API server answered {code}'}"
    return _kind_of_fault(code, message)(text, code)


def _kind_of_fault(code: int, message: str) -> type[ClusterError]:
    # An admission webhook may deny with 403 too; only RBAC names the user and the verb.
    if code == 401 or (code == 403 and 'User "' in message and '" cannot ' in message):
        return Forbidden
    if code == 429 or code >= 500:
        return Unreachable
    return NotFound if code == 404 else Refused


def _transient() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(Unreachable),
        stop=stop_after_attempt(3),
        wait=wait_exponential(multiplier=0.5, max=4),
        reraise=True,
    )


def _metadata(manifest: Manifest) -> Mapping[str, object]:
    metadata = manifest["metadata"]
    return metadata if isinstance(metadata, dict) else {}


def _name(manifest: Manifest) -> str:
    return str(_metadata(manifest)["name"])
