"""Cells and lines fitted to a width, counted in columns of a terminal: some characters take two."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

import msgspec
from rich.cells import cell_len, set_cell_size

from killick.views.escape import escape, escape_line, one_line

if TYPE_CHECKING:
    from rich.console import Console

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
    """Return the width of each column; None for one that is left out."""
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


class Span(NamedTuple):
    """Some words of a line, and how they look."""

    text: str
    style: str = ""


class OutputLine(NamedTuple):
    """One line for a person; where it is wrapped, its rest is indented as much."""

    spans: tuple[Span, ...] = ()
    indent: int = 0

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(span.text for span in self.spans)


def line(text: str, style: str = "", *, indent: int = 0) -> OutputLine:
    return OutputLine((Span(text, style),), indent)


def block(text: str, style: str = "", *, indent: int = 0) -> list[OutputLine]:
    """A text of several lines."""
    return [line(part, style, indent=indent) for part in escape(text).rstrip("\n").split("\n")]


class Printer:
    """Prints to one stream; told once whether that is a terminal, how wide, and coloured or not."""

    def __init__(
        self, stream: TextIO, *, terminal: bool = False, width: int = 80, colour: bool = False
    ) -> None:
        self._stream = stream
        self.terminal = terminal
        self.width = width
        self._colour = colour
        self._made: Console | None = None

    def json(self, value: object) -> None:
        """One document in one line, in ASCII: whatever it holds, a terminal obeys none of it."""
        text = json.dumps(plain(value), ensure_ascii=True).replace("\x7f", "\\u007f")
        self._stream.write(text + "\n")
        self._stream.flush()

    def lines(self, lines: Iterable[OutputLine]) -> None:
        for item in lines:
            if self.terminal:
                self._wrapped(item)
            else:
                self._stream.write(_harmless(item).text.rstrip() + "\n")
        self._stream.flush()

    def table(self, columns: "Sequence[Column]", rows: Sequence[Sequence[str]]) -> None:
        """Rows of cells; one line each into a pipe, where no head is in the way."""
        if self.terminal:
            self.lines(self._fitted(columns, rows))
            return
        for row in rows:
            self._stream.write("\t".join(escape_line(cell) for cell in row) + "\n")
        self._stream.flush()

    def write(self, text: str, style: str = "") -> None:
        """Text as it comes, without a newline of its own."""
        if self.terminal and style:
            self._console().print(escape(text), style=style, end="", soft_wrap=True)
        else:
            self._stream.write(escape(text))
        self._stream.flush()

    def _wrapped(self, item: OutputLine) -> None:
        from rich.cells import cell_len
        from rich.text import Text

        # On a screen too narrow for the indent, the words matter more.
        indent = min(item.indent, self.width // 4)
        harmless = OutputLine(_harmless(item).spans, indent)
        is_plain = not any(span.style for span in harmless.spans) and "\t" not in harmless.text
        if is_plain and cell_len(harmless.text) <= self.width:  # most lines, and much quicker
            self._stream.write(harmless.text.rstrip() + "\n")
            return
        console, text = self._console(), Text()
        for span in harmless.spans:
            text.append(span.text.expandtabs(4), style=span.style)
        for piece in text.wrap(console, self.width - indent, overflow="fold"):
            piece.rstrip()
            console.print(" " * indent, piece, sep="", soft_wrap=True)

    def _fitted(
        self, columns: "Sequence[Column]", rows: Sequence[Sequence[str]]
    ) -> list[OutputLine]:

        harmless = [[escape_line(cell) for cell in row] for row in rows]
        sizes = fit_columns(columns, harmless, self.width)
        lines = []
        for n, row in enumerate([[column.name for column in columns], *harmless]):
            spans = [
                Span(fit_cell(cell, size, right=column.right), column.style if n else "dim")
                for column, size, cell in zip(columns, sizes, row, strict=True)
                if size is not None
            ]
            between = [piece for span in spans for piece in (span, Span(" " * GAP))]
            lines.append(OutputLine(tuple(between[:-1])))
        return lines

    def _console(self) -> "Console":
        if self._made is None:
            from rich.console import Console

            self._made = Console(
                file=self._stream,
                force_terminal=True,
                width=self.width,
                color_system="standard" if self._colour else None,
                markup=False,
                highlight=False,
                emoji=False,
            )
        return self._made


def _harmless(item: OutputLine) -> OutputLine:
    # Tabs stay, for what is copied out of a transcript.
    spans = tuple(Span(escape(s.text).replace("\n", "\\n"), s.style) for s in item.spans)
    return OutputLine(spans, item.indent)


def plain(value: object) -> Any:
    """Anything that is recorded, as JSON has it: bytes as base64, structs as objects."""
    return msgspec.to_builtins(value)


def printer_for(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Printer:
    """A printer that fits where the stream leads."""
    terminal = stream.isatty()
    colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if terminal else 80
    return Printer(stream, terminal=terminal, width=max(width, 20), colour=colour)


def complain(text: str) -> None:
    """One line on stderr: what went wrong, or what a reader should know beside the output."""
    sys.stderr.write(f"killick: {one_line(text)}\n")
    sys.stderr.flush()
