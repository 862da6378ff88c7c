"""Many requests at once, with a bound on how many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

CONCURRENCY = 8
"""Requests under way at one time."""

A = TypeVar("A")
B = TypeVar("B")


def map_concurrent(
    items: Iterable[A], work: Callable[[A], B], width: int = CONCURRENCY
) -> Iterator[tuple[A, B]]:
    """Do the same to each, `width` at a time; items are taken only as there is room for them.

    Args:
        items: may be endless; taken in the caller's thread.
        work: what is done to each, in threads; what it raises is raised here.
        width: how many are under way.

    Returns:
        Each item with its result, in the order in which they are done.
    """
    with ThreadPoolExecutor(width) as pool:
        under_way: dict[Future[B], A] = {}
        for item in items:
            under_way[pool.submit(work, item)] = item
            if len(under_way) >= 2 * width:
                yield from _done(under_way)
        while under_way:
            yield from _done(under_way)


def _done(under_way: dict[Future[B], A]) -> Iterator[tuple[A, B]]:
    """Those that are done, once one is."""
    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
        yield under_way.pop(future), future.result()
