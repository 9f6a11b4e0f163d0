"""Looking after a store on a server: what the doctor says of it, backups, erasing, damage."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from killick import Image, Message, SessionDamaged, Store, Text, UsageError
from killick.maintenance.doctor import examine
from killick.stores.engine import session_ops
from killick.stores.postgres import PostgresDatabase
from killick.stores.postgres.database import advice
from tests.postgres_fixtures import Shared

SOUND = ("on", "on", "on", "", False, 0)


def test_a_sound_server_is_not_spoken_of() -> None:
    assert advice(SOUND) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("off", "on", "on", "", False, 0), "fsync is off"),
        (("on", "off", "on", "", False, 0), "full_page_writes is off"),
        (("on", "on", "on", "", True, 0), "standby in recovery"),
        (("on", "on", "on", "", False, 2), "follow asynchronously"),
        (("on", "on", "local", "one", False, 1), "synchronous_commit is local"),
    ],
)
def test_what_weakens_a_promise_is_said(given: tuple[object, ...], said: str) -> None:
    (line,) = advice(given)
    assert line.startswith("server: ")
    assert said in line


def test_the_doctor_says_what_the_server_gives_and_calls_the_store_sound(server: Shared) -> None:
    """The server of these tests does not wait for its disk."""
    with Store(server.server.url()) as store:
        with store.create_session().turn("go"):
            pass
        found = examine(store)
        assert found.sound
        assert ["fsync is off" in one.what for one in found.findings] == [True]


def test_damage_to_one_session_hides_no_other(server: Shared) -> None:
    with Store(server.server.url()) as store:
        hurt, well = store.create_session(id="hurt"), store.create_session(id="well")
        for session in (hurt, well):
            with session.turn("go") as turn:
                turn.record(Message("assistant", [Text("said")]))
        server.server.execute(
            "UPDATE killick.entries SET body = 'x' WHERE seq = 3 AND session = "
            "(SELECT session FROM killick.session_ids WHERE id = 'hurt')"
        )
    with Store(server.server.url()) as store:
        with pytest.raises(SessionDamaged, match="near seq 3"):
            store.session("hurt")
        assert len(store.session("well").messages()) == 2
        assert [one.seq for one in store.salvage("hurt").damage] == [3]
        assert [one.session_id for one in examine(store).findings if one.kind == "entry"] == [
            "hurt"
        ]


def test_a_missing_entry_is_noticed(server: Shared) -> None:
    with Store(server.server.url()) as store:
        session = store.create_session(id="s")
        for number in range(5):
            session.note(str(number), None)
        server.server.execute("DELETE FROM killick.entries WHERE seq = 3")
        with pytest.raises(SessionDamaged, match="missing"):
            session.entries()


def test_what_is_derived_is_made_anew(server: Shared) -> None:
    with Store(server.server.url()) as store, Store(server.server.url()) as other:
        session = store.create_session(title="true", tags=("a",))
        other.session(session.id).note("known there", 1)
        server.server.execute('UPDATE killick.sessions SET about = \'{"title": "false"}\'')
        server.server.execute("DELETE FROM killick.labels")
        assert {one.kind for one in store.examine_session(session.id)} == {"derived"}
        assert all(one.mended for one in store.examine_session(session.id, rebuild=True))
        assert store.examine_session(session.id) == []
        other.session(session.id).note("and goes on", 2)
        assert store.sessions(tag="a")[0].title == "true"
        assert store.examine_session(session.id) == []


def test_a_backup_is_the_servers(server: Shared) -> None:
    with Store(server.server.url()) as store, pytest.raises(UsageError, match="pg_dump"):
        store.backup("nowhere.db")


def test_erasing_leaves_no_row_and_says_what_cannot_be_seen(server: Shared) -> None:
    with Store(server.server.url()) as store:
        session = store.create_session(title="swordfish 4711")
        with session.turn("swordfish 4711"):
            pass
        assert len(store.search("swordfish", wait_seconds=30)) == 1
        receipt = store.erase_session(session.id)
        assert receipt.verified is None
        assert any("write-ahead log" in one for one in receipt.unverified)
        assert [
            word for word in ("vacuum", "log", "backups") if word not in str(receipt.to_do)
        ] == []
        assert len(store.search("swordfish", wait_seconds=30)) == 0
    for table in ("entries", "sessions", "session_ids", "search_words", "search_documents"):
        assert server.server.execute(f"SELECT count(*) FROM killick.{table}") == [(0,)]


def test_erased_text_is_still_in_the_servers_files_and_is_not_called_gone(server: Shared) -> None:
    secret = "a sentence that stays in the write-ahead log"
    with Store(server.server.url()) as store:
        session = store.create_session()
        with session.turn(secret):
            pass
        receipt = store.erase_session(session.id)
    server.server.execute("CHECKPOINT")
    files = (path for path in server.server.data.rglob("*") if path.is_file())
    assert any(secret.encode() in path.read_bytes() for path in files)
    assert receipt.verified is None


def test_tables_that_were_written_anew_are_seen_by_their_files(server: Shared) -> None:
    with Store(server.server.url()) as store:
        session = store.create_session()
        with session.turn("swordfish 4711"):
            pass
        receipt = store.erase_session(session.id)
        again = store.verify_erased(receipt=receipt)
        assert (again.verified, again.to_do) == (None, receipt.to_do)
        server.server.execute("VACUUM FULL")
        after = store.verify_erased(receipt=receipt)
        assert (after.verified, after.to_do) == (None, receipt.to_do[1:])
        with pytest.raises(UsageError, match="not erased"):
            store.verify_erased("never")


def test_retention_goes_session_by_session(server: Shared) -> None:
    with Store(server.server.url()) as store:
        for number in range(5):
            store.delete_session(store.create_session(title=str(number)).id)
        kept = store.create_session(title="kept")
        done = store.clean_up(deleted_after=timedelta(0), dry_run=False)
        assert [one.done for one in done] == [True] * 5
        assert store.session_ids() == [kept.id]


def test_indexes_are_made_anew(server: Shared) -> None:
    with Store(server.server.url()) as store:
        session = store.create_session()
        store.rebuild_indexes()
        session.note("after", None)
        assert session.head == 2


def test_loose_blobs_are_collected_by_one_of_those_who_close_a_store(server: Shared) -> None:
    """It goes over all blobs, so it is not done by everybody who leaves; whoever asks for it gets
    it done at once."""

    def leave_blob(text: bytes) -> None:
        with Store(server.server.url()) as store:
            store.put_blob(text)

    server.server.execute("DELETE FROM killick.meta WHERE name = 'collected'")
    leave_blob(b"one")
    with Store(server.server.url()) as store:
        assert store.counts()["blobs"] == 1
        server.server.execute("DELETE FROM killick.meta WHERE name = 'collected'")
    leave_blob(b"two")  # the closing before it took the first
    with Store(server.server.url()) as store:
        assert store.counts()["blobs"] == 1
    with Store(server.server.url()) as store:
        assert store.counts()["blobs"] == 1, "it was done today"
        assert store.collect_blobs() == 1
        assert store.counts()["blobs"] == 0


def test_ids_are_found_by_how_they_begin(server: Shared) -> None:
    database = PostgresDatabase(server.server.url())
    with Store(database) as store:
        names = ["a", "ab", "abc", "ac", "b", "é", "\ud800"]
        for name in names:
            store.create_session(id=name)
        with database.reading() as reader:
            assert reader.find_ids("default", "ab", 9) == ["ab", "abc"]
            assert reader.find_ids("default", "", 9) == names
            assert reader.find_ids("default", "é", 9) == ["é"]
            assert reader.find_ids("default", "a", 2) == ["a", "ab"]


def test_a_blob_that_was_put_again_is_kept_for_whoever_did(server: Shared) -> None:
    """Who put it first is gone. Who put it again was told that it is stored, so it is."""
    with Store(server.server.url()) as first:
        first.put_blob(b"bytes")
    with Store(server.server.url()) as store, store.create_session().turn("look") as turn:
        name = store.put_blob(b"bytes")
        with Store(server.server.url()) as other:
            assert other.collect_blobs() == 0
        turn.record(Message("assistant", [Image(name, "image/png")]))
        assert store.blob(name) == b"bytes"


def test_rebuilding_while_others_append_loses_nothing(
    server: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody appends between reading the journal and saving what is derived of it: who comes
    second waits, and what is saved is of the journal as it is."""
    with Store(server.server.url()) as store, Store(server.server.url()) as other:
        session = store.create_session(id="s", title="true")
        there = other.session("s")
        server.server.execute('UPDATE killick.sessions SET about = \'{"title": "false"}\'')
        noted = threading.Event()

        def append() -> None:
            there.note("meanwhile", None)
            noted.set()

        appending = threading.Thread(target=append)
        derived = session_ops.derived

        def slowly(*args: Any) -> Any:
            found = derived(*args)
            if threading.current_thread().name == "killick-writer":
                appending.start()
                noted.wait(0.5)  # in vain, if the session is locked
            return found

        monkeypatch.setattr(session_ops, "derived", slowly)
        assert all(one.mended for one in store.examine_session("s", rebuild=True))
        appending.join(20)
        monkeypatch.undo()
        there.note("after", None)
        session.note("here too", None)
        assert [entry.seq for entry in session.entries()] == [1, 2, 3, 4]
        assert store.examine_session("s") == []
