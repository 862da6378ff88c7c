"""What there is to see on a Pod: each fact is found when a check first asks for it.

What the CNI plugin redirects is read off its source: `doAddRun` and `NewRedirect` in
https://github.com/istio/istio/tree/master/cni/pkg/plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from init_egress.rule import excludes
from init_egress.rule.istio import (
    DEFAULT_PROXY_ID,
    GO_SPACE,
    GO_TRUE,
    INCLUDE_PORTS,
    INCLUDE_RANGES,
    INTERCEPTION_MODE,
    ISTIO_INIT,
    ISTIO_PROXY,
    STATUS,
)
from init_egress.rule.pod import Container, EnvVar, Namespace, Pod
from init_egress.rule.policy import Policy

_T = TypeVar("_T")


class _lazy(Generic[_T]):  # noqa: N801 - a decorator
    """A property that is worked out once.

    functools.cached_property takes a lock before Python 3.12, and every review passes here.
    """

    def __init__(self, work: Callable[[Any], _T]) -> None:
        self._work = work
        self._name = work.__name__
        self.__doc__ = work.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> _lazy[_T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> _lazy[_T] | _T:
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._work(instance)
        return found


class Inspection:
    """One Pod under the rule.

    Args:
        pod: the Pod as injected: in the last admission round, or as stored.
        namespace: the namespace it is created in (its own metadata may not name one yet).
        policy: what the operator configured.
    """

    def __init__(self, pod: Pod, namespace: Namespace, policy: Policy) -> None:
        self.pod = pod
        self.namespace = namespace
        self.policy = policy
        self.annotations = pod.annotations
        self.init_containers = pod.init_containers

    @property
    def is_injected(self) -> bool:
        """Whether Istio injected the Pod; in the first admission round it has yet to."""
        return STATUS in self.annotations

    @_lazy
    def user_containers(self) -> list[Container]:
        """The init containers that are neither Istio's own nor ignored, in order."""
        skipped = self.policy.skipped_names
        return [c for c in self.init_containers if c.name not in skipped]

    @_lazy
    def index(self) -> dict[str, int]:
        """The place of each init container by its name; of two of one name, the first."""
        index: dict[str, int] = {}
        for place, container in enumerate(self.init_containers):
            index.setdefault(container.name, place)
        return index

    @_lazy
    def proxy(self) -> Container | None:
        """The container istio-proxy, be it a native sidecar or not."""
        for containers in (self.pod.containers, self.init_containers):
            for container in containers:
                if container.name == ISTIO_PROXY:
                    return container
        return None

    @property
    def uid(self) -> int:
        """The user whose traffic is never redirected: the proxy's, 1337 for 0 or unset."""
        context = self.proxy.security_context if self.proxy else None
        return (context.run_as_user if context else None) or DEFAULT_PROXY_ID

    @property
    def gid(self) -> int:
        """The group whose traffic is never redirected: the proxy's, 1337 for 0 or unset."""
        context = self.proxy.security_context if self.proxy else None
        return (context.run_as_group if context else None) or DEFAULT_PROXY_ID

    @_lazy
    def is_redirected(self) -> bool:
        """Whether the CNI plugin, or istio-init, redirects the Pod's outbound traffic at all."""
        proxy = self.proxy
        if proxy is None:
            return False
        args = proxy.args
        if args and len(args) >= 2 and args[0] == "proxy" and args[1] != "sidecar":
            return False
        if proxy.env and _is_envoy_disabled(proxy.env):
            return False
        annotations = self.annotations
        if annotations.get(INTERCEPTION_MODE) == "NONE":
            return False
        includes_nothing = annotations.get(INCLUDE_RANGES) == "" and not annotations.get(
            INCLUDE_PORTS, ""
        ).strip(GO_SPACE)
        return not includes_nothing or ISTIO_INIT in self.index

    @_lazy
    def cut_off(self) -> list[Container]:
        """The user's init containers whose traffic goes to a proxy that isn't running yet.

        They stand behind istio-init, where it is, and before a native istio-proxy.
        """
        if STATUS not in self.annotations or not self.is_redirected:
            return []
        index = self.index
        first = index.get(ISTIO_INIT, -1)
        end = index.get(ISTIO_PROXY, len(self.init_containers))
        return [c for c in self.user_containers if first < index[c.name] < end]

    @_lazy
    def unexempt(self) -> list[Container]:
        """Those that are cut off and don't run as the proxy's user or group.

        What counts is the identity in effect, the container's before the Pod's.
        """
        if not self.cut_off:
            return []
        uid, gid, shared = self.uid, self.gid, self.pod.spec.security_context
        pods_user = shared.run_as_user if shared else None
        pods_group = shared.run_as_group if shared else None
        found: list[Container] = []
        for container in self.cut_off:
            own = container.security_context
            user = own.run_as_user if own else None
            group = own.run_as_group if own else None
            if (pods_user if user is None else user) == uid:
                continue
            if (pods_group if group is None else group) == gid:
                continue
            found.append(container)
        return found

    @_lazy
    def unexempt_names(self) -> tuple[str, ...]:
        """Names of the init containers that have no network unless annotations give it to them.

        Whether the annotations suffice is left open, since a Pod may have got them after its
        network was made.
        """
        return tuple([c.name for c in self.unexempt])

    @_lazy
    def exclude_changes(self) -> dict[str, str]:
        """The exclude annotations that differ from what is configured, with their new values."""
        return excludes.changes(self.annotations, self.policy)


def _is_envoy_disabled(env: tuple[EnvVar, ...]) -> bool:
    # The plugin puts the variables into a map, so of several the last one counts.
    for variable in reversed(env):
        if variable.name == "DISABLE_ENVOY":
            return variable.value in GO_TRUE
    return False
