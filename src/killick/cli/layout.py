"""Cells and lines fitted to a width, counted in columns of a terminal: some characters take two."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

GAP: Final = 2
_NARROWEST: Final = 8
"""What the column that gives way keeps."""


class Column(NamedTuple):
    """A column of a table.

    One with `least` is left out of narrower terminals. One that is `flexible` gives way to the
    others; of those that are not, `most` is shown.
    """

    name: str
    least: int = 0
    right: bool = False
    style: str = ""
    most: int = 1_000
    flexible: bool = False


def fit_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[int | None]:
    """How wide each column is; None for one that is left out."""
    natural = [
        min(column.most, max(cell_len(cell) for cell in (column.name, *(row[n] for row in rows))))
        for n, column in enumerate(columns)
    ]
    shown = [column.least <= width for column in columns]
    gaps = GAP * (sum(shown) - 1)
    fixed = sum(
        size
        for size, column, is_shown in zip(natural, columns, shown, strict=True)
        if is_shown and not column.flexible
    )
    flexible = sum(
        is_shown and column.flexible for column, is_shown in zip(columns, shown, strict=True)
    )
    room = max(_NARROWEST, (width - gaps - fixed) // max(1, flexible))
    return [
        None if not is_shown else min(size, room) if column.flexible else size
        for size, column, is_shown in zip(natural, columns, shown, strict=True)
    ]


def fit_cell(text: str, size: int, *, right: bool = False) -> str:
    """A text in exactly `size` columns; one that is cut ends with an ellipsis."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, size - 1) + "…"
    blank = " " * (size - length)
    return blank + text if right else text + blank
