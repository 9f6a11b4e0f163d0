"""A store in memory, for tests. It searches by reading: every index is compared with it."""

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from killick.errors import UsageError
from killick.journal.chain import StoredEntry
from killick.journal.codec import decode_body, decode_deltas
from killick.journal.news import Line, NewsKind, Told
from killick.journal.summary import Spent
from killick.journal.sums import Active, Counted, SpentSum, Sums, change
from killick.model.entries import Delta, Entry
from killick.model.sessions import ErasureNote, SessionInfo
from killick.stores.contract import (
    BackupReceipt,
    Flush,
    Held,
    LineageReader,
    Listing,
    Pace,
    Position,
    Reader,
    SessionRow,
    StoredNews,
    Traces,
    Uncounted,
    UsageQuery,
)
from killick.stores.engine.session_ops import labels_of
from killick.stores.engine.sum_ops import count
from killick.stores.memory_search import MemorySearch


class MemorySums:
    """Adds up what is there now. Nothing is kept, so it is never behind and never wrong."""

    _disk: Any
    usage: Callable[[UsageQuery], list[tuple[str, str | None, Spent]]]

    def uncounted(self, tenant: str | None, limit: int) -> list[Uncounted]:
        return []

    def count_uncounted(self, tenant: str) -> int:
        return 0

    def usage_sums(self, query: UsageQuery) -> list[SpentSum]:
        return [SpentSum.of(spent) for _, _, spent in self.usage(query)]

    def activity_sums(self, tenant: str, since: int, until: int) -> list[Active]:
        sums = Sums()
        for row in self._disk.rows.values():
            if row.tenant == tenant:
                deleted = row.about.deleted
                new = Uncounted(
                    row.key, tenant, row.created_at_us, row.base_seq, deleted, Counted()
                )
                change(sums, Counted(), count(cast("Reader", self), new))
        return [active for day, active in sorted(sums.days.items()) if since <= day <= until]

    def all_sums(self) -> dict[str, Sums]:
        return {}

    def all_counted(self) -> Iterator[tuple[str, Counted]]:
        return iter(())

    # -- there is nothing to count -------------------------------------------------------------

    def take_uncounted(self, limit: int) -> list[Uncounted]:
        return []

    def counted_of(self, key: int) -> Counted:
        return Counted()

    def save_counted(self, key: int, counted: Counted | None) -> None:
        """Do nothing: sessions are counted by reading."""

    def add_to_sums(self, tenant: str, changes: Sums) -> None:
        """Do nothing: there are no sums."""

    def empty_sums(self) -> None:
        """Do nothing: there are no sums."""


_DISKS: Final = itertools.count(1)


class MemoryDisk:
    """Rows that outlive an opening. Not for use across processes."""

    def __init__(self) -> None:
        self.rows: dict[int, SessionRow] = {}
        self.entries: dict[int, list[tuple[int | None, int, bytes, bytes | None]]] = {}
        self.links: dict[int, bytes | None] = {}
        self.erasures: list[list[Any]] = []
        self.rules: dict[tuple[str, str], bytes] = {}
        self.usage: dict[tuple[int, int, str, str], Spent] = {}
        self.places: dict[tuple[int, str], int] = {}
        self.news: dict[int, tuple[int, Told]] = {}
        self.order: list[tuple[int, int]] = []
        self.deltas: dict[tuple[int, int], dict[int, bytes]] = {}
        self.blobs: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.references: set[tuple[tuple[str, str], int]] = set()
        self.alive: set[str] = set()
        self.commits = 0
        self.lock = threading.RLock()
        self.keys: Iterator[int] = itertools.count(1)
        self.last_news = 0
        self.number = next(_DISKS)
        self._numbers = itertools.count(1)

    def open(self) -> "MemoryDatabase":
        """A database on this disk, with a life of its own."""
        holder = f"memory/{next(self._numbers)}"
        self.alive.add(holder)
        return MemoryDatabase(self, holder)


class MemoryReader(MemorySearch, MemorySums, LineageReader):
    """Reads of the rows as they are; the database holds the disk's lock."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def is_alive(self, holder: str) -> bool:
        return holder in self._disk.alive

    def find_session(self, tenant: str, session_id: str) -> SessionRow | None:
        for row in self._disk.rows.values():
            if row.tenant == tenant and row.id == session_id:
                return self.session(row.key)
        return None

    def session(self, key: int) -> SessionRow | None:
        row = self._disk.rows.get(key)
        if row is None:
            return None
        head, link = self._reach(key)[1], self._disk.links.get(key)
        kept: SessionRow = msgspec.structs.replace(row, head=head, link=link)
        return kept

    def stopping(self) -> list[tuple[int, int]]:
        rows = self._disk.rows.items()
        return [(key, row.stop_seq) for key, row in rows if row.stop_seq is not None]

    def session_keys(self) -> list[int]:
        return sorted(self._disk.rows)

    def origin(self, key: int) -> SessionRow:
        row = self._disk.rows[key]
        return SessionRow(
            key=key,
            id=row.id,
            tenant=row.tenant,
            head=row.base_seq,
            created_at_us=row.created_at_us,
            base=row.base,
            base_seq=row.base_seq,
            imported=row.imported,
            link=self._disk.links.get(key),
        )

    def find_key(self, tenant: str, session_id: str) -> int | None:
        row = self.find_session(tenant, session_id)
        return None if row is None else row.key

    def head_of(self, key: int) -> int:
        return self._reach(key)[1]

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def due(self, tenant: str, now_us: int, limit: int) -> list[int]:
        rows = [row for row in self._disk.rows.values() if row.tenant == tenant]
        ready = [(row.due_us, row.key) for row in rows if row.due_us is not None]
        return [key for at_us, key in sorted(ready) if at_us <= now_us][:limit]

    def held(self, tenant: str) -> list[Held]:
        rows = [row for row in self._disk.rows.values() if row.tenant == tenant]
        return [Held(row.holder, row.key, row.due is not None) for row in rows if row.holder]

    def labels(self, key: int) -> list[tuple[str, str]]:
        return labels_of(self._disk.rows[key])

    def usage_of(self, key: int) -> list[Spent]:
        names = sorted(name for name in self._disk.usage if name[0] == key)
        return [self._disk.usage[name] for name in names]

    def streams(self, key: int) -> list[int]:
        return sorted(seq for of, seq in self._disk.deltas if of == key)

    def find_ids(self, tenant: str, prefix: str, limit: int) -> list[str]:
        rows = self._disk.rows.values()
        ids = [row.id for row in rows if row.tenant == tenant and row.id.startswith(prefix)]
        return sorted(ids, key=lambda id_: id_.encode("utf-8", "surrogatepass"))[:limit]

    def forks_of(self, key: int) -> list[int]:
        return [row.key for row in self._disk.rows.values() if row.base == key]

    def unscrubbed(self, tenant: str) -> list[str]:
        return [
            id_ for of, id_, _, scrubbed, *_ in self._disk.erasures if of == tenant and not scrubbed
        ]

    def sessions(self, listing: Listing) -> list[SessionInfo]:
        listed = [
            SessionInfo(
                id=row.id,
                about=row.about,
                tenant=row.tenant,
                created_at_us=row.created_at_us,
                updated_at_us=row.updated_at_us,
            )
            for row in self._disk.rows.values()
            if _is_listed(row, listing)
        ]
        listed.sort(key=lambda info: (info.updated_at_us, info.id), reverse=True)
        return listed[: listing.limit]

    def own_entries(
        self, key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[Entry]:
        first, head = self._reach(key)
        last = head if through is None else min(through, head)
        after = max(after, first)
        if limit is not None:
            last = min(last, after + limit)
        return [self._entry(key, seq) for seq in range(after + 1, last + 1)]

    def check_dense(self, key: int, entries: list[Entry], after: int) -> None:
        """Do nothing: a list has no gaps."""

    def own_newest(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        first, head = self._reach(key)
        end = head + 1 if before is None else min(before, head + 1)
        return [self._entry(key, seq) for seq in range(max(first + 1, end - limit), end)]

    def own_marked(self, key: int, mark: int, after: int) -> list[Entry]:
        first, _ = self._reach(key)
        rows = enumerate(self._disk.entries.get(key, []), start=first + 1)
        return [self._entry(key, n) for n, (has, *_) in rows if has == mark and n > after]

    def own_newest_marked(
        self, key: int, mark: int, *, before: int | None, limit: int
    ) -> list[Entry]:
        marked = self.own_marked(key, mark, 0)
        return [entry for entry in marked if before is None or entry.seq < before][-limit:]

    def own_entry(self, key: int, identity: str) -> Entry | None:
        seq = self._disk.places.get((key, identity))
        return None if seq is None else self._entry(key, seq)

    def stored_entries(self, key: int, *, after: int, limit: int) -> list[StoredEntry]:
        first = self._reach(key)[0]
        rows = enumerate(self._disk.entries.get(key, []), start=first + 1)
        stored = [StoredEntry(seq, at_us, body, link) for seq, (_, at_us, body, link) in rows]
        return [entry for entry in stored if entry.seq > after][:limit]

    def saved_head(self, _key: int) -> int | None:
        return None

    def own_link(self, key: int, seq: int) -> bytes | None:
        rows = self._disk.entries.get(key, [])
        at = seq - self._reach(key)[0] - 1
        return rows[at][3] if 0 <= at < len(rows) else None

    def half_erased(self, tenant: str) -> list[int]:
        return []

    def was_erased(self, tenant: str, session_id: str) -> bool:
        return any(erasure[:2] == [tenant, session_id] for erasure in self._disk.erasures)

    def erasures(self, tenant: str, limit: int) -> list[ErasureNote]:
        notes = [
            ErasureNote(id_, entries, at_us, scrubbed, because)
            for of, id_, at_us, scrubbed, entries, because in reversed(self._disk.erasures)
            if of == tenant
        ]
        return notes[:limit]

    def retention(self, tenant: str) -> list[bytes]:
        return [body for (of, _), body in sorted(self._disk.rules.items()) if of == tenant]

    def base_of(self, key: int) -> tuple[int, int] | None:
        row = self._disk.rows.get(key)
        return None if row is None or row.base is None else (row.base, row.base_seq)

    def usage(self, query: UsageQuery) -> list[tuple[str, str | None, Spent]]:
        rows = []
        for (key, *_), spent in self._disk.usage.items():
            row = self._disk.rows[key]
            project = None if row.about.project is None else row.about.project.root
            if (
                row.tenant == query.tenant
                and query.session in (None, row.id)
                and query.project in (None, project)
                and query.model in (None, spent.model)
                and (query.since_day is None or spent.day >= query.since_day)
                and (query.until_day is None or spent.day <= query.until_day)
            ):
                rows.append((row.id, project, spent))
        return sorted(rows, key=lambda row: (row[2].day, row[0], row[2].provider, row[2].model))

    def store_number(self) -> int:
        number: int = self._disk.number
        return number

    def news(self, tenant: str, after: Position, limit: int) -> list[StoredNews]:
        (first,) = after or (0,)
        return [line for line, _ in self._news(tenant) if line.position[0] > first][:limit]

    def waiting_news(self, tenant: str) -> list[StoredNews]:
        return [line for line, waits in self._news(tenant) if waits]

    def _news(self, tenant: str) -> Iterator[tuple[StoredNews, bool]]:
        for number, (key, stored_line) in sorted(self._disk.news.items()):
            row, line = self._disk.rows[key], stored_line.line
            if row.tenant == tenant:
                stored = StoredNews((number,), row.id, stored_line.seq, line.kind, line.cause)
                yield stored, line.waits

    def news_end(self) -> Position:
        return (self._disk.last_news,)

    def news_of(self, key: int) -> list[Told]:
        return sorted(stored_line for of, stored_line in self._disk.news.values() if of == key)

    def deltas(self, key: int, seq: int, *, after: int = 0) -> list[tuple[int, Sequence[Delta]]]:
        flushes = self._disk.deltas.get((key, seq), {})
        return [(n, decode_deltas(flushes[n])) for n in sorted(flushes) if n > after]

    def blob(self, tenant: str, digest: str) -> bytes | None:
        stored = self._disk.blobs.get((tenant, digest))
        return None if stored is None else stored[1]

    def has_blob(self, tenant: str, digest: str) -> bool:
        return (tenant, digest) in self._disk.blobs

    def counts(self) -> dict[str, int]:
        disk = self._disk
        return {
            "sessions": len(disk.rows),
            "entries": sum(len(rows) for rows in disk.entries.values()),
            "deltas": sum(len(flushes) for flushes in disk.deltas.values()),
            "blobs": len(disk.blobs),
        }

    def _reach(self, key: int) -> tuple[int, int]:
        """Return the seq before a session's own entries, and that of the last one."""
        base = self.base_of(key)
        first = 0 if base is None else base[1]
        return first, first + len(self._disk.entries.get(key, []))

    def _entry(self, key: int, seq: int) -> Entry:
        _, at_us, body, _ = self._disk.entries[key][seq - self._reach(key)[0] - 1]
        return Entry(seq, at_us, decode_body(body))


class MemoryTransaction(MemoryReader):
    """Writes that can be undone, the last one first."""

    may_lose_end = False

    def __init__(self, disk: MemoryDisk, generation: int) -> None:
        super().__init__(disk)
        self._generation = generation
        self.undo: list[Callable[[], object]] = []

    @property
    def writes(self) -> int:
        return len(self.undo)

    def version(self, _key: int, _expected: int | None = None) -> int:
        return self._generation

    def need(self, _keys: Collection[int]) -> None:
        """Do nothing: the transaction has the disk's lock."""

    def lock(self, _keys: Collection[int]) -> None:
        """Do nothing: the whole disk is locked."""

    def create_session(self, row: SessionRow) -> int:
        key: int = next(self._disk.keys)
        self._disk.rows[key] = msgspec.structs.replace(row, key=key)
        self._disk.entries[key] = []
        self.undo.append(lambda: (self._disk.rows.pop(key), self._disk.entries.pop(key)))
        return key

    def save_session(self, row: SessionRow) -> None:
        before = self._disk.rows[row.key]
        self._disk.rows[row.key] = msgspec.structs.replace(row)
        self.undo.append(lambda: self._disk.rows.__setitem__(row.key, before))

    def save_labels(self, row: SessionRow) -> None:
        """Do nothing: tags and models are looked up in the row itself."""

    def put_news(self, key: int, seq: int, number: int, line: Line) -> None:
        self._disk.last_news = at = self._disk.last_news + 1
        self._disk.news[at] = key, Told(seq, number, line)
        self.undo.append(lambda: self._disk.news.pop(at))

    def answer_news(self, key: int, kinds: Sequence[NewsKind], seqs: Sequence[int] | None) -> None:
        for at, (of, stored_line) in self._disk.news.items():
            line = stored_line.line
            if of != key or line.kind not in kinds or not line.waits:
                continue
            if seqs is None or stored_line.seq in seqs:
                self.undo.append(partial(self._disk.news.__setitem__, at, (of, stored_line)))
                self._disk.news[at] = of, stored_line._replace(line=line._replace(waits=False))

    def drop_news(self, key: int, seq: int, number: int) -> None:
        self._pop(
            self._disk.news,
            [
                at
                for at, (of, stored_line) in self._disk.news.items()
                if (of, stored_line.seq, stored_line.number) == (key, seq, number)
            ],
        )

    def drop_usage(self, key: int) -> None:
        self._pop(self._disk.usage, [name for name in self._disk.usage if name[0] == key])

    def spend(self, key: int, spent: Spent) -> None:
        name = (key, spent.day, spent.provider, spent.model)
        before = self._disk.usage.get(name)
        self._disk.usage[name] = spent if before is None else before.plus(spent)
        if before is None:
            self.undo.append(lambda: self._disk.usage.pop(name))
        else:
            self.undo.append(lambda: self._disk.usage.__setitem__(name, before))

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
        if (key, identity) in self._disk.places:
            return False
        assert seq == self._reach(key)[1] + 1
        if blob is not None:
            stored = self.blob(self._disk.rows[key].tenant, blob)
            assert stored is not None
            body = stored
        self._disk.entries[key].append((mark, at_us, body, link))
        before, self._disk.links[key] = self._disk.links.get(key), link
        self._disk.places[key, identity] = seq
        self._disk.order.append((key, seq))
        self.undo.append(
            lambda: (
                self._disk.entries[key].pop(),
                self._disk.places.pop((key, identity)),
                self._disk.order.pop(),
                self._disk.links.__setitem__(key, before),
            )
        )
        return True

    def erase_session(self, row: SessionRow, at_us: int, because: str | None) -> tuple[int, int]:
        disk, key = self._disk, row.key
        entries = len(disk.entries[key])
        self._pop(disk.rows, [key])
        self._pop(disk.entries, [key])
        self._pop(disk.links, [key])
        self._pop(disk.places, [name for name in disk.places if name[0] == key])
        self._pop(disk.deltas, [name for name in disk.deltas if name[0] == key])
        self._pop(disk.usage, [name for name in disk.usage if name[0] == key])
        self._pop(disk.news, [at for at, (of, _) in disk.news.items() if of == key])
        order, disk.order = disk.order, [name for name in disk.order if name[0] != key]
        self.undo.append(partial(setattr, disk, "order", order))
        disk.erasures.append([row.tenant, row.id, at_us, None, entries, because])
        self.undo.append(disk.erasures.pop)
        return entries, self._drop_loose_blobs(key)

    def erase_rows(self, key: int, over: Callable[[], bool]) -> tuple[int, int, bool]:
        """Do nothing: a session goes as a whole here."""
        return 0, 0, False

    def _pop(self, table: dict[Any, Any], names: Sequence[Any]) -> None:
        for name in names:
            self.undo.append(partial(table.__setitem__, name, table.pop(name)))

    def _drop_loose_blobs(self, key: int) -> int:
        mine = {blob for blob, session in self._disk.references if session == key}
        shared = {blob for blob, session in self._disk.references if session != key}
        self._pop(self._disk.blobs, sorted(mine - shared))
        for blob in mine:
            self._disk.references.discard((blob, key))
            self.undo.append(partial(self._disk.references.add, (blob, key)))
        return len(mine - shared)

    def scrubbed(self, tenant: str, session_id: str, at_us: int) -> None:
        for erasure in self._disk.erasures:
            if erasure[3] is None and erasure[:2] == [tenant, session_id]:
                erasure[3] = at_us
        self.undo.append(lambda: None)

    def keep_rule(self, tenant: str, project: str, body: bytes | None, at_us: int) -> None:
        self.undo.append(partial(setattr, self._disk, "rules", dict(self._disk.rules)))
        self._disk.rules.pop((tenant, project), None)
        if body is not None:
            self._disk.rules[tenant, project] = body

    def put_deltas(self, flushes: Sequence[Flush]) -> None:
        for key, seq, number, data in flushes:
            stored = self._disk.deltas.setdefault((key, seq), {})
            stored[number] = data
            self.undo.append(partial(stored.pop, number))

    def drop_deltas(self, key: int, seq: int) -> None:
        gone = self._disk.deltas.pop((key, seq), {})
        self.undo.append(lambda: self._disk.deltas.__setitem__((key, seq), gone))

    unfolded: bool | None = False

    def fold_deltas(self, *, at_once: bool = False) -> bool:
        """Do nothing: no streams share anything here."""
        return False

    def claim_blob(self, tenant: str, digest: str, holder: str) -> bool:
        name = (tenant, digest)
        if name not in self._disk.blobs:
            return False
        before = self._disk.blobs[name]
        self._disk.blobs[name] = (holder, before[1])
        self.undo.append(lambda: self._disk.blobs.__setitem__(name, before))
        return True

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None:
        self._disk.blobs[tenant, digest] = (holder, data)
        self.undo.append(lambda: self._disk.blobs.pop((tenant, digest)))

    def refer(self, key: int, tenant: str, digest: str) -> bool:
        reference = ((tenant, digest), key)
        if not self.has_blob(tenant, digest):
            return False
        if reference not in self._disk.references:
            self._disk.references.add(reference)
            self.undo.append(lambda: self._disk.references.discard(reference))
        return True

    def collect_blobs(self, *, if_due: bool = False) -> int:
        kept = {blob for blob, _ in self._disk.references}
        loose = [
            name
            for name, (holder, _) in self._disk.blobs.items()
            if name not in kept and holder not in self._disk.alive
        ]
        for name in loose:
            self._collect(name)
        return len(loose)

    def _collect(self, name: tuple[str, str]) -> None:
        gone = self._disk.blobs.pop(name)
        self.undo.append(lambda: self._disk.blobs.__setitem__(name, gone))


class MemoryDatabase:
    """One opening of a disk; give it to `Store` or `AsyncStore` instead of a path."""

    unfolded = False

    def __init__(self, disk: MemoryDisk, holder: str) -> None:
        self.disk, self.holder = disk, holder
        self._seen, self._generation = -1, 0

    @contextmanager
    def writing(self) -> Iterator[MemoryTransaction]:
        with self.disk.lock:
            self._generation += self._seen != self.disk.commits
            tx = MemoryTransaction(self.disk, self._generation)
            try:
                yield tx
            except BaseException:
                for undo in reversed(tx.undo):
                    undo()
                raise
            self.disk.commits += bool(tx.undo)
            self._seen = self.disk.commits

    @contextmanager
    def reading(self) -> Iterator[MemoryReader]:
        with self.disk.lock:
            yield MemoryReader(self.disk)

    def explain(self, error: BaseException) -> BaseException:
        return error

    def change_mark(self) -> int:
        return self.disk.commits

    def changed(self, _followed: Collection[int]) -> Collection[int] | None:
        return None

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        """Do nothing: every commit moves the mark."""

    def pace(self) -> Pace:
        return Pace()

    def check(self) -> list[str]:
        return []

    def reindex(self) -> None:
        """Do nothing: there is no index."""

    def copies(self) -> tuple[str, ...]:
        return ()

    def check_room(self, keys: Sequence[int]) -> None:
        """Do nothing: erasing takes no room."""

    def sweep(self, files: Sequence[str] = ()) -> Traces:
        return Traces(clean=True)

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        return Traces(clean=True)

    def back_up(
        self, target: Path, progress: Callable[[int, int], None] | None, *, renew: bool = False
    ) -> BackupReceipt:
        raise UsageError("a store in memory has no file to copy")

    def hurry(self, seconds: float) -> None:
        """Do nothing: no other process writes."""

    def close(self) -> None:
        self.disk.alive.discard(self.holder)


def _is_listed(row: SessionRow, listing: Listing) -> bool:
    about, wanted = row.about, (listing.title or "").casefold()
    return (
        row.tenant == listing.tenant
        and about.deleted == listing.deleted
        and listing.archived in (None, about.archived)
        and listing.type in (None, about.type)
        and listing.project in (None, about.project and about.project.root)
        and listing.interrupted in (None, about.status == "interrupted")
        and listing.pinned in (None, about.pinned)
        and wanted in (about.title or "").casefold()
        and (listing.tag is None or listing.tag in about.tags)
        and (listing.model is None or listing.model in about.models)
        and listing.parent in (None, about.parent and about.parent.session_id)
        and listing.fork_of in (None, about.fork and about.fork.session_id)
        and (listing.since_us or 0) <= row.updated_at_us
        and (listing.until_us is None or row.updated_at_us < listing.until_us)
        and (listing.before is None or (row.updated_at_us, row.id) < listing.before)
    )
