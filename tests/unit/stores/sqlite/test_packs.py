"""Packs: what many streams flush together is in one row, and each stream's own is never lost."""

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick import SessionDamaged, Store, Stream
from killick.errors import StoreDegraded
from killick.journal.assembly import assemble
from killick.journal.codec import decode_deltas, encode
from killick.model import entries as e
from killick.stores import writer
from killick.stores.contract import Flush
from killick.stores.engine.state import Op
from killick.stores.sqlite import SqliteDatabase, packs
from killick.testing.faults import crash
from tests.waiting import until

MANY = packs.PACKED_FROM + 4

texts = st.text(st.characters(), min_size=1, max_size=20)
"""Lone surrogates, NUL and line ends too."""


def flush(key: int, seq: int, number: int, text: str, offset: int = 0) -> Flush:
    return key, seq, number, encode((e.Delta(0, offset, "text", text),))


def rows(flushes: list[Flush]) -> list[tuple[int, bytes, bytes]]:
    return [(zlib.crc32(body), streams, body) for _, streams, body in packs.fill(flushes)]


# -- lines -----------------------------------------------------------------------------------------


@given(st.dictionaries(st.tuples(st.integers(1, 2**60), st.integers(1, 2**40)), texts, min_size=1))
def test_every_stream_finds_its_line(said: dict[tuple[int, int], str]) -> None:
    flushes = [
        flush(key, seq, number, text) for number, ((key, seq), text) in enumerate(said.items(), 1)
    ]
    (row,) = rows(flushes)
    pack = packs.parse(*row)
    assert pack.lost == ()
    for key, seq, number, data in flushes:
        assert pack.flush(packs.name_of(key, seq)) == (number, data)
    assert len(pack.lines) == len(flushes)


def test_a_pack_is_written_as_it_is_read() -> None:
    flushes = [flush(key, 5, 9, f"text {key}") for key in range(1, 50)]
    ((made, streams, body),) = packs.fill(flushes)
    assert packs.parse(zlib.crc32(body), streams, body).lines == made.lines


def test_large_flushes_are_cut_into_several_packs() -> None:
    flushes = [flush(key, 5, 9, "x" * 400_000) for key in range(8)]
    made = rows(flushes)
    assert len(made) == 3
    assert sum(len(packs.parse(*row).lines) for row in made) == 8


def test_two_flushes_of_one_stream_never_share_a_pack() -> None:
    made = rows([flush(1, 5, 1, "a"), flush(2, 5, 1, "b"), flush(1, 5, 2, "c")])
    assert [len(packs.parse(*row).lines) for row in made] == [2, 1]


@given(st.lists(texts, min_size=1, max_size=12), st.integers(0, 3))
def test_folding_keeps_the_text(pieces: list[str], again: int) -> None:
    """Also of flushes that came again because their outcome was unknown."""
    datas, length = [], 0
    for number, text in enumerate(pieces):
        datas.append(flush(1, 1, number + 1, text, length)[3])
        length += len(text)
    datas += datas[-again:] if again else []
    parts = assemble(decode_deltas(packs.folded(datas)))
    assert "".join(part.text for part in parts if hasattr(part, "text")) == "".join(pieces)


def test_a_pack_counts_for_the_memory_that_it_takes() -> None:
    """Else the cache of a store with many short flushes keeps six times of what it may."""
    ((made, _, _),) = packs.fill([flush(key, 5, 9, f"text {key}") for key in range(1, 500)])
    objects = sum(map(sys.getsizeof, (*made.lines, *made.lines.values(), made.lines)))
    assert 0.8 * objects < made.size < 1.6 * objects


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["key", "deltas", "end"])
def test_a_damaged_line_harms_no_other(at: str) -> None:
    flushes = [flush(key, 5, 1, f"text {key}") for key in range(101, 140)]
    ((crc, streams, body),) = rows(flushes)
    start = body.index(b"[120,5,")
    where = {"key": start, "deltas": start + 9, "end": body.index(b"\n", start)}[at]
    damaged = body[:where] + b"\xff" + body[where + 1 :]
    pack = packs.parse(crc, streams, damaged)
    lost = {b"120,5", b"121,5"} if at == "end" else {b"120,5"}
    assert pack.lost == lost
    for key, seq, number, data in flushes:
        name = packs.name_of(key, seq)
        assert pack.flush(name) == (None if name in lost else (number, data))


@pytest.mark.parametrize("other", [2, 7], ids=["in the pack", "elsewhere"])
def test_a_line_whose_name_is_damaged_is_no_other_stream_s(other: int) -> None:
    """Else a session would show what was said in another one."""
    ((crc, streams, body),) = rows([flush(key, 5, 1, f"text {key}") for key in (1, 2, 3)])
    for wrong in (b"[%d,5," % other, b"[%d,6," % other):
        pack = packs.parse(crc, streams, body.replace(b"[3,5,", wrong))
        assert b"3,5" in pack.lost
        assert {b"7,5", b"%d,6" % other}.isdisjoint(pack.lost)
        assert pack.flush(b"1,5") == (1, flush(1, 5, 1, "text 1")[3])
        assert pack.flush(b"%d,6" % other) is None
        if pack.flush(b"2,5") != (1, flush(2, 5, 1, "text 2")[3]):
            assert pack.flush(b"2,5") is None  # whose of two lines it is cannot be told
            assert b"2,5" in pack.lost
        assert pack.flush(b"7,5") is None


def test_a_pack_that_sqlite_cannot_read_names_its_streams() -> None:
    ((crc, streams, _),) = rows([flush(key, 5, 1, "text") for key in (1, 2)])
    assert packs.parse(crc, streams, b"").lost == {b"1,5", b"2,5"}
    assert packs.parse(crc, b"\xff garbage", b"").lost == set()


# -- a store ---------------------------------------------------------------------------------------


class Crowd:
    """Streams that flush together, in one store; nothing is folded by the clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store(path, indexing=False)
        self.sessions = [self.store.create_session() for _ in range(MANY)]
        self.turns = [session.turn("Go.").begin() for session in self.sessions]
        self.streams = [turn.stream().begin() for turn in self.turns]
        self.said = [""] * MANY

    def say(self, text: str, streams: list[Stream] | None = None) -> None:
        """Hand a text to streams, and wait until it is on the disk."""
        for number, stream in enumerate(self.streams):
            if streams is None or stream in streams:
                stream.text(f"{text} {number}. ")
                self.said[number] += f"{text} {number}. "
        writer = self.store._core.runtime().writer
        writer.at_once()
        writer.submit(Op(lambda engine: None)).wait()

    def fold(self) -> bool:
        writer = self.store._core.runtime().writer
        folded = writer.submit(Op(lambda engine: engine.tx.fold_deltas()))
        folded.wait()
        return folded.result()

    def ask(self, sql: str) -> list[Any]:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def rows(self) -> tuple[int, int]:
        """Packs, and rows of one stream each."""
        (counts,) = self.ask("SELECT (SELECT count(*) FROM packs), (SELECT count(*) FROM deltas)")
        return counts[0], counts[1]

    def check(self, store: Store | None = None) -> None:
        for session, said in zip(self.sessions, self.said, strict=True):
            read = session if store is None else store.session(session.id)
            assert read.messages()[-1].text == said


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    monkeypatch.setattr(writer, "_FOLD_SECONDS", 3_600.0)
    crowd = Crowd(tmp_path / "store.db")
    yield crowd
    crowd.store.close()


def test_streams_that_flush_together_share_a_row(crowd: Crowd) -> None:
    crowd.say("one")
    assert crowd.rows() == (1, 0)
    crowd.say("two")
    assert crowd.rows() == (2, 0)
    assert crowd.store.counts()["deltas"] == 2 * MANY
    crowd.check()
    with Store(crowd.path, indexing=False) as other:
        crowd.check(other)


def test_few_streams_have_rows_of_their_own(crowd: Crowd) -> None:
    crowd.say("one", crowd.streams[:3])
    assert crowd.rows() == (0, 3)


def test_while_there_is_a_pack_every_flush_is_a_line(crowd: Crowd) -> None:
    """Else a row would seem to say that the lines before it are folded."""
    crowd.say("one", crowd.streams[:3])
    crowd.say("two")
    crowd.say("three", crowd.streams[:1])
    crowd.say("four")
    assert crowd.rows() == (3, 3)
    crowd.check()
    assert not crowd.fold()
    assert crowd.rows() == (0, 3 + MANY)
    crowd.check()
    crowd.say("five", crowd.streams[:1])
    assert crowd.rows() == (0, 4 + MANY)
    crowd.check()


def test_a_fold_goes_step_by_step(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps all is there, and what is said meanwhile is the next fold's."""
    monkeypatch.setattr(packs, "_LINES_AT_ONCE", 5)
    crowd.say("one")
    crowd.say("two")
    steps = 0
    while crowd.fold():
        steps += 1
        crowd.say(f"step {steps}", crowd.streams[::3])
        crowd.check()
    assert steps > 3
    assert crowd.rows() == (steps, MANY)
    while crowd.fold():
        crowd.check()
    assert crowd.rows()[0] == 0
    crowd.check()


def test_packs_that_were_dropped_are_not_kept_in_memory(crowd: Crowd) -> None:
    database = crowd.store._core.runtime().database
    assert isinstance(database, SqliteDatabase)
    crowd.say("one")
    crowd.say("two")
    assert len(database._packs._packs) == 2
    assert not crowd.fold()
    assert database._packs._packs == {}
    assert database._packs._packs == {}


def test_a_step_that_was_rolled_back_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that was folded in a commit that failed is not taken for folded."""
    monkeypatch.setattr(packs, "_LINES_AT_ONCE", 1)
    monkeypatch.setattr(packs, "_STEPS", 1_000)
    database = SqliteDatabase(tmp_path / "store.db")
    with database.writing() as tx:
        tx.put_deltas([flush(key, 1, 1, f"one {key}") for key in range(1, MANY + 1)])
    while True:
        try:
            with database.writing() as tx:
                more = tx.fold_deltas()
                raise StoreDegraded("injected")
        except StoreDegraded:
            pass
        with database.writing() as tx:
            if not tx.fold_deltas():
                break
        assert more
    with database.reading() as reader:
        for key in range(1, MANY + 1):
            ((number, (delta,)),) = reader.deltas(key, 1)
            assert (number, delta.text) == (1, f"one {key}")
        assert reader.pack_numbers() == []
    database.close()


def test_what_others_have_folded_meanwhile_is_not_folded_again(
    crowd: Crowd, monkeypatch: Any
) -> None:
    monkeypatch.setattr(packs, "_LINES_AT_ONCE", 1)
    monkeypatch.setattr(packs, "_STEPS", 1_000)
    crowd.say("one")
    assert crowd.fold()
    other = SqliteDatabase(crowd.path)
    assert other.unfolded
    with other.writing() as tx:
        tx.fold_deltas(at_once=True)
    other.close()
    assert crowd.rows() == (0, MANY)
    assert not crowd.fold()
    crowd.say("two")
    assert crowd.rows() == (1, MANY)
    crowd.check()


def test_a_stream_that_has_ended_leaves_nothing(crowd: Crowd) -> None:
    crowd.say("one")
    ended = crowd.streams[7]
    ended.end()
    crowd.check()
    assert crowd.store.counts()["deltas"] == MANY - 1
    assert crowd.store.examine_session(crowd.sessions[7].id) == []
    crowd.say("two", [stream for stream in crowd.streams if stream is not ended])
    assert not crowd.fold()
    assert crowd.ask("SELECT count(*) FROM dropped_streams") == [(0,)]
    assert crowd.rows() == (0, MANY - 1)
    crowd.check()


def test_an_end_that_comes_during_a_fold_counts(crowd: Crowd, monkeypatch: Any) -> None:
    monkeypatch.setattr(packs, "_LINES_AT_ONCE", 1)
    monkeypatch.setattr(packs, "_STEPS", 1_000)
    crowd.say("one")
    assert crowd.fold()
    for stream in crowd.streams:
        stream.end()
    while crowd.fold():
        pass
    assert crowd.rows() == (0, 0)
    assert crowd.store.counts()["deltas"] == 0
    crowd.check()


def test_a_follower_is_shown_each_text_once(crowd: Crowd) -> None:
    """Over packs, folds and rows, from another opening."""
    with Store(crowd.path, indexing=False) as other:
        follower = other.session(crowd.sessions[3].id).follow()
        shown = ""

        def look(length: int) -> None:
            nonlocal shown
            for item in follower:
                shown += item.text if isinstance(item, e.FollowedDelta) else ""
                if len(shown) >= length:
                    break
            assert shown == crowd.said[3]

        for number in range(6):
            crowd.say(f"number {number}")
            if number % 3 == 0:
                crowd.say("more")
            look(len(crowd.said[3]))
            if number % 2:
                assert not crowd.fold()
        follower.close()


def test_streams_are_folded_on_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing more is said."""
    monkeypatch.setattr(writer, "_FOLD_SECONDS", 0.05)
    crowd = Crowd(tmp_path / "store.db")
    crowd.say("one")
    until(lambda: crowd.rows() == (0, MANY))
    crowd.check()
    crowd.store.close()


def test_a_store_that_is_closed_has_no_packs(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path / "store.db")
    crowd.say("one")
    crowd.store.close()
    assert crowd.rows()[0] == 0


def test_what_a_dead_process_left_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(tmp_path / "store.db")
    crowd.say("one")
    crash(crowd.store)
    assert crowd.rows() == (1, 0)
    monkeypatch.setattr(writer, "_FOLD_SECONDS", 0.05)
    with Store(crowd.path, indexing=False) as other:
        until(lambda: crowd.rows() == (0, MANY))
        crowd.check(other)


def test_a_backup_has_every_stream(crowd: Crowd, tmp_path: Path) -> None:
    crowd.say("one")
    crowd.store.backup(tmp_path / "copy.db")
    with Store(tmp_path / "copy.db", indexing=False) as copy:
        crowd.check(copy)


def test_a_fork_takes_what_was_said_so_far(crowd: Crowd) -> None:
    crowd.say("one")
    fork = crowd.sessions[2].fork()
    assert fork.messages()[-1].text == crowd.said[2]


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    connection = apsw.Connection(str(path))
    body = connection.execute("SELECT body FROM packs").get
    assert isinstance(body, bytes)
    connection.execute("UPDATE packs SET body = ?", (change(body),))
    connection.close()


@pytest.mark.parametrize("folds", [False, True])
def test_damage_to_a_line_is_told_and_harms_no_other_session(crowd: Crowd, *, folds: bool) -> None:
    """Before and after the others are folded."""
    crowd.say("one")
    crash(crowd.store)
    start = b"[%d," % crowd.sessions[5]._core.key
    damage(crowd.path, lambda body: body.replace(start, b"\xff" + start[1:]))
    with Store(crowd.path, indexing=False) as store:
        if folds:
            crowd.store = store
            assert not crowd.fold()
            assert crowd.rows() == (0, MANY)
        for session, said in zip(crowd.sessions, crowd.said, strict=True):
            if session is crowd.sessions[5]:
                with pytest.raises(SessionDamaged):
                    store.session(session.id)
            else:
                assert store.session(session.id).messages()[-1].text == said


def test_a_flush_whose_outcome_was_unknown_is_kept_once(tmp_path: Path) -> None:
    """It is stored, and comes again with what was said since."""
    database = SqliteDatabase(tmp_path / "store.db")
    with database.writing() as tx:
        tx.put_deltas([flush(key, 1, 1, "one ") for key in range(MANY)])
    with database.writing() as tx:  # as the stream's buffer would: another number, all of the text
        tx.put_deltas([flush(key, 1, 2, "one two") for key in range(MANY)])
    with database.writing() as tx:
        tx.fold_deltas(at_once=True)
    with database.reading() as reader:
        for key in range(MANY):
            flushes = [delta for _, deltas in reader.deltas(key, 1) for delta in deltas]
            (part,) = assemble(flushes)
            assert part == assemble([e.Delta(0, 0, "text", "one two")])[0]
    database.close()
