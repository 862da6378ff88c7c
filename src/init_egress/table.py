"""Tables for people, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 100
"""Characters of a cell; of the last column, which pads nothing, all are shown."""


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
