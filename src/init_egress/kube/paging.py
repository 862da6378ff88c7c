"""Many objects at once: lists of any length, a page at a time, and writes side by side.

lightkube makes an object of everything that it reads; a list of Pods is read here a page at a
time, as bytes, into types that name only the fields that are looked at. The connection is
lightkube's own, with its kubeconfig, tokens and authorities.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx2
import msgspec
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError as KubeconfigError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from init_egress.kube.client import FIELD_MANAGER, ClusterError, Refused, Unreachable, fault

PAGE = 500
"""Objects a page; what kubectl and client-go's pager ask for."""

CONCURRENCY = 8
"""Writes under way at one time."""

_ATTEMPTS = 5
_EXPIRATIONS = 5
_LONGEST_PAUSE = 30.0
_TIMEOUT = 30.0
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_ONE_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_GONE = 410
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""The Eviction API answers so, with 500; trying again would not help
(https://github.com/kubernetes/kubernetes/blob/master/pkg/registry/core/pod/storage/eviction.go)."""

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class _ListMeta(msgspec.Struct, frozen=True, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct, Generic[T], frozen=True):
    # The API server writes an empty list of a Go slice as null.
    items: list[T] | None = None
    metadata: _ListMeta = _ListMeta()


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, by which the API server says what went wrong."""

    message: str = ""
    metadata: _ListMeta = _ListMeta()
    details: _Details | None = None


class OverBudget(Refused):
    """An eviction would violate a PodDisruptionBudget."""


class _Busy(Unreachable):
    """The API server, or the way to it, has no time now."""

    def __init__(self, message: str, code: int = 0, pause: float | None = None) -> None:
        super().__init__(message, code)
        self.pause = pause


class _Expired(Refused):
    """A list can't be continued from where it was; the server may give another token."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message, _GONE)
        self.token = token


@dataclass(frozen=True)
class Collection(Generic[T]):
    """A list that can be asked for.

    Attributes:
        path: where it is, such as `/api/v1/pods` or `/apis/apps/v1/namespaces/x/replicasets`.
        kind: the type of one object: a msgspec struct.
        key: an object's place in the list, which the API server sorts by the bytes of
            `namespace/name`.
        title: what messages call it, such as `Pods`.
        selector: labels, as `kubectl get -l` takes them.
        metadata_only: whether the server is to leave out all but the metadata.
    """

    path: str
    kind: type[T]
    key: Callable[[T], str]
    title: str
    selector: str = ""
    metadata_only: bool = False


class ApiClient:
    """Reads and writes of many objects.

    A request that finds the API server busy (429, 5xx, no answer) is made again, up to five
    times, after as long as the server asks for, or with growing pauses.

    Attributes:
        requests: how many requests were made.

    Raises:
        ClusterError: from every method: Forbidden, Unreachable or Refused.
    """

    def __init__(
        self,
        client: httpx2.Client,
        sleep: Callable[[float], None] = time.sleep,
        *,
        dry_run: bool = False,
    ) -> None:
        self.requests = 0
        self._client = client
        self._sleep = sleep
        self._rehearsal = ["All"] if dry_run else []
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, config: SingleConfig | None = None, *, dry_run: bool = False) -> ApiClient:
        """Connect as the Pod's service account, or else as KUBECONFIG says.

        Args:
            config: another cluster and user.
            dry_run: whether the API server is to try every write and to store none.
        """
        try:
            found = config or KubeConfig.from_env().get()
            if found is None:
                raise KubeconfigError("the kubeconfig has no current context")
            client = Client(found, ConnectionParams(timeout=httpx2.Timeout(_TIMEOUT)))
        except KubeconfigError as error:
            raise Unreachable(f"can't connect to the cluster: {error}") from error
        # Packing costs the API server more than the bytes cost the network of a cluster.
        client.headers["Accept-Encoding"] = "identity"
        return cls(client, dry_run=dry_run)

    def pages(self, collection: Collection[T], limit: int = PAGE) -> Iterator[list[T]]:
        """Read a list a page at a time; no page is kept.

        Where the server has forgotten the list's version meanwhile (410), the list goes on with
        what is there now, by the token that the server gives, or from its beginning without what
        was read already. An object is never read twice.

        Args:
            collection: which list.
            limit: objects a page.
        """
        token, last, expirations = "", "", 0
        while True:
            try:
                page = self._page(collection, limit, token)
            except _Expired as expired:
                expirations += 1
                if expirations > _EXPIRATIONS:
                    raise
                token = expired.token
                continue
            expirations = 0
            items = [item for item in page.items or () if collection.key(item) > last]
            if items:
                last = collection.key(items[-1])
                yield items
            token = page.metadata.token
            if not token:
                return

    def get(self, path: str, kind: type[T], what: str, *, metadata_only: bool = False) -> T:
        """Read one object.

        Args:
            path: where it is.
            kind: its type: a msgspec struct.
            what: what messages call it, such as `Pod team/web`.
            metadata_only: whether the server is to leave out all but the metadata.

        Raises:
            NotFound: it isn't there.
        """
        headers = {"Accept": _ONE_METADATA_ONLY} if metadata_only else {}
        return _decoded(self._request("GET", path, f"read {what}", headers=headers), kind, what)

    def patch(self, path: str, operations: Iterable[object], what: str) -> None:
        """Change one object by a JSON patch (RFC 6902).

        Raises:
            Refused: with code 422 where one of the patch's tests does not hold.
            NotFound: it isn't there.
        """
        self._change(path, "application/json-patch+json", list(operations), what)

    def merge(self, path: str, change: object, what: str) -> None:
        """Change one object by a merge patch (RFC 7386).

        Raises:
            NotFound: it isn't there.
        """
        self._change(path, "application/merge-patch+json", change, what)

    def evict(self, namespace: str, name: str, uid: str, resource_version: str) -> None:
        """Evict a Pod by the Eviction API, which respects disruption budgets.

        Args:
            namespace: the Pod's.
            name: the Pod's.
            uid: the Pod's; another Pod that has its name by now is left alone.
            resource_version: the Pod's; if it has changed since, it is left alone.

        Raises:
            OverBudget: a budget forbids it now.
            NotFound: it is gone.
            Refused: with code 409, it isn't the Pod that it was.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
        }
        self._request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            f"evict Pod {namespace}/{name}",
            params={"dryRun": self._rehearsal},
            headers={"Content-Type": "application/json"},
            content=msgspec.json.encode(body),
        )

    def _change(self, path: str, media_type: str, change: object, what: str) -> None:
        self._request(
            "PATCH",
            path,
            f"patch {what}",
            params={"fieldManager": FIELD_MANAGER, "dryRun": self._rehearsal},
            # The whole object in the answer would be written and read for nothing.
            headers={"Content-Type": media_type, "Accept": _ONE_METADATA_ONLY},
            content=msgspec.json.encode(change),
        )

    def _page(self, collection: Collection[T], limit: int, token: str) -> _List[T]:
        params = {"limit": str(limit), "labelSelector": collection.selector, "continue": token}
        headers = {"Accept": _METADATA_ONLY} if collection.metadata_only else {}
        answer = self._request(
            "GET",
            collection.path,
            f"list {collection.title}",
            params={name: value for name, value in params.items() if value},
            headers=headers,
        )
        try:
            # pyright knows no types that are put together at run time.
            return msgspec.json.decode(answer, type=_List[collection.kind])  # pyright: ignore[reportInvalidTypeForm]
        except msgspec.MsgspecError as error:
            raise Refused(f"can't list {collection.title}: the answer is none: {error}") from error

    def _request(
        self,
        method: str,
        path: str,
        action: str,
        *,
        params: Mapping[str, str | list[str]] | None = None,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
    ) -> bytes:
        def once() -> bytes:
            with self._lock:
                self.requests += 1
            try:
                response = self._client.request(
                    method, path, params=params, headers=headers, content=content
                )
            except httpx2.HTTPError as error:
                raise _Busy(f"can't {action}: {error or type(error).__name__}") from error
            if response.is_success:
                return response.content
            raise _refusal(action, response)

        return Retrying(
            retry=retry_if_exception_type(_Busy),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_pause,
            sleep=self._sleep,
            reraise=True,
        )(once)


def map_concurrent(
    items: Iterable[A], work: Callable[[A], B], width: int = CONCURRENCY
) -> Iterator[tuple[A, B]]:
    """Do the same to each, `width` at a time; items are taken only as there is room for them.

    Args:
        items: may be endless; taken in the caller's thread.
        work: what is done to each, in threads; what it raises is raised here.
        width: how many are under way.

    Returns:
        Each item with its result, in the order in which they are done.
    """
    with ThreadPoolExecutor(width) as pool:
        under_way: dict[Future[B], A] = {}
        for item in items:
            under_way[pool.submit(work, item)] = item
            if len(under_way) >= 2 * width:
                yield from _done(under_way)
        while under_way:
            yield from _done(under_way)


def _done(under_way: dict[Future[B], A]) -> Iterator[tuple[A, B]]:
    """Those that are done, once one is."""
    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
        yield under_way.pop(future), future.result()


def _decoded(answer: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise Refused(f"can't read {what}: {error}") from error


def _refusal(action: str, response: httpx2.Response) -> ClusterError:
    code = response.status_code
    try:
        status = msgspec.json.decode(response.content, type=_Status)
    except msgspec.MsgspecError:  # a group that isn't served is a plain 404; a proxy says anything
        status = _Status(message=response.text)
    error = fault(action, code, status.message)
    details = status.details or _Details()
    if any(cause.reason == "DisruptionBudget" for cause in details.causes or ()):
        return OverBudget(str(error), code)
    if _SEVERAL_BUDGETS in status.message:
        return OverBudget(str(error), code)
    if code == _GONE:
        return _Expired(str(error), status.metadata.token)
    if isinstance(error, Unreachable):
        return _Busy(str(error), code, _retry_after(response, details))
    return error


def _retry_after(response: httpx2.Response, details: _Details) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return details.retry_after_seconds


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: what the server asks for, else 0.5, 1, 2 and 4."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.pause if isinstance(error, _Busy) else None
    growing = 0.25 * 2**state.attempt_number
    return min(growing if asked is None else asked, _LONGEST_PAUSE)
