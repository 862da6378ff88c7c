"""Waiting for a condition, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

_T = TypeVar("_T")
_PERIOD = 0.5


def poll(look: Callable[[], _T], satisfied: Callable[[_T], bool], seconds: float) -> _T:
    """Look again and again, until what is seen satisfies or time is up.

    Args:
        look: gives what there is to see; its exceptions are raised.
        satisfied: whether that is what is waited for.
        seconds: how long to wait.

    Returns:
        What was seen last.
    """
    last: list[_T] = []

    def once() -> bool:
        last[:] = [look()]
        return satisfied(last[0])

    Retrying(
        retry=retry_if_result(lambda done: not done),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(_PERIOD),
        retry_error_callback=lambda _: False,
    )(once)
    return last[0]
