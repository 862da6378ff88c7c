"""Where the API server has things: the one place that turns names into a path.

Names in objects are their authors' text: an ownerReference may name
`../../../namespaces/kube-system/deployments/x`, which an HTTP client folds into a path of its own.
So only what Kubernetes itself takes as a name, namespace, group or version becomes part of a path.
"""

from __future__ import annotations

from collections.abc import Callable

from init_egress.kube.errors import InvalidName
from init_egress.kube.kinds import Resource
from init_egress.rule import names

_SHOWN = 60


def collection(resource: Resource, namespace: str = "") -> str:
    """Where a kind is listed.

    Args:
        resource: the kind.
        namespace: only its objects; empty for those of all namespaces.

    Raises:
        InvalidName: Kubernetes would not take it.
    """
    root = group_version(resource.api_version)
    plural = _checked(resource.plural, names.is_dns_label, "plural")
    if not namespace:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{_checked(namespace, names.is_dns_label, 'namespace')}/{plural}"


def single(resource: Resource, name: str, namespace: str = "", subresource: str = "") -> str:
    """Where one object is.

    Args:
        resource: its kind.
        name: its name.
        namespace: its namespace, if its kind has one.
        subresource: such as `eviction`.

    Raises:
        InvalidName: Kubernetes would not take it.
    """
    if resource.namespaced != bool(namespace):
        wants = "needs a namespace" if resource.namespaced else "has no namespace"
        raise InvalidName(f"{resource.kind} {shown(name)} {wants}")
    parent = collection(resource, namespace)
    path = f"{parent}/{_checked(name, names.is_dns_subdomain, 'name')}"
    if not subresource:
        return path
    return f"{path}/{_checked(subresource, names.is_dns_label, 'subresource')}"


def group_version(api_version: str) -> str:
    """Where a group and version list what they serve, such as `/apis/apps/v1`.

    Args:
        api_version: as objects name it, such as `apps/v1` or `v1`.

    Raises:
        InvalidName: Kubernetes would not take it.
    """
    group, slash, version = api_version.rpartition("/")
    _checked(version, names.is_dns_label, "version")
    if not slash:
        return f"/api/{version}"
    return f"/apis/{_checked(group, names.is_dns_subdomain, 'API group')}/{version}"


def shown(text: str) -> str:
    """Text of unknown origin for a message: quoted, printable, and no longer than a line."""
    cut = f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
    return ascii(cut) if not cut.isprintable() else repr(cut)


def _checked(text: str, is_valid: Callable[[str], bool], what: str) -> str:
    if not is_valid(text):
        raise InvalidName(f"{shown(text)} is not a valid {what}")
    return text
