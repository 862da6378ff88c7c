"""The rule: which Pods need a remedy, why, and what the remedy changes.

One rule decides about every Pod, in every backend, in the audit and in the actions. It looks at
the Pod as Istio injected it and never guesses what Istio will do. It is pure: it knows no cluster
and no charm.

What the CNI plugin redirects is read off its source: `doAddRun` and `NewRedirect` in
https://github.com/istio/istio/tree/master/cni/pkg/plugin; what Istio injects, in what order, off
https://github.com/istio/istio/blob/master/pkg/kube/inject/webhook.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import msgspec

from init_egress.rule.pod import Container, Namespace, Pod
from init_egress.rule.selector import EVERYTHING, Selector

SKIP_LABEL = "istio-init-egress/skip"
PROBE_LABEL = "istio-init-egress/probe"
"""On a dry-run Pod: the one form of one application that may act on it."""
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")
ISTIO_INIT = "istio-init"
ISTIO_PROXY = "istio-proxy"
ISTIO_CONTAINERS = (
    ISTIO_INIT,
    "istio-validation",
    ISTIO_PROXY,
    "enable-core-dump",
    "grpc-bootstrap-init",
)
DEFAULT_PROXY_ID = 1337

STATUS = "sidecar.istio.io/status"
CANONICAL_NAME = "service.istio.io/canonical-name"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode"
INCLUDE_RANGES = "traffic.sidecar.istio.io/includeOutboundIPRanges"
INCLUDE_PORTS = "traffic.sidecar.istio.io/includeOutboundPorts"
EXCLUDE_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
EXCLUDE_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"

GO_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What Go's strconv.ParseBool reads as true; the CNI plugin reads DISABLE_ENVOY with it."""

GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Go's strings.TrimSpace cuts off; str.strip() alone would also cut \\x1c to \\x1f."""


class Verdict(str, Enum):
    """What the rule says of a Pod, in the order of asking; the first that fits holds."""

    SYSTEM_NAMESPACE = "system-namespace"
    OPTED_OUT = "opted-out"
    NOT_INJECTED = "not-injected"
    NO_INIT_CONTAINERS = "no-init-containers"
    NATIVE_SIDECAR = "native-sidecar"
    NOT_REDIRECTED = "not-redirected"
    ALREADY_EXEMPT = "already-exempt"
    ALREADY_EXCLUDED = "already-excluded"
    BEYOND_REMEDY = "beyond-remedy"
    NEEDS_REMEDY = "needs-remedy"


class Remedy(str, Enum):
    """How a cut-off init container gets its network back."""

    EXCLUDE_IP_RANGES = "exclude-ip-ranges"
    PROXY_USER = "proxy-user"
    PROXY_GROUP = "proxy-group"


class ExistingAnnotation(str, Enum):
    """What becomes of an exclude annotation that the Pod has already."""

    MERGE = "merge"
    KEEP = "keep"
    REPLACE = "replace"


@dataclass(frozen=True)
class Policy:
    """What the operator configured, as far as the rule is concerned.

    Attributes:
        remedy: what is done to a Pod that needs it.
        ranges: canonical CIDR prefixes to exclude, such as `10.0.0.0/8`.
        ports: TCP and UDP ports to exclude, as decimal text.
        existing: what becomes of annotations that are there already.
        ignored: names of init containers that need no network.
        namespaces: the namespaces that the charm acts in.
        pods: the Pods that the charm acts on.
    """

    remedy: Remedy = Remedy.EXCLUDE_IP_RANGES
    ranges: tuple[str, ...] = ("0.0.0.0/0", "::/0")
    ports: tuple[str, ...] = ()
    existing: ExistingAnnotation = ExistingAnnotation.MERGE
    ignored: tuple[str, ...] = ()
    namespaces: Selector = EVERYTHING
    pods: Selector = EVERYTHING

    @cached_property
    def skipped_names(self) -> frozenset[str]:
        """Names of the init containers that are none of ours: Istio's own and the ignored ones."""
        return frozenset((*ISTIO_CONTAINERS, *self.ignored))


class PatchOperation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch (RFC 6902)."""

    op: str
    path: str
    value: str | int | dict[str, int]


class Decision(msgspec.Struct, frozen=True):
    """The verdict on one Pod.

    Attributes:
        verdict: the first verdict that fits.
        reason: why, in one sentence without a full stop.
        cut_off: names of the init containers that have no network and aren't exempt.
        patch: what the remedy changes; empty unless the verdict is needs-remedy.
    """

    verdict: Verdict
    reason: str
    cut_off: tuple[str, ...] = ()
    patch: tuple[PatchOperation, ...] = ()


class Inspection(msgspec.Struct, frozen=True):
    """What the rule finds on an injected Pod, whatever the verdict.

    Attributes:
        own: the user's init containers that are not ignored.
        proxy: the container istio-proxy, native or not, if there is one.
        uid: the proxy's user, whose traffic is never redirected.
        gid: the proxy's group, likewise.
        cut_off: those of `own` whose traffic goes to a proxy that isn't running yet.
        unexempt: those of `cut_off` that don't run as the proxy's user or group.
        excluded: whether the annotations give all of them what is configured.
        patch: what the remedy can change for the unexempt.
    """

    own: tuple[Container, ...]
    proxy: Container | None
    uid: int
    gid: int
    cut_off: tuple[Container, ...]
    unexempt: tuple[Container, ...]
    excluded: bool
    patch: tuple[PatchOperation, ...]


def decide(pod: Pod, namespace: Namespace, policy: Policy) -> Decision:
    """Decide about one Pod.

    Args:
        pod: the Pod as injected: in the last admission round, or as stored.
        namespace: the namespace it is created in (its own metadata may not name one yet).
        policy: what the operator configured.
    """
    if namespace.name in SYSTEM_NAMESPACES:
        return Decision(Verdict.SYSTEM_NAMESPACE, f"{namespace.name} is a system namespace")
    if why := opted_out(pod, namespace, policy):
        return Decision(Verdict.OPTED_OUT, why)
    annotations = pod.annotations
    if STATUS not in annotations:
        return Decision(Verdict.NOT_INJECTED, f"Istio did not inject it: no annotation {STATUS}")

    own = [c for c in pod.init_containers if c.name not in policy.skipped_names]
    if not own:
        return Decision(
            Verdict.NO_INIT_CONTAINERS, "no init container but Istio's own and ignored ones"
        )
    proxy = _proxy(pod)
    cut_off = _cut_off(pod, own, proxy)
    if proxy is None or not cut_off:
        return _connected(pod, own)

    uid, gid = _proxy_ids(proxy)
    unexempt = [c for c in cut_off if not _is_exempt(c, pod, uid, gid)]
    if not unexempt:
        return Decision(
            Verdict.ALREADY_EXEMPT, f"{_names(cut_off)} run as the proxy's user or group"
        )
    changes = _annotation_changes(annotations, policy)
    if _is_excluded(annotations, policy, changes):
        return Decision(Verdict.ALREADY_EXCLUDED, _excluded(policy))
    names = tuple([c.name for c in unexempt])
    patch = _remedy(pod, unexempt, policy, changes, uid, gid)
    if not patch:
        return Decision(Verdict.BEYOND_REMEDY, _beyond(policy.remedy, names), names)
    reason = f"{', '.join(names)} cut off before the sidecar runs"
    return Decision(Verdict.NEEDS_REMEDY, reason, names, patch)


def cut_off(pod: Pod, policy: Policy) -> tuple[str, ...]:
    """Names of the init containers that have no network unless annotations give it to them.

    Those that run as the proxy's user or group have it; whether the annotations suffice is left
    open, since a Pod may have got them after its network was made.
    """
    proxy = _proxy(pod)
    if proxy is None or STATUS not in pod.annotations:
        return ()
    own = [c for c in pod.init_containers if c.name not in policy.skipped_names]
    uid, gid = _proxy_ids(proxy)
    return tuple(c.name for c in _cut_off(pod, own, proxy) if not _is_exempt(c, pod, uid, gid))


def inspect(pod: Pod, policy: Policy) -> Inspection:
    """Find out all that the rule may ask of an injected Pod, for those who explain a verdict.

    `decide` doesn't use it, for the webhook has no time to look further than the first verdict
    that fits.
    """
    own = [c for c in pod.init_containers if c.name not in policy.skipped_names]
    proxy = _proxy(pod)
    uid, gid = _proxy_ids(proxy) if proxy else (DEFAULT_PROXY_ID, DEFAULT_PROXY_ID)
    cut_off = _cut_off(pod, own, proxy)
    unexempt = [c for c in cut_off if not _is_exempt(c, pod, uid, gid)]
    changes = _annotation_changes(pod.annotations, policy)
    return Inspection(
        own=tuple(own),
        proxy=proxy,
        uid=uid,
        gid=gid,
        cut_off=tuple(cut_off),
        unexempt=tuple(unexempt),
        excluded=_is_excluded(pod.annotations, policy, changes),
        patch=_remedy(pod, unexempt, policy, changes, uid, gid),
    )


def opted_out(pod: Pod, namespace: Namespace, policy: Policy) -> str:
    """Why a Pod is none of the charm's business, by a label or a selector; empty if it is."""
    if pod.labels.get(SKIP_LABEL) == "true":
        return f"the Pod is labelled {SKIP_LABEL}=true"
    if namespace.labels.get(SKIP_LABEL) == "true":
        return f"namespace {namespace.name} is labelled {SKIP_LABEL}=true"
    if not policy.namespaces.matches(namespace.labels):
        return f"namespace-selector {policy.namespaces} does not match {namespace.name}"
    if not policy.pods.matches(pod.labels):
        return f"pod-selector {policy.pods} does not match the Pod"
    return ""


def _index(containers: Sequence[Container], name: str) -> int:
    """The place of a container; -1 if there is none of that name."""
    for index, container in enumerate(containers):
        if container.name == name:
            return index
    return -1


def _cut_off(pod: Pod, own: Sequence[Container], proxy: Container | None) -> list[Container]:
    """The user's init containers whose traffic goes to a proxy that isn't running yet."""
    if proxy is None or not _is_redirected(pod, proxy):
        return []
    order = [c.name for c in pod.init_containers]
    first = order.index(ISTIO_INIT) if ISTIO_INIT in order else -1
    end = order.index(ISTIO_PROXY) if ISTIO_PROXY in order else len(order)
    return [c for c in own if first < order.index(c.name) < end]


def _is_redirected(pod: Pod, proxy: Container) -> bool:
    args = proxy.args or ()
    if len(args) >= 2 and args[0] == "proxy" and args[1] != "sidecar":
        return False
    if _is_envoy_disabled(proxy):
        return False
    annotations = pod.annotations
    if annotations.get(INTERCEPTION_MODE) == "NONE":
        return False
    nothing_included = annotations.get(INCLUDE_RANGES) == "" and not annotations.get(
        INCLUDE_PORTS, ""
    ).strip(GO_SPACE)
    return not nothing_included or _index(pod.init_containers, ISTIO_INIT) >= 0


def _is_envoy_disabled(proxy: Container) -> bool:
    # The plugin puts the variables into a map, so of several the last one counts.
    for variable in reversed(proxy.env or ()):
        if variable.name == "DISABLE_ENVOY":
            return variable.value in GO_TRUE
    return False


def _connected(pod: Pod, own: Sequence[Container]) -> Decision:
    end = _index(pod.init_containers, ISTIO_PROXY)
    behind = () if end < 0 else pod.init_containers[end:]
    if all(c in behind for c in own):
        return Decision(
            Verdict.NATIVE_SIDECAR, f"{_names(own)} start after the native sidecar istio-proxy"
        )
    return Decision(
        Verdict.NOT_REDIRECTED, f"the traffic of {_names(own)} is not redirected to a proxy"
    )


def _proxy(pod: Pod) -> Container | None:
    for containers in (pod.containers, pod.init_containers):
        for container in containers:
            if container.name == ISTIO_PROXY:
                return container
    return None


def _proxy_ids(proxy: Container) -> tuple[int, int]:
    """Uid and gid whose traffic is never redirected: those of istio-proxy, 1337 for 0 or unset."""
    context = proxy.security_context
    if context is None:
        return DEFAULT_PROXY_ID, DEFAULT_PROXY_ID
    return context.run_as_user or DEFAULT_PROXY_ID, context.run_as_group or DEFAULT_PROXY_ID


def _is_exempt(container: Container, pod: Pod, uid: int, gid: int) -> bool:
    own, shared = container.security_context, pod.spec.security_context
    user = own.run_as_user if own else None
    group = own.run_as_group if own else None
    if user is None and shared:
        user = shared.run_as_user
    if group is None and shared:
        group = shared.run_as_group
    return user == uid or group == gid


def _elements(value: str) -> list[str]:
    """The elements of a comma-separated annotation, without the space around them."""
    return [element for part in value.split(",") if (element := part.strip(GO_SPACE))]


def _annotation_changes(annotations: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """The exclude annotations that differ from what they should be, with their new values."""
    changes: dict[str, str] = {}
    if policy.ranges:
        value = annotations.get(EXCLUDE_RANGES)
        # Istio denies a Pod, or its CNI plugin refuses it, for a space in this list, so it
        # is written without spaces even where nothing is missing.
        if (wanted := _merged(value, policy.ranges, policy.existing)) != value:
            changes[EXCLUDE_RANGES] = wanted
    if policy.ports:
        value = annotations.get(EXCLUDE_PORTS)
        wanted = _merged(value, policy.ports, policy.existing)
        # Istio trims ports, so a list that lacks nothing stays as it is.
        if value is None or _elements(wanted) != _elements(value):
            changes[EXCLUDE_PORTS] = wanted
    return changes


def _merged(value: str | None, configured: tuple[str, ...], existing: ExistingAnnotation) -> str:
    if value is None:
        return ",".join(configured)
    if existing is ExistingAnnotation.KEEP:
        return value
    present = _elements(value)
    if existing is ExistingAnnotation.REPLACE:
        same = set(present) == set(configured)
        return ",".join(present if same else configured)
    return ",".join(present + [element for element in configured if element not in present])


def _is_excluded(
    annotations: Mapping[str, str], policy: Policy, changes: Mapping[str, str]
) -> bool:
    if policy.remedy is Remedy.EXCLUDE_IP_RANGES:
        return not changes
    present = _elements(annotations.get(EXCLUDE_RANGES, ""))
    return bool(policy.ranges) and set(policy.ranges) <= set(present)


def _remedy(
    pod: Pod,
    unexempt: Sequence[Container],
    policy: Policy,
    changes: Mapping[str, str],
    uid: int,
    gid: int,
) -> tuple[PatchOperation, ...]:
    if policy.remedy is Remedy.EXCLUDE_IP_RANGES:
        # istio-init has the excluded ranges among its arguments; it doesn't read annotations.
        beyond = _index(pod.init_containers, ISTIO_INIT) >= 0
        return () if beyond else _annotate(changes)
    if policy.remedy is Remedy.PROXY_USER:
        return _run_as(pod, unexempt, "runAsUser", uid)
    return _run_as(pod, unexempt, "runAsGroup", gid)


def _annotate(changes: Mapping[str, str]) -> tuple[PatchOperation, ...]:
    # The map of annotations is there: an injected Pod has at least Istio's status in it.
    return tuple(
        [PatchOperation("add", annotation_path(key), value) for key, value in changes.items()]
    )


def _run_as(
    pod: Pod, unexempt: Sequence[Container], field: str, identity: int
) -> tuple[PatchOperation, ...]:
    patch: list[PatchOperation] = []
    for container in unexempt:
        path = (
            f"/spec/initContainers/{_index(pod.init_containers, container.name)}/securityContext"
        )
        context = container.security_context
        if context is None:
            patch.append(PatchOperation("add", path, {field: identity}))
        elif (context.run_as_user if field == "runAsUser" else context.run_as_group) is None:
            patch.append(PatchOperation("add", f"{path}/{field}", identity))
    return tuple(patch)


def escape(key: str) -> str:
    """Escape a map key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def annotation_path(key: str) -> str:
    """Where an annotation is, as a JSON pointer."""
    return f"/metadata/annotations/{escape(key)}"


def _excluded(policy: Policy) -> str:
    if policy.remedy is Remedy.EXCLUDE_IP_RANGES and policy.existing is ExistingAnnotation.KEEP:
        return "its exclude annotations stay as they are (existing-annotation=keep)"
    return "its exclude annotations hold all that is configured"


def _beyond(remedy: Remedy, names: Sequence[str]) -> str:
    if remedy is Remedy.EXCLUDE_IP_RANGES:
        return f"{', '.join(names)} stand behind istio-init, which no annotation reaches any more"
    field = "user" if remedy is Remedy.PROXY_USER else "group"
    return f"{', '.join(names)} name a {field} of their own, which {remedy.value} leaves alone"


def _names(containers: Sequence[Container]) -> str:
    return ", ".join(c.name for c in containers)
