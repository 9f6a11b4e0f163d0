"""What was changed, removed, reordered or cut in a stored journal is found and named.

The hand that changes rows knows SQL and nothing of links, or, in the last tests, all of it.
"""

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import psycopg
import pytest

from killick import Message, Store, Text, UsageError
from killick.journal.chain import body_hash, link_of
from killick.journal.codec import decode_body
from killick.journal.kinds import identity
from killick.maintenance.prove import ExpectedLink, Verified, prove
from killick.maintenance.verify import read_expected, verify
from killick.model.entries import kind_of
from killick.model.limits import BODY_BYTES_INLINE
from killick.stores.sqlite.rows import SqliteReader
from tests.postgres_fixtures import shared

LARGE = "large " * (BODY_BYTES_INLINE // 6 + 1)


class Row(NamedTuple):
    seq: int
    identity: bytes
    at_us: int
    crc: int
    body: bytes
    blob: Any
    mark: int | None
    link: bytes | None


COLUMNS = ", ".join(Row._fields)


class Hand:
    """Somebody who can write to the database."""

    every = 1
    """Of how many bits one is turned."""

    def rows(self) -> list[Row]:
        raise NotImplementedError

    @contextmanager
    def holding(
        self, rows: Sequence[Row], newest: bytes | None = None
    ) -> Iterator[Callable[[ExpectedLink | None], Verified]]:
        """The journal is these rows; yields what verifies it. Afterwards it is as it was.

        `newest` is the link in the session's row, which is left alone without.
        """
        raise NotImplementedError


class SqliteHand(Hand):
    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._key: int = self._connection.execute("SELECT key FROM sessions WHERE id = x'73'").get
        self._reader = SqliteReader(self._connection, lambda _: False)

    def rows(self) -> list[Row]:
        sql = f"SELECT {COLUMNS} FROM entries WHERE session = ? ORDER BY seq"
        return [Row(*row) for row in self._connection.execute(sql, (self._key,))]

    @contextmanager
    def holding(
        self, rows: Sequence[Row], newest: bytes | None = None
    ) -> Iterator[Callable[[ExpectedLink | None], Verified]]:
        do = self._connection.execute
        do("BEGIN")
        try:
            do("DELETE FROM entries WHERE session = ?", (self._key,))
            sql = f"INSERT INTO entries (session, {COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)"
            for row in rows:
                do(sql, (self._key, *row))
            if newest is not None:
                do("UPDATE sessions SET link = ? WHERE key = ?", (newest, self._key))
            yield lambda expect: prove(self._reader, self._key, expect)
        finally:
            do("ROLLBACK")


class PostgresHand(Hand):
    every = 61

    def __init__(self, conninfo: str, store: Store) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._store = store
        found = self._connection.execute("SELECT tenant, session FROM killick.sessions").fetchone()
        assert found is not None
        self._key = found
        self._link = store.verify_session("s").link

    def rows(self) -> list[Row]:
        sql = f"SELECT {COLUMNS} FROM killick.entries ORDER BY seq"
        return [Row(*row) for row in self._connection.execute(sql.encode())]

    @contextmanager
    def holding(
        self, rows: Sequence[Row], newest: bytes | None = None
    ) -> Iterator[Callable[[ExpectedLink | None], Verified]]:
        before = self.rows()
        self._put(rows, newest)
        try:
            yield lambda expect: self._store.verify_session("s", expect=expect)
        finally:
            assert self._link is not None
            self._put(before, bytes.fromhex(self._link))

    def _put(self, rows: Sequence[Row], newest: bytes | None) -> None:
        with self._connection.transaction():
            self._connection.execute("DELETE FROM killick.entries")
            sql = (
                f"INSERT INTO killick.entries (tenant, session, {COLUMNS}) "
                "VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)"
            )
            with self._connection.cursor() as cursor:
                cursor.executemany(sql.encode(), [(*self._key, *row) for row in rows])
            if newest is not None:
                saved = (newest, rows[-1].seq)
                self._connection.execute("UPDATE killick.sessions SET link = %s, head = %s", saved)


def fill(store: Store) -> None:
    session = store.create_session(id="s", title="t")
    with session.turn("a") as turn:
        with turn.stream() as reply:
            reply.text("Pay 100")
            reply.tool_call("c", name="pay", arguments='{"eur":100}')
        with turn.tool("c") as call:
            call.finish("paid")
    with session.turn("b") as turn:
        turn.record(Message("assistant", [Text("Paid.")]))
    session.rename("u")


@pytest.fixture(params=["sqlite", "postgres"])
def hand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hand]:
    if request.param == "sqlite":
        with Store(tmp_path / "work.db", durability="normal") as store:
            fill(store)
        yield SqliteHand(tmp_path / "work.db")
        return
    server = shared("18")
    server.empty()
    with Store(server.server.url()) as store:
        fill(store)
        made = PostgresHand(server.server.conninfo(), store)
        yield made
        made._connection.close()


def found(hand: Hand, rows: Sequence[Row]) -> list[int | None]:
    """The seqs that are named when the journal is these rows."""
    with hand.holding(rows) as verified:
        return [finding.seq for finding in verified(None).findings]


def test_a_journal_as_it_was_written_has_no_findings(hand: Hand) -> None:
    rows = hand.rows()
    assert len(rows) > 12
    assert found(hand, rows) == []


def turned(value: Any, bit: int) -> Any:
    """The value with one bit turned."""
    if isinstance(value, int):
        return value ^ (1 << bit)
    data = bytearray(value)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def bits(column: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return 63 if column in ("seq", "at_us") else 32
    return 8 * len(value)


def test_every_bit_of_every_entry_is_held(hand: Hand) -> None:
    rows = hand.rows()
    count = 0
    for index, row in enumerate(rows):
        for column in Row._fields:
            value = getattr(row, column)
            for bit in range(bits(column, value)):
                count += 1
                if count % hand.every:
                    continue
                changed = row._replace(**{column: turned(value, bit)})
                others = [each for each in rows if each.seq == changed.seq and each is not row]
                if others:
                    continue  # the database refuses a second entry at a seq
                held = found(hand, [*rows[:index], changed, *rows[index + 1 :]])
                assert held, (row.seq, column, bit)
                if column not in ("seq", "link"):
                    assert held[0] == row.seq, (row.seq, column, bit)
    assert count > 15_000


def test_a_large_body_is_held_by_its_blob(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        session = store.create_session(id="s")
        with session.turn("a") as turn:
            seq = turn.record(Message("assistant", [Text(LARGE)])).seq
        with session.turn("b") as turn:
            turn.record(Message("assistant", [Text(LARGE + "!")]))
        assert not store.verify_session("s").findings
    hand = SqliteHand(path)
    rows = hand.rows()
    at = next(n for n, row in enumerate(rows) if row.seq == seq)
    others = [row.blob for row in rows if row.blob not in (None, rows[at].blob)]
    for blob in (None, 77, *others):
        changed = [*rows[:at], rows[at]._replace(blob=blob), *rows[at + 1 :]]
        assert found(hand, changed) == [seq]
    connection = apsw.Connection(str(path))
    data = connection.execute("SELECT data FROM blobs WHERE key = ?", (rows[at].blob,)).get
    assert isinstance(data, bytes)
    for bit in random.Random(21).sample(range(8 * len(data)), 20):
        values = (turned(data, bit), rows[at].blob)
        connection.execute("UPDATE blobs SET data = ? WHERE key = ?", values)
        assert found(hand, rows) == [seq]


def test_every_removed_entry_is_named(hand: Hand) -> None:
    rows = hand.rows()
    for index, row in enumerate(rows):
        left = [*rows[:index], *rows[index + 1 :]]
        assert found(hand, left)[0] == row.seq
        closed_up = [
            *rows[:index],
            *(each._replace(seq=each.seq - 1) for each in rows[index + 1 :]),
        ]
        assert found(hand, closed_up)[0] == row.seq


def test_every_cut_end_is_found(hand: Hand) -> None:
    rows = hand.rows()
    for left in range(len(rows)):
        assert found(hand, rows[:left]) == [left + 1]


def test_an_added_end_is_found(hand: Hand) -> None:
    rows = hand.rows()
    last = decode_body(rows[-1].body)
    made = rows[-1]._replace(seq=len(rows) + 1, identity=b"i" * 16)
    linked = link_of(rows[-1].link, "s", made.seq, made.at_us, kind_of(last), "x", b"h" * 32)
    assert found(hand, [*rows, made._replace(link=linked)])


def test_every_swap_is_found_with_its_links_or_without(hand: Hand) -> None:
    rows = hand.rows()
    pairs = [(a, b) for a in range(len(rows)) for b in range(a)]
    for first, second in pairs:
        one, other = rows[first], rows[second]
        swapped = list(rows)
        swapped[first] = other._replace(seq=one.seq)
        swapped[second] = one._replace(seq=other.seq)
        assert found(hand, swapped)[0] == other.seq
        swapped[first] = swapped[first]._replace(link=one.link)
        swapped[second] = swapped[second]._replace(link=other.link)
        assert found(hand, swapped)[0] == other.seq


def test_an_entry_that_lost_its_link_is_found(hand: Hand) -> None:
    rows = hand.rows()
    for index in range(len(rows)):
        held = found(hand, [*rows[:index], rows[index]._replace(link=None), *rows[index + 1 :]])
        assert held
        none_before = [row._replace(link=None) for row in rows[: index + 1]]
        assert found(hand, [*none_before, *rows[index + 1 :]])


# -- with all links computed anew ------------------------------------------------------------------


def relinked(rows: Sequence[Row], bodies: Sequence[bytes]) -> list[Row]:
    """The rows with seqs, checksums and links as if they had been written so."""
    before: bytes | None = None
    made = []
    for seq, (row, data) in enumerate(zip(rows, bodies, strict=True), 1):
        body = decode_body(data)
        name = identity(body)
        before = link_of(before, "s", seq, row.at_us, kind_of(body), name, body_hash(data))
        made.append(row._replace(seq=seq, body=data, crc=zlib.crc32(data), link=before))
    return made


def forged(hand: Hand) -> Iterator[list[Row]]:
    """Journals that are changed with all their links made anew."""
    rows = hand.rows()
    bodies = [row.body for row in rows]
    assert any(b"100" in body for body in bodies)
    for index, body in enumerate(bodies):
        if b"100" in body:
            changed = body.replace(b"100", b"999")
            yield relinked(rows, [*bodies[:index], changed, *bodies[index + 1 :]])
    for index in range(1, len(rows)):
        left = [*rows[:index], *rows[index + 1 :]]
        yield relinked(left, [*bodies[:index], *bodies[index + 1 :]])
    yield relinked(rows[:-1], bodies[:-1])
    chance = random.Random(21)
    for _ in range(10):
        order = chance.sample(range(len(rows)), len(rows))
        if order != sorted(order):
            yield relinked([rows[at] for at in order], [bodies[at] for at in order])


def test_a_chain_made_anew_is_found_by_what_was_kept_elsewhere(hand: Hand) -> None:
    whole = hand.rows()
    with hand.holding(whole) as verified:
        now = verified(None)
    kept = [ExpectedLink("s", now.head, now.link)]
    assert whole[4].link is not None
    kept.append(ExpectedLink("s", 5, whole[4].link.hex()))
    tried = 0
    for rows in forged(hand):
        with hand.holding(rows, newest=rows[-1].link) as verified:
            assert verified(None).findings == [], "without it nothing can be seen"
            held = verified(kept[0])
            assert [finding.seq for finding in held.findings] == [now.head]
        tried += 1
    assert tried > 15
    with hand.holding(whole) as verified:
        for each in kept:
            assert verified(each).findings == [], "what has grown since then is as it was"


# -- whole stores ----------------------------------------------------------------------------------


def test_links_that_were_printed_can_be_expected(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        fill(store)
        store.create_session(id="gone")
        store.create_session(id="erased")
        printed = json.dumps({"sessions": _links(store)}).encode()
        with store.session("s").turn("later"):
            pass
        store.erase_session("erased")
        expected = read_expected(printed)
        assert verify(store, expect=expected).erased == ["erased"]
        assert verify(store, expect=expected).findings == []
    with apsw.Connection(str(path)) as connection:
        connection.execute("DELETE FROM sessions WHERE id = ?", (b"gone",))
    with Store(path) as store:
        result = verify(store, expect=expected)
    assert [(one.session_id, one.kind) for one in result.findings] == [("gone", "link")]


def _links(store: Store) -> list[dict[str, Any]]:
    return [
        {"session_id": one.session_id, "head": one.head, "link": one.link, "linked": one.linked}
        for one in verify(store).sessions
    ]


def test_a_broken_chain_stops_no_session(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        fill(store)
    with apsw.Connection(str(path)) as connection:
        connection.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    with Store(path) as store:
        session = store.session("s")
        cut = session.head
        with session.turn("on"):
            pass
        again = store.verify_session("s")
        assert [finding.seq for finding in again.findings] == [cut + 1], "and it stays seen"
        assert store.examine_session("s", rebuild=True) is not None
        assert store.verify_session("s").findings == again.findings, "the doctor mends no chain"


def test_entries_from_before_there_were_links_are_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        fill(store)
        head = store.session("s").head
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE entries SET link = NULL; UPDATE sessions SET link = NULL")
    with Store(path) as store:
        session = store.session("s")
        with session.turn("on"):
            pass
        result = store.verify_session("s")
    assert (result.findings, result.unlinked, result.linked) == ([], head, 3)


def test_a_fork_begins_from_its_parents_link(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        fill(store)
        fork = store.session("s").fork(at=5)
        with fork.turn("other"):
            pass
        deeper = fork.fork(at=3)
        assert not verify(store).findings
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE entries SET link = zeroblob(32) WHERE seq = 5 AND session = 1")
    with Store(path) as store:
        named = {(each.session_id, each.seq) for each in verify(store).findings}
    assert named == {("s", 5), ("s", 6), (fork.id, 6)}
    assert deeper.id not in {name for name, _ in named}


def test_what_was_printed_by_another_program_is_refused() -> None:
    with pytest.raises(UsageError, match="verify --json"):
        read_expected(b'{"links": []}')
    with pytest.raises(UsageError, match="verify --json"):
        read_expected(b"\xff")
