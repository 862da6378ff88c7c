"""The API server's client, for single objects and for lists.

Paths are made in `paths`, answers become errors in `errors`, and when a request is sent again is
decided in `connection`: nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol, TypeVar

import httpx2
import msgspec
from lightkube.config.kubeconfig import SingleConfig

from init_egress.kube import paging, paths
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.connection import Connection, Request
from init_egress.kube.errors import (
    Busy,
    Changed,
    ClusterError,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unreachable,
    Unreadable,
)
from init_egress.kube.kinds import (
    CONFIG_MAP,
    CRD,
    NAMESPACE,
    OURS,
    POD,
    WEBHOOK_CONFIGURATION,
    GlobalKind,
    Kind,
    Resource,
    is_namespaced,
    kind_of,
)
from init_egress.kube.manifest import Manifest, mapping, name_of, namespace_of, title_of
from init_egress.kube.objects import ConfigMap, Listed, ListedMeta, Object
from init_egress.kube.paging import PAGE, Collection, Page
from init_egress.rule.pod import Namespace

logger = logging.getLogger(__name__)

FIELD_MANAGER = "istio-init-egress"

_PODS = Resource.of(POD)
_ONE_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class HasMetadata(Protocol):
    """An object with its metadata."""

    @property
    def metadata(self) -> ListedMeta:
        """Name, namespace and uid, beside others."""
        ...


M = TypeVar("M", bound=HasMetadata)
T = TypeVar("T")


class _Answer(Object, frozen=True):
    """An answer of which nothing is read but that it is an object's."""


class _ApiResource(Object, frozen=True):
    name: str
    kind: str
    namespaced: bool = False


class _ApiResources(Object, frozen=True):
    """metav1.APIResourceList: what a group and version serve."""

    resources: tuple[_ApiResource, ...] = ()


class ApiClient(Cluster):
    """Reads and writes objects.

    Args:
        http: the connection.
        sleep: waits so many seconds.
        dry_run: whether the API server is to try every write and to store none.

    Raises:
        ClusterError: from every method: Forbidden, Unreachable or Refused.
    """

    def __init__(
        self,
        http: httpx2.Client | Connection,
        sleep: Callable[[float], None] = time.sleep,
        *,
        dry_run: bool = False,
    ) -> None:
        self._connection = http if isinstance(http, Connection) else Connection(http, sleep)
        self._write: Mapping[str, str] = {"fieldManager": FIELD_MANAGER}
        self._dry_run: Mapping[str, str] = {"dryRun": "All"} if dry_run else {}

    @classmethod
    def connect(cls, config: SingleConfig | None = None, *, dry_run: bool = False) -> ApiClient:
        """Connect as the Pod's service account, or else as KUBECONFIG says.

        Args:
            config: another cluster and user.
            dry_run: whether the API server is to try every write and to store none.
        """
        return cls(Connection.open(config), dry_run=dry_run)

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._connection.requests

    # --- What the charm needs --------------------------------------------------------------------

    def serves(self, kind: GlobalKind) -> bool:
        """Tell whether the cluster serves a kind."""
        resource = Resource.of(kind)
        request = Request(
            "GET", paths.collection(resource), f"list {resource.plural}", params={"limit": "1"}
        )
        try:
            self._send(request, _Answer)
        except NotFound:
            return False
        return True

    def deprecation(self, kind: GlobalKind) -> str:
        """What the authors of a custom resource say of its being deprecated; empty if nothing."""
        resource = Resource.of(kind)
        definition = self.get(CRD, f"{resource.plural}.{resource.group}") or {}
        versions = mapping(definition.get("spec")).get("versions")
        for version in map(mapping, versions if isinstance(versions, list) else ()):
            if version.get("name") == resource.version and version.get("deprecated"):
                warning = version.get("deprecationWarning")
                return str(warning or f"{resource.kind} is deprecated")
        return ""

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Apply objects by server-side apply; fields that others hold and we set become ours."""
        for manifest in manifests:
            path = paths.single(
                Resource.of(kind_of(manifest)), name_of(manifest), namespace_of(manifest)
            )
            request = Request(
                "PATCH",
                path,
                f"apply {title_of(manifest)}",
                params={**self._write, **self._dry_run, "force": "true"},
                # JSON is YAML.
                headers={"Content-Type": "application/apply-patch+yaml"},
                body=manifest,
            )
            self._send(request, _Answer)
            logger.info("applied %s", title_of(manifest))

    def get(self, kind: Kind, name: str, namespace: str = "") -> Manifest | None:
        """Read one object, of a namespace if its kind has one; None if it isn't there."""
        resource = Resource.of(kind)
        scope = namespace if resource.namespaced else ""
        request = Request(
            "GET", paths.single(resource, name, scope), f"read {resource.kind} {name}"
        )
        try:
            return self._send(request, dict[str, object])
        except NotFound:
            return None

    def prune(self, application: Application, keep: Iterable[Manifest] = ()) -> list[str]:
        """Delete the application's objects but those to keep.

        Whatever fails, the others are deleted; only the workload stays if a webhook configuration
        does, since the API server would still call it and might refuse Pods for want of an answer.
        A kind that isn't served is no error.

        Returns:
            What was deleted, as `Kind name`.

        Raises:
            ClusterError: some could not be deleted; the message names each, and why.
        """
        kept = {(str(manifest["kind"]), name_of(manifest)) for manifest in keep}
        pruned: list[str] = []
        failures: list[ClusterError] = []
        still_called = False
        for kind in OURS:
            if is_namespaced(kind) and still_called:
                break
            deleted, failed = self._prune_kind(Resource.of(kind), application, kept)
            still_called |= kind is WEBHOOK_CONFIGURATION and bool(failed)
            pruned += deleted
            failures += failed
        if failures:
            raise _all_of(failures)
        return pruned

    def namespaces(self) -> list[Namespace]:
        """The namespaces that aren't being deleted, by name."""
        listed = Collection(Resource.of(NAMESPACE), Listed, metadata_only=True)
        found = [
            item.as_namespace()
            for item in self._all(listed)
            if not item.metadata.deletion_timestamp
        ]
        return sorted(found, key=lambda namespace: namespace.name)

    def labelled_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """The Pods of a namespace with these labels, by name, but those that are being deleted."""
        listed = Collection(
            _PODS, dict[str, object], namespace, _selector(labels), key=_key_of_manifest
        )
        found = [
            pod
            for pod in self._all(listed)
            if not mapping(pod.get("metadata")).get("deletionTimestamp")
        ]
        return sorted(found, key=name_of)

    def config_maps(self, namespace: str) -> dict[str, Mapping[str, str]]:
        """Name and data of the ConfigMaps of a namespace."""
        listed = Collection(Resource.of(CONFIG_MAP), ConfigMap, namespace)
        return {item.metadata.name: item.data or {} for item in self._all(listed)}

    def dry_run(self, namespace: str, pod: Manifest) -> Manifest:
        """Create a Pod by server-side dry run: all of admission runs, nothing is stored.

        Returns:
            The Pod as it would be stored.
        """
        request = Request(
            "POST",
            paths.collection(_PODS, namespace),
            f"create a Pod in {namespace} by dry run",
            params={**self._write, "dryRun": "All"},
            headers={"Content-Type": "application/json"},
            body=pod,
        )
        return self._send(request, dict[str, object])

    # --- Objects of any kind ---------------------------------------------------------------------

    def pages(self, collection: Collection[T], limit: int = PAGE) -> Iterator[Page[T]]:
        """Read a list a page at a time; no page is kept (`init_egress.kube.paging.pages`).

        Args:
            collection: which list.
            limit: objects a page.
        """
        return paging.pages(self._connection, collection, limit)

    def read(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        type: type[M],  # noqa: A002
        *,
        uid: str = "",
        metadata_only: bool = False,
    ) -> M:
        """Read one object.

        Args:
            resource: its kind.
            name: its name.
            namespace: its namespace; empty if its kind has none.
            type: what it is decoded into: a msgspec struct with `metadata`.
            uid: its uid, if it is known: another object that has its name by now is not it.
            metadata_only: whether the server is to leave out all but the metadata.

        Raises:
            InvalidName: Kubernetes would not take its name.
            NotFound: it isn't there.
            Unreadable: it has a field that can't be decoded.
        """
        what = f"{resource.kind} {namespace}/{name}" if namespace else f"{resource.kind} {name}"
        request = Request(
            "GET",
            paths.single(resource, name, namespace),
            f"read {what}",
            headers={"Accept": _ONE_METADATA_ONLY} if metadata_only else {},
        )
        found = self._send(request, type)
        meta = found.metadata
        if (meta.name, meta.namespace) != (name, namespace) or (uid and meta.uid != uid):
            raise NotFound(f"{what} is gone; another object was found", 404)
        return found

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Find a kind by discovery; None if its group and version don't serve it.

        Args:
            api_version: such as `apps/v1`.
            kind: such as `StatefulSet`.

        Raises:
            InvalidName: Kubernetes would not take the API version.
            NotFound: the group and version aren't served.
        """
        request = Request(
            "GET", paths.group_version(api_version), f"list the kinds of {api_version}"
        )
        group, _, version = api_version.rpartition("/")
        for found in self._send(request, _ApiResources).resources:
            if found.kind == kind and "/" not in found.name:
                return Resource(group, version, kind, found.name, found.namespaced)
        return None

    def patch(
        self, resource: Resource, name: str, namespace: str, operations: Iterable[object]
    ) -> None:
        """Change one object by a JSON patch (RFC 6902).

        Args:
            resource: its kind.
            name: its name.
            namespace: its namespace.
            operations: the patch; with tests of all that it changes, since it is sent again if
                its answer is lost.

        Raises:
            Refused: with code 422 where one of the patch's tests does not hold.
            NotFound: it isn't there.
        """
        self._change(resource, name, namespace, "application/json-patch+json", [*operations])

    def merge(self, resource: Resource, name: str, namespace: str, change: object) -> None:
        """Change one object by a merge patch (RFC 7386), which twice is as good as once.

        Args:
            resource: its kind.
            name: its name.
            namespace: its namespace.
            change: the patch.

        Raises:
            NotFound: it isn't there.
        """
        self._change(resource, name, namespace, "application/merge-patch+json", change)

    def evict(self, namespace: str, name: str, uid: str, resource_version: str) -> None:
        """Evict a Pod by the Eviction API, which respects disruption budgets.

        An eviction whose answer was lost is not sent again as it is: it may have been carried
        out, and by what came then (404, 409) it could not be told from one that was not. The Pod
        is read: gone, or being deleted, it was evicted; as it was, the eviction is sent again.

        Args:
            namespace: the Pod's.
            name: the Pod's.
            uid: the Pod's; another Pod that has its name by now is left alone.
            resource_version: the Pod's; if it has changed since, it is left alone.

        Raises:
            OverBudget: a budget forbids it now.
            NotFound: it was gone before.
            Changed: it isn't the Pod that it was.
            OutcomeUnknown: it may have been evicted.
        """
        try:
            self._evict(namespace, name, uid, resource_version)
        except Busy as lost:
            if not lost.may_have_acted:
                raise
            if not self._is_evicted(namespace, name, uid, resource_version, lost):
                self._evict_again(namespace, name, uid, resource_version)

    def _evict_again(self, namespace: str, name: str, uid: str, resource_version: str) -> None:
        try:
            self._evict(namespace, name, uid, resource_version)
        except NotFound:
            return  # by the first one, which was still under way
        except Busy as lost:
            raise OutcomeUnknown(f"{lost}; whether it was carried out is not known") from lost

    def _evict(self, namespace: str, name: str, uid: str, resource_version: str) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
        }
        request = Request(
            "POST",
            paths.single(_PODS, name, namespace, "eviction"),
            f"evict Pod {namespace}/{name}",
            repeatable=False,
            params=self._dry_run,
            headers={"Content-Type": "application/json"},
            body=body,
        )
        self._send(request, _Answer)

    def _is_evicted(
        self, namespace: str, name: str, uid: str, resource_version: str, lost: Busy
    ) -> bool:
        """Whether an eviction whose answer was lost has been carried out."""
        try:
            found = self.read(_PODS, name, namespace, Listed, uid=uid, metadata_only=True)
        except NotFound:
            return True
        except ClusterError as error:
            message = f"{lost}; whether it was carried out is not known: {error}"
            raise OutcomeUnknown(message) from error
        if found.metadata.deletion_timestamp:
            return True
        if found.metadata.resource_version != resource_version:
            raise Changed(f"Pod {namespace}/{name} has changed", 409) from lost
        return False

    def _change(
        self, resource: Resource, name: str, namespace: str, media_type: str, change: object
    ) -> None:
        request = Request(
            "PATCH",
            paths.single(resource, name, namespace),
            f"patch {resource.kind} {namespace}/{name}",
            params={**self._write, **self._dry_run},
            # The whole object in the answer would be written and read for nothing.
            headers={"Content-Type": media_type, "Accept": _ONE_METADATA_ONLY},
            body=change,
        )
        self._send(request, _Answer)

    # --- Pruning ---------------------------------------------------------------------------------

    def _prune_kind(
        self, resource: Resource, application: Application, kept: Set[tuple[str, str]]
    ) -> tuple[list[str], list[ClusterError]]:
        namespace = application.model if resource.namespaced else ""
        try:
            found = self._owned(resource, namespace, application)
        except ClusterError as error:
            return [], [error]
        deleted: list[str] = []
        failures: list[ClusterError] = []
        for meta in found:
            if (resource.kind, meta.name) in kept:
                continue
            try:
                self._delete(resource, meta)
            except ClusterError as error:
                failures.append(error)
                continue
            deleted.append(f"{resource.kind} {meta.name}")
            logger.info("deleted %s %s", resource.kind, meta.name)
        return deleted, failures

    def _owned(
        self, resource: Resource, namespace: str, application: Application
    ) -> list[ListedMeta]:
        listed = Collection(
            resource, Listed, namespace, _selector(application.labels), metadata_only=True
        )
        try:
            return [item.metadata for item in self._all(listed)]
        except NotFound:
            return []

    def _delete(self, resource: Resource, meta: ListedMeta) -> None:
        request = Request(
            "DELETE",
            paths.single(resource, meta.name, meta.namespace),
            f"delete {resource.kind} {meta.name}",
            params=self._dry_run,
            headers={"Content-Type": "application/json"},
            # Another that has its name by now is left alone.
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": meta.uid},
            },
        )
        try:
            self._send(request, _Answer)
        except NotFound:
            logger.debug("%s was deleted by somebody else", meta.name)

    # --- Requests --------------------------------------------------------------------------------

    def _all(self, collection: Collection[T]) -> Iterator[T]:
        for page in self.pages(collection):
            for item in page.unreadable:
                what = f"{collection.resource.kind} {item}"
                logger.warning("can't read %s, which is passed over: %s", what, item.reason)
            yield from page.items

    def _send(self, request: Request, type: type[T]) -> T:  # noqa: A002
        def decode(answer: bytes) -> T:
            try:
                return msgspec.json.decode(answer, type=type)
            except (msgspec.ValidationError, RecursionError) as error:
                raise Unreadable(f"can't {request.action}: {error}") from error

        return self._connection.send(request, decode)


def _all_of(failures: Sequence[ClusterError]) -> ClusterError:
    """One error that says what each of them says; another try helps if it helps with one."""
    first = failures[0]
    kinds = (Unreachable, Forbidden, Refused)
    kind = next(k for k in kinds if any(isinstance(error, k) for error in failures))
    return kind("; ".join(str(error) for error in failures), first.code)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _key_of_manifest(manifest: Manifest) -> str:
    return f"{namespace_of(manifest)}/{name_of(manifest)}"
