"""Why a Pod has its verdict: the rule's questions in their order, and what was read for each.

Pure, as the rule is. The rule itself stops at the first verdict that fits and says nothing of
those before it; here each of them is asked and answered in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from init_egress.rule import decision as rule
from init_egress.rule.decision import Inspection, PatchOperation, Policy, Remedy, Verdict
from init_egress.rule.pod import Container, Namespace, Pod

_LONGEST = 400
"""Characters of a value that are shown; annotations may hold 256 KiB."""


class TraceStep(msgspec.Struct, frozen=True):
    """One question of the rule.

    Attributes:
        verdict: the verdict that is asked about.
        fits: whether it holds; then it is the last one.
        read: what was read to tell, a fact each.
    """

    verdict: Verdict
    fits: bool
    read: tuple[str, ...]


def steps(pod: Pod, namespace: Namespace, policy: Policy) -> tuple[TraceStep, ...]:
    """Ask the rule's questions about one Pod, up to the first verdict that fits.

    Args:
        pod: the Pod as injected: in the last admission round, or as stored.
        namespace: its namespace.
        policy: what the operator configured.

    Returns:
        The steps; the last one's verdict is that of `rule.decide`.
    """
    subject = _Subject(pod, namespace, policy)
    asked: list[TraceStep] = []
    for verdict, question in _QUESTIONS.items():
        fits, read = question(subject)
        asked.append(TraceStep(verdict, fits, tuple(read)))
        if fits:
            break
    return tuple(asked)


def change(pod: Pod, operation: PatchOperation) -> str:
    """Say in words what one operation of the remedy's patch changes.

    Args:
        pod: the Pod that it changes.
        operation: of a patch that `rule.decide` made.
    """
    _, first, second, *rest = operation.path.split("/")
    if (first, second) == ("metadata", "annotations"):
        return f"annotation {_unescape(rest[0])}: {_quoted(str(operation.value))}"
    name = pod.init_containers[int(rest[0])].name
    fields = operation.value if isinstance(operation.value, dict) else {rest[-1]: operation.value}
    return f"{name}: " + ", ".join(f"{field} {value}" for field, value in fields.items())


@dataclass(frozen=True)
class _Subject:
    """What the questions are asked about."""

    pod: Pod
    namespace: Namespace
    policy: Policy

    @cached_property
    def found(self) -> Inspection:
        return rule.inspect(self.pod, self.policy)

    def init_container(self, name: str) -> bool:
        return any(container.name == name for container in self.pod.init_containers)

    def annotation(self, key: str) -> str:
        value = self.pod.annotations.get(key)
        return f"annotation {key}: {'absent' if value is None else _quoted(value)}"


_Answer = tuple[bool, list[str]]


def _system_namespace(subject: _Subject) -> _Answer:
    name = subject.namespace.name
    return name in rule.SYSTEM_NAMESPACES, [f"namespace: {name}"]


def _opted_out(subject: _Subject) -> _Answer:
    pod, namespace, policy = subject.pod, subject.namespace, subject.policy
    read = [
        f"label {rule.SKIP_LABEL} of the Pod: {pod.labels.get(rule.SKIP_LABEL, 'absent')}",
        f"label {rule.SKIP_LABEL} of namespace {namespace.name}:"
        f" {namespace.labels.get(rule.SKIP_LABEL, 'absent')}",
    ]
    if policy.namespaces.requirements:
        matches = policy.namespaces.matches(namespace.labels)
        read.append(f"namespace-selector {policy.namespaces}: {_matches(matches)}")
    if policy.pods.requirements:
        matches = policy.pods.matches(pod.labels)
        read.append(f"pod-selector {policy.pods}: {_matches(matches)}")
    return bool(rule.opted_out(pod, namespace, policy)), read


def _not_injected(subject: _Subject) -> _Answer:
    injected = rule.STATUS in subject.pod.annotations
    return not injected, [f"annotation {rule.STATUS}: {'present' if injected else 'absent'}"]


def _no_init_containers(subject: _Subject) -> _Answer:
    read = [
        f"init container {container.name}: {_whose(container, subject.policy)}"
        for container in subject.pod.init_containers
    ]
    return not subject.found.own, read or ["init containers: none"]


def _native_sidecar(subject: _Subject) -> _Answer:
    found = subject.found
    names = [container.name for container in subject.pod.init_containers]
    behind = names[names.index(rule.ISTIO_PROXY) :] if rule.ISTIO_PROXY in names else []
    fits = not found.cut_off and all(container.name in behind for container in found.own)
    return fits, [
        f"order of init containers: {', '.join(names)}",
        f"cut off: {_names(found.cut_off)}",
    ]


def _not_redirected(subject: _Subject) -> _Answer:
    found = subject.found
    proxy = found.proxy
    read = [f"container {rule.ISTIO_PROXY}: {'present' if proxy else 'absent'}"]
    if proxy:
        read += [
            f"its first arguments: {' '.join((proxy.args or ())[:2]) or 'none'}",
            f"its variable DISABLE_ENVOY: {_disable_envoy(proxy)}",
        ]
    read += [
        subject.annotation(rule.INTERCEPTION_MODE),
        subject.annotation(rule.INCLUDE_RANGES),
        subject.annotation(rule.INCLUDE_PORTS),
        f"init container {rule.ISTIO_INIT}: {_present(subject.init_container(rule.ISTIO_INIT))}",
        f"cut off: {_names(found.cut_off)}",
    ]
    return not found.cut_off, read


def _already_exempt(subject: _Subject) -> _Answer:
    found = subject.found
    read = [f"never redirected: the proxy's user {found.uid} and group {found.gid}"]
    read += [f"{c.name} runs as {_identity(c, subject.pod)}" for c in found.cut_off]
    return not found.unexempt, read


def _already_excluded(subject: _Subject) -> _Answer:
    policy = subject.policy
    read = [
        subject.annotation(rule.EXCLUDE_RANGES),
        f"configured ranges: {','.join(policy.ranges) or 'none'}",
    ]
    if policy.remedy is Remedy.EXCLUDE_IP_RANGES:
        read += [
            subject.annotation(rule.EXCLUDE_PORTS),
            f"configured ports: {','.join(policy.ports) or 'none'}",
            f"existing-annotation: {policy.existing.value}",
        ]
    return subject.found.excluded, read


def _beyond_remedy(subject: _Subject) -> _Answer:
    found, remedy = subject.found, subject.policy.remedy
    read = [f"remedy: {remedy.value}"]
    if remedy is Remedy.EXCLUDE_IP_RANGES:
        there = subject.init_container(rule.ISTIO_INIT)
        read.append(f"init container {rule.ISTIO_INIT}: {_present(there)}")
    else:
        read += [_own_identity(container, remedy) for container in found.unexempt]
    return not found.patch, read


def _needs_remedy(subject: _Subject) -> _Answer:
    found = subject.found
    changes = [f"the remedy sets {change(subject.pod, operation)}" for operation in found.patch]
    return True, [f"cut off and not exempt: {_names(found.unexempt)}", *changes]


_QUESTIONS: dict[Verdict, Callable[[_Subject], _Answer]] = {
    Verdict.SYSTEM_NAMESPACE: _system_namespace,
    Verdict.OPTED_OUT: _opted_out,
    Verdict.NOT_INJECTED: _not_injected,
    Verdict.NO_INIT_CONTAINERS: _no_init_containers,
    Verdict.NATIVE_SIDECAR: _native_sidecar,
    Verdict.NOT_REDIRECTED: _not_redirected,
    Verdict.ALREADY_EXEMPT: _already_exempt,
    Verdict.ALREADY_EXCLUDED: _already_excluded,
    Verdict.BEYOND_REMEDY: _beyond_remedy,
    Verdict.NEEDS_REMEDY: _needs_remedy,
}


def _whose(container: Container, policy: Policy) -> str:
    if container.name in rule.ISTIO_CONTAINERS:
        return "Istio's own"
    return (
        "ignored by ignore-init-containers" if container.name in policy.ignored else "the user's"
    )


def _disable_envoy(proxy: Container) -> str:
    values = [variable.value for variable in proxy.env or () if variable.name == "DISABLE_ENVOY"]
    return _quoted(values[-1]) if values else "absent"


def _identity(container: Container, pod: Pod) -> str:
    own, shared = container.security_context, pod.spec.security_context
    return " and ".join(
        (
            _effective("user", own and own.run_as_user, shared and shared.run_as_user),
            _effective("group", own and own.run_as_group, shared and shared.run_as_group),
        )
    )


def _effective(title: str, own: int | None, shared: int | None) -> str:
    if own is not None:
        return f"{title} {own}"
    return f"the image's {title}" if shared is None else f"{title} {shared}, which is the Pod's"


def _own_identity(container: Container, remedy: Remedy) -> str:
    user = remedy is Remedy.PROXY_USER
    context = container.security_context
    named = (context.run_as_user if user else context.run_as_group) if context else None
    field = "runAsUser" if user else "runAsGroup"
    return f"{field} of {container.name}: {'absent' if named is None else named}"


def _matches(matches: bool) -> str:
    return "matches" if matches else "does not match"


def _present(present: bool) -> str:
    return "present" if present else "absent"


def _names(containers: tuple[Container, ...]) -> str:
    return ", ".join(container.name for container in containers) or "none"


def _quoted(value: str) -> str:
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
