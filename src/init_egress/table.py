"""Tables for people, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, each column as wide as its widest cell; empty cells are shown as `-`.

    Args:
        header: the columns' titles.
        rows: the cells, as many in each row as there are titles.
    """
    cells = [list(header), *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
