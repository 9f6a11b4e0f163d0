"""Reads the rows of a store on PostgreSQL."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from killick.errors import SessionDamaged
from killick.journal.chain import StoredEntry, wrong_row
from killick.journal.codec import CodecError, decode, decode_body, decode_deltas, to_bytes, to_text
from killick.journal.due import Due
from killick.journal.news import Line, Told
from killick.journal.summary import Spent
from killick.model.entries import Delta, Entry
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
from killick.stores.postgres.connection import Connection
from killick.stores.postgres.counted import PostgresSums
from killick.stores.postgres.holders import Look, Looks
from killick.stores.postgres.search import PostgresSearch
from killick.stores.postgres.statements import (
    PostgresQueries,
    filters_of,
    identity_key,
    join,
    of,
    tenant_number,
)
from killick.stores.sql import beyond, folded, list_rows, shown, usage_rows

EVERYTHING: Final = 2**62
_LAST_SESSION: Final = 2**63 - 1


class StoredSession(NamedTuple):
    """A row of `sessions`, as the statements that read and lock sessions return it."""

    tenant: int
    session: int
    id: bytes
    head: int
    stamp: int
    fence: int
    turn_seq: int | None
    stop_seq: int | None
    queue_seq: int | None
    created_at_us: int
    updated_at_us: int
    base: int | None
    base_seq: int
    about: bytes
    holder: str | None
    due: bytes | None
    due_us: int | None
    imported: int
    link: bytes | None
    watched: bool = False


class PostgresReader(PostgresSearch, PostgresSums, LineageReader):
    """Reads on one connection, inside the transaction that its caller has begun."""

    def __init__(
        self, connection: Connection, sql: PostgresQueries, names: dict[int, str], looks: Looks
    ) -> None:
        super().__init__(connection, sql)
        self._names = names
        self._looks = looks

    def _tenant_name(self, tenant: int) -> str:
        """Return a tenant's name. Names do not change, so each is read once."""
        known = self._names.get(tenant)
        if known is None:
            (name,) = self.fetch_one(self._sql.tenant_name, {"tenant": tenant})
            known = to_text(name)
            self._remember(tenant, known)
        return known

    def _remember(self, tenant: int, name: str) -> None:
        self._names[tenant] = name

    # -- sessions ------------------------------------------------------------------------------

    def is_alive(self, holder: str) -> bool:
        if holder == self._looks.own:
            return True
        row = self.fetch_one(self._sql.look_at_holder, {"holder": holder})
        look = None if row is None else Look(row[0], row[1], row[2], time.monotonic())
        return self._looks.is_alive(holder, look)

    def doubt(self, holder: str) -> float:
        return self._looks.doubt(holder, time.monotonic())

    def find_session(self, tenant: str, session_id: str) -> SessionRow | None:
        key = self.find_key(tenant, session_id)
        return None if key is None else self.session(key)

    def session(self, key: int) -> SessionRow | None:
        row = self.fetch_one(self._sql.session, of(key))
        return None if row is None else self.as_row(StoredSession(*row))

    def as_row(self, stored: StoredSession) -> SessionRow:
        key = join(stored.tenant, stored.session)
        return SessionRow(
            key=key,
            id=to_text(stored.id),
            tenant=self._tenant_name(stored.tenant),
            head=stored.head,
            fence=stored.fence,
            turn_seq=stored.turn_seq,
            stop_seq=stored.stop_seq,
            queue_seq=stored.queue_seq,
            created_at_us=stored.created_at_us,
            updated_at_us=stored.updated_at_us,
            base=None if stored.base is None else join(stored.tenant, stored.base),
            base_seq=stored.base_seq,
            about=self._about(key, stored.about),
            holder=stored.holder,
            due=None if stored.due is None else self._due(key, stored.due),
            due_us=stored.due_us,
            imported=stored.imported,
            link=stored.link,
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
        rows = self.fetch(self._sql.stopping)
        return [(join(tenant, session), seq) for tenant, session, seq in rows]

    def now_us(self) -> int:
        now: int = self.fetch_one(self._sql.now, {})[0]
        return now

    def due(self, tenant: str, now_us: int, limit: int) -> list[int]:
        wanted = {"tenant": tenant_number(tenant), "now_us": now_us, "limit": limit}
        return [join(*row) for row in self.fetch(self._sql.due, wanted)]

    def held(self, tenant: str) -> list[Held]:
        rows = self.fetch(self._sql.held, {"tenant": tenant_number(tenant)})
        return [Held(holder, join(number, session), work) for holder, number, session, work in rows]

    def session_keys(self) -> list[int]:
        return [join(*row) for row in self.fetch(self._sql.session_keys)]

    def origin(self, key: int) -> SessionRow:
        row = self.fetch_one(self._sql.origin, of(key))
        session_id, created_at_us, base, base_seq, imported, link = row
        tenant = key >> 64
        return SessionRow(
            key=key,
            id=to_text(session_id),
            tenant=self._tenant_name(tenant),
            head=base_seq,
            created_at_us=created_at_us,
            base=None if base is None else join(tenant, base),
            base_seq=base_seq,
            imported=imported,
            link=link,
        )

    def find_key(self, tenant: str, session_id: str) -> int | None:
        number = tenant_number(tenant)
        row = self.fetch_one(self._sql.find_key, {"tenant": number, "id": to_bytes(session_id)})
        return None if row is None else join(number, row[0])

    def head_of(self, key: int) -> int:
        head: int = self.fetch_one(self._sql.head_of, of(key))[0]
        return head

    def labels(self, key: int) -> list[tuple[str, str]]:
        return [(kind, to_text(label)) for kind, label in self.fetch(self._sql.labels, of(key))]

    def usage_of(self, key: int) -> list[Spent]:
        return [_spent(row) for row in self.fetch(self._sql.usage_of, of(key))]

    def streams(self, key: int) -> list[int]:
        return [seq for (seq,) in self.fetch(self._sql.streams, of(key))]

    def find_ids(self, tenant: str, prefix: str, limit: int) -> list[str]:
        first = to_bytes(prefix)
        wanted = {"tenant": tenant_number(tenant), "prefix": first, "limit": limit}
        wanted["beyond"] = beyond(first)
        return [to_text(session_id) for (session_id,) in self.fetch(self._sql.find_ids, wanted)]

    def forks_of(self, key: int) -> list[int]:
        tenant = key >> 64
        return [join(tenant, fork) for (fork,) in self.fetch(self._sql.forks_of, of(key))]

    def unscrubbed(self, tenant: str) -> list[str]:
        rows = self.fetch(self._sql.unscrubbed, {"tenant": tenant_number(tenant)})
        return [to_text(session_id) for (session_id,) in rows]

    def sessions(self, listing: Listing) -> list[SessionInfo]:
        before_us, before_id = listing.before or (EVERYTHING, "")
        before = {"before_us": before_us, "before_id": to_bytes(before_id)}
        filters = {**filters_of(listing), "title": folded(listing.title), **before}
        rows = list_rows(self._sql.sessions, listing, filters, self.fetch)
        return [
            SessionInfo(
                id=to_text(session_id),
                about=shown(about),
                tenant=listing.tenant,
                created_at_us=created_at_us,
                updated_at_us=updated_at_us,
            )
            for session_id, about, created_at_us, updated_at_us in rows
        ]

    # -- entries -------------------------------------------------------------------------------

    def own_entries(
        self, key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[Entry]:
        last = EVERYTHING if through is None else through
        bindings = of(key, after=after, through=last, limit=limit)
        return self._entries(key, self._sql.entries, bindings, after)

    def check_dense(self, key: int, entries: list[Entry], after: int) -> None:
        if entries and entries[-1].seq != after + len(entries):
            gap = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n)
            raise self._damaged(key, gap, CodecError("an entry is missing"))

    def own_newest(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        below = EVERYTHING if before is None else before
        bindings = of(key, before=below, limit=limit)
        return self._entries(key, self._sql.newest_entries, bindings, None)[::-1]

    def own_marked(self, key: int, mark: int, after: int) -> list[Entry]:
        bindings = of(key, mark=mark, after=after)
        return self._entries(key, self._sql.marked_entries, bindings, None)

    def own_newest_marked(
        self, key: int, mark: int, *, before: int | None, limit: int
    ) -> list[Entry]:
        below = EVERYTHING if before is None else before
        bindings = of(key, mark=mark, before=below, limit=limit)
        return self._entries(key, self._sql.newest_marked, bindings, None)[::-1]

    def own_entry(self, key: int, identity: str) -> Entry | None:
        bindings = of(key, identity=identity_key(identity))
        entries = self._entries(key, self._sql.find_entry, bindings, None)
        return entries[0] if entries else None

    def stored_entries(self, key: int, *, after: int, limit: int) -> list[StoredEntry]:
        rows = self.fetch(self._sql.stored_entries, of(key, after=after, limit=limit))
        return [self._stored(key, row) for row in rows]

    def _stored(self, key: int, row: Any) -> StoredEntry:
        seq, at_us, crc, body, blob, mark, identity, link = row
        if blob is not None:
            stored = self.fetch_one(self._sql.blob, {"tenant": key >> 64, "digest": blob})
            body = stored[0] if stored is not None and body == b"" else None
        wrong = wrong_row(body, crc, mark, lambda name: identity == identity_key(name))
        return StoredEntry(seq, at_us, body or b"", link, wrong)

    def saved_head(self, key: int) -> int | None:
        row = self.fetch_one(self._sql.saved_head, of(key))
        return None if row is None else row[0]

    def own_link(self, key: int, seq: int) -> bytes | None:
        row = self.fetch_one(self._sql.link_at, of(key, seq=seq))
        return None if row is None else row[0]

    def half_erased(self, tenant: str) -> list[int]:
        return []  # a session goes as a whole here

    def was_erased(self, tenant: str, session_id: str) -> bool:
        wanted = {"tenant": tenant_number(tenant), "id": to_bytes(session_id)}
        return self.fetch_one(self._sql.was_erased, wanted) is not None

    def erasures(self, tenant: str, limit: int) -> list[ErasureNote]:
        wanted = {"tenant": tenant_number(tenant), "limit": limit}
        rows = self.fetch(self._sql.erasures, wanted)
        return [ErasureNote(to_text(row[0]), *row[1:]) for row in rows]

    def retention(self, tenant: str) -> list[bytes]:
        rows = self.fetch(self._sql.retention, {"tenant": tenant_number(tenant)})
        return [body for (body,) in rows]

    def base_of(self, key: int) -> tuple[int, int] | None:
        row = self.fetch_one(self._sql.base_of, of(key))
        return None if row is None else (join(key >> 64, row[0]), row[1])

    def _entries(
        self, key: int, sql: str, bindings: dict[str, Any], near: int | None
    ) -> list[Entry]:
        entries: list[Entry] = []
        seq = near
        try:
            for seq, at_us, crc, body, blob in self.fetch(sql, bindings):
                entries.append(
                    Entry(seq, at_us, decode_body(self.whole_body(key, crc, body, blob)))
                )
        except (CodecError, TypeError) as error:
            raise self._damaged(key, seq, error) from error
        return entries

    def _damaged(self, key: int, seq: int | None, error: Exception) -> SessionDamaged:
        row = self.fetch_one(self._sql.origin, of(key))
        session_id = f"number {key}" if row is None else to_text(row[0])
        return SessionDamaged(
            f"session {session_id!r} is damaged near seq {seq}: {error}; other sessions are "
            "unaffected",
            session_id=session_id,
            seq=seq,
        )

    def deltas(self, key: int, seq: int, *, after: int = 0) -> list[tuple[int, Sequence[Delta]]]:
        rows = self.fetch(self._sql.deltas, of(key, seq=seq, after=after))
        try:
            return [(number, decode_deltas(body, crc)) for number, body, crc in rows]
        except ValueError as error:
            raise self._damaged(key, seq, error) from error

    # -- the rest ------------------------------------------------------------------------------

    def usage(self, query: UsageQuery) -> list[tuple[str, str | None, Spent]]:
        rows = usage_rows(self._sql.usage, filters_of(query), self.fetch)
        return [
            (to_text(session_id), None if project is None else to_text(project), _spent(spent))
            for session_id, project, *spent in rows
        ]

    def store_number(self) -> int:
        number: int = self.fetch_one(self._sql.store_number, {})[0]
        return number

    def news(self, tenant: str, after: Position, limit: int) -> list[StoredNews]:
        position, session, seq, line = after or (-1, 0, 0, 0)
        bindings = {"place": position, "session_after": session, "seq": seq, "line": line}
        return self._news(self._sql.news, tenant, limit=limit, **bindings)

    def waiting_news(self, tenant: str) -> list[StoredNews]:
        return self._news(self._sql.waiting_news, tenant)

    def _news(self, sql: str, tenant: str, **bindings: int) -> list[StoredNews]:
        rows = self.fetch(sql, {"tenant": tenant_number(tenant), **bindings})
        return [
            StoredNews((position, session, seq, line), to_text(session_id), seq, kind, cause)
            for position, session, seq, line, session_id, kind, cause in rows
        ]

    def news_end(self) -> Position:
        (position,) = self.fetch_one(self._sql.news_end, {})
        return position, _LAST_SESSION, 0, 0

    def news_of(self, key: int) -> list[Told]:
        return [
            Told(seq, number, Line(kind, cause, waits))
            for seq, number, kind, cause, waits in self.fetch(self._sql.news_of, of(key))
        ]

    def blob(self, tenant: str, digest: str) -> bytes | None:
        wanted = {"tenant": tenant_number(tenant), "digest": to_bytes(digest)}
        row = self.fetch_one(self._sql.blob, wanted)
        return None if row is None else row[0]

    def has_blob(self, tenant: str, digest: str) -> bool:
        wanted = {"tenant": tenant_number(tenant), "digest": to_bytes(digest)}
        return self.fetch_one(self._sql.has_blob, wanted) is not None

    def counts(self) -> dict[str, int]:
        self.take_time()
        names = ("sessions", "entries", "deltas", "blobs")
        return dict(zip(names, self.fetch(self._sql.counts)[0], strict=True))


def _spent(row: Any) -> Spent:
    day, provider, model, *numbers = row
    return Spent(day, to_text(provider), to_text(model), *numbers)
