"""Existing Pods: all of a scope, each judged by the rule.

The rule judges a stored Pod by the same fields as a Pod that is being created
(`init_egress.rule.pod`); what is read here besides is what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from init_egress.existing.stuck import Stuck, annotated_too_late, stuck
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import NotFound
from init_egress.kube.kinds import NAMESPACE, POD, Resource
from init_egress.kube.objects import Listed, StoredNamespace, StoredPod
from init_egress.kube.paging import Collection, UnreadableObject
from init_egress.kube.scope import Scope
from init_egress.rule.decision import Decision, decide_on
from init_egress.rule.inspection import Inspection
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy

_NAMESPACES, _PODS = Resource.of(NAMESPACE), Resource.of(POD)

N = TypeVar("N", Listed, StoredNamespace)


@dataclass(frozen=True)
class JudgedPod:
    """An existing Pod, and what the rule says of it.

    Attributes:
        pod: the Pod.
        namespace: its namespace.
        decision: the rule's.
        stuck: the cut-off init container that it is stuck in.
        too_late: whether its exclude annotations came after its network was made.
    """

    pod: StoredPod
    namespace: Namespace
    decision: Decision
    stuck: Stuck | None
    too_late: bool


def judge(pod: StoredPod, namespace: Namespace, policy: Policy, now: datetime) -> JudgedPod:
    """Judge one existing Pod."""
    found = Inspection(pod, namespace, policy)
    decision = decide_on(found)
    if pod.is_finished:
        return JudgedPod(pod, namespace, decision, None, too_late=False)
    names = found.unexempt_names
    too_late = bool(names) and annotated_too_late(pod)
    return JudgedPod(pod, namespace, decision, stuck(pod, names, now) if names else None, too_late)


def judge_all(
    bulk: ApiClient,
    policy: Policy,
    scope: Scope,
    now: datetime,
    unreadable: Callable[[UnreadableObject], None],
) -> Iterator[JudgedPod]:
    """Judge all Pods of a scope, a page at a time; none is kept.

    Args:
        bulk: where.
        policy: what the operator configured.
        scope: which Pods.
        now: the time.
        unreadable: is given each Pod that can't be decoded; the others are judged all the same.

    Raises:
        NotFound: there is no such namespace.
        ClusterError: the cluster can't be asked.
    """
    namespaces = _namespaces(bulk, scope)
    for page in bulk.pages(Collection(_PODS, StoredPod, scope.namespace, scope.selector)):
        for item in page.unreadable:
            unreadable(item)
        for pod in page.items:
            namespace = _known(bulk, namespaces, pod.metadata.namespace)
            yield judge(pod, namespace, policy, now)


def read_namespace(bulk: ApiClient, name: str) -> Namespace:
    """Read one namespace.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    return _read_namespace(bulk, name, Listed).as_namespace()


def read_stored_namespace(bulk: ApiClient, name: str) -> StoredNamespace:
    """Read one namespace with all that is stored of it.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    return _read_namespace(bulk, name, StoredNamespace)


def _read_namespace(bulk: ApiClient, name: str, kind: type[N]) -> N:
    try:
        return bulk.read(_NAMESPACES, name, "", kind)
    except NotFound as error:
        raise NotFound(f"no namespace {name}; see: kubectl get namespaces", error.code) from error


def read_pod(bulk: ApiClient, namespace: str, name: str) -> StoredPod:
    """Read one Pod.

    Raises:
        NotFound: it isn't there; the message says where to look.
    """
    try:
        return bulk.read(_PODS, name, namespace, StoredPod)
    except NotFound as error:
        raise NotFound(
            f"no Pod {name} in namespace {namespace}; see: kubectl get pods -n {namespace}",
            error.code,
        ) from error


def _namespaces(bulk: ApiClient, scope: Scope) -> dict[str, Namespace]:
    if scope.namespace:
        return {scope.namespace: read_namespace(bulk, scope.namespace)}
    listed = Collection(_NAMESPACES, Listed, metadata_only=True)
    return {
        namespace.metadata.name: namespace.as_namespace()
        for page in bulk.pages(listed)
        for namespace in page.items
    }


def _known(bulk: ApiClient, namespaces: dict[str, Namespace], name: str) -> Namespace:
    """A namespace that may have come after they were listed, or have gone before its Pods."""
    if name not in namespaces:
        try:
            namespaces[name] = read_namespace(bulk, name)
        except NotFound:
            namespaces[name] = Namespace(name)
    return namespaces[name]
