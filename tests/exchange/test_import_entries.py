"""The one way in for entries that were made elsewhere: all or none, and no rule broken."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from killick import (
    AsyncStore,
    Entry,
    IdConflict,
    InvalidEntry,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
    Store,
    Text,
)
from killick.model import entries as e
from killick.model.limits import TITLE_CHARS_MAX


def turn(number: int, first: int, text: str = "Hi.") -> list[Entry]:
    bodies: list[e.Body] = [
        e.TurnStarted(turn_id=f"t{number}", fence=number, holder="import"),
        e.MessageRecorded(id=f"m{number}", turn_id=f"t{number}", role="user", parts=(Text(text),)),
        e.TurnEnding(turn_id=f"t{number}", status="completed"),
    ]
    return [Entry(first + n, 1_000_000 * (first + n), body) for n, body in enumerate(bodies)]


BEGINNING = Entry(1, 1_000_000, e.SessionCreated(title="Old"))
JOURNAL = [BEGINNING, *turn(1, 2)]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield store
        return
    with Store(tmp_path / "work.db") as opened:
        yield opened


def test_times_and_places_are_those_that_were_given(store: Store) -> None:
    assert store.import_entries("s", JOURNAL).seq == 4
    assert store.session("s").entries() == JOURNAL
    info = store.session("s").info()
    assert (info.created_at_us, info.updated_at_us) == (1_000_000, 4_000_000)
    assert store.examine_session("s") == []


def test_the_same_entries_again_change_nothing(store: Store) -> None:
    store.import_entries("s", JOURNAL)
    assert store.import_entries("s", JOURNAL).repeated
    assert store.import_entries("s", turn(1, 2)).repeated
    assert store.session("s").head == 4


def test_a_session_goes_on_after_an_import(store: Store) -> None:
    store.import_entries("s", JOURNAL)
    with store.session("s").turn("More."):
        pass
    assert [one.status for one in store.session("s").turns()] == ["completed", "completed"]
    assert store.examine_session("s") == []


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ([], InvalidEntry, "no entry"),
        (turn(2, 5)[:2], InvalidEntry, "is not ended"),
        (turn(2, 6), InvalidEntry, "ends at seq 4"),
        (turn(2, 5)[1:2], InvalidEntry, "ends at seq 4"),
        ([Entry(5, 0, turn(2, 5)[1].body)], InvalidEntry, "was not running"),
        (turn(1, 5), IdConflict, "recorded already"),
        (turn(1, 2, "Other."), IdConflict, "has another entry at seq 3"),
        ([Entry(5, 1 << 62, e.Note(id="n", name="x"))], InvalidEntry, "in no year"),
        ([Entry(5, 0, e.Note(id="", name="x"))], InvalidEntry, "empty"),
    ],
)
def test_what_breaks_a_rule_is_refused_and_nothing_is_written(
    store: Store, entries: list[Entry], error: type[Exception], words: str
) -> None:
    store.import_entries("s", JOURNAL)
    with pytest.raises(error, match=words):
        store.import_entries("s", entries)
    assert store.session("s").head == 4
    assert store.examine_session("s") == []


def test_a_session_that_is_not_there_begins_at_its_beginning(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.import_entries("s", turn(1, 2))
    with pytest.raises(InvalidEntry, match="session_created"):
        store.import_entries("s", turn(1, 1))
    assert store.session_ids() == []


def test_nothing_comes_between_the_entries_of_a_running_turn(store: Store) -> None:
    store.import_entries("s", JOURNAL)
    with store.session("s").turn("Wait."):
        head = store.session("s").head
        with pytest.raises(SessionBusy):
            store.import_entries("s", turn(2, head + 1))


def test_a_deleted_session_takes_nothing(store: Store) -> None:
    store.import_entries("s", JOURNAL)
    store.delete_session("s")
    with pytest.raises(SessionDeleted):
        store.import_entries("s", turn(2, 6))


def test_the_asynchronous_face_does_the_same(tmp_path: Path) -> None:
    async def run() -> int:
        async with AsyncStore(tmp_path / "work.db") as opened:
            receipt = await opened.import_entries("s", JOURNAL)
            return receipt.seq

    assert asyncio.run(run()) == 4


wrong: Any = None


@pytest.mark.parametrize(
    "entry",
    [
        wrong,
        Entry(2, wrong, e.Restored(id="x")),
        Entry(2, 1, e.TurnStarted(turn_id=wrong, fence=1, holder="import")),
        Entry(2, 1, e.MessageRecorded(id="m", turn_id="t", role="user", parts=wrong)),
        Entry(2, 1, e.MessageRecorded(id="m", turn_id="t", role="user", parts=(wrong,))),
        Entry(2, 1, e.ToolFinished(turn_id="t", message_id="m", result=wrong)),
    ],
    ids=["entry", "time", "id", "parts", "part", "result"],
)
def test_an_entry_of_the_wrong_type_is_refused_in_words(store: Store, entry: Any) -> None:
    before = store.counts()
    with pytest.raises((InvalidEntry, TypeError), match=r"is a \w+, and this is a|Expected `"):
        store.import_entries("s", [BEGINNING, entry])
    assert store.counts() == before


def test_content_that_could_not_be_recorded_is_not_imported(store: Store) -> None:
    """The limits are the same on every way in, and nothing is half imported."""
    long = Entry(1, 1_000_000, e.SessionCreated(title="x" * (TITLE_CHARS_MAX + 1)))
    with pytest.raises(InvalidEntry, match="the title has"):
        store.import_entries("s", [long, *turn(1, 2)])
    with pytest.raises(SessionNotFound):
        store.session("s")
