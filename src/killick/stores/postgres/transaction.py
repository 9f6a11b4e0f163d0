"""Writes of the PostgreSQL store: gathered, and sent together.

Nothing is sent until the sessions that a transaction is about are locked; then its writes wait
until the same session is read, or until the commit, and go in one round trip with it. `locks` says
when a session is locked; most appends lock nothing and are one statement.

An entry is taken to be new when it is gathered. If its identity is stored already, the server
refuses all of the transaction, and it is run again carefully, one entry at a time.
"""

import zlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from killick.errors import StoreError
from killick.journal.codec import encode, to_bytes, to_text
from killick.journal.news import Line, NewsKind
from killick.journal.summary import Spent
from killick.stores.contract import Flush, LocksNeeded, SessionRow
from killick.stores.engine.session_ops import labels_of
from killick.stores.postgres.connection import Connection, Link, run
from killick.stores.postgres.counted import PostgresSumming
from killick.stores.postgres.holders import Looks
from killick.stores.postgres.locks import GONE, LockedLate, Outdated, SessionLocks
from killick.stores.postgres.reader import PostgresReader
from killick.stores.postgres.search import PostgresIndex
from killick.stores.postgres.statements import (
    Bigints,
    Byteas,
    PostgresQueries,
    columns,
    identity_key,
    join,
    new_number,
    of,
    split,
    tenant_number,
)
from killick.stores.sql import as_bytes, folded

_EVERY: Final = -1
"""Stands among the unsent for statements about no session in particular."""


class NewEntry(NamedTuple):
    """A row of `entries` on its way."""

    tenant: int
    session: int
    seq: int
    at_us: int
    crc: int
    mark: int | None
    identity: bytes
    blob: bytes | None
    body: bytes
    link: bytes | None


class NewDelta(NamedTuple):
    """A row of `deltas` on its way."""

    tenant: int
    session: int
    seq: int
    number: int
    body: bytes
    crc: int


class Evidence(NamedTuple):
    """A statement that has this answer if the transaction was committed, and only then."""

    sql: str
    bindings: dict[str, Any]
    answer: int


class Outbox:
    """Gathered writes, and the sessions that must not be read before these are sent."""

    __slots__ = ("deltas", "entries", "heads", "links", "saves", "statements", "unsent")

    def __init__(self) -> None:
        self.statements: list[tuple[str, dict[str, Any] | None]] = []
        self.entries: list[NewEntry] = []
        self.deltas: list[NewDelta] = []
        self.heads: dict[int, int] = {}
        self.links: dict[int, bytes | None] = {}
        self.saves: dict[int, dict[str, Any]] = {}
        self.unsent: set[int] = set()

    def concerns(self, bindings: dict[str, Any] | None) -> bool:
        """Return whether a statement with these parameters may read what is not sent yet."""
        if not self.unsent:
            return False
        key = _key_of(bindings)
        return key == _EVERY or key in self.unsent or _EVERY in self.unsent

    def holds_only_entries_of(self, keys: Collection[int]) -> bool:
        """Return whether all there is are new entries of exactly these sessions."""
        others = self.statements or self.saves or self.deltas
        return not others and self.heads.keys() == set(keys)

    def send(self, connection: Connection, sql: PostgresQueries, version: int) -> None:
        """Send everything; the caller has opened a pipeline."""
        execute = partial(run, connection)
        for statement, bindings in self.statements:
            execute(statement, bindings)
        if len(self.entries) == 1:
            execute(sql.insert_entry, self.entries[0]._asdict())
        elif self.entries:
            execute(sql.insert_entries, _as_columns(self.entries))
        if self.deltas:
            execute(sql.put_deltas, _as_columns(self.deltas))
        for saved in self.saves.values():
            execute(sql.save_session, saved)
        keys = sorted(self.heads.keys() - self.saves.keys())
        if len(keys) == 1:
            (key,) = keys
            saved = of(key, head=self.heads[key], link=self.links[key], stamp=version)
            execute(sql.save_head, saved)
        elif keys:
            execute(sql.save_heads, {**columns(keys), **self.newest(keys), "stamp": version})

    def newest(self, keys: Sequence[int]) -> dict[str, Any]:
        """Return the heads and newest links of these sessions, as parameters."""
        heads = Bigints(self.heads[key] for key in keys)
        return {"heads": heads, "links": Byteas(self.links[key] for key in keys)}


class PostgresTransaction(PostgresIndex, PostgresSumming, PostgresReader):
    """Reads and writes on the writer's connection. Begun with the first statement."""

    may_lose_end = True

    def __init__(
        self,
        connect: Callable[[], Link],
        sql: PostgresQueries,
        names: dict[int, str],
        locks: SessionLocks,
        *,
        looks: Looks,
        careful: bool = False,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._names = names
        self._locks = locks
        self._looks = looks
        self._version = new_number()
        self._outbox = Outbox()
        self._written: set[int] = set()
        self._flushed = False
        self.begun: Link | None = None
        """The connection, if anything was sent on it."""
        self.careful = careful
        """Whether each identity is looked up before its entry is written."""
        self.changed: set[int] = set()
        """The sessions that a follower would want to look at."""
        self.tenants: dict[int, str] = {}
        """Names that others may know when this is committed."""
        self.documents = {}
        self.writes = 0
        self.evidence: Evidence | None = None

    # -- the connection ------------------------------------------------------------------------

    @property
    def line(self) -> Link:
        """The connection, inside of a transaction."""
        return self.begun or self._begin(())

    @property
    def idle(self) -> bool:
        """Tell whether nothing was sent, written or assumed."""
        return self.begun is None and not self.writes and not self._locks.assumed

    @property
    def notices(self) -> set[int]:
        """The changed sessions of which other processes want to hear."""
        return self._locks.watched & self.changed

    def _begin(self, keys: Collection[int]) -> Link:
        """Begin, and lock all sessions that are known to be needed, in one round trip."""
        locks, line = self._locks, self._connect()
        self.begun = line
        with line.connection.pipeline():
            self._send_begin(line)
            locks.take(line.connection, locks.first.union(keys, locks.assumed))
        locks.confirm()
        return line

    def _send_begin(self, line: Link) -> None:
        run(line.connection, "BEGIN")
        if line.pooled:
            run(line.connection, self._sql.set_locally, line.parameters)

    def take_time(self) -> None:
        """Let the next statements take as long as they take: they go over all of something."""
        self.line.connection.unhurried = True

    def fetch(self, sql: str, bindings: dict[str, Any] | None = None) -> list[Any]:
        """Return all rows of one statement, after the writes that it may have to see."""
        if self._outbox.concerns(bindings):
            self.flush()
        return run(self.line.connection, sql, bindings, binary=True).fetchall()

    def send(self, sql: str, bindings: dict[str, Any] | None = None) -> None:
        self.writes += 1
        self._outbox.statements.append((sql, bindings))
        self._outbox.unsent.add(_key_of(bindings))

    def flush(self) -> None:
        """Send the gathered writes, in one round trip."""
        connection, self._flushed = self.line.connection, True
        with connection.pipeline():
            answer = self._locks.check(connection)
            self._outbox.send(connection, self._sql, self._version)
        self._outbox = Outbox()
        self._locks.checked(answer)

    def commit(self) -> None:
        """Send the gathered writes, and commit, in one round trip."""
        if self.begun is None and self._locks.first:
            self._begin(())
        line, begun = self.begun or self._connect(), self.begun is not None
        self.begun = line
        if not begun and not self.writes:
            # A refusal, or a repeated write, was right if the versions are still the same.
            self._locks.check_alone(line)
            return
        plain = self._outbox.holds_only_entries_of(self._locks.assumed)
        if not begun and plain and not line.pooled:
            self._append(line.connection)
            return
        with line.connection.pipeline():
            if not begun:
                self._send_begin(line)
            answer = self._locks.check(line.connection)
            self._outbox.send(line.connection, self._sql, self._version)
            run(line.connection, "COMMIT")
        self._locks.checked(answer)

    def _append(self, connection: Connection) -> None:
        """Run one statement that is a transaction of its own. Raises Outdated."""
        entries, locks = self._outbox.entries, self._locks
        if len(entries) == 1:
            ((key, known),) = locks.assumed.items()
            bindings = {**entries[0]._asdict(), "known": known, "stamp": self._version}
            row = run(connection, self._sql.append_entry, bindings).fetchone()
            if row is None:
                raise Outdated({key})
            if row[0]:
                locks.watched.add(key)
            return
        newest = self._outbox.newest(sorted(locks.assumed))
        new = {**_as_columns(entries), **newest, "stamp": self._version}
        # About many sessions, so in all partitions: to plan it takes as long as to do it.
        done = run(
            connection, self._sql.append_entries, {**locks.assumption(), **new}, prepare=True
        )
        locks.watch(done.fetchone())

    # -- locks ---------------------------------------------------------------------------------

    def version(self, key: int, expected: int | None = None) -> int:
        if key in self._written:
            return self._version
        known = self._locks.version(key)
        if known is not None:
            return known
        if expected is None or expected == GONE or self._locks.first:
            self.need((key,))
            return self.version(key)
        return self._locks.assumed.setdefault(key, expected)

    def need(self, keys: Collection[int]) -> None:
        locks = self._locks
        if locks.first and self.begun is None:
            self._begin(())
        # A session that another process holds is refused when the operation comes to it: the rest
        # of the transaction does not wait for it.
        present = (locks.rows, locks.held, self._written)
        missing = [key for key in keys if not any(key in group for group in present)]
        if missing:
            raise LocksNeeded(missing)

    def lock(self, keys: Collection[int]) -> None:
        if self._locks.rows or self._flushed:
            # Another process may hold one of these, and wait for what is locked here.
            raise LockedLate({*self.locked, *keys})
        if self.begun is None:
            self._begin(keys)
        else:
            self._locks.take(self.begun.connection, keys)

    @property
    def locked(self) -> set[int]:
        """The sessions that this transaction is about, as far as it knows."""
        return self._locks.keys

    def session(self, key: int) -> SessionRow | None:
        if key in self._locks.rows and key not in self._written:
            row = self._locks.rows[key]
            return None if row is None else self.as_row(row)
        return super().session(key)

    def _changed(self, key: int) -> None:
        self.writes += 1
        self._written.add(key)
        self.changed.add(key)
        self._outbox.unsent.add(key)

    # -- sessions ------------------------------------------------------------------------------

    def create_session(self, row: SessionRow) -> int:
        tenant, session = tenant_number(row.tenant), new_number()
        self._keep_tenant(tenant, row.tenant)
        key = join(tenant, session)
        id_ = to_bytes(row.id)
        self.send(self._sql.put_id, of(key, id=id_))
        created = of(
            key,
            id=id_,
            stamp=self._version,
            fence=row.fence,
            created_at_us=row.created_at_us,
            updated_at_us=row.updated_at_us,
            base=None if row.base is None else split(row.base)[1],
            base_seq=row.base_seq,
            about=encode(row.about),
        )
        self.send(self._sql.create_session, created)
        self._changed(key)
        return key

    def _keep_tenant(self, tenant: int, name: str) -> None:
        known = self._names.get(tenant) or self.tenants.get(tenant)
        if known is None:
            self.send(self._sql.put_tenant, {"tenant": tenant, "name": to_bytes(name)})
            (stored,) = self.fetch_one(self._sql.tenant_name, {"tenant": tenant})
            known = self.tenants[tenant] = to_text(stored)
        if known != name:
            raise StoreError(f"the tenant {name!r} cannot be told from another; name it otherwise")

    def _remember(self, tenant: int, name: str) -> None:
        self.tenants[tenant] = name

    def save_session(self, row: SessionRow) -> None:
        about = row.about
        self._changed(row.key)
        if row.stop_seq is not None:
            self._locks.watched.add(row.key)
        self._outbox.saves[row.key] = of(
            row.key,
            head=row.head,
            link=row.link,
            stamp=self._version,
            fence=row.fence,
            turn_seq=row.turn_seq,
            stop_seq=row.stop_seq,
            queue_seq=row.queue_seq,
            updated_at_us=row.updated_at_us,
            archived=about.archived,
            deleted=about.deleted,
            about=encode(about),
            type=to_bytes(about.type),
            project=as_bytes(None if about.project is None else about.project.root),
            title=folded(about.title),
            status=about.status,
            pinned=about.pinned,
            parent=as_bytes(None if about.parent is None else about.parent.session_id),
            holder=row.holder,
            due=None if row.due is None else encode(row.due),
            due_us=row.due_us,
            imported=row.imported,
        )

    def save_labels(self, row: SessionRow) -> None:
        self.send(self._sql.drop_labels, of(row.key))
        for kind, label in labels_of(row):
            self.send(self._sql.put_label, of(row.key, kind=kind, label=to_bytes(label)))

    def put_news(self, key: int, seq: int, number: int, line: Line) -> None:
        line_row = of(key, seq=seq, line=number, kind=line.kind, cause=line.cause, waits=line.waits)
        self.send(self._sql.put_news, line_row)

    def answer_news(self, key: int, kinds: Sequence[NewsKind], seqs: Sequence[int] | None) -> None:
        answered = None if seqs is None else Bigints(seqs)
        self.send(self._sql.answer_news, of(key, kinds=list(kinds), seqs=answered))

    def drop_news(self, key: int, seq: int, number: int) -> None:
        self.send(self._sql.drop_news, of(key, seq=seq, line=number))

    def drop_usage(self, key: int) -> None:
        self.send(self._sql.drop_usage, of(key))

    def spend(self, key: int, spent: Spent) -> None:
        self.send(
            self._sql.spend,
            of(
                key,
                day=spent.day,
                provider=to_bytes(spent.provider),
                model=to_bytes(spent.model),
                calls=spent.calls,
                input=spent.input,
                output=spent.output,
                cached=spent.cached,
                reasoning=spent.reasoning,
                cost=spent.cost,
            ),
        )

    # -- entries -------------------------------------------------------------------------------

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
        name = identity_key(identity)
        if self.careful and self.fetch_one(self._sql.has_entry, of(key, identity=name)):
            return False
        digest, crc = None, zlib.crc32(body)
        if blob is not None:
            digest = to_bytes(blob)
            (stored,) = self.fetch_one(self._sql.blob, {"tenant": key >> 64, "digest": digest})
            crc = zlib.crc32(stored)
        if self.evidence is None:
            self.evidence = Evidence(self._sql.has_entry, of(key, identity=name), seq)
        outbox = self._outbox
        entry = NewEntry(*split(key), seq, at_us, crc, mark, name, digest, body, link)
        outbox.entries.append(entry)
        outbox.heads[key], outbox.links[key] = seq, link
        if key in outbox.saves:
            outbox.saves[key].update(head=seq, link=link)
        self._changed(key)
        return True

    def erase_session(self, row: SessionRow, at_us: int, because: str | None) -> tuple[int, int]:
        key = row.key
        self.take_time()
        self._unindex(key)
        entries: int = self.fetch_one(self._sql.count_of, of(key))[0]
        sql = self._sql
        erased = (sql.erase_entries, sql.erase_deltas, sql.erase_news)
        for erasing in (*erased, sql.drop_labels, sql.drop_usage):
            self.send(erasing, of(key))
        self.send(sql.erase_id, of(key))
        self.send(sql.erase_session, of(key))
        blobs = self._drop_loose_blobs(key)
        noted = of(key, id=to_bytes(row.id), entries=entries, at_us=at_us, because=because)
        self.send(sql.note_erasure, noted)
        if self.evidence is None:
            self.evidence = Evidence(sql.has_erasure, of(key), at_us)
        return entries, blobs

    def erase_rows(self, key: int, over: Callable[[], bool]) -> tuple[int, int, bool]:
        """Do nothing: a session goes as a whole here, and locks no other."""
        return 0, 0, False

    def _drop_loose_blobs(self, key: int) -> int:
        blobs = self.fetch(self._sql.own_blobs, of(key))
        self.send(self._sql.drop_references, of(key))
        return self._drop_blobs(blobs)

    def _drop_blobs(self, blobs: list[tuple[int, bytes, str]]) -> int:
        if not blobs:
            return 0
        tenants, digests, holders = map(list, zip(*blobs, strict=True))
        wanted = {"tenants": tenants, "digests": digests}
        self.fetch(self._sql.lock_blobs, wanted)
        self.writes += 1
        return len(self.fetch(self._sql.drop_blobs, {**wanted, "holders": holders}))

    def scrubbed(self, tenant: str, session_id: str, at_us: int) -> None:
        erased = {"tenant": tenant_number(tenant), "id": to_bytes(session_id), "at_us": at_us}
        self.send(self._sql.scrubbed, erased)

    def keep_rule(self, tenant: str, project: str, body: bytes | None, at_us: int) -> None:
        number = tenant_number(tenant)
        self._keep_tenant(number, tenant)
        rule = {"tenant": number, "project": to_bytes(project)}
        if body is None:
            self.send(self._sql.drop_rule, rule)
        else:
            self.send(self._sql.keep_rule, {**rule, "body": body, "at_us": at_us})

    # -- deltas and blobs ----------------------------------------------------------------------

    def put_deltas(self, flushes: Sequence[Flush]) -> None:
        self.writes += len(flushes)
        for key, seq, number, data in flushes:
            self._outbox.deltas.append(NewDelta(*split(key), seq, number, data, zlib.crc32(data)))
            self._outbox.unsent.add(key)
            self.changed.add(key)

    unfolded: bool | None = False

    def fold_deltas(self, *, at_once: bool = False) -> bool:
        """Do nothing: every stream has rows of its own here."""
        return False

    def drop_deltas(self, key: int, seq: int) -> None:
        if any(delta[:3] == (*split(key), seq) for delta in self._outbox.deltas):
            self.flush()
        self.send(self._sql.drop_deltas, of(key, seq=seq))

    def claim_blob(self, tenant: str, digest: str, holder: str) -> bool:
        claimed = {"tenant": tenant_number(tenant), "digest": to_bytes(digest), "holder": holder}
        self.writes += 1
        return bool(self.fetch(self._sql.claim_blob, claimed))

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None:
        number = tenant_number(tenant)
        self._keep_tenant(number, tenant)
        put = {"tenant": number, "digest": to_bytes(digest), "holder": holder, "data": data}
        self.send(self._sql.put_blob, put)

    def refer(self, key: int, tenant: str, digest: str) -> bool:
        reference = of(key, digest=to_bytes(digest))
        if self.fetch(self._sql.has_reference, reference):
            return True
        blob = {"tenant": tenant_number(tenant), "digest": reference["digest"]}
        if not self.fetch(self._sql.keep_blob, blob):
            return False
        self.send(self._sql.refer, reference)
        return True

    def collect_blobs(self, *, if_due: bool = False) -> int:
        """Go over all blobs of all hosts; with `if_due`, once a day for all processes together."""
        if if_due and not self.fetch(self._sql.collecting_is_due):
            return 0
        self.send(self._sql.collecting)
        self.take_time()
        blobs = self.fetch(self._sql.loose_blobs)
        return self._drop_blobs([blob for blob in blobs if not self.is_alive(blob[2])])


_BYTES: Final = frozenset({"identity", "blob", "body", "link"})


def _as_columns(rows: Sequence[NewEntry | NewDelta]) -> dict[str, Any]:
    """Turn rows of one kind into the arrays that a statement takes them in."""
    return {
        name: Byteas(column) if name in _BYTES else Bigints(column)
        for name, column in zip(rows[0]._fields, zip(*rows, strict=True), strict=True)
    }


def _key_of(bindings: dict[str, Any] | None) -> int:
    """Return the one session that a statement with these parameters is about, or _EVERY."""
    session = None if bindings is None else bindings.get("session")
    if bindings is None or not isinstance(session, int):
        return _EVERY
    return join(bindings["tenant"], session)
