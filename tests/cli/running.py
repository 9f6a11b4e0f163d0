"""The command, run: as a process, in a terminal, or in this process for the many small cases."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from killick.cli import main

COMMAND = [sys.executable, "-W", "error", "-m", "killick.cli"]
ESCAPES = re.compile(r"\x1b\[([0-9;]*m|\?25[hl])")
"""Colours, and the cursor that hides behind a bar."""


class Done(NamedTuple):
    """What a run has left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would change what is printed."""
    unset = {"KILLICK_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "KILLICK_TRACEBACK"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "TERM": "xterm-256color", "TZ": "UTC", **(more or {})}


def run_process(
    *arguments: str,
    more: Mapping[str, str] | None = None,
    folder: Path | None = None,
    typed: str = "",
    seconds: float = 50,
) -> Done:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        env=environment(more),
        cwd=folder,
        input=typed.encode(),
        timeout=seconds,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_in_terminal(
    columns: int, *arguments: str, more: Mapping[str, str] | None = None, typed: str = ""
) -> Done:
    """Both streams are the terminal's, so both are in `out`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(more)
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    return Done(child.wait(50), shown.decode().replace("\r\n", "\n"), "")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


class Runner:
    """Runs the command in this process, on one store."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = main(["--store", str(self.store), *arguments])
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def line(self, words: Sequence[str]) -> Done:
        """Run what a document or a help shows; `> FILE` at its end is what a shell makes of it."""
        if list(words[-2:-1]) != [">"]:
            return self(*words)
        done = self(*words[:-2])
        Path(words[-1]).write_text(done.out, encoding="utf-8")
        return done
