"""Where the tests work: a model, a namespace of the mesh and the Pod that they create in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jubilant

from tests.integration import conditions, names, pods
from tests.integration.cluster import Cluster
from tests.integration.conditions import Condition
from tests.integration.pods import Injection, StoredPod

STATUS_DEADLINE = 5 * 60.0
POD_DEADLINE = 2 * 60.0


@dataclass(frozen=True)
class Shape:
    """The Pod that is submitted.

    Attributes:
        manifest: the Pod.
        existing: the ranges that it ends up with where the charm does nothing.
        why: why it carries the marks of an injection itself; empty if Istio injects it.
    """

    manifest: Mapping[str, Any]
    existing: tuple[str, ...] = ()
    why: str = ""

    def with_ranges(self, configured: str) -> tuple[str, ...]:
        """What the ranges annotation must hold: what was there, then what was missing."""
        return tuple(dict.fromkeys((*self.existing, *configured.split(","))))


def choose_shape(cluster: Cluster, namespace: str) -> Shape:
    """A Pod that needs the remedy on this cluster, whatever Istio does there."""
    untouched = cluster.create(pods.opted_out(pods.plain_pod()), namespace)
    if untouched.injection is not Injection.CUTS_OFF:
        return Shape(pods.injected_pod(), why=untouched.injection.value)
    if set(names.DEFAULT_RANGES.split(",")) <= set(untouched.ranges):
        return Shape(pods.injected_pod(), why="the mesh excludes every range already")
    return Shape(pods.plain_pod(), untouched.ranges)


@dataclass(frozen=True)
class Bench:
    """A deployed charm and a namespace to see its effect in."""

    juju: jubilant.Juju
    cluster: Cluster
    namespace: str
    shape: Shape

    def pod(self) -> StoredPod:
        """The Pod as the API server returns it now."""
        return self.cluster.create(self.shape.manifest, self.namespace)

    def opted_out_pod(self) -> StoredPod:
        """The same Pod, labelled so that the charm leaves it alone."""
        return self.cluster.create(pods.opted_out(self.shape.manifest), self.namespace)

    def wait_for_pod(self, expected: Callable[[StoredPod], bool]) -> None:
        """Create Pods until they are as expected; a policy is in force some seconds after it is
        written.
        """
        last: list[StoredPod] = []

        def is_expected(_: jubilant.Status) -> bool:
            last[:] = [self.pod()]
            return expected(last[0])

        try:
            wait(self.juju, is_expected, POD_DEADLINE)
        except TimeoutError as error:
            raise AssertionError(f"Pods are created otherwise to the end: {last}") from error

    def wait_for_ranges(self, configured: str) -> None:
        """Wait until Pods are created with these ranges excluded."""
        ranges = self.shape.with_ranges(configured)
        self.wait_for_pod(lambda pod: pod.ranges == ranges)

    def is_remedied(self) -> bool:
        """Whether a Pod that is created now has the default remedy."""
        return self.pod().ranges == self.shape.with_ranges(names.DEFAULT_RANGES)


def wait(
    juju: jubilant.Juju, condition: Condition, timeout: float = STATUS_DEADLINE
) -> jubilant.Status:
    """Wait for a condition; a hook of the charm that fails is a bug and ends it at once."""
    return juju.wait(condition, error=conditions.hook_failed, timeout=timeout)


@contextmanager
def configured(juju: jubilant.Juju, values: Mapping[str, str]) -> Iterator[None]:
    """Set options of the charm, and reset them at the end, whatever comes in between."""
    juju.config(names.APP, values)
    try:
        yield
    finally:
        juju.config(names.APP, reset=list(values))
