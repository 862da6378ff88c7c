"""Lists of any length, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from init_egress.kube import paths
from init_egress.kube.connection import Connection, Request
from init_egress.kube.errors import Expired
from init_egress.kube.kinds import Resource

PAGE = 500
"""Objects a page; what kubectl and client-go's pager ask for."""

_EXPIRATIONS = 5
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

T = TypeVar("T")


class _ListMeta(msgspec.Struct, frozen=True, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct, Generic[T], frozen=True):
    # The API server writes an empty list of a Go slice as null.
    items: list[T] | None = None
    metadata: _ListMeta = _ListMeta()


class _NameAndNamespace(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _NameAndNamespace = _NameAndNamespace()


@dataclass(frozen=True)
class UnreadableObject:
    """An object of a list that can't be decoded.

    Attributes:
        namespace: its namespace; empty if it has none, or can't be told.
        name: its name; empty if it can't be told.
        reason: what of it can't be decoded.
    """

    namespace: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list.

    Attributes:
        items: the objects.
        unreadable: objects that can't be decoded; one of them doesn't keep the others back.
    """

    items: tuple[T, ...]
    unreadable: tuple[UnreadableObject, ...] = ()


def key_of(item: object) -> str:
    """An object's place in a list, which the API server sorts by the bytes of its key in etcd."""
    metadata: object = getattr(item, "metadata", None)
    namespace, name = getattr(metadata, "namespace", ""), getattr(metadata, "name", "")
    return f"{namespace}/{name}"


@dataclass(frozen=True)
class Collection(Generic[T]):
    """A list that can be asked for.

    Attributes:
        resource: the kind of its objects.
        type: what they are decoded into: a msgspec struct with `metadata`.
        namespace: only those of a namespace; empty for all.
        selector: labels, as `kubectl get -l` takes them; empty for all.
        metadata_only: whether the server is to leave out all but the metadata.
        key: an object's namespace and name, as `namespace/name`.
    """

    resource: Resource
    type: type[T]
    namespace: str = ""
    selector: str = ""
    metadata_only: bool = False
    key: Callable[[T], str] = key_of


def pages(
    connection: Connection, collection: Collection[T], limit: int = PAGE
) -> Iterator[Page[T]]:
    """Read a list a page at a time; no page is kept.

    Where the server has forgotten the list's version meanwhile (410), the list goes on with what
    is there now, by the token that the server gives, or from its beginning without what was read
    already. An object is never read twice.

    Args:
        connection: where.
        collection: which list.
        limit: objects a page.

    Raises:
        ClusterError: the list can't be read to its end.
    """
    token, last, expirations = "", "", 0
    while True:
        try:
            page, next_token = _page(connection, collection, limit, token)
        except Expired as expired:
            expirations += 1
            if expirations > _EXPIRATIONS:
                raise
            token = expired.token
            continue
        expirations = 0
        items = tuple(item for item in page.items if collection.key(item) > last)
        unreadable = tuple(item for item in page.unreadable if _key(item) > last)
        if items or unreadable:
            last = max([*map(collection.key, items[-1:]), *map(_key, unreadable)])
            yield Page(items, unreadable)
        token = next_token
        if not token:
            return


def _key(item: UnreadableObject) -> str:
    return f"{item.namespace}/{item.name}"


def _page(
    connection: Connection, collection: Collection[T], limit: int, token: str
) -> tuple[Page[T], str]:
    params = {"limit": str(limit), "labelSelector": collection.selector, "continue": token}
    request = Request(
        "GET",
        paths.collection(collection.resource, collection.namespace),
        f"list {collection.resource.plural}",
        params=params,
        headers={"Accept": _METADATA_ONLY} if collection.metadata_only else {},
    )
    return connection.send(request, lambda answer: _decoded(answer, collection.type))


def _decoded(answer: bytes, kind: type[T]) -> tuple[Page[T], str]:
    """Decode a page as one; only if that fails, each of its objects by itself."""
    try:
        # pyright knows no types that are put together at run time.
        whole: _List[T] = msgspec.json.decode(answer, type=_List[kind])  # pyright: ignore[reportInvalidTypeForm]
    except (msgspec.ValidationError, RecursionError):
        return _decoded_singly(answer, kind)
    return Page(tuple(whole.items or ())), whole.metadata.token


def _decoded_singly(answer: bytes, kind: type[T]) -> tuple[Page[T], str]:
    listed = msgspec.json.decode(answer, type=_List[msgspec.Raw])
    items: list[T] = []
    unreadable: list[UnreadableObject] = []
    for raw in listed.items or ():
        try:
            items.append(msgspec.json.decode(raw, type=kind))
        except (msgspec.MsgspecError, RecursionError) as error:
            unreadable.append(_unreadable(raw, str(error)))
    return Page(tuple(items), tuple(unreadable)), listed.metadata.token


def _unreadable(raw: msgspec.Raw, reason: str) -> UnreadableObject:
    try:
        found = msgspec.json.decode(raw, type=_Named).metadata
    except (msgspec.MsgspecError, RecursionError):
        found = _NameAndNamespace()
    return UnreadableObject(found.namespace, found.name, reason)
