"""The power goes while a session is erased and another writer appends."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from killick import Message, Store, Text
from killick.stores.sqlite.database import SqliteDatabase
from torture.disk import Event, Left, Platter, faulty_disk

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = "the kelp drifts under the pier"
_LEFT: tuple[Left, ...] = ("nothing", "nothing", "some", "torn", "zeros")


def erased_beside_a_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Return what reached the disk; each `ack` has the messages of the writer until then."""
    having_turn = SqliteDatabase._having_turn
    said = 0

    with (
        faulty_disk() as disk,
        Store(path, indexing=False) as store,
        Store(path, indexing=False) as other,
    ):

        @contextmanager
        def turn_after_a_commit(database: SqliteDatabase) -> Iterator[None]:
            nonlocal said
            turn.record(Message("assistant", [Text(f"answer {said} {'x' * 600}")]))
            said += 1
            disk.ack(said)
            with having_turn(database):
                yield

        for name in ("before", "doomed", "after"):
            with store.create_session(id=name).turn(f"{SECRET} {name}" * 3) as turn:
                turn.record(Message("assistant", [Text(f"{name} " * 400)]))
        with store.session("doomed").turn("more") as turn:
            turn.record_all([Message("assistant", [Text(f"{SECRET} {n}")]) for n in range(20)])
        store.rebuild_search()
        with other.create_session(id="kept").turn("go") as turn:
            disk.ack(said)
            monkeypatch.setattr(SqliteDatabase, "_having_turn", turn_after_a_commit)
            assert store.erase_session("doomed").verified
            monkeypatch.undo()
            disk.ack("erased")
        return disk.trace


def test_a_power_cut_costs_nothing_and_the_erasure_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, found = tmp_path / "made", tmp_path / "found"
    made.mkdir()
    found.mkdir()
    chance, platter = random.Random(23), Platter()
    trace = erased_beside_a_writer(made / "store.db", monkeypatch)
    said, cases, begun, erased = 0, 0, False, False
    for event in trace:
        platter.apply(event)
        if event.what == "ack":
            begun = True
            erased = event.fact == "erased"
            said = said if erased else event.fact
        if not begun or event.what == "open":
            continue
        cases += 1
        _check(found, platter.after_power_cut(chance.choice(_LEFT), chance), said, erased=erased)
    assert cases > 80


def _check(folder: Path, files: dict[str, bytes], said: int, *, erased: bool) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    path = folder / "store.db"
    with Store(path, indexing=False, durability="normal") as store:
        answers = [m.text for m in store.session("kept").messages() if m.role == "assistant"]
        assert len(answers) >= said, "something acknowledged is missing"
        assert [text.split()[1] for text in answers] == list(map(str, range(len(answers))))
        for name in ("before", "after"):
            assert len(store.session(name).messages()) == 2
        assert not erased or store.was_erased("doomed")
        begun = store.was_erased("doomed")
        receipt = store.verify_erased() if begun else store.erase_session("doomed")
        assert receipt.verified
        assert store.check_file() == []
    text = path.read_bytes()
    assert text.count(SECRET.encode()) == 2 * 3, "those of the sessions that stay"
