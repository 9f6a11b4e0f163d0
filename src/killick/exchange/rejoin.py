"""Bring a session that was handed over to another agent back into the session that it comes from.

When a session goes on elsewhere, a note in it keeps the id that it has there, the last entry that
was handed over, and how many records our reader finds in what was written. What stands behind these
records there is appended here: a round trip through another agent is one session.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from killick.errors import SessionNotFound
from killick.exchange.merge import Unit, relocated
from killick.exchange.native_ids import could_be, is_minted
from killick.exchange.records import (
    BeginRecord,
    BranchRecord,
    MessageRecord,
    ProblemRecord,
    Record,
    ResultRecord,
    Source,
    SourceLocation,
    SummaryRecord,
    TurnEndRecord,
)
from killick.model import entries as e
from killick.session.sync import Session, Store

NOTE: Final = "continued"
_PAGE: Final = 200
_LOST: Final = "it no longer holds what was handed over; what came since cannot be told from it"


class Continued(msgspec.Struct, frozen=True):
    """The note: where a session went on, and what that agent was given."""

    agent: str
    id: str
    path: str
    through: int
    records: int | None = None
    """None when there is no reader of that agent's format."""


def remember(session: Session, continued: Continued) -> None:
    """Note where the session goes on. Once for each place. If interrupted: noted or not."""
    key = f"{continued.agent}/{continued.id}/{continued.path}"
    session.note(NOTE, msgspec.to_builtins(continued), key=key)


def counted(records: Iterable[Record]) -> int:
    """Return how many records of a source are messages and results."""
    return sum(isinstance(record, MessageRecord | ResultRecord) for record in records)


class Rejoin(msgspec.Struct, frozen=True):
    """The session that a source belongs to, and what of it the source was given."""

    session_id: str
    continued: Continued

    def rest(self, source: Source) -> Source:
        """Return the source without what it was given."""
        return msgspec.structs.replace(source, records=self._rest(source))

    def _rest(self, source: Source) -> Iterator[Record]:
        given, seen, fresh = self.continued.records or 0, 0, False
        for record in source.records:
            if isinstance(record, BeginRecord | ProblemRecord):
                yield record
            elif seen < given:
                seen += isinstance(record, MessageRecord | ResultRecord)
            elif fresh or not isinstance(record, TurnEndRecord):
                fresh = True
                yield self._renamed(record)
        if seen < given:
            yield ProblemRecord(location=SourceLocation(source.origin), reason=_LOST)

    def _renamed(self, record: Record) -> Record:
        """Return a record with keys that nothing in the session has: providers repeat theirs."""
        own = f"{self.continued.id}/"
        match record:
            case MessageRecord(key=str() as key) | BranchRecord(key=key):
                return msgspec.structs.replace(record, key=own + key)
            case SummaryRecord():
                kept = frozenset(own + key for key in record.kept_keys)
                return msgspec.structs.replace(record, kept_keys=kept)
            case _:
                return record

    def units(self, store: Store, units: Iterable[Unit]) -> Iterator[Unit]:
        """Yield the journal as far as it was handed over, and the source's units behind it."""
        fence = 0
        session, after = store.session(self.session_id), 0
        while after < self.continued.through:
            page = session.entries(after=after, limit=_PAGE)
            if not page:
                break
            after = page[-1].seq
            for entry in page:
                if entry.seq <= self.continued.through:
                    if isinstance(entry.body, e.TurnStarted):
                        fence = max(fence, entry.body.fence)
                    yield Unit([entry])
        for unit in units:
            moved = [
                self._moved(entry, fence)
                for entry in unit.entries
                if not isinstance(entry.body, e.SessionCreated)
            ]
            if moved:
                yield Unit(moved, unit.blobs)

    def _moved(self, entry: e.Entry, fence: int) -> e.Entry:
        """Return an entry with the seqs that it has behind what was handed over.

        Its first is the session's creation, in whose place the last that was handed over stands. A
        summary of all that the source has stands for what it was given, too.
        """
        shift = self.continued.through - 1
        body = relocated(entry.body, lambda seq: seq + shift if seq > 1 else max(seq, 0))
        if isinstance(body, e.TurnStarted):
            body = msgspec.structs.replace(body, fence=body.fence + fence)
        elif isinstance(entry.body, e.Compacted) and entry.body.first <= _FIRST:
            assert isinstance(body, e.Compacted)
            body = msgspec.structs.replace(body, first=1)
        return e.Entry(entry.seq + shift, entry.at_us, body)


_FIRST: Final = 4
"""A first turn's start and prompt have no greater seqs."""


def find(store: Store, source: Source, known: Iterable[str]) -> Rejoin | None:
    """Return the session that a source was handed over from; None when it begins of itself."""
    if not is_minted(source.native_id):
        return None
    for session_id in known:
        if could_be(source.native_id, session_id):
            try:
                session = store.session(session_id)
            except SessionNotFound:
                continue
            for note in session.notes(NOTE):
                continued = msgspec.convert(note.data, Continued)
                if continued.id == source.native_id and continued.records is not None:
                    return Rejoin(session_id, continued)
    return None
