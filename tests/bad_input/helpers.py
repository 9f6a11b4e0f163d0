"""What the tests of bad input share."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from killick import Message, Session, Store, Text, ToolCall
from tests.crash.processes import run_script

HARD_TEXTS = {
    "quotes": 'it\'s "so" `and` \\ so; DROP TABLE entries; --',
    "nul": "a\0b\0",
    "lone-high-surrogate": "a\ud800b",
    "lone-low-surrogate": "\udfff",
    "pair-as-two-surrogates": "\ud83d\ude00",
    "right-to-left": "\u202eabc\u200f \u05d0\u2067",
    "line-separators": "a\u2028b\u2029c\r\nd\x85",
    "slashes": "a/b/1/message/../%00",
    "emoji": "👩‍👩‍👧",
}


@contextmanager
def nothing_stored(session: Session, store: Store | None = None) -> Iterator[None]:
    """The journal, and the rows of every table, are the same afterwards."""
    before = session.entries(), store.counts() if store is not None else None
    yield
    assert (session.entries(), store.counts() if store is not None else None) == before


def calling(call_id: str = "c1", *, id: str = "") -> Message:  # noqa: A002
    """An assistant message that calls one tool."""
    return Message(role="assistant", parts=[ToolCall(call_id, "shell", "{}")], id=id)


def saying(text: str, *, id: str = "") -> Message:  # noqa: A002
    return Message(role="assistant", parts=[Text(text)], id=id)


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages()]


def is_usable(session: Session) -> bool:
    """A whole turn can be recorded and read back."""
    with session.turn("still there?") as turn:
        turn.record(saying("yes"))
    return texts(session)[-2:] == ["still there?", "yes"]


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """The file as any other program sees it."""
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def child(program: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that has printed its first line, and ends when its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        try:
            process.communicate(timeout=10)
        finally:
            process.kill()
            process.wait()


def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder as a file system that may not be written."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


CRASHED = """
import os, sys
from killick import Store
store = Store(sys.argv[1])
for name in sys.argv[2:]:
    store.create_session(id=name)
os._exit(0)  # without closing: the log stays
"""


def crash(path: Path, *ids: str) -> None:
    """Leave a store behind as a process does that was killed, with its log."""
    done = run_script(CRASHED, str(path), *ids)
    assert done.returncode == 0, done.stderr
    assert Path(f"{path}-wal").stat().st_size > 0


def ids(path: Path) -> set[str]:
    with Store(path) as store:
        return {info.id for info in store.sessions()}
