"""Kyverno's policies."""

from __future__ import annotations

from init_egress.backends.registry import (
    CLUSTER_POLICY,
    MUTATING_POLICY,
)
from init_egress.rule.policy import RemedyKind
from tests.rendering import (
    at,
    metadata,
    policy_of,
    with_policy,
)


def test_kyverno_makes_no_rules_for_the_owners_of_pods() -> None:
    annotations = metadata(policy_of(CLUSTER_POLICY))["annotations"]
    assert annotations["pod-policies.kyverno.io/autogen-controllers"] == "none"
    autogen = policy_of(MUTATING_POLICY)["spec"]["autogen"]
    assert autogen == {"podControllers": {"controllers": []}}


def test_kyverno_leaves_stored_pods_alone() -> None:
    assert policy_of(CLUSTER_POLICY)["spec"]["background"] is False
    evaluation = policy_of(MUTATING_POLICY)["spec"]["evaluation"]
    assert evaluation["background"] == {"enabled": False}
    assert evaluation["mutateExisting"] == {"enabled": False}


def test_a_cluster_policy_never_merges_into_the_list_of_init_containers() -> None:
    # A strategic merge puts what it names first, and so a native sidecar last.
    for remedy in RemedyKind:
        found = policy_of(CLUSTER_POLICY, with_policy(remedy=remedy))
        for merge in at(found, "patchStrategicMerge"):
            assert set(merge) == {"metadata"}


def test_a_single_port_stays_text_in_a_cluster_policy() -> None:
    defaults = at(policy_of(CLUSTER_POLICY, with_policy(ranges=(), ports=("443",))), "default")
    assert "443" in defaults
    assert 443 not in defaults
