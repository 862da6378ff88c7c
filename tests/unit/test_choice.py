"""Which backend is chosen, by what is asked for, what can apply the remedy and what is served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from init_egress.backends import choice
from init_egress.backends.backend import Backend, Capabilities, Unavailable
from init_egress.backends.native import NativeBackend
from init_egress.backends.registry import (
    BACKENDS,
    CLUSTER_POLICY,
    MUTATING_POLICY,
    NATIVE,
    WEBHOOK,
)
from init_egress.config import BackendChoice, PolicyKind, Settings
from init_egress.kube.kinds import GlobalKind
from init_egress.rule.policy import Policy, RemedyKind


def serving(*backends: Backend) -> set[GlobalKind]:
    return {backend.resource for backend in backends}


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (serving(*BACKENDS.values()), NATIVE),
        (serving(CLUSTER_POLICY, MUTATING_POLICY, WEBHOOK), CLUSTER_POLICY),
        (serving(MUTATING_POLICY, WEBHOOK), MUTATING_POLICY),
        (serving(WEBHOOK), WEBHOOK),
    ],
    ids=["all", "no native", "new kyverno", "nothing else"],
)
def test_auto_takes_the_first_that_is_served(served: set[GlobalKind], chosen: Backend) -> None:
    assert choice.choose(Settings(), served.__contains__, "app") is chosen


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=lambda backend: backend.kind.value)
def test_what_is_asked_for_is_taken(backend: Backend) -> None:
    kind = backend.policy_kind or PolicyKind.AUTO
    settings = Settings(backend=backend.choice, kyverno_kind=kind)

    assert choice.choose(settings, lambda _: True, "app") is backend


def test_the_kind_of_kyvernos_policy_counts_under_auto_too() -> None:
    settings = Settings(kyverno_kind=PolicyKind.MUTATING_POLICY)
    served = serving(CLUSTER_POLICY, MUTATING_POLICY, WEBHOOK)

    assert choice.choose(settings, served.__contains__, "app") is MUTATING_POLICY


class OnlyRanges(NativeBackend):
    """A backend that can apply one remedy."""

    capabilities = Capabilities(remedies=frozenset({RemedyKind.EXCLUDE_IP_RANGES}))


PROXY_USER = Settings(policy=Policy(remedy=RemedyKind.PROXY_USER))


def test_auto_passes_over_a_backend_that_cannot_apply_the_remedy() -> None:
    chosen = choice.choose(PROXY_USER, lambda _: True, "app", [OnlyRanges(), WEBHOOK])

    assert chosen is WEBHOOK


def test_a_remedy_that_the_backend_cannot_apply_is_named_with_those_that_can() -> None:
    settings = replace(PROXY_USER, backend=BackendChoice.NATIVE)

    with pytest.raises(Unavailable) as caught:
        choice.choose(settings, lambda _: True, "app", [OnlyRanges(), WEBHOOK])

    assert str(caught.value) == (
        "backend=native does not support remedy=proxy-user; supported by: webhook;"
        " run: juju config app backend=auto"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Settings(backend=BackendChoice.NATIVE),
            "this cluster does not serve MutatingAdmissionPolicy (Kubernetes 1.36 or later);"
            " run: juju config app backend=auto",
        ),
        (
            Settings(backend=BackendChoice.KYVERNO),
            "this cluster does not serve ClusterPolicy or MutatingPolicy; install Kyverno,"
            " or run: juju config app backend=auto kyverno-policy-kind=auto",
        ),
    ],
    ids=["native", "kyverno"],
)
def test_what_is_not_served_is_named_with_what_helps(settings: Settings, message: str) -> None:
    with pytest.raises(Unavailable) as caught:
        choice.choose(settings, lambda _: False, "app")

    assert str(caught.value) == message
