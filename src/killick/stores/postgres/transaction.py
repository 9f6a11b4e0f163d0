"""Writes of the PostgreSQL store: gathered, and sent together.

Nothing is sent until the sessions that a transaction is about are locked; then what it writes waits
until somebody reads the same session, or until the commit, and goes in one round trip with it.

Rule 1: a session that is known from the transaction before is not locked at all: the statement
        that commits makes sure that its stamp is still the same. Most appends are one statement.
Rule 2: other sessions are locked all at once, in one order, so that no two transactions wait for
        each other. An operation that turns out to need more begins the transaction anew.
Rule 3: an entry is taken to be new when it is gathered. If its identity is there already, the
        server refuses all of it, and the transaction is run again carefully, one entry at a time.
"""

import zlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from killick.errors import StoreError
from killick.journal.codec import encode, to_bytes, to_text
from killick.journal.summary import Spent
from killick.stores.contract import Flush, LocksNeeded, RetryTransaction, SessionLocked, SessionRow
from killick.stores.engine.session_ops import labels_of
from killick.stores.postgres.connection import Bigints, Byteas, Connection, Link, run
from killick.stores.postgres.keys import (
    columns,
    identity_key,
    join,
    new_number,
    of,
    split,
    tenant_number,
)
from killick.stores.postgres.reader import PostgresReader
from killick.stores.postgres.schema import PostgresQueries
from killick.stores.postgres.search import PostgresIndex
from killick.stores.sql import as_bytes, folded

_GONE: Final = -1
"""The stamp of a session that does not exist any more."""


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


_DELTA: Final = ("tenant", "session", "seq", "number", "body")
_BYTES: Final = frozenset({"identity", "blob", "body"})


class Evidence(NamedTuple):
    """What is there if the transaction was committed, and only then: a statement and its answer."""

    sql: str
    bindings: dict[str, Any]
    answer: int


class PostgresTransaction(PostgresIndex, PostgresReader):
    """Reads and writes on the writer's connection. Begun with the first statement."""

    may_lose_end = True

    def __init__(
        self,
        line: Callable[[], Link],
        sql: PostgresQueries,
        names: dict[int, str],
        *,
        holder: str,
        first: Collection[int] = (),
        careful: bool = False,
        held: Collection[int] = (),
        wait_seconds: float = 0.0,
    ) -> None:
        self._open = line
        self._line: Link | None = None
        self._sql = sql
        self._names = names
        self._holder = holder
        self._held = frozenset(held)
        self._wait_seconds = wait_seconds
        self._first = frozenset(first) - self._held
        self._careful = careful
        self._stamp = new_number()
        self._locked: dict[int, Any] = {}
        self._assumed: dict[int, int] = {}
        self._checked: dict[int, int] = {}
        self._stamps: dict[int, int] = {}
        self._changed_keys: set[int] = set()
        self.tenants: dict[int, str] = {}
        self._statements: list[tuple[str, dict[str, Any] | None]] = []
        self._entries_waiting: list[NewEntry] = []
        self._deltas_waiting: list[tuple[int, int, int, int, bytes]] = []
        self._heads: dict[int, int] = {}
        self._saves: dict[int, dict[str, Any]] = {}
        self._dirty: set[int] = set()
        self._sent = False
        self.documents = {}
        self.writes = 0
        self.evidence: Evidence | None = None
        self.notices: set[int] = set()

    # -- the connection ------------------------------------------------------------------------

    @property
    def line(self) -> Link:
        """The connection, inside of a transaction."""
        if self._line is None:
            self._begin(())
        assert self._line is not None
        return self._line

    @property
    def begun(self) -> Link | None:
        """The connection, if anything was said on it."""
        return self._line

    def _begin(self, keys: Collection[int]) -> None:
        """Begin, and lock sessions, in one round trip; what was taken for granted is looked at."""
        line = self._open()
        self._line = line
        with line.connection.pipeline():
            self._send_begin(line)
            self._lock_rows(line.connection, sorted(self._first.union(keys, self._assumed)))
        for key, known in self._assumed.items():
            row = self._locked[key]
            if row is None or row[4] != known:
                raise Outdated(set(self._locked))
        self._assumed.clear()

    def _send_begin(self, line: Link) -> None:
        run(line.connection, "BEGIN")
        if line.pooled:
            run(line.connection, self._sql.set_locally, line.parameters)

    def take_time(self) -> None:
        """What follows may take as long as it takes: it goes over all of something."""
        self.line.connection.unhurried = True

    def _lock_rows(self, connection: Connection, keys: list[int]) -> None:
        if not keys:
            return
        if len(keys) == 1:
            locking = run(connection, self._sql.lock_session, of(keys[0]), binary=True)
        else:
            locking = run(connection, self._sql.lock_sessions, columns(keys), binary=True)
        self._locked = dict.fromkeys(keys)
        for row in locking.fetchall():
            key = join(row[0], row[1])
            self._locked[key] = row
            if row[14]:
                self.notices.add(key)

    def fetch(self, sql: str, bindings: dict[str, Any] | None = None) -> list[Any]:
        """What was written to a session is seen by whoever reads that session, or all of them."""
        if self._waits_for(bindings):
            self.flush()
        return run(self.line.connection, sql, bindings, binary=True).fetchall()

    def _waits_for(self, bindings: dict[str, Any] | None) -> bool:
        if not self._dirty:
            return False
        if -1 in self._dirty or bindings is None or "session" not in bindings:
            return True
        session = bindings["session"]
        return not isinstance(session, int) or join(bindings["tenant"], session) in self._dirty

    def send(self, sql: str, bindings: dict[str, Any] | None = None) -> None:
        self.writes += 1
        self._statements.append((sql, bindings))
        # Statements about no session in particular are waited for by every reader.
        session = None if bindings is None else bindings.get("session")
        key = join(bindings["tenant"], session) if bindings and isinstance(session, int) else -1
        self._dirty.add(key)

    def flush(self) -> None:
        """Send what waits, in one round trip."""
        line, self._sent = self.line, True
        with line.connection.pipeline():
            checking = self._send_check(line)
            self._send_all(line)
        if checking is not None:
            self._notice(checking.fetchone())
            self._checked.update(self._assumed)
            self._assumed.clear()

    def commit(self) -> None:
        """Send what waits, and commit, in one round trip."""
        line = self._line
        if line is None and self._first:
            line = self.line
        if line is None:
            line = self._line = self._open()
            if not self.writes:
                # What was refused, or found to be done already, was so if this is still true.
                self._send_check(line)
                return
            if self._is_plain() and not line.pooled:
                self._append(line)
                return
            begun = False
        else:
            begun = True
        with line.connection.pipeline():
            if not begun:
                self._send_begin(line)
            checking = self._send_check(line)
            self._send_all(line)
            run(line.connection, "COMMIT")
        if checking is not None:
            self._notice(checking.fetchone())

    def _is_plain(self) -> bool:
        """Whether all there is are new entries of sessions that are known."""
        others = self._statements or self._saves or self._deltas_waiting
        return not others and self._heads.keys() == self._assumed.keys()

    def _append(self, line: Link) -> None:
        """One statement that is a transaction of its own."""
        entries = self._entries_waiting
        if len(entries) == 1:
            (known,) = self._assumed.values()
            bindings = {**entries[0]._asdict(), "known": known, "stamp": self._stamp}
            row = run(line.connection, self._sql.append_entry, bindings).fetchone()
            if row is None:
                raise Outdated(set(self._assumed))
            if row[0]:
                self.notices.update(self._assumed)
            return
        keys = sorted(self._assumed)
        bindings = {
            **_cut(NewEntry._fields, entries),
            **columns(keys),
            "heads": Bigints(self._heads[key] for key in keys),
            "known": Bigints(self._assumed[key] for key in keys),
            "stamp": self._stamp,
            "count": len(keys),
        }
        # About many sessions, so in all partitions: to plan it takes as long as to do it.
        done = run(line.connection, self._sql.append_entries, bindings, prepare=True)
        self._notice(done.fetchone())

    def _send_check(self, line: Link) -> Any:
        if not self._assumed:
            return None
        keys = sorted(self._assumed)
        known = {"known": Bigints(self._assumed[key] for key in keys), "count": len(keys)}
        return run(line.connection, self._sql.check_sessions, {**columns(keys), **known})

    def _notice(self, row: Any) -> None:
        """Somebody wants to hear of some of these sessions."""
        _, tenants, sessions = row
        if tenants:
            self.notices.update(map(join, tenants, sessions))

    def _send_all(self, line: Link) -> None:
        execute = partial(run, line.connection)
        for sql, bindings in self._statements:
            execute(sql, bindings)
        if len(self._entries_waiting) == 1:
            execute(self._sql.insert_entry, self._entries_waiting[0]._asdict())
        elif self._entries_waiting:
            execute(self._sql.insert_entries, _cut(NewEntry._fields, self._entries_waiting))
        if self._deltas_waiting:
            execute(self._sql.put_deltas, _cut(_DELTA, self._deltas_waiting))
        for saved in self._saves.values():
            execute(self._sql.save_session, saved)
        self._send_heads(execute)
        for waiting in (self._statements, self._entries_waiting, self._deltas_waiting):
            waiting.clear()
        self._saves.clear()
        self._heads.clear()
        self._dirty.clear()

    def _send_heads(self, execute: Callable[..., Any]) -> None:
        heads = {key: head for key, head in self._heads.items() if key not in self._saves}
        keys = sorted(heads)
        if len(keys) == 1:
            execute(self._sql.save_head, of(keys[0], head=heads[keys[0]], stamp=self._stamp))
        elif keys:
            saved = {"heads": Bigints(heads[key] for key in keys), "stamp": self._stamp}
            execute(self._sql.save_heads, {**columns(keys), **saved})

    # -- locks ---------------------------------------------------------------------------------

    def version(self, key: int, expected: int | None = None) -> int:
        own = self._stamps.get(key)
        if own is not None:
            return own
        if key in self._locked:
            row = self._locked[key]
            return _GONE if row is None else int(row[4])
        if key in self._checked:
            return self._checked[key]
        if key in self._held:
            raise SessionLocked(self._wait_seconds)
        if expected is None or expected == _GONE or self._first:
            self.need((key,))
            return self.version(key)
        return self._assumed.setdefault(key, expected)

    def need(self, keys: Collection[int]) -> None:
        if self._first and self._line is None:
            self._begin(())
        # What is held by others is told to whoever comes to it: the rest does not wait for it.
        there = (self._locked, self._stamps, self._held)
        missing = [key for key in keys if not any(key in one for one in there)]
        if missing:
            raise LocksNeeded(missing)

    def lock(self, keys: Collection[int]) -> None:
        if self._locked or self._sent:
            # What is held already may be what somebody waits for who holds one of these.
            raise LockedLate({*self.locked, *keys})
        if self._line is None:
            self._begin(keys)
        else:
            self._lock_rows(self._line.connection, sorted(keys))

    @property
    def locked(self) -> set[int]:
        """The sessions that this transaction is about, as far as it knows."""
        return {*self._locked, *self._assumed, *self._checked, *self._first}

    @property
    def changed(self) -> set[int]:
        """The sessions that somebody who follows them would want to look at."""
        return self._changed_keys

    @property
    def idle(self) -> bool:
        """Whether nothing was said, written or taken for granted."""
        return self._line is None and not self.writes and not self._assumed

    @property
    def careful(self) -> bool:
        return self._careful

    def session(self, key: int) -> SessionRow | None:
        if key in self._locked and key not in self._stamps:
            row = self._locked[key]
            return None if row is None else self.as_row(row)
        return super().session(key)

    def _changed(self, key: int) -> None:
        self.writes += 1
        self._stamps[key] = self._stamp
        self._changed_keys.add(key)
        self._dirty.add(key)

    def is_alive(self, holder: str) -> bool:
        return holder == self._holder or super().is_alive(holder)

    # -- sessions ------------------------------------------------------------------------------

    def create_session(self, row: SessionRow) -> int:
        tenant, session = tenant_number(row.tenant), new_number()
        self._keep_tenant(tenant, row.tenant)
        key = join(tenant, session)
        names = of(key, id=to_bytes(row.id))
        self.send(self._sql.put_id, names)
        self.send(
            self._sql.create_session,
            {
                **names,
                "stamp": self._stamp,
                "fence": row.fence,
                "created_at_us": row.created_at_us,
                "updated_at_us": row.updated_at_us,
                "base": None if row.base is None else split(row.base)[1],
                "base_seq": row.base_seq,
                "about": encode(row.about),
            },
        )
        self._changed(key)
        return key

    def _keep_tenant(self, tenant: int, name: str) -> None:
        known = self._names.get(tenant) or self.tenants.get(tenant)
        if known is None:
            self.send(self._sql.put_tenant, {"tenant": tenant, "name": to_bytes(name)})
            found = self.fetch_one(self._sql.tenant_name, {"tenant": tenant})
            known = self.tenants[tenant] = to_text(found[0])
        if known != name:
            raise StoreError(f"the tenant {name!r} cannot be told from another; name it otherwise")

    def _remember(self, tenant: int, name: str) -> None:
        self.tenants[tenant] = name  # for others only when this is committed

    def save_session(self, row: SessionRow) -> None:
        about = row.about
        self._changed(row.key)
        if row.stop_seq is not None:
            self.notices.add(row.key)
        self._saves[row.key] = of(
            row.key,
            head=row.head,
            stamp=self._stamp,
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
        )

    def save_labels(self, row: SessionRow) -> None:
        self.send(self._sql.drop_labels, of(row.key))
        for kind, label in labels_of(row):
            self.send(self._sql.put_label, of(row.key, kind=kind, label=to_bytes(label)))

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
    ) -> bool:
        name = identity_key(identity)
        if self._careful and self.fetch_one(self._sql.has_entry, of(key, identity=name)):
            return False
        digest, crc = None, zlib.crc32(body)
        if blob is not None:
            digest = to_bytes(blob)
            found = self.fetch_one(self._sql.blob, {"tenant": key >> 64, "digest": digest})
            crc = zlib.crc32(found[0])
        entry = NewEntry(*split(key), seq, at_us, crc, mark, name, digest, body)
        self._entries_waiting.append(entry)
        if self.evidence is None:
            found_by = of(key, identity=name)
            self.evidence = Evidence(self._sql.has_entry, found_by, seq)
        self._heads[key] = seq
        if key in self._saves:
            self._saves[key]["head"] = seq
        self._changed(key)
        return True

    def erase_session(self, key: int) -> int:
        self.take_time()
        entries = self.head_count(key)
        for sql in (
            self._sql.erase_entries,
            self._sql.erase_deltas,
            self._sql.drop_labels,
            self._sql.drop_usage,
            self._sql.erase_id,
            self._sql.erase_session,
        ):
            self.send(sql, of(key))
        return entries

    def head_count(self, key: int) -> int:
        found: int = self.fetch_one(self._sql.count_of, of(key))[0]
        return found

    def drop_loose_blobs(self, key: int) -> int:
        mine = self.fetch(self._sql.own_blobs, of(key))
        self.send(self._sql.drop_references, of(key))
        return self._drop_blobs(mine)

    def _drop_blobs(self, found: list[Any]) -> int:
        if not found:
            return 0
        which = {"tenants": [one[0] for one in found], "digests": [one[1] for one in found]}
        self.fetch(self._sql.lock_blobs, which)
        self.writes += 1
        which["holders"] = [one[2] for one in found]
        return len(self.fetch(self._sql.drop_blobs, which))

    def note_erasure(self, row: SessionRow, entries: int, at_us: int) -> None:
        noted = of(row.key, id=to_bytes(row.id), entries=entries, at_us=at_us)
        self.send(self._sql.note_erasure, noted)
        if self.evidence is None:
            self.evidence = Evidence(self._sql.has_erasure, of(row.key), at_us)

    def scrubbed(self, tenant: str, session_id: str, at_us: int) -> None:
        which = {"tenant": tenant_number(tenant), "id": to_bytes(session_id), "at_us": at_us}
        self.send(self._sql.scrubbed, which)

    # -- deltas and blobs ----------------------------------------------------------------------

    def put_deltas(self, flushes: Sequence[Flush]) -> None:
        self.writes += len(flushes)
        for key, seq, number, data in flushes:
            self._deltas_waiting.append((*split(key), seq, number, data))
            self._changed_keys.add(key)
            self._dirty.add(key)

    def drop_deltas(self, key: int, seq: int) -> None:
        if any(waiting[:3] == (*split(key), seq) for waiting in self._deltas_waiting):
            self.flush()
        self.send(self._sql.drop_deltas, of(key, seq=seq))

    def claim_blob(self, tenant: str, digest: str, holder: str) -> bool:
        which = {"tenant": tenant_number(tenant), "digest": to_bytes(digest), "holder": holder}
        self.writes += 1
        return bool(self.fetch(self._sql.claim_blob, which))

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None:
        number = tenant_number(tenant)
        self._keep_tenant(number, tenant)
        put = {"tenant": number, "digest": to_bytes(digest), "holder": holder, "data": data}
        self.send(self._sql.put_blob, put)

    def refer(self, key: int, tenant: str, digest: str) -> bool:
        reference = of(key, digest=to_bytes(digest))
        if self.fetch(self._sql.has_reference, reference):
            return True
        which = {"tenant": tenant_number(tenant), "digest": reference["digest"]}
        if not self.fetch(self._sql.keep_blob, which):
            return False
        self.send(self._sql.refer, reference)
        return True

    def collect_blobs(self, *, if_due: bool = False) -> int:
        """Goes over all blobs of all hosts: of those who close a store, one a day does it."""
        if if_due and not self.fetch(self._sql.collecting_is_due):
            return 0
        self.send(self._sql.collecting)
        self.take_time()
        loose = [one for one in self.fetch(self._sql.loose_blobs) if not self.is_alive(one[2])]
        return self._drop_blobs(loose)


class LockedLate(RetryTransaction):
    """These sessions must be locked before anything else."""

    def __init__(self, keys: set[int]) -> None:
        super().__init__(f"{len(keys)} sessions")
        self.keys = keys


class Outdated(LockedLate):
    """Somebody else has written to one of these sessions."""


def _cut(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows as the columns that a statement takes them in."""
    return {
        name: Byteas(column) if name in _BYTES else Bigints(column)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
