"""Erased is erased: no file of the store holds the bytes, whatever was done with the session."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from killick import Image, Message, SessionNotFound, Store, Text
from killick.maintenance import erase
from killick.stores import writer
from killick.stores.engine.state import Op
from killick.stores.sqlite import packs
from killick.testing.faults import crash

WORDS = [
    "prompt",
    "system",
    "thought",
    "answer",
    "argument",
    "printed",
    "result",
    "summary",
    "late",
]
SECRETS = {word: f"the {word} nobody may find again plugh47" for word in WORDS}


def remember(store: Store) -> str:
    """A session with everything in it that can hold a text, and a fork."""
    session = store.create_session(title="a title nobody may find again plugh47")
    name = store.put_blob(
        os.urandom(300) + b"an image nobody may find again plugh47" + os.urandom(300)
    )
    with session.turn([Text(SECRETS["prompt"]), Image(name, "image/png")]) as turn:
        with turn.stream(model="m", system=SECRETS["system"]) as reply:
            reply.reasoning(SECRETS["thought"])
            reply.text(SECRETS["answer"])
            reply.tool_call("c", name="f", arguments=json.dumps({"a": SECRETS["argument"]}))
        with turn.tool("c") as call:
            call.output(SECRETS["printed"])
            call.finish(SECRETS["result"])
        turn.record(Message("assistant", [Text("large " + "lorem ipsum plugh47 " * 100_000)]))
    fork = session.fork(title="a fork nobody may find again plugh47")
    fork.compact(SECRETS["summary"], through=fork.messages()[-1].seq)
    return session.id


def traces(path: Path) -> dict[str, list[bytes]]:
    """Which files hold a piece of it; read raw, after the store was closed."""
    found = {}
    for file in path.parent.iterdir():
        data = file.read_bytes()
        left = [s for s in (b"plugh47", b"may find again", b"lorem ipsum") if s in data]
        if left:
            found[file.name] = left
    return found


def test_no_file_holds_what_was_erased(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        kept = store.create_session(title="kept")
        session_id = remember(store)
        with kept.turn("a prompt that stays"):
            pass
        assert len(store.search("plugh47", wait_seconds=30)) >= 5, "it is in the search index too"
        receipt = store.erase_session(session_id, forks=True)
        assert receipt.verified
        assert receipt.entries > 8
        assert receipt.pages > 100
        assert kept.messages()[0].text == "a prompt that stays"
        assert len(store.search("plugh47", wait_seconds=30)) == 0
        assert len(store.search("stays", wait_seconds=30)) == 1
    assert traces(path) == {}


def test_what_was_streamed_and_cut_off_is_gone_too(tmp_path: Path) -> None:
    """The process dies with its text in deltas; nothing of them is left after erasing."""
    path = tmp_path / "work.db"
    child = (
        "import os, signal, sys\n"
        "from killick import Store\n"
        "session = Store(sys.argv[1]).create_session(id='cut')\n"
        "with session.turn('plugh47 go') as turn, turn.stream() as reply:\n"
        "    for n in range(50):\n"
        "        reply.text('lorem ipsum plugh47 ' * 50)\n"
        "        session.note('n', n)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", child, str(path)], check=False)
    with Store(path) as store:
        assert store.counts()["deltas"] > 0
        assert store.erase_session("cut").verified
    assert traces(path) == {}


@pytest.mark.parametrize("ended", [True, False])
def test_rows_that_it_shares_with_others_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    """Streams that flush together share a row; erased is one that has ended, or was cut off."""
    path = tmp_path / "work.db"
    monkeypatch.setattr(writer, "_FOLD_SECONDS", 3_600.0)
    with Store(path, indexing=False) as store:
        names = ["doomed", *(f"other {number}" for number in range(packs.PACKED_FROM))]
        turns = {name: store.create_session(id=name).turn("Go.").begin() for name in names}
        streams = {name: turn.stream().begin() for name, turn in turns.items()}
        for name, stream in streams.items():
            stream.text("lorem ipsum plugh47" if name == "doomed" else "this stays")
        flush(store)
        assert packed(path).count(b"lorem ipsum plugh47") == 1
        if ended:
            streams["doomed"].end()
            turns["doomed"].end()
            assert store.erase_session("doomed").verified
            assert store.counts()["deltas"] == packs.PACKED_FROM
            for name in names[1:]:
                streams[name].text(" and this")
                streams[name].end()
                turns[name].end()
        else:
            crash(store)
            assert packed(path).count(b"lorem ipsum plugh47") == 1
            with Store(path, indexing=False) as again:
                assert again.erase_session("doomed").verified
    with Store(path, indexing=False) as store:
        for name in names[1:]:
            text = store.session(name).messages()[-1].text
            assert text == ("this stays and this" if ended else "this stays")
    assert traces(path) == {}


def packed(path: Path) -> bytes:
    """The rows that streams share."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    bodies = [body for (body,) in connection.execute("SELECT body FROM packs")]
    connection.close()
    return b"\n".join(bodies)


def flush(store: Store) -> None:
    """Write what streams were given so far."""
    writer = store._core.runtime().writer
    writer.at_once()
    writer.submit(Op(lambda engine: None)).wait()


def test_what_somebody_else_has_said_too_is_not_taken_for_a_trace(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        for name in ("one", "two"):
            with store.create_session(id=name).turn("the very same sentence"):
                pass
        assert store.erase_session("one").verified
        assert store.session("two").messages()[0].text == "the very same sentence"


def test_a_backup_that_still_holds_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        with store.create_session(id="one").turn("the sentence that was said"):
            pass
        store.backup(tmp_path / "work.db-backup-1")
        receipt = store.erase_session("one")
    assert not receipt.verified
    assert list(receipt.remaining) == ["work.db-backup-1"]


def test_an_erasure_that_was_interrupted_is_finished_by_erasing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        session_id = remember(store)
        with monkeypatch.context() as patch:
            patch.setattr(erase.CareCore, "_finish", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.erase_session(session_id, forks=True)
        with pytest.raises(SessionNotFound):
            store.session(session_id)
        told = [finding for finding in store.check_file() if finding.session_id == session_id]
        assert "erase it again" in told[0].remedy
        assert store.erase_session(session_id).verified
        assert store.check_file() == []
    assert traces(path) == {}


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_reader_that_keeps_the_log_is_noticed(tmp_path: Path) -> None:
    """Another connection's open read keeps old pages in the log: nobody is told that it is done."""
    path = tmp_path / "work.db"
    with Store(path, lock_wait_seconds=0.2) as store:
        session_id = remember(store)
        reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM entries").fetchall()
        assert not store.erase_session(session_id, forks=True).verified
        reading.execute("ROLLBACK")
        reading.close()
        assert store.erase_session(session_id).verified
    assert traces(path) == {}


def test_every_read_of_an_erased_session_says_so(tmp_path: Path) -> None:
    """An empty answer would be taken for an empty session."""
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with session.turn("Hello."):
            pass
        following = session.follow(after=session.head)
        store.erase_session(session.id)
        reads: list[Callable[[], object]] = [
            session.messages,
            session.turns,
            lambda: session.messages(last=1),
            lambda: session.messages(limit=1),
            lambda: session.messages(after=1),
            lambda: session.entries(after=1),
            lambda: next(iter(following)),
        ]
        for read in reads:
            with pytest.raises(SessionNotFound):
                read()


def test_erasing_again_does_not_vouch_for_a_backup(tmp_path: Path) -> None:
    """What was said is not known any more the second time, so nothing can be looked for."""
    path = tmp_path / "work.db"
    backup = tmp_path / "work.db-backup-1"
    with Store(path) as store:
        session_id = remember(store)
        store.backup(backup)
        first = store.erase_session(session_id, forks=True)
        assert not first.verified
        assert set(first.remaining) == {backup.name}
        again = store.erase_session(session_id)
        assert not again.verified
        assert backup.name in again.unverified
        backup.unlink()
        assert store.erase_session(session_id).verified
        assert store.check_file() == []


def test_one_erasure_does_not_vouch_for_another(tmp_path: Path) -> None:
    """It has looked for its own words only."""
    with Store(tmp_path / "work.db") as store:
        left = remember(store)
        backup = tmp_path / "work.db-backup-1"
        store.backup(backup)
        assert not store.erase_session(left, forks=True).verified
        other = store.create_session()
        assert store.erase_session(other.id).verified
        assert left in [finding.session_id for finding in store.check_file()]


def test_a_damaged_session_can_be_erased_though_its_turn_broke(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    store = Store(path)
    session = store.create_session()
    turn = session.turn("Hello.")
    turn.__enter__()
    turn.record(Message("assistant", [Text("Hello to you.")]))
    crash(store)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE entries SET body = x'00' WHERE seq = 4")
    connection.close()
    with Store(path) as store:
        assert store.erase_session(session.id).verified
        assert store.session_ids() == []
