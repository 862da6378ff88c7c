"""What fits of many results."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from init_egress.results import LimitedResults


def test_without_a_limit_all_are_kept_by_rank_and_in_order() -> None:
    kept: LimitedResults[str] = LimitedResults()
    for item, rank in (("c", 1), ("a", 0), ("d", 1), ("b", 0)):
        kept.add(item, rank)
    assert kept.items() == ["a", "b", "c", "d"]
    assert kept.left_out == 0


def test_what_matters_most_comes_in_at_the_cost_of_the_rest() -> None:
    kept: LimitedResults[str] = LimitedResults(limit=8)
    for item, rank in (("c", 1), ("d", 1), ("a", 0)):
        kept.add(item, rank)
    assert kept.items() == ["a", "c"]
    assert kept.left_out == 1


@given(
    items=st.lists(st.tuples(st.text(max_size=20), st.integers(0, 5))), limit=st.integers(0, 200)
)
def test_the_kept_fit_and_none_is_lost_uncounted(items: list[tuple[str, int]], limit: int) -> None:
    kept: LimitedResults[str] = LimitedResults(limit)
    for item, rank in items:
        kept.add(item, rank)
    assert len(msgspec.json.encode(kept.items())) <= max(limit + 1, 2)
    assert len(kept.items()) + kept.left_out == len(items)
