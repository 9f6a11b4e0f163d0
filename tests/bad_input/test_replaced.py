"""The file is replaced or deleted under an open store."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from killick import AsyncStore, Session, Store, StoreDegraded, StoreReplaced, TurnStopped
from tests.bad_input.helpers import saying


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    with Store(other) as store:
        store.create_session(id="theirs")
    other.rename(path)


def replace_with_rubbish(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"rubbish")


WAYS = pytest.mark.parametrize("change", [delete, replace, replace_with_rubbish])


@WAYS
def test_every_write_and_read_says_so(
    path: Path, store: Store, session: Session, change: Callable[[Path], None]
) -> None:
    change(path)
    with pytest.raises(StoreReplaced, match="while it was open"):
        store.create_session()
    with pytest.raises(StoreReplaced):
        session.note("n")
    with pytest.raises(StoreReplaced):
        session.entries()
    with pytest.raises(StoreReplaced):
        store.session("s")
    assert store.status == "degraded"


@WAYS
def test_the_file_that_took_its_place_is_not_written(
    path: Path, store: Store, session: Session, change: Callable[[Path], None]
) -> None:
    change(path)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreReplaced):
        session.note("n")
    store.close()
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_turn_that_runs_is_told_and_what_leaves_its_block_goes_on(
    path: Path, session: Session
) -> None:
    turn = session.turn("go").__enter__()
    path.unlink()
    with pytest.raises(StoreReplaced):
        turn.record(saying("x"))
    error = ValueError("mine")
    turn.__exit__(ValueError, error, None)
    assert "StoreReplaced" in "".join(error.__notes__)


def test_the_file_put_back_is_the_store_again(path: Path, store: Store, session: Session) -> None:
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreReplaced):
        session.note("n")
    away.rename(path)
    session.note("n")
    assert store.status == "ok"
    assert [entry.kind for entry in session.entries()] == ["session_created", "note"]


def test_the_asynchronous_face_says_so_too(path: Path) -> None:
    async def go() -> None:
        async with AsyncStore(path) as store:
            session = await store.create_session()
            delete(path)
            with pytest.raises(StoreReplaced):
                await session.note("n")
            with pytest.raises(StoreReplaced):
                await session.entries()

    asyncio.run(go())


def test_a_folder_that_cannot_be_reached_for_a_moment_is_said_to_be(
    path: Path, store: Store, session: Session
) -> None:
    with out_of_reach(path.parent):
        for use in (session.entries, lambda: session.note("n"), store.check_file):
            with pytest.raises(StoreDegraded, match=r"cannot be reached: .*; try again"):
                use()
    session.note("n")
    assert store.status == "ok"


def test_a_turn_hears_of_a_stop_though_its_folder_could_not_be_reached_for_a_moment(
    path: Path, session: Session
) -> None:
    with suppress(TurnStopped), session.turn("go") as turn:
        with out_of_reach(path.parent):
            watcher = session._core.runtime().watcher
            watcher.wait(watcher.generation, 5)  # it has looked, and says that something is wrong
        with Store(path) as other:
            assert other.session(session.id).stop(reason="enough")
        while True:
            turn.record(saying("x"))
    assert turn.reason == "enough"


@contextmanager
def out_of_reach(folder: Path) -> Iterator[None]:
    """Its place is taken by a file; as a mount that is gone, or a folder without permission."""
    away = folder.with_name("away")
    folder.rename(away)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)
