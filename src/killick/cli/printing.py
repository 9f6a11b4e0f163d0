"""Where everything printed goes through: made harmless, fitted to the terminal, coloured or not.

On a terminal lines are wrapped and tables cut to its width. Into a pipe or a file nothing is cut or
coloured: lines stay whole, and a table is one line for each row with tabs between the cells.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

from killick.cli.safety import clean, clean_line, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from killick.cli.layout import Column


class Span(NamedTuple):
    """Some words of a line, and how they look."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """One line for a person; where it is wrapped, its rest is indented as much."""

    spans: tuple[Span, ...] = ()
    indent: int = 0

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(span.text for span in self.spans)


def line(text: str, style: str = "", *, indent: int = 0) -> Line:
    return Line((Span(text, style),), indent)


def block(text: str, style: str = "", *, indent: int = 0) -> list[Line]:
    """A text of several lines."""
    return [line(one, style, indent=indent) for one in clean(text).rstrip("\n").split("\n")]


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

    def lines(self, lines: Iterable[Line]) -> None:
        for one in lines:
            if self.terminal:
                self._wrapped(one)
            else:
                self._stream.write(_harmless(one).text.rstrip() + "\n")
        self._stream.flush()

    def table(self, columns: "Sequence[Column]", rows: Sequence[Sequence[str]]) -> None:
        """Rows of cells; one line each into a pipe, where no head is in the way."""
        if self.terminal:
            self.lines(self._fitted(columns, rows))
            return
        for row in rows:
            self._stream.write("\t".join(clean_line(cell) for cell in row) + "\n")
        self._stream.flush()

    def write(self, text: str, style: str = "") -> None:
        """Text as it comes, without a newline of its own."""
        if self.terminal and style:
            self._console().print(clean(text), style=style, end="", soft_wrap=True)
        else:
            self._stream.write(clean(text))
        self._stream.flush()

    def _wrapped(self, one: Line) -> None:
        from rich.cells import cell_len
        from rich.text import Text

        # On a screen too narrow for the indent, the words matter more.
        indent = min(one.indent, self.width // 4)
        harmless = Line(_harmless(one).spans, indent)
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

    def _fitted(self, columns: "Sequence[Column]", rows: Sequence[Sequence[str]]) -> list[Line]:
        from killick.cli.layout import GAP, fit_cell, fit_columns

        harmless = [[clean_line(cell) for cell in row] for row in rows]
        sizes = fit_columns(columns, harmless, self.width)
        lines = []
        for n, row in enumerate([[column.name for column in columns], *harmless]):
            spans = [
                Span(fit_cell(cell, size, right=column.right), column.style if n else "dim")
                for column, size, cell in zip(columns, sizes, row, strict=True)
                if size is not None
            ]
            between = [one for span in spans for one in (span, Span(" " * GAP))]
            lines.append(Line(tuple(between[:-1])))
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


def _harmless(one: Line) -> Line:
    # Tabs stay, for what is copied out of a transcript.
    spans = tuple(Span(clean(s.text).replace("\n", "\\n"), s.style) for s in one.spans)
    return Line(spans, one.indent)


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
