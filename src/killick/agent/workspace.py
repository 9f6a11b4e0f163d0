"""The chat agent's tools in one folder: look at files, write one, run a command.

What a tool gives back is bounded in what the model is shown. What a command prints is recorded as
it comes, and the command with all its children is ended when the turn is stopped, and when this
process dies, in whatever way.
"""

import codecs
import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from subprocess import PIPE, STDOUT
from typing import Any, Final

import anyio
import anyio.abc
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import Tool

from killick.adapters.pydantic_ai import Recorder
from killick.errors import StoreDegraded
from killick.views.formats.common import clean

Print = Callable[[str], None]

SHOWN_CHARS: Final = 16_000
"""What a model is shown of one result."""

RECORDED_CHARS: Final = 64 * 1024 * 1024
"""What is recorded of what one command prints; then it is said that there was more."""

COMMAND_SECONDS: Final = 600.0
"""A command that runs longer is ended."""

_LINES: Final = 200
_FILE_BYTES: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024
_DISK_WAIT: Final = 0.02
_DISK_SECONDS: Final = 30.0
_TERMINATE_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 1.0
"""After which it is looked whether a command that says nothing is over."""

_LEFT_OUT: Final = "\n[What was printed after this is not recorded.]\n"

_SUPERVISED: Final = """
trap : TERM
exec 3<&0 </dev/null
{ read line <&3; kill -s KILL -- "-$$"; } >/dev/null 2>&1 &
/bin/sh -c "$1" 3<&-
code=$?
{ kill -s KILL "$!"; wait "$!"; } 2>/dev/null
exit "$code"
"""
"""Runs a command; ends it, and all it has started, when the other end of its input is closed.

The system closes that end when this process is gone, also after kill -9. The shell leads the group
that is ended; it lets a SIGTERM pass, so that the command is given its time to end well.
"""
_IGNORED: Final = frozenset({".git", ".venv", "node_modules", "__pycache__", ".mypy_cache"})


class Running:
    """Passed to a tool beside its arguments: a way to print while it runs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def printing(self, call_id: str | None) -> Print:
        """Return where the output of this call goes; nowhere for one that is recorded elsewhere."""
        tool = self._recorder.tools.get(call_id or "")
        return tool.output if tool is not None else _nowhere


def _nowhere(_: str) -> None:
    """Print nothing: a call from an earlier turn has its output in its result."""


class Workspace:
    """The tools of one folder. No path may lead out of it; a command can go where it likes."""

    def __init__(self, root: Path, *, shown_chars: int = SHOWN_CHARS) -> None:
        self.root = root.resolve()
        self._shown = shown_chars

    def tools(self) -> list[Tool[Running]]:
        """Return all tools. A person is asked about each call, unless the tool was allowed."""
        functions: tuple[Callable[..., Any], ...] = (
            self.list_files,
            self.read_file,
            self.search_files,
            self.write_file,
            self.run_command,
        )
        return [Tool(function, requires_approval=True) for function in functions]

    def list_files(self, path: str = ".") -> str:
        """List the files of a folder.

        Args:
            path: The folder.
        """
        folder = self._inside(path)
        if not folder.is_dir():
            raise ToolFailed(f"{path} is no folder")
        paths = sorted(folder.iterdir())
        names = [entry.name + ("/" if entry.is_dir() else "") for entry in paths]
        return self._lines(names, "files") or "The folder is empty."

    def read_file(self, path: str, first_line: int = 1) -> str:
        """Read a text file.

        Args:
            path: The file.
            first_line: Where to begin, for long files.
        """
        file = self._inside(path)
        if not file.is_file():
            raise ToolFailed(f"there is no file {path}")
        excerpt, line = Excerpt(self._shown), 1
        with file.open(encoding="utf-8", errors="replace") as opened:
            for piece in iter(lambda: opened.readline(_CHUNK), ""):  # a line may be of any length
                if line >= first_line:
                    excerpt.add(piece)
                line += piece.endswith("\n")
        return excerpt.text()

    def search_files(self, text: str, path: str = ".") -> str:
        """Search for a text in all files of a folder.

        Args:
            text: What to look for.
            path: The folder, or a file.
        """
        target = self._inside(path)
        if not target.exists():
            raise ToolFailed(f"there is no file and no folder {path}")
        matches: list[str] = []
        for file in _files(target) if target.is_dir() else [target]:
            for number, line in enumerate(_text_lines(file), 1):
                if text in line:
                    matches.append(f"{file.relative_to(self.root)}:{number}: {line.strip()}")
            if len(matches) > _LINES:
                break
        return self._lines(matches, "places") or f"{text!r} is in none of the files."

    def write_file(self, path: str, content: str) -> str:
        """Write a text file, in place of what is there.

        Args:
            path: The file.
            content: What will be in it.
        """
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: a model may write the same file twice at once.
        beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}.killick")
        try:
            beside.write_text(content, "utf-8")
            if file.exists():
                shutil.copymode(file, beside)  # a script stays one
            beside.replace(file)  # a reader sees all of it, or what was there before
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        return f"Wrote {len(content)} characters to {path}."

    async def run_command(self, ctx: RunContext[Running], command: str) -> str:
        """Run a shell command.

        Args:
            command: The command line. What it leaves in the background is ended with it.
        """
        excerpt = Excerpt(self._shown)
        printing = ctx.deps.printing(ctx.tool_call_id)
        with anyio.move_on_after(COMMAND_SECONDS) as limit:
            code = await _run(command, self.root, printing, excerpt)
        if limit.cancelled_caught:
            raise ToolFailed(
                f"{excerpt.text()}\nThe command was ended after {COMMAND_SECONDS:.0f} s."
            )
        if code != 0:
            raise ToolFailed(f"{excerpt.text()}\nThe command failed with exit code {code}.")
        return excerpt.text() or "The command printed nothing."

    # -- what is shown -------------------------------------------------------------------------

    def _inside(self, path: str) -> Path:
        inside = (self.root / path).resolve()
        if not inside.is_relative_to(self.root):
            raise ToolFailed(f"{path} lies outside of {self.root}")
        return inside

    def _lines(self, lines: list[str], what: str) -> str:
        more = f"\n… more {what} are not shown" if len(lines) > _LINES else ""
        return self._bounded("\n".join(lines[:_LINES]) + more)

    def _bounded(self, text: str) -> str:
        excerpt = Excerpt(self._shown)
        excerpt.add(text)
        return excerpt.text()


class Excerpt:
    """The beginning and the end of a text that may be long, and how much is missing between."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = ""
        self._tail = ""
        self.length = 0

    def add(self, text: str) -> None:
        text = clean(text)  # names of files may hold what no provider takes
        self.length += len(text)
        room = self._half - len(self._head)
        if room > 0:
            self._head, text = self._head + text[:room], text[room:]
        if text:
            self._tail = (self._tail + text)[-self._half :]

    def text(self) -> str:
        missing = self.length - len(self._head) - len(self._tail)
        between = f"\n[… {missing} characters are not shown …]\n" if missing else ""
        return self._head + between + self._tail


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        yield from (Path(parent, name) for name in sorted(names))


def _text_lines(file: Path) -> Iterable[str]:
    """Return the lines of a text file of a size that a person would read."""
    try:
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES:
            return ()  # nor a link, nor a pipe, which may never be written to
        data = file.read_bytes()
    except OSError:
        return ()
    return () if b"\0" in data else data.decode("utf-8", "replace").splitlines()


# -- a command ---------------------------------------------------------------------------------


async def _run(command: str, root: Path, printing: Print, excerpt: Excerpt) -> int:
    """Run it; its exit code.

    If interrupted: the command and everything it has started is ended before this returns.
    """
    supervised = ["/bin/sh", "-c", _SUPERVISED, "sh", command]
    process = await anyio.open_process(
        supervised, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=root, start_new_session=True
    )
    try:
        await _read(process, printing, excerpt)
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _read(process: anyio.abc.Process, printing: Print, excerpt: Excerpt) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    data = b"..."
    while data:
        data = await _receive(process)
        text = decoder.decode(data, final=not data)
        room = RECORDED_CHARS - excerpt.length
        if text and room >= 0:
            await _print(printing, text if len(text) <= room else text[:room] + _LEFT_OUT)
        excerpt.add(text)


async def _receive(process: anyio.abc.Process) -> bytes:
    """Return what the command prints next; nothing when it is over.

    It is over when its shell is: what that has left in the background is ended, and what has
    escaped, and holds the output open, is not waited for.
    """
    assert process.stdout is not None
    while True:
        over = process.returncode is not None
        if over:
            _signal(process.pid, SIGKILL)
        with anyio.move_on_after(_SILENT_SECONDS):
            try:
                return await process.stdout.receive(_CHUNK)
            except anyio.EndOfStream:
                return b""
        if over:
            return b""


async def _print(printing: Print, text: str) -> None:
    """Hand output over, as fast as the disk takes it: the command waits meanwhile."""
    waited = 0.0
    while True:
        try:
            printing(text)
        except StoreDegraded:
            if waited > _DISK_SECONDS:
                raise
            waited += _DISK_WAIT
            await anyio.sleep(_DISK_WAIT)
        else:
            return


async def _end(process: anyio.abc.Process) -> None:
    """End the whole group: what the command has started in the background too."""
    _signal(process.pid, SIGTERM)
    with anyio.move_on_after(_TERMINATE_SECONDS):
        await process.wait()
    _signal(process.pid, SIGKILL)
    await process.aclose()


def _signal(group: int, number: Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
