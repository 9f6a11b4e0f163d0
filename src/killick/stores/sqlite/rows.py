"""Read and write the rows of the SQLite store, on a connection that the database opened."""

import re
import time
from binascii import unhexlify
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

import apsw

from killick.errors import SessionDamaged
from killick.journal.chain import StoredEntry, wrong_row
from killick.journal.codec import (
    CodecError,
    decode,
    decode_body,
    encode,
    to_bytes,
    to_text,
)
from killick.journal.due import Due
from killick.journal.kinds import TURNS
from killick.journal.news import Line, NewsKind, Told
from killick.journal.summary import Spent
from killick.model.entries import Entry
from killick.model.sessions import Description, ErasureNote, SessionInfo
from killick.stores.contract import (
    Held,
    LineageReader,
    Listing,
    Position,
    SessionRow,
    StoredNews,
    UsageQuery,
)
from killick.stores.engine.session_ops import labels_of
from killick.stores.sql import beyond, folded, list_rows, load, shown, usage_rows
from killick.stores.sqlite.counted import SqliteSumming, SqliteSums
from killick.stores.sqlite.packs import PackCache, SqliteDeltas, SqliteFlushes
from killick.stores.sqlite.search import SqliteIndex, SqliteSearch

SQL: Final = load("killick.stores.sqlite")
_INSERT_ENTRY: Final = SQL.insert_entry

_EVERYTHING: Final = 2**62
_ROWS_A_STEP: Final = 64
"""Of a session that is erased, so many entries go between two looks at the clock."""

_BYTES_A_STEP: Final = 1024 * 1024
"""The most that an erasure clears in one step: it is written to the log as zeros."""

_MINTED: Final = re.compile(rb"[a-z]+_([0-9a-f]{12})[0-9a-f]{20}/")
_PREFIXES: Final = (b"msg_", b"ent_")
_DIGITS: Final = b"0123456789abcdef"


class SqliteReader(SqliteSearch, SqliteDeltas, SqliteSums, LineageReader):
    """Reads on one connection, inside the transaction that the database has begun."""

    def __init__(
        self,
        connection: apsw.Connection,
        is_alive: Callable[[str], bool],
        packs: PackCache | None = None,
    ) -> None:
        self.connection = connection
        self.is_alive = is_alive
        self.packs = PackCache() if packs is None else packs
        self._execute = connection.execute

    def find_session(self, tenant: str, session_id: str) -> SessionRow | None:
        return self._row(SQL.find_session, (to_bytes(tenant), to_bytes(session_id)))

    def session(self, key: int) -> SessionRow | None:
        return self._row(SQL.session, (key,))

    def _row(self, sql: str, bindings: Sequence[Any]) -> SessionRow | None:
        row = self._execute(sql, bindings).fetchone()
        if row is None:
            return None
        return SessionRow(
            key=row[0],
            id=to_text(row[1]),
            tenant=to_text(row[2]),
            fence=row[3],
            turn_seq=row[4],
            stop_seq=row[5],
            queue_seq=row[6],
            created_at_us=row[7],
            updated_at_us=row[8],
            about=self._about(row[0], row[9]),
            holder=row[10],
            due=None if row[11] is None else self._due(row[0], row[11]),
            due_us=row[12],
            imported=row[13],
            base=row[14],
            base_seq=row[15],
            head=row[16],
            link=row[17],
        )

    def _due(self, key: int, data: bytes) -> Due:
        try:
            return decode(data, Due)
        except ValueError as error:
            raise self._damaged(key, None, error) from error

    def _about(self, key: int, data: bytes) -> Description:
        try:
            return decode(data, Description)
        except ValueError as error:
            raise self._damaged(key, None, error) from error

    def stopping(self) -> list[tuple[int, int]]:
        rows: list[Any] = self._execute(SQL.stopping).fetchall()
        return rows

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def due(self, tenant: str, now_us: int, limit: int) -> list[int]:
        return [key for (key,) in self._execute(SQL.due, (to_bytes(tenant), now_us, limit))]

    def held(self, tenant: str) -> list[Held]:
        rows = self._execute(SQL.held, (to_bytes(tenant),))
        return [Held(holder, key, bool(is_work)) for holder, key, is_work in rows]

    def session_keys(self) -> list[int]:
        return [key for (key,) in self._execute(SQL.session_keys)]

    def origin(self, key: int) -> SessionRow:
        row: Any = self._execute(SQL.origin, (key,)).fetchone()
        session_id, tenant, created_at_us, base, base_seq, imported, link = row
        return SessionRow(
            key=key,
            id=to_text(session_id),
            tenant=to_text(tenant),
            head=base_seq,
            created_at_us=created_at_us,
            base=base,
            base_seq=base_seq,
            imported=imported,
            link=link,
        )

    def find_key(self, tenant: str, session_id: str) -> int | None:
        key = self._execute(SQL.find_key, (to_bytes(tenant), to_bytes(session_id))).get
        assert key is None or isinstance(key, int)
        return key

    def head_of(self, key: int) -> int:
        try:
            return self._count(SQL.head_of, key)
        except apsw.CorruptError as error:
            raise self._damaged(key, None, error) from error

    def heads(self, keys: Collection[int]) -> dict[int, tuple[Any, ...]]:
        """Return the head of each session's own entries, and how far its open streams are."""
        rows: list[Any] = self._execute(SQL.heads, (encode(list(keys)).decode(),)).fetchall()
        return {
            key: (head, *(self._stream_marks(key) if streams else ()))
            for key, head, streams in rows
        }

    def _stream_marks(self, key: int) -> list[Any]:
        return self._execute(SQL.stream_marks, (key,)).fetchall()

    def labels(self, key: int) -> list[tuple[str, str]]:
        return [(kind, to_text(label)) for kind, label in self._execute(SQL.labels, (key,))]

    def usage_of(self, key: int) -> list[Spent]:
        return [
            Spent(day, to_text(provider), to_text(model), *numbers)
            for day, provider, model, *numbers in self._execute(SQL.usage_of, (key,))
        ]

    def find_ids(self, tenant: str, prefix: str, limit: int) -> list[str]:
        first = to_bytes(prefix)
        ids = self._execute(SQL.find_ids, (to_bytes(tenant), first, beyond(first), limit))
        return [to_text(session_id) for (session_id,) in ids]

    def forks_of(self, key: int) -> list[int]:
        return [fork for (fork,) in self._execute(SQL.forks_of, (key,))]

    def unscrubbed(self, tenant: str) -> list[str]:
        return [
            to_text(session_id)
            for (session_id,) in self._execute(SQL.unscrubbed, (to_bytes(tenant),))
        ]

    def sessions(self, listing: Listing) -> list[SessionInfo]:
        before_us, before_id = listing.before or (_EVERYTHING, "")
        filters = {
            **_bindings(listing),
            "title": folded(listing.title),
            "before_us": before_us,
            "before_id": to_bytes(before_id),
        }
        return [
            SessionInfo(
                id=to_text(row[0]),
                about=shown(row[1]),
                tenant=to_text(row[2]),
                created_at_us=row[3],
                updated_at_us=row[4],
            )
            for row in list_rows(SQL.sessions, listing, filters, self._fetch)
        ]

    def _fetch(self, sql: str, bindings: Any) -> list[Any]:
        return self._execute(sql, bindings).fetchall()

    def own_entries(
        self, key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[Entry]:
        last = _EVERYTHING if through is None else through
        most = -1 if limit is None else limit
        return self._entries(key, SQL.entries, (key, after, last, most), after)

    def check_dense(self, key: int, entries: list[Entry], after: int) -> None:
        if entries and entries[-1].seq != after + len(entries):
            gap = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n)
            raise self._damaged(key, gap, CodecError("an entry is missing"))

    def own_newest(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        below = _EVERYTHING if before is None else before
        return self._entries(key, SQL.newest_entries, (key, below, limit), None)[::-1]

    def own_marked(self, key: int, mark: int, after: int) -> list[Entry]:
        sql = SQL.turn_entries if mark == TURNS else SQL.history_entries
        return self._entries(key, sql, (key, after), None)

    def own_newest_marked(
        self, key: int, mark: int, *, before: int | None, limit: int
    ) -> list[Entry]:
        below = _EVERYTHING if before is None else before
        sql = SQL.newest_turn_entries if mark == TURNS else SQL.newest_history_entries
        return self._entries(key, sql, (key, below, limit), None)[::-1]

    def own_entry(self, key: int, identity: str) -> Entry | None:
        entries = self._entries(key, SQL.find_entry, (identity_key(key, identity),), None)
        return entries[0] if entries else None

    def stored_entries(self, key: int, *, after: int, limit: int) -> list[StoredEntry]:
        rows: list[Any] = self._execute(SQL.stored_entries, (key, after, limit)).fetchall()
        return [self._stored(key, row) for row in rows]

    def _stored(self, key: int, row: Any) -> StoredEntry:
        seq, at_us, crc, body, blob, mark, identity, link = row
        if blob is not None:
            data = self._execute(SQL.blob_by_key, (blob,)).get
            body = data if isinstance(data, bytes) and body == b"" else None
        wrong = wrong_row(body, crc, mark, lambda name: identity == identity_key(key, name))
        return StoredEntry(seq, at_us, body or b"", link, wrong)

    def saved_head(self, _key: int) -> int | None:
        return None

    def own_link(self, key: int, seq: int) -> bytes | None:
        link = self._execute(SQL.link_at, (key, seq)).get
        assert link is None or isinstance(link, bytes)
        return link

    def half_erased(self, tenant: str) -> list[int]:
        return [key for (key,) in self._execute(SQL.half_erased, (to_bytes(tenant),))]

    def size_of(self, key: int) -> int:
        """Return how many bytes a session has, about, with blobs that others may refer to too."""
        return self._count(SQL.size_of, key)

    def was_erased(self, tenant: str, session_id: str) -> bool:
        receipt = self._execute(SQL.was_erased, (to_bytes(tenant), to_bytes(session_id))).get
        return receipt is not None

    def erasures(self, tenant: str, limit: int) -> list[ErasureNote]:
        rows: list[Any] = self._execute(SQL.erasures, (to_bytes(tenant), limit)).fetchall()
        return [ErasureNote(to_text(row[0]), *row[1:]) for row in rows]

    def retention(self, tenant: str) -> list[bytes]:
        return [body for (body,) in self._execute(SQL.retention, (to_bytes(tenant),))]

    def base_of(self, key: int) -> tuple[int, int] | None:
        base: tuple[int, int] | None = self._execute(SQL.base_of, (key,)).fetchone()
        return base

    def _entries(
        self, key: int, sql: str, bindings: Sequence[Any], near: int | None
    ) -> list[Entry]:
        entries: list[Entry] = []
        seq = near
        try:
            fetched: list[Any] = self._execute(sql, bindings).fetchall()
            for seq, at_us, crc, body, blob in fetched:
                if blob is not None:
                    body = self._execute(SQL.blob_by_key, (blob,)).get
                if crc32(body) != crc:
                    raise CodecError("its checksum does not match")  # noqa: TRY301
                entries.append(Entry(seq, at_us, decode_body(body)))
        except (CodecError, TypeError, apsw.CorruptError) as error:
            raise self._damaged(key, seq, error) from error
        return entries

    def _damaged(self, key: int, seq: int | None, error: Exception) -> SessionDamaged:
        stored = self._execute("SELECT id FROM sessions WHERE key = ?", (key,)).get
        session_id = to_text(stored) if isinstance(stored, bytes) else f"number {key}"
        return SessionDamaged(
            f"session {session_id!r} is damaged near seq {seq}: {error}; other sessions are "
            "unaffected",
            session_id=session_id,
            seq=seq,
        )

    def usage(self, query: UsageQuery) -> list[tuple[str, str | None, Spent]]:
        return [
            (
                to_text(session),
                None if project is None else to_text(project),
                Spent(day, to_text(provider), to_text(model), *numbers),
            )
            for session, project, day, provider, model, *numbers in usage_rows(
                SQL.usage, _bindings(query), self._fetch
            )
        ]

    def store_number(self) -> int:
        return self._count(SQL.store_number)

    def news(self, tenant: str, after: Position, limit: int) -> list[StoredNews]:
        (first,) = after or (0,)
        return self._news(SQL.news, (to_bytes(tenant), first, limit))

    def waiting_news(self, tenant: str) -> list[StoredNews]:
        return self._news(SQL.waiting_news, (to_bytes(tenant),))

    def _news(self, sql: str, bindings: Sequence[Any]) -> list[StoredNews]:
        rows: list[Any] = self._execute(sql, bindings).fetchall()
        return [StoredNews((row[0],), to_text(row[1]), *row[2:]) for row in rows]

    def news_end(self) -> Position:
        return (self._count(SQL.news_end),)

    def news_of(self, key: int) -> list[Told]:
        rows: list[Any] = self._execute(SQL.news_of, (key,)).fetchall()
        return [
            Told(seq, number, Line(kind, cause, bool(waits)))
            for seq, number, kind, cause, waits in rows
        ]

    def blob(self, tenant: str, digest: str) -> bytes | None:
        data = self._execute(SQL.blob, (to_bytes(tenant), to_bytes(digest))).get
        assert data is None or isinstance(data, bytes)
        return data

    def has_blob(self, tenant: str, digest: str) -> bool:
        return self._execute(SQL.blob_key, (to_bytes(tenant), to_bytes(digest))).get is not None

    def counts(self) -> dict[str, int]:
        return {
            "sessions": self._count(SQL.count_sessions),
            "entries": self._count(SQL.count_entries),
            "deltas": self.count_deltas(),
            "blobs": self._count(SQL.count_blobs),
        }

    def _count(self, sql: str, *bindings: int) -> int:
        count = self._execute(sql, bindings).get
        assert isinstance(count, int)
        return count


class SqliteTransaction(SqliteIndex, SqliteFlushes, SqliteSumming, SqliteReader):
    """Reads and writes on the writer's connection: one object for all transactions on it.

    `generation` counts the commits of others, as of the transaction's beginning. `links` wait to be
    saved with the commit, and that the sums lack what was `spent` in these sessions.
    """

    may_lose_end = False

    def __init__(
        self,
        connection: apsw.Connection,
        is_alive: Callable[[str], bool],
        packs: PackCache | None = None,
    ) -> None:
        super().__init__(connection, is_alive, packs)
        # One cursor for statements without rows: to make one for each costs a tenth of an insert.
        self._do = connection.cursor().execute
        self._changes = connection.changes
        self.generation = 0
        self.writes = 0
        self.links: dict[int, bytes | None] = {}
        self.spent: set[int] = set()
        self.unused_blobs = set()

    @property
    def unfolded(self) -> bool | None:
        return None if self._numbers is None else bool(self._numbers)

    def begin(self, generation: int) -> None:
        """Forget what was known in the last transaction, and what others may have changed."""
        if generation != self.generation:
            self.forget_packs()
        self.generation, self.writes, self.known_substrings = generation, 0, None
        self.links.clear()
        self.unused_blobs.clear()
        if self.spent:
            self.spent.clear()

    def version(self, _key: int, _expected: int | None = None) -> int:
        return self.generation

    def _row(self, sql: str, bindings: Sequence[Any]) -> SessionRow | None:
        self.save_links()
        return super()._row(sql, bindings)

    def save_links(self) -> None:
        """Write the newest link of each session that got entries. The database does it last."""
        if self.spent:
            spent, self.spent = self.spent, set()
            for key in spent:
                self._execute(SQL.save_link_spent, (self.links.pop(key, None), key))
        if self.links:
            for key, link in self.links.items():
                self._do(SQL.save_link, (link, key))
            self.links.clear()

    def need(self, _keys: Collection[int]) -> None:
        """Do nothing: a process with the turn to write has all sessions."""

    def lock(self, _keys: Collection[int]) -> None:
        """Do nothing: the whole file is locked."""

    def create_session(self, row: SessionRow) -> int:
        self._write(
            SQL.create_session,
            (
                to_bytes(row.tenant),
                to_bytes(row.id),
                row.fence,
                row.created_at_us,
                row.updated_at_us,
                encode(row.about),
                row.base,
                row.base_seq,
            ),
        )
        return self.connection.last_insert_rowid()

    def save_session(self, row: SessionRow) -> None:
        about = row.about
        self.links.pop(row.key, None)
        if self.spent:
            self.spent.discard(row.key)
        self._write(
            SQL.save_session,
            (
                row.fence,
                row.turn_seq,
                row.stop_seq,
                row.queue_seq,
                row.updated_at_us,
                about.archived,
                about.deleted_at_us is not None,
                encode(about),
                to_bytes(about.type),
                None if about.project is None else to_bytes(about.project.root),
                None if about.title is None else to_bytes(about.title.casefold()),
                about.status,
                about.pinned,
                None if about.parent is None else to_bytes(about.parent.session_id),
                row.holder,
                None if row.due is None else encode(row.due),
                row.due_us,
                row.imported,
                row.link,
                row.key,
            ),
        )

    def save_labels(self, row: SessionRow) -> None:
        self._write(SQL.drop_labels, (row.key,))
        for kind, label in labels_of(row):
            self._write(SQL.put_label, (row.key, kind, to_bytes(label)))

    def put_news(self, key: int, seq: int, number: int, line: Line) -> None:
        self._write(SQL.put_news, (seq, number, line.kind, line.cause, line.waits, key))

    def answer_news(self, key: int, kinds: Sequence[NewsKind], seqs: Sequence[int] | None) -> None:
        for kind in kinds:
            for seq in (None,) if seqs is None else seqs:
                self._write(SQL.answer_news, (key, kind, seq))

    def drop_news(self, key: int, seq: int, number: int) -> None:
        self._write(SQL.drop_news, (key, seq, number))

    def drop_usage(self, key: int) -> None:
        self._write(SQL.drop_usage, (key,))

    def spend(self, key: int, spent: Spent) -> None:
        self.spent.add(key)
        self._write(
            SQL.spend,
            (
                key,
                spent.day,
                to_bytes(spent.provider),
                to_bytes(spent.model),
                spent.calls,
                spent.input,
                spent.output,
                spent.cached,
                spent.reasoning,
                spent.cost,
            ),
        )

    def insert_entry(
        self,
        key: int,
        seq: int,
        identity: str,
        at_us: int,
        body: bytes,
        *,
        blob: str | None,
        mark: int | None,
        link: bytes | None,
    ) -> bool:
        stored, crc = (None, crc32(body)) if blob is None else self._stored_blob(key, blob)
        name = identity_key(key, identity)
        try:
            self._do(_INSERT_ENTRY, (key, seq, name, at_us, crc, body, stored, mark, link))
        except apsw.CorruptError as error:
            self.writes += 1  # its traces must not be committed with the others
            raise self._damaged(key, seq, error) from error
        if self._changes() != 1:
            return False
        self.writes += 1
        self.links[key] = link
        return True

    def _stored_blob(self, key: int, digest: str) -> tuple[int, int]:
        tenant = self._execute("SELECT tenant FROM sessions WHERE key = ?", (key,)).get
        blob_key = self._execute(SQL.blob_key, (tenant, to_bytes(digest))).get
        data = self._execute(SQL.blob_by_key, (blob_key,)).get
        assert isinstance(blob_key, int)
        assert isinstance(data, bytes)
        return blob_key, crc32(data)

    def erase_session(self, row: SessionRow, at_us: int, because: str | None) -> tuple[int, int]:
        key, names = row.key, (to_bytes(row.tenant), to_bytes(row.id))
        self.links.pop(key, None)
        for sql in (SQL.drop_labels, SQL.drop_usage, SQL.erase_news, SQL.erase_session):
            self._write(sql, (key,))
        self._write(SQL.note_erasure, (key, *names, at_us, row.base, row.base_seq, because))
        return 0, 0

    def erase_rows(self, key: int, over: Callable[[], bool]) -> tuple[int, int, bool]:
        while self.unindex(key, 1):
            if over():
                return 0, 0, True
        self.erase_deltas(key)
        entries, more = 0, True
        while more:
            count, full = self._entries_of_a_step(key)
            self._write(SQL.erase_entries, (key, count))
            entries += self.connection.changes()
            more = self.connection.changes() == count > 0
            if more and (full or over()):
                break
        self._write(SQL.count_erased, (entries, key))
        return (entries, 0, True) if more else (entries, *self._erase_blobs(key, over))

    def _entries_of_a_step(self, key: int) -> tuple[int, bool]:
        """Return how many entries are removed at once, and whether their bytes fill a step."""
        sizes = [size for (size,) in self._execute(SQL.sizes_of_entries, (key, _ROWS_A_STEP))]
        for count, total in enumerate(accumulate(sizes), start=1):
            if total >= _BYTES_A_STEP:
                return count, True
        return len(sizes), False

    def _erase_blobs(self, key: int, over: Callable[[], bool]) -> tuple[int, bool]:
        """Remove a session's references, and blobs that no other session refers to."""
        blobs = size = 0
        while mine := self._execute(SQL.blobs_of, (key,)).fetchone():
            blob, length, shared = mine
            self._write(SQL.drop_reference, (blob, key))
            if not shared:
                if length > _BYTES_A_STEP:
                    self.unused_blobs.add(blob)
                else:
                    self._write(SQL.drop_blob, (blob,))
                blobs, size = blobs + 1, size + length
            if size >= _BYTES_A_STEP or over():
                return blobs, True
        return blobs, False

    def scrubbed(self, tenant: str, session_id: str, at_us: int) -> None:
        self._write(SQL.scrubbed, (at_us, to_bytes(tenant), to_bytes(session_id)))

    def keep_rule(self, tenant: str, project: str, body: bytes | None, at_us: int) -> None:
        names = (to_bytes(tenant), to_bytes(project))
        if body is None:
            self._write(SQL.drop_rule, names)
        else:
            self._write(SQL.keep_rule, (*names, body, at_us))

    def claim_blob(self, tenant: str, digest: str, holder: str) -> bool:
        if not self.has_blob(tenant, digest):
            return False
        self._keep_blob(self._execute(SQL.blob_key, (to_bytes(tenant), to_bytes(digest))).get)
        self._write(SQL.claim_blob, (holder, to_bytes(tenant), to_bytes(digest)))
        return True

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None:
        self._write(SQL.put_blob, (to_bytes(tenant), to_bytes(digest), holder, data))

    def refer(self, key: int, tenant: str, digest: str) -> bool:
        blob_key = self._execute(SQL.blob_key, (to_bytes(tenant), to_bytes(digest))).get
        if blob_key is None:
            return False
        self._keep_blob(blob_key)
        self._write(SQL.refer, (blob_key, key))
        return True

    def _keep_blob(self, blob: Any) -> None:
        """Another operation of this transaction needs a blob that was to go with its end."""
        self.unused_blobs.discard(blob)

    def collect_blobs(self, *, if_due: bool = False) -> int:
        gone = 0
        loose: list[Any] = self._execute(SQL.loose_blobs).fetchall()
        for key, holder in loose:
            if not self.is_alive(holder):
                self._write(SQL.drop_blob, (key,))
                gone += 1
        return gone

    def _write(self, sql: str, bindings: Sequence[Any]) -> None:
        self.writes += 1
        self._do(sql, bindings)


def _bindings(query: Listing | UsageQuery) -> dict[str, Any]:
    """Return the fields of a query as bindings, text as bytes."""
    fields = {name: getattr(query, name) for name in query.__struct_fields__}
    as_stored = {name: to_bytes(text) for name, text in fields.items() if isinstance(text, str)}
    return {**fields, **as_stored}


def identity_key(session: int, identity: str) -> bytes:
    """Return an identity as the index holds it; the schema says why it has this shape."""
    data = identity.encode("utf-8", "surrogatepass")
    hashed = blake2b(data, digest_size=10, key=session.to_bytes(8)).digest()
    # Nearly every identity begins so; the expression costs as much as the hash.
    if data[36:37] == b"/" and data[:4] in _PREFIXES and not data[4:36].strip(_DIGITS):
        return unhexlify(data[4:16]) + hashed
    minted = _MINTED.match(data)
    return (unhexlify(minted[1]) if minted is not None else hashed[:6]) + hashed
