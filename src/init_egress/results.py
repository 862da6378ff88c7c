"""What is shown: of any number of results those that matter most, within a size; tables; counts.

A result of an action travels as one argument of the command `action-set`, and Linux takes no
argument of over 128 KiB (MAX_ARG_STRLEN, execve(2)). So a long document is cut here, and what was
left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

WIDEST = 100
"""Characters of a cell; of the last column, which pads nothing, all are shown."""

ACTION_LIMIT = 100_000
"""Bytes of a document that an action gives back; the rest is left for what goes around it."""

T = TypeVar("T")


def count(number: int, noun: str) -> str:
    """A number with its noun, such as `1 Pod` and `2 Pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass
class LimitedResults(Generic[T]):
    """Keeps the items that matter most; memory grows with the limit, not with what is added.

    Attributes:
        limit: bytes of JSON; None keeps all.
        left_out: how many items were not kept.
    """

    limit: int | None = None
    left_out: int = 0
    _ranks: dict[int, list[tuple[int, T]]] = field(default_factory=dict)
    _size: int = 0

    def add(self, item: T, rank: int, reserve: int = 0) -> None:
        """Keep an item, if need be at the cost of the last of a higher rank.

        Args:
            item: anything that msgspec encodes.
            rank: 0 matters most.
            reserve: bytes by which the item is going to grow.
        """
        size = len(msgspec.json.encode(item)) + 1 + reserve
        self._ranks.setdefault(rank, []).append((size, item))
        self._size += size
        while self.limit is not None and self._size > self.limit:
            self._drop()

    def items(self) -> list[T]:
        """The items kept, by rank, and in the order in which they were added."""
        return [item for rank in sorted(self._ranks) for _, item in self._ranks[rank]]

    def _drop(self) -> None:
        last = max(self._ranks)
        size, _ = self._ranks[last].pop()
        self._size -= size
        self.left_out += 1
        if not self._ranks[last]:
            del self._ranks[last]


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, each column as wide as its widest cell; empty cells are shown as `-`.

    A line for the header, and one for each row.

    Args:
        header: the columns' titles.
        rows: the cells, as many in each row as there are titles.
    """
    cells = [list(header), *([*map(_cell, row[:-1]), row[-1] or "-"] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _cell(text: str) -> str:
    return (text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…") or "-"
