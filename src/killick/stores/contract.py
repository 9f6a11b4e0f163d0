"""The contract of a store: all that the engine and the readers need of a database.

A database is thin. It keeps rows, enforces that an identity occurs once in a session, and makes a
transaction durable; what the rows mean is decided by `journal` and carried out by `engine`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from killick.errors import SessionBusy, StoreDegraded
from killick.journal.chain import StoredEntry
from killick.journal.news import Line, NewsKind, Told
from killick.journal.summary import Derived, Spent
from killick.journal.sums import Active, Counted, SpentSum, Sums
from killick.model.entries import Delta, Entry
from killick.model.sessions import ErasureNote, SessionInfo
from killick.search.port import SearchReader, SearchTransaction


class Claim(msgspec.Struct, frozen=True):
    """The turn and fence that a holder shows with every fenced write."""

    turn_id: str
    fence: int


Flush = tuple[int, int, int, bytes]
"""One flush of a stream: its session's key, its seq, the flush's number, the deltas."""


Position = tuple[int, ...]
"""A line's position in the feed over all sessions: numbers that only their database compares."""


class StoredNews(msgspec.Struct, frozen=True, gc=False):
    """One line of the feed over all sessions."""

    position: Position
    session_id: str
    seq: int
    kind: str
    cause: str | None


class SessionRow(Derived, kw_only=True):
    """The row of a session beside its journal: derived from it, so that writes are cheap.

    A fork's journal begins with the entries of the session `base`, up to `base_seq`. `link` is the
    newest (`journal.chain`), saved with each entry, so that a journal whose end is cut is seen.
    """

    key: int
    id: str
    tenant: str
    head: int
    created_at_us: int
    base: int | None = None
    base_seq: int = 0
    link: bytes | None = None


class Held(NamedTuple):
    """A session in use, and by whom: the holder of its running turn, or the taker of its work."""

    holder: str
    key: int
    is_work: bool
    """Whether its turn may be continued by workers."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A filter on sessions, listed newest first; `before` continues after the last one shown.

    `since` and `until` are about the time of the last change. None filters nothing.
    """

    tenant: str
    archived: bool | None = False
    deleted: bool = False
    type: str | None = None
    project: str | None = None
    tag: str | None = None
    model: str | None = None
    interrupted: bool | None = None
    pinned: bool | None = None
    title: str | None = None
    parent: str | None = None
    fork_of: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    limit: int = 100
    before: tuple[int, str] | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter on model calls; None counts all. Days are numbered from 1970, in UTC."""

    tenant: str
    session: str | None = None
    project: str | None = None
    model: str | None = None
    since_day: int | None = None
    until_day: int | None = None


class Uncounted(msgspec.Struct, frozen=True):
    """A session whose figures have changed since it was counted, and what of it the sums have."""

    key: int
    tenant: str
    created_at_us: int
    base_seq: int
    deleted: bool
    counted: Counted


class Traces(msgspec.Struct, frozen=True):
    """The files in which bytes that should be gone were looked for, and the bytes found in each.

    `clean` is True if no byte is left in the store's own files that no row accounts for, False if
    others kept it from being so, None where they cannot be looked at; `pages` were looked at and
    `cleared` bytes set to zero. `unverified` names the parts of this database that cannot be looked
    at from here, and `to_do` says what its operator does about them.
    """

    clean: bool | None = None
    pages: int = 0
    cleared: int = 0
    files: tuple[str, ...] = ()
    found: dict[str, tuple[bytes, ...]] = {}
    unverified: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()


class BackupReceipt(msgspec.Struct, frozen=True):
    """A copy of the store that was checked; `written` are the bytes that had to be."""

    path: str
    bytes: int
    sessions: int
    entries: int
    written: int = 0


class RestoreReceipt(BackupReceipt, frozen=True, kw_only=True):
    """A backup that took a store's place; `replaced` is the name of the file that was there."""

    replaced: str | None


class Histogram(msgspec.Struct, frozen=True):
    """Counts of values of at most each of `bounds`; the last of `counts` are those beyond."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Figures(msgspec.Struct, frozen=True):
    """The work of one opening of a store so far, and what it has open now.

    `operations` counts writes of callers and flushes of deltas, `refused` those of them that a rule
    or the store refused. `recovered` are turns that were closed for a process that had died.
    """

    operations: int
    refused: int
    commit_seconds: Histogram
    commit_sizes: Histogram
    turns: int
    followers: int
    recovered: int


class Pace(msgspec.Struct, frozen=True):
    """The seconds between two looks at a database's change mark."""

    busy: float = 0.010
    quiet: float = 0.030
    """When the mark has not moved for a while: less than a person who waits notices."""
    news: float = 30.0
    """Between two looks at the feed over all sessions, when the mark is not that of all."""


class LocksNeeded(Exception):
    """An operation needs sessions that are not locked yet: lock them, then come back."""

    def __init__(self, keys: Collection[int]) -> None:
        super().__init__(keys)
        self.keys = keys


class SessionLocked(Exception):
    """Another process keeps a session locked: other operations go first, this one comes back.

    After `seconds` its caller is told.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class HolderInDoubt(SessionBusy):
    """The holder of a running turn may be dead: asked again after `seconds`, it is known.

    Raised before anything is written; flows pause and repeat their step.
    """

    def __init__(self, holder: str, seconds: float) -> None:
        super().__init__(f"{holder} may be dead; try again", turn_id="", holder=holder)
        self.seconds = seconds


def check_doubt(reader: "Reader", holder: str) -> None:
    """Raise HolderInDoubt where a second look is needed to know whether a holder is alive."""
    seconds = reader.doubt(holder)
    if seconds:
        raise HolderInDoubt(holder, seconds)


class RetryTransaction(Exception):
    """Nothing of this transaction is stored; the writer runs it again, from its beginning."""


class ReadInterrupted(StoreDegraded):
    """The connection of a reader was ended under it; the same can be read again on another."""


class Reader(SearchReader, Protocol):
    """Reads as of one moment."""

    def is_alive(self, holder: str) -> bool:
        """True if the store opening of this name still has its right to run turns."""

    def doubt(self, holder: str) -> float:
        """Return after how many seconds to ask again whether it is alive; 0 where that is sure."""

    def find_session(self, tenant: str, session_id: str) -> SessionRow | None: ...
    def session(self, key: int) -> SessionRow | None: ...
    def stopping(self) -> list[tuple[int, int]]:
        """Return the sessions whose running turn was asked to stop, each with that entry's seq."""

    def now_us(self) -> int:
        """Return the time by the database's clock, in microseconds since 1970."""

    def due(self, tenant: str, now_us: int, limit: int) -> list[int]:
        """Return sessions of which work may be taken by now, the longest due first."""

    def held(self, tenant: str) -> list[Held]:
        """Return the sessions that a running turn's holder, or a worker, has now."""

    def session_keys(self) -> list[int]:
        """Return every session there is, of any tenant, deleted ones too."""

    def origin(self, key: int) -> SessionRow:
        """Return a session's row with only what is not derived from its journal."""

    def find_key(self, tenant: str, session_id: str) -> int | None:
        """Return the session's key, also when what is derived of it is damaged."""

    def head_of(self, key: int) -> int: ...
    def labels(self, key: int) -> list[tuple[str, str]]: ...
    def usage_of(self, key: int) -> list[Spent]: ...
    def streams(self, key: int) -> list[int]:
        """Return the seqs at which the streams began that have deltas."""

    def find_ids(self, tenant: str, prefix: str, limit: int) -> list[str]:
        """Return ids of sessions that begin like this, in order, deleted ones too."""

    def forks_of(self, key: int) -> list[int]: ...
    def unscrubbed(self, tenant: str) -> list[str]:
        """Return sessions that were erased and whose bytes may still be in the file."""

    def sessions(self, listing: Listing) -> list[SessionInfo]: ...
    def entries(
        self, key: int, *, after: int = 0, through: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        """Return entries in order. Raises SessionDamaged at the first that does not verify."""

    def newest_entries(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        """Return the last `limit` entries below `before`, in order."""

    def marked_entries(self, key: int, mark: int, *, after: int = 0) -> list[Entry]:
        """Return the entries of this lookup class (`journal.kinds`), in order."""

    def newest_marked(self, key: int, mark: int, *, before: int | None, limit: int) -> list[Entry]:
        """Return the last `limit` entries of this lookup class below `before`, in order."""

    def find_entry(self, key: int, identity: str) -> Entry | None: ...
    def stored_entries(self, key: int, *, after: int, limit: int) -> list[StoredEntry]:
        """Return a session's own rows as they are, in order, each with what is wrong with it."""

    def saved_head(self, key: int) -> int | None:
        """Return the head that a session's row names; None where none is kept in it."""

    def link_at(self, key: int, seq: int) -> bytes | None:
        """Return the link of an entry, the session's own or inherited; None if it has none."""

    def half_erased(self, tenant: str) -> list[int]:
        """Return erased sessions of which rows may be left, forks before what they are made of."""

    def was_erased(self, tenant: str, session_id: str) -> bool: ...
    def erasures(self, tenant: str, limit: int) -> list[ErasureNote]: ...
    def retention(self, tenant: str) -> list[bytes]: ...
    def deltas(self, key: int, seq: int, *, after: int = 0) -> list[tuple[int, Sequence[Delta]]]:
        """Return the flushes of the stream that started at `seq`, with their numbers, in order."""

    def usage(self, query: UsageQuery) -> list[tuple[str, str | None, Spent]]:
        """Return usage with the session's id and project, a row for each day and model."""

    def uncounted(self, tenant: str | None, limit: int) -> list[Uncounted]:
        """Return sessions that the sums lack, or have as they were; None is every tenant's."""

    def count_uncounted(self, tenant: str) -> int: ...
    def usage_sums(self, query: UsageQuery) -> list[SpentSum]:
        """Return the usage of all counted sessions, a row for each day, provider and model."""

    def activity_sums(self, tenant: str, since: int, until: int) -> list[Active]:
        """Return the activity of all counted sessions, a row for each of these days."""

    def all_sums(self) -> dict[str, Sums]:
        """Return all sums there are, by tenant."""

    def all_counted(self) -> Iterator[tuple[str, Counted]]:
        """Yield what was counted of each session, with its tenant. Reads all of it."""

    def store_number(self) -> int:
        """Return the number that tells this store from others: cursors of the feed carry it."""

    def news(self, tenant: str, after: Position, limit: int) -> list[StoredNews]:
        """Return the lines of the feed after this position, in order; () is before the first.

        None comes later with a position before one that was returned.
        """

    def waiting_news(self, tenant: str) -> list[StoredNews]:
        """Return the lines that still wait, those up to `news_end`."""

    def news_end(self) -> Position:
        """Return the position behind all lines that `news` can return as of this moment."""

    def news_of(self, key: int) -> list[Told]:
        """Return a session's lines, in order."""

    def blob(self, tenant: str, digest: str) -> bytes | None: ...
    def has_blob(self, tenant: str, digest: str) -> bool: ...
    def counts(self) -> dict[str, int]:
        """Return the number of rows by table: for tests, `status` and people."""


class Transaction(Reader, SearchTransaction, Protocol):
    """Reads and writes that become durable together or not at all."""

    may_lose_end: bool
    """True if committed entries can be missing later from a journal's end: after a failover."""

    @property
    def writes(self) -> int:
        """Count the statements that wrote so far: did a refused operation leave a trace?"""

    def version(self, key: int, expected: int | None = None) -> int:
        """Return a number that changes when another process may have changed the session.

        The version that the caller expects may be returned unread, if the commit then checks it.
        Raises LocksNeeded, before anything is written, where sessions are locked one by one, and
        SessionLocked.
        """

    def need(self, keys: Collection[int]) -> None:
        """Name at once all sessions of an operation. Raises LocksNeeded, as `version` does."""

    def lock(self, keys: Collection[int]) -> None:
        """Lock these sessions. Raises RetryTransaction if that must come first."""

    def create_session(self, row: SessionRow) -> int: ...
    def save_session(self, row: SessionRow) -> None: ...
    def save_labels(self, row: SessionRow) -> None:
        """Make the session findable by its tags and models, as they are now."""

    def put_news(self, key: int, seq: int, number: int, line: Line) -> None:
        """Add a line to the feed: number such a line of the entry at this seq."""

    def answer_news(self, key: int, kinds: Sequence[NewsKind], seqs: Sequence[int] | None) -> None:
        """Mark waiting lines of a session as answered; None stands for every seq."""

    def drop_news(self, key: int, seq: int, number: int) -> None:
        """Remove a line that its session's journal does not have."""

    def drop_usage(self, key: int) -> None: ...
    def spend(self, key: int, spent: Spent) -> None:
        """Add to what is known of a session's model calls."""

    def take_uncounted(self, limit: int) -> list[Uncounted]:
        """Return sessions that the sums lack, and that no other process counts or writes now."""

    def counted_of(self, key: int) -> Counted:
        """Return what of a session is in the sums."""

    def save_counted(self, key: int, counted: Counted | None) -> None:
        """Keep what of a session is in the sums by now; None forgets it with the session."""

    def add_to_sums(self, tenant: str, changes: Sums) -> None:
        """Change the sums of a tenant. Processes that do take turns until their commits."""

    def empty_sums(self) -> None:
        """Forget all sums: every session is uncounted then."""

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
        """Append a row, and make its link the session's newest.

        False, and nothing written, if the session has this identity already.
        """

    def erase_session(self, row: SessionRow, at_us: int, because: str | None) -> tuple[int, int]:
        """Take a session away and leave a receipt; return how many entries and blobs are gone.

        Its other rows may be left for `erase_rows`: nothing finds them any more.
        """

    def erase_rows(self, key: int, over: Callable[[], bool]) -> tuple[int, int, bool]:
        """Remove rows of a session that was taken away, until it is `over`.

        Returns how many entries and blobs are gone, and whether any may be left.
        """

    def scrubbed(self, tenant: str, session_id: str, at_us: int) -> None:
        """Note that what was erased of this session is gone from the file too."""

    def keep_rule(self, tenant: str, project: str, body: bytes | None, at_us: int) -> None: ...
    def put_deltas(self, flushes: Sequence[Flush]) -> None: ...
    def drop_deltas(self, key: int, seq: int) -> None: ...

    @property
    def unfolded(self) -> bool | None:
        """Tell whether streams share rows, out of which they are to be folded, if it is known."""

    def fold_deltas(self, *, at_once: bool = False) -> bool:
        """Give some of the streams that share rows, or all, rows of their own.

        True if others are left; else the rows are gone that were shared when this began.
        """

    def claim_blob(self, tenant: str, digest: str, holder: str) -> bool:
        """True if the blob is there; then it stays at least until this holder is gone."""

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None: ...
    def refer(self, key: int, tenant: str, digest: str) -> bool:
        """Keep a blob for this session; False when there is no such blob."""

    def collect_blobs(self, *, if_due: bool = False) -> int:
        """Remove blobs that nothing refers to and whose writer is gone; returns how many.

        `if_due` is given when a store is closed: where it takes long, it may have been done lately.
        """


class Database(Protocol):
    """One open database. `writing` is for one thread at a time, `reading` for any number."""

    holder: str
    """Names this opening of the store; part of every lease it takes."""

    unfolded: bool
    """Whether streams shared rows when it was opened, as a process leaves them that is killed."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """Commit last, roll back on any exception. Raises StoreError, RetryTransaction."""

    def reading(self) -> AbstractContextManager[Reader]: ...
    def explain(self, error: BaseException) -> BaseException:
        """Return an error of the driver as one of ours, any other as it is."""

    def change_mark(self) -> int:
        """Return a number that moves when any process has changed what is watched."""

    def changed(self, followed: Collection[int]) -> Collection[int] | None:
        """Return the sessions of these that may have changed since this was asked last.

        Asked by one thread, after the mark has moved. None where that is not known.
        """

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        """Watch every change of the followed sessions, and stops in the running ones.

        Does not wait. A database that is told of a change calls `notice`, from any thread, and is
        asked for its mark at once.
        """

    def pace(self) -> Pace:
        """Return how often it must be asked, as things are now."""

    def check(self) -> list[str]:
        """Return what is wrong with the file itself; nothing when it is sound."""

    def reindex(self) -> None:
        """Make every index anew from its table."""

    def copies(self) -> tuple[str, ...]:
        """Return the names of older copies beside the store, out of which nothing is erased."""

    def check_room(self, keys: Sequence[int]) -> None:
        """Raise StoreDegraded if there is no room on the disk to erase these sessions."""

    def sweep(self, files: Sequence[str] = ()) -> Traces:
        """Clear every byte that no row accounts for, in steps between which others write.

        `files` were the store's when something was erased, where that says what is left to do.
        """

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        """Look for bytes in the copies beside the store."""

    def back_up(
        self, target: Path, progress: Callable[[int, int], None] | None, *, renew: bool = False
    ) -> BackupReceipt:
        """Copy the store while it is in use, and check the copy."""

    def hurry(self, seconds: float) -> None:
        """Wait at most so long for other writers from now on: the store is being closed."""

    def close(self) -> None: ...


class LineageReader:
    """Entries of a session with everything it has inherited. A database fills in the rest."""

    def doubt(self, holder: str) -> float:
        """Return 0: the operating system is sure. A database that is not overrides this."""
        return 0.0

    def own_entries(
        self, key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[Entry]:
        """Return the session's own rows, in order. Raises SessionDamaged where one is missing."""
        raise NotImplementedError

    def own_newest(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        raise NotImplementedError

    def own_marked(self, key: int, mark: int, after: int) -> list[Entry]:
        raise NotImplementedError

    def own_newest_marked(
        self, key: int, mark: int, *, before: int | None, limit: int
    ) -> list[Entry]:
        raise NotImplementedError

    def own_entry(self, key: int, identity: str) -> Entry | None:
        raise NotImplementedError

    def own_link(self, key: int, seq: int) -> bytes | None:
        raise NotImplementedError

    def base_of(self, key: int) -> tuple[int, int] | None:
        """Return the session that this one was forked from, and how far it reaches."""
        raise NotImplementedError

    def check_dense(self, key: int, entries: list[Entry], after: int) -> None:
        """Raise SessionDamaged if these entries do not follow on `after` without a gap."""
        raise NotImplementedError

    def entries(
        self, key: int, *, after: int = 0, through: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        own = self.own_entries(key, after=after, through=through, limit=limit)
        if own and own[0].seq == after + 1:  # nothing is inherited here, as nearly always
            self.check_dense(key, own, after)
            return own
        base = self.base_of(key)
        if base is None or after >= base[1]:
            self.check_dense(key, own, after)
            return own
        source, reach = base
        last = reach if through is None else min(through, reach)
        inherited = self.entries(source, after=after, through=last, limit=limit)
        if limit is None:
            self.check_dense(key, own, reach)
            return [*inherited, *own]
        if len(inherited) >= limit:
            return inherited
        own = self.own_entries(key, after=reach, through=through, limit=limit - len(inherited))
        self.check_dense(key, own, reach)
        return [*inherited, *own]

    def newest_entries(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        own = self.own_newest(key, before=before, limit=limit)
        if len(own) == limit:
            return own
        base = self.base_of(key)
        if base is None:
            return own
        source, reach = base
        earlier = reach + 1 if before is None else min(before, reach + 1)
        return [*self.newest_entries(source, before=earlier, limit=limit - len(own)), *own]

    def marked_entries(self, key: int, mark: int, *, after: int = 0) -> list[Entry]:
        own = self.own_marked(key, mark, after)
        base = self.base_of(key)
        if base is None or after >= base[1]:
            return own
        source, reach = base
        inherited = self.marked_entries(source, mark, after=after)
        return [*(entry for entry in inherited if entry.seq <= reach), *own]

    def newest_marked(self, key: int, mark: int, *, before: int | None, limit: int) -> list[Entry]:
        own = self.own_newest_marked(key, mark, before=before, limit=limit)
        base = None if len(own) == limit else self.base_of(key)
        if base is None:
            return own
        source, reach = base
        earlier = reach + 1 if before is None else min(before, reach + 1)
        left = limit - len(own)
        return [*self.newest_marked(source, mark, before=earlier, limit=left), *own]

    def find_entry(self, key: int, identity: str) -> Entry | None:
        own = self.own_entry(key, identity)
        if own is not None:
            return own
        base = self.base_of(key)
        if base is None:
            return None
        inherited = self.find_entry(base[0], identity)
        return inherited if inherited is not None and inherited.seq <= base[1] else None

    def link_at(self, key: int, seq: int) -> bytes | None:
        base = self.base_of(key)
        inherited = base is not None and seq <= base[1]
        return self.link_at(base[0], seq) if base and inherited else self.own_link(key, seq)
