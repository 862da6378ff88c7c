"""What fits: of any number of results those that matter most, within a size.

A result of an action travels as one argument of the command `action-set`, and Linux takes no
argument of over 128 KiB (MAX_ARG_STRLEN, execve(2)). So a long document is cut here, and what was
left out is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

ACTION_LIMIT = 100_000
"""Bytes of a document that an action gives back; the rest is left for what goes around it."""

T = TypeVar("T")


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
