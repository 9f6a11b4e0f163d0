"""A store that cannot be opened or written: each reason has its error, and nothing is changed."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

import asyncio
import contextlib
import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from killick import (
    AsyncStore,
    Store,
    StoreBusy,
    StoreError,
    StoreNewer,
    StoreNotOurs,
    StoreOnNetwork,
    StoreReadOnly,
)
from killick.stores.sqlite import connection
from tests.bad_input.helpers import child, is_usable, nothing_stored, raw, read_only, saying, texts
from torture.disk import Fault, faulty_disk

BEFORE_PACKS = Path(__file__).parents[1] / "compat" / "before_packs" / "store.gz"


def fill(path: Path) -> None:
    with Store(path) as store:
        with store.create_session(id="s", title="T").turn("go") as turn:
            turn.record(saying("done"))


def test_a_read_only_store_refuses_writes_and_says_so(path: Path) -> None:
    fill(path)
    with read_only(path.parent), Store(path) as store:
        with pytest.raises(StoreReadOnly, match="may not be written"):
            store.create_session()
        with pytest.raises(StoreReadOnly):
            store.put_blob(b"x")


def test_a_read_only_store_can_be_read(path: Path) -> None:
    fill(path)
    with read_only(path.parent), Store(path) as store:
        session = store.session("s")
        assert texts(session) == ["go", "done"]
        assert [info.id for info in store.sessions()] == ["s"]
        with nothing_stored(session), pytest.raises(StoreReadOnly):
            with session.turn("more"):
                pass


def test_a_new_store_in_a_read_only_folder_is_refused_as_read_only(path: Path) -> None:
    with read_only(path.parent), pytest.raises(StoreReadOnly):
        Store(path)


def test_a_read_only_store_of_an_earlier_format_is_refused_at_once(path: Path) -> None:
    """Some reads would work and others fail, with errors that name a table."""
    path.write_bytes(gzip.decompress(BEFORE_PACKS.read_bytes()))
    with read_only(path.parent), pytest.raises(StoreReadOnly, match="where it may be written"):
        Store(path)


def test_a_read_only_store_of_a_newer_killick_is_refused(path: Path) -> None:
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE meta SET value = 1000 WHERE name IN ('version', 'oldest')")
    with read_only(path.parent), pytest.raises(StoreNewer, match="install the newer version"):
        Store(path)


def test_a_store_this_user_may_not_write_refuses_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with Store(path) as store:
        session = store.session("s")
        with nothing_stored(session), pytest.raises(StoreReadOnly, match="by this user"):
            with session.turn("go"):
                pass
        assert texts(session) == ["go", "done"]


@contextmanager
def mounted_again(folder: Path, *, read_only: bool) -> Iterator[Path]:
    """The same folder under another name."""
    other = folder.with_name(f"{folder.name}-again")
    other.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    if subprocess.run(["mount", "--bind", folder, other], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        if read_only:
            subprocess.run(["mount", "-o", "remount,bind,ro", other], check=True)
        yield other
    finally:
        subprocess.run(["umount", other], check=True)


def test_who_may_only_read_sees_what_others_write_meanwhile(path: Path) -> None:
    """Also when nobody had the store open at first, and its file could be taken for finished."""
    fill(path)
    with mounted_again(path.parent, read_only=True) as other, Store(other / path.name) as reader:
        session = reader.session("s")
        following = session.follow(after=session.head)
        assert texts(session) == ["go", "done"]
        with Store(path) as store:
            store.session("s").note("n")
            assert next(following).kind == "note"
            store.create_session(id="t")
        assert {info.id for info in reader.sessions()} == {"s", "t"}
        following.close()


def test_a_file_in_a_folder_that_is_mounted_twice_is_one_store(path: Path) -> None:
    with mounted_again(path.parent, read_only=False) as other:
        with Store(path) as store, store.create_session(id="s").turn("go") as turn:
            with Store(other / path.name) as again:
                assert [one.status for one in again.session("s").turns()] == ["running"]
            assert _seen_by_another_process(path) == "running"
            turn.record(saying("done"))


def _seen_by_another_process(path: Path) -> str:
    code = "import sys; from killick import Store; s = Store(sys.argv[1]); "
    code += "print(s.session('s').turns()[-1].status)"
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (None, "a" * 300, "File name too long"),
        (os.mkfifo, "work.db", "a device or a pipe; name a file"),
        (_make_folder, "work.db-lock", "Is a directory .*work.db-lock"),
    ],
)
def test_what_the_system_refuses_names_the_file(
    tmp_path: Path, make: Callable[[Path], None] | None, name: str, said: str
) -> None:
    if make is not None:
        make(tmp_path / name)
    with pytest.raises(StoreError, match=said):
        Store(tmp_path / name.removesuffix("-lock"))


def test_a_lock_file_that_may_not_be_written_is_named_with_what_to_do(path: Path) -> None:
    fill(path)
    said = rf"\({path}-lock\); writing to a store .* or name another file"
    with read_only(Path(f"{path}-lock")), pytest.raises(StoreReadOnly, match=said):
        Store(path)


@pytest.mark.parametrize("content", [b"hello", b"{}" * 5_000, b"\0" * 5_000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreNotOurs, match="not a SQLite database"):
        Store(path)
    assert path.read_bytes() == content


def test_another_program_s_database_is_refused_and_left_alone(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE sessions (id)")
    before = path.read_bytes()
    with pytest.raises(StoreNotOurs, match="name another file"):
        Store(path)
    assert path.read_bytes() == before


def test_a_newer_store_is_refused_and_left_alone(path: Path) -> None:
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE meta SET value = 99")
    before = path.read_bytes()
    with pytest.raises(StoreNewer, match="install the newer version"):
        Store(path)
    assert path.read_bytes() == before


def test_a_newer_store_that_older_code_may_open_works(path: Path) -> None:
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'version'")
    with Store(path) as store:
        assert is_usable(store.session("s"))


def test_a_store_on_a_network_file_system_is_refused_unless_told_otherwise(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = f"1 0 0:1 / {path.parent} rw - nfs4 server:/x rw\n"
    monkeypatch.setattr(connection, "_read_mounts", lambda: mounts)
    with pytest.raises(StoreOnNetwork, match=r"\(nfs4\).*network=True"):
        Store(path)
    assert not path.exists()
    with Store(path, network=True) as store:
        assert is_usable(store.create_session())


def test_a_file_with_two_names_is_refused_under_both(path: Path) -> None:
    other = path.with_name("other.db")
    with Store(path) as store:
        session = store.create_session(id="s")
        other.hardlink_to(path)
        for name in (other, path):
            with pytest.raises(StoreError, match="hard link"):
                Store(name).session("s")
        assert is_usable(session)  # it was open before there were two
    other.unlink()
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]
    link = path.with_name("link.db")
    link.symlink_to(path)
    with Store(link) as store:
        assert is_usable(store.session("s"))


@pytest.mark.parametrize(
    "settings",
    [
        {"window_seconds": "1"},
        {"window_seconds": None},
        {"window_seconds": float("nan")},
        {"window_seconds": float("inf")},
        {"window_seconds": -1},
        {"buffer_bytes": "1"},
        {"flush_bytes": None},
        {"lock_wait_seconds": -1},
        {"lease_seconds": "10"},
        {"answer_seconds": None},
    ],
    ids=repr,
)
def test_a_setting_that_is_no_number_is_refused_where_it_is_given(
    path: Path, settings: Any
) -> None:
    (name,) = settings
    with pytest.raises((TypeError, ValueError), match=f"^{name}.* number"):
        Store(path, **settings)
    assert not path.exists()


@pytest.mark.parametrize("url", ["", "sqlite:///", ":memory:", "sqlite:///:memory:", "file:x.db"])
def test_a_name_that_is_no_file_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(StoreError):
        Store(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [5, b"work.db", ["work.db"]], ids=repr)
def test_what_is_no_name_is_said_to_be_none(url: Any) -> None:
    with pytest.raises(TypeError, match="a store is a path or a URL"):
        Store(url)


def test_a_folder_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match="make it first"):
        Store(path.parent / "gone" / "work.db")


def test_the_asynchronous_face_refuses_when_it_is_entered(path: Path) -> None:
    path.write_bytes(b"x" * 5_000)

    async def enter() -> None:
        with pytest.raises(StoreNotOurs):
            async with AsyncStore(path):
                pass
        with pytest.raises(StoreNotOurs):
            await AsyncStore(path).create_session()

    asyncio.run(enter())


_HOLDS_SQLITE = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.close()
"""

_HOLDS_THE_TURN = """
import sys
from pathlib import Path
from killick.stores.sqlite.lockfile import LockFile
lock = LockFile.open(Path(sys.argv[1] + "-lock"))
lock.acquire_turn(5)
print("held", flush=True)
sys.stdin.read()
"""


_PROGRAMS = [
    # Whose lock of SQLite's it is, /proc/locks alone says.
    pytest.param(_HOLDS_SQLITE, id="sqlite", marks=pytest.mark.linux),
    pytest.param(_HOLDS_THE_TURN, id="turn"),
]


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_store_held_for_too_long_is_refused_and_the_holder_named(
    path: Path, program: str
) -> None:
    fill(path)
    with Store(path, lock_wait_seconds=0.2) as store:
        session = store.session("s")
        with child(program, path) as holder, nothing_stored(session):
            began = time.monotonic()
            with pytest.raises(StoreBusy) as caught:
                session.note("n")
            assert time.monotonic() - began < 3
            assert store.status == "degraded"
            assert f"pid {holder.pid}" in str(caught.value)
            assert "then try again" in str(caught.value)
        assert is_usable(session)
        assert store.status == "ok"


@pytest.mark.parametrize("program", _PROGRAMS)
def test_every_wait_that_runs_out_names_the_holder(path: Path, program: str) -> None:
    fill(path)
    with Store(path, lock_wait_seconds=0.1) as store:
        session = store.session("s")
        with child(program, path) as holder:
            for _ in range(3):
                with pytest.raises(StoreBusy) as caught:
                    session.note("n")
            assert f"pid {holder.pid}" in str(caught.value)
        assert is_usable(session)


def test_a_program_that_locks_the_file_is_not_named_without_proc(path: Path) -> None:
    """The switch takes /proc away; the error still says what to do."""
    fill(path)
    program = """
import sys
from killick import Store, StoreBusy
with Store(sys.argv[1], lock_wait_seconds=0.2) as store:
    try:
        store.session("s").note("n")
    except StoreBusy as busy:
        print(busy)
"""
    folder = Path(__file__).parents[1] / "without_linux"
    env = os.environ | {"KILLICK_WITHOUT_LINUX": "1", "PYTHONPATH": str(folder)}
    with child(_HOLDS_SQLITE, path):
        command = [sys.executable, "-c", program, str(path)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert "another program" in done.stdout, done.stderr
    assert "then try again" in done.stdout


@pytest.mark.parametrize("program", [_HOLDS_SQLITE, _HOLDS_THE_TURN], ids=["sqlite", "turn"])
def test_a_held_store_can_still_be_read(path: Path, program: str) -> None:
    fill(path)
    with Store(path, lock_wait_seconds=0.1) as store, child(program, path):
        assert texts(store.session("s")) == ["go", "done"]


def test_opening_a_held_store_is_refused_and_the_holder_named(path: Path) -> None:
    fill(path)
    with child(_HOLDS_THE_TURN, path) as holder:
        with pytest.raises(StoreBusy, match=f"pid {holder.pid}"):
            Store(path, lock_wait_seconds=0.1)


def test_a_stream_in_a_held_store_is_told_and_its_text_comes_when_it_is_free(path: Path) -> None:
    fill(path)
    with Store(path, lock_wait_seconds=0.1, window_seconds=0.001) as store:
        session = store.session("s")
        with session.turn("go") as turn, turn.stream() as reply:
            with child(_HOLDS_SQLITE, path), pytest.raises(StoreBusy):
                reply.text("kept")
                session.note("n")
        assert texts(session)[-1] == "kept"


def test_a_second_sqlite_reader_does_not_keep_us_from_writing(path: Path) -> None:
    fill(path)
    with Store(path, lock_wait_seconds=0.2) as store, raw(path) as connection:
        connection.execute("BEGIN")
        assert list(connection.execute("SELECT count(*) FROM entries"))
        assert is_usable(store.session("s"))


def test_an_error_while_closing_does_not_hide_why_it_could_not_be_opened(path: Path) -> None:
    """Whoever cannot open a store hears one of our errors, whatever else fails then."""
    with faulty_disk() as disk:
        fired = 0
        for at in range(1, 60):
            path.unlink(missing_ok=True)
            disk.reset(Fault("write", at, lasting=True))
            with contextlib.suppress(StoreError):
                Store(path).close()
            fired += disk.fault is not None and disk.fault.fired > 0
        assert fired > 40
