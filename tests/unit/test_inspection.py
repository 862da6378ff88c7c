"""What is read off a Pod, and that no tenant's Pod makes it take long."""

from __future__ import annotations

import pytest

from init_egress.rule.decision import decide
from init_egress.rule.inspection import Inspection
from init_egress.rule.istio import STATUS
from init_egress.rule.pod import Container, Namespace, ObjectMeta, Pod, PodSpec
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.remedies import REMEDIES

TEAM = Namespace("team")


class CountingName(str):
    """A name that counts how often it is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def injected(*names: str) -> Pod:
    return Pod(
        ObjectMeta(annotations={STATUS: "{}"}),
        PodSpec(
            init_containers=tuple(Container(name) for name in names),
            containers=(Container("istio-proxy", args=("proxy", "sidecar")),),
        ),
    )


@pytest.mark.parametrize("remedy", RemedyKind, ids=lambda remedy: remedy.value)
def test_the_work_grows_with_the_init_containers_and_not_with_their_square(
    remedy: RemedyKind,
) -> None:
    def comparisons(count: int) -> int:
        CountingName.comparisons = 0
        pod = injected(*(CountingName(f"init-{number}") for number in range(count)))
        decision = decide(pod, TEAM, Policy(remedy=remedy, ranges=("10.0.0.0/8",)))
        assert len(decision.cut_off) == count
        return CountingName.comparisons

    assert comparisons(4000) <= 3 * comparisons(2000)


def test_a_reason_names_the_first_of_many_init_containers() -> None:
    decision = decide(injected(*(f"init-{number}" for number in range(5000))), TEAM, Policy())

    assert decision.reason.endswith("init-9 and 4990 more cut off before the sidecar runs")
    assert len(decision.cut_off) == 5000


def test_of_two_init_containers_of_one_name_the_first_tells_the_place() -> None:
    found = Inspection(injected("a", "b", "a"), TEAM, Policy())

    assert found.index == {"a": 0, "b": 1}


def test_a_fact_is_found_once() -> None:
    found = Inspection(injected("a"), TEAM, Policy())

    assert found.cut_off is found.cut_off


def test_what_is_not_injected_is_not_cut_off() -> None:
    pod = Pod(ObjectMeta(), injected("a").spec)

    assert Inspection(pod, TEAM, Policy()).unexempt_names == ()


@pytest.mark.parametrize("kind", RemedyKind, ids=lambda kind: kind.value)
@pytest.mark.parametrize("names", [("fetch",), ("fetch", "istio-init", "late")])
def test_a_remedy_that_can_help_has_something_to_change(
    kind: RemedyKind, names: tuple[str, ...]
) -> None:
    found = Inspection(injected(*names), TEAM, Policy(remedy=kind))

    assert REMEDIES[kind].can_help(found) is (
        kind is not RemedyKind.EXCLUDE_IP_RANGES or "istio-init" not in names
    )
    assert REMEDIES[kind].patch(found)
