"""An erasure is killed before every statement and clearing of bytes; erasing again ends it."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import Message, SessionNotFound, Store, Text
from killick.stores.sqlite.frozen import DatabaseFile
from tests.crash.journals import check_file
from tests.crash.processes import Channel, Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_STRIDE = 5
"""Every so manieth place is tried; all of them with 1, which takes minutes."""


def erase_until(_parent: Channel, path: str, last: int) -> None:
    """Erase a session, and be killed before the statement or write of that number."""
    places = 0

    def count(*_: Any) -> bool:
        nonlocal places
        places += 1
        if places == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def trace(connection: apsw.Connection) -> None:
        connection.exec_trace = count

    store = Store(path, indexing=False)
    apsw.connection_hooks.append(trace)
    runtime = store._core.runtime()
    runtime.database._writer.exec_trace = count  # type: ignore[attr-defined]
    clear = DatabaseFile.clear

    def counted(file: DatabaseFile, offset: int, length: int) -> int:
        count()
        return clear(file, offset, length)

    setattr(DatabaseFile, "clear", counted)  # noqa: B010  (types ask for a method)
    store.erase_session("gone")
    os._exit(0)


def make(path: Path) -> None:
    with Store(path) as store:
        for name in ("before", "gone", "after"):
            session = store.create_session(id=name, title=f"{name} plugh47")
            store.put_blob(f"{name} blob plugh47 ".encode() * 20)
            for number in range(2):
                with session.turn(f"{name} asks plugh47") as turn:
                    with turn.stream(model="m") as reply:
                        reply.text(f"{name} answers plugh47 {number}")
                    turn.record(Message("assistant", [Text(f"{name} plugh47 " * 400)]))
        store.search("plugh47", wait_seconds=60)


def test_killed_anywhere_an_erasure_is_found_and_finished(tmp_path: Path, nursery: Nursery) -> None:
    made, work = tmp_path / "made", tmp_path / "work"
    made.mkdir()
    make(made / "work.db")
    seen: set[str] = set()
    last = 0
    while True:
        last += _STRIDE
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(made, work)
        child = nursery.start(erase_until, str(work / "work.db"), last)
        status = child.wait()
        child.channel.close()
        if status == 0:
            break
        assert status == -signal.SIGKILL
        seen.add(check(work / "work.db"))
    assert last > 20 * _STRIDE
    assert seen >= {"there", "half"}  # and "done", after the last commit


def check(path: Path) -> str:
    """The session is whole, or the doctor finds what is left of it and erasing again ends it."""
    with Store(path, indexing=False) as store:
        left = [finding for finding in store.check_file() if finding.session_id == "gone"]
        try:
            messages = store.session("gone").messages()
        except SessionNotFound:
            state = "half" if left else "done"
        else:
            state = "there"
            assert len(messages) == 6
            assert not left
        if state != "done":
            assert store.erase_session("gone").verified
        assert store.verify_erased("gone").verified
        assert store.check_file() == []
        for name in ("before", "after"):
            assert len(store.session(name).messages()) == 6
            assert not store.verify_session(name).findings
        assert len(store.search("plugh47", limit=100, wait_seconds=60)) == 12
    check_file(str(path))
    data = path.read_bytes()
    for word in (b"gone asks", b"gone answers", b"gone plugh47"):
        assert word not in data
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')")
    connection.close()
    return state
