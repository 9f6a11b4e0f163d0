"""The terminal: a line to type in at the bottom, and everything that happens above it.

The line can be typed in at any time, also while an answer streams. What is still being said stands
directly above it and moves up, as Markdown, when it is whole.
"""

import asyncio
import contextlib
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import ANSI, FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.shortcuts import print_formatted_text
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from killick.cli.chat.view import View, ViewedMessage
from killick.views.escape import escape, escape_line

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REFRESH_SECONDS: Final = 0.1
_WRAPPED: Final = 8 * 1024
"""Of a line that streams, the signs that are wrapped anew for each frame; at most twice as many."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_STYLES: Final = {
    "prompt": "bold",
    "tool": "cyan",
    "result": "dim",
    "note": "dim",
    "warning": "yellow",
}
_MARKS: Final = {"prompt": "> ", "tool": "⚙ ", "result": "  ", "note": "", "warning": "■ "}


class Screen:
    """One terminal, for one chat."""

    def __init__(
        self,
        view: View,
        *,
        on_interrupt: Callable[[], None],
        typed: Sequence[str] = (),
        source: Input | None = None,
        sink: Output | None = None,
    ) -> None:
        self.view = view
        self._on_interrupt = on_interrupt
        self._frame = 0
        self._turn: tuple[str | None, float] = (None, 0.0)
        """The turn that runs, and since when it is shown."""
        self.question = ""
        """Something that is asked for in place of a prompt."""
        self._offered = ""
        self._reading: asyncio.Task[str] | None = None
        self._left = False
        self._prompt: PromptSession[str] = PromptSession(
            message=self.message,
            key_bindings=self._keys(),
            history=InMemoryHistory(typed),
            refresh_interval=_REFRESH_SECONDS,
            erase_when_done=True,
            input=source,
            output=sink,
        )

    async def line(self) -> str:
        """The next line that is typed. Raises EOFError at the end of the input."""
        if self._left:
            raise EOFError
        offered, self._offered = self._offered, ""
        self._reading = asyncio.ensure_future(
            self._prompt.prompt_async(default=offered, handle_sigint=False)
        )
        try:
            text = await self._reading
        except asyncio.CancelledError:
            if self._left:
                raise EOFError from None
            raise
        return _SURROGATES.sub("\ufffd", text).strip()  # bytes that were no text

    def offer(self, text: str) -> None:
        """Put a text into the line, unless something is being typed there."""
        buffer = self._prompt.default_buffer
        if not self._prompt.app.is_running:
            self._offered = text  # the next line begins with it
        elif not buffer.text:
            buffer.text = text
            buffer.cursor_position = len(text)

    def leave(self) -> None:
        """End the wait for a line, as if there were none any more, and every later one."""
        self._left = True
        if self._prompt.app.is_running:
            with contextlib.suppress(Exception):  # it is ending already
                self._prompt.app.exit(exception=EOFError)
        elif self._reading is not None:
            self._reading.cancel()  # it has not begun yet

    def refresh(self) -> None:
        self._prompt.app.invalidate()

    async def show(self, *pieces: ViewedMessage) -> None:
        """Print above the line."""
        text = "".join(rendered(piece) for piece in pieces)
        if text:
            await run_in_terminal(lambda: print_formatted_text(ANSI(text), end=""))

    # -- the line ------------------------------------------------------------------------------

    def message(self) -> FormattedText:
        """Return the text above the line, and the beginning of the line."""
        view = self.view
        shown: list[tuple[str, str]] = []
        if view.tail:
            shown.append(("", _last_lines(escape(view.tail)) + "\n"))
        if view.running:
            self._frame = (self._frame + 1) % len(_FRAMES)
            if self._turn[0] != view.turn_id:
                self._turn = (view.turn_id, time.monotonic())
            seconds = int(time.monotonic() - self._turn[1])
            figures = f"{seconds} s · {view.tokens}"
            columns = shutil.get_terminal_size().columns
            state = f"{_FRAMES[self._frame]} {state_line(view.activity, figures, columns - 2)}"
            shown.append(("fg:ansibrightblack", state + "\n"))
        if view.queued:
            held = "queued" if view.running else "held; Enter sends it"
            shown.append(("fg:ansibrightblack", f"{len(view.queued)} prompt(s) {held}\n"))
        if self.question:
            shown.append(("fg:ansiyellow", f"{escape_line(self.question)} "))
        else:
            shown.append(("bold", "> "))
        return FormattedText(shown)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        # On a dumb terminal the prompt's own key, which leaves, would come before it otherwise.
        @keys.add("c-c", eager=True)
        def interrupt(event: KeyPressEvent) -> None:
            event.current_buffer.reset()
            self._on_interrupt()

        return keys


def state_line(activity: str, figures: str, columns: int) -> str:
    """The line of an agent at work: its figures whole, the rest as far as there is room."""
    whole = f"{activity} · {figures} · Ctrl+C stops"
    if len(whole) < columns:
        return whole
    room = columns - len(f" · {figures}") - 1
    if len(activity) > room:
        activity = activity[: max(room - 1, 0)] + "…"
    return f"{activity} · {figures}"


def rendered(piece: ViewedMessage) -> str:
    """One piece as text for a terminal, with its colours if it has any."""
    console = _console()
    text = escape(piece.text)
    if piece.kind == "prose":
        console.print(Markdown(text, hyperlinks=False))
        console.print()
    else:
        body = Text(text, style=_STYLES[piece.kind])
        mark = _MARKS[piece.kind]
        console.print(
            Text(mark, style=_STYLES[piece.kind]) + body
            if mark.strip()
            else Padding(body, (0, 0, 0, len(mark)))
        )
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def _console() -> Console:
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Console(
        file=io.StringIO(),
        force_terminal=not plain,
        no_color=plain,
        width=shutil.get_terminal_size().columns,
        highlight=False,
        emoji=False,
    )


def _last_lines(text: str) -> str:
    """Cut a text to what fits above the line on this terminal, wrapped between words."""
    size = shutil.get_terminal_size()
    rows = max(size.lines - 6, 3)
    console = _console()
    lines: list[str] = []
    for line in reversed(text.rstrip("\n").split("\n")):
        # A line without an end is cut where it stays cut while it grows.
        shown = line[max(len(line) - _WRAPPED, 0) // _WRAPPED * _WRAPPED :]
        wrapped = Text(shown).wrap(console, size.columns)
        lines[:0] = [piece.plain.rstrip() for piece in wrapped] or [""]
        if len(lines) >= rows:
            break
    return "\n".join(lines[-rows:])
