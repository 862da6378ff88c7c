"""Many requests at once."""

from __future__ import annotations

import itertools
import threading

import pytest

from init_egress.kube.parallel import map_concurrent


def test_each_is_done_once_and_given_with_its_result() -> None:
    done = dict(map_concurrent(range(100), lambda number: number * 2, width=4))

    assert done == {number: number * 2 for number in range(100)}


def test_no_more_are_under_way_than_there_is_room_for() -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def work(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(10)
        with lock:
            under_way -= 1

    list(map_concurrent(range(12), work, width=3))

    assert most == 3


def test_items_are_taken_only_as_there_is_room_for_them() -> None:
    numbers = itertools.count(1)

    results = map_concurrent(numbers, lambda number: number, width=2)
    given = len(list(itertools.islice(results, 10)))

    taken = next(numbers) - 1
    assert given <= taken <= given + 2 * 2


def test_what_the_work_raises_is_raised() -> None:
    def work(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        list(map_concurrent([1], work))
