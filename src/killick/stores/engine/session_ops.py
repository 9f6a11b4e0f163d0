"""Operations on a session as a whole: begin it, describe it, change its history, delete it.

They need no fence. Any process may carry them out while a turn runs, but for rewinding.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from killick.errors import IdConflict, InvalidEntry, SessionBusy, SessionDamaged, SessionHasForks
from killick.journal import checks
from killick.journal.closing import closing, open_streams
from killick.journal.codec import decode_body, encode
from killick.journal.compaction import check_undo
from killick.journal.kinds import HISTORY, TURNS, identity, same_content
from killick.journal.summary import Spent, advance, fold_usage, retagged
from killick.model import entries as e
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Reader, SessionRow, Transaction
from killick.stores.engine.state import EngineState, Receipt, SessionState


class SessionOperations(EngineState):
    """What the engine does with sessions; turns and what is in them build on it."""

    def create_session(
        self,
        *,
        session_id: str,
        tenant: str,
        created: e.SessionCreated,
        at_us: int,
        base: int | None = None,
        carried: Sequence[e.Body] = (),
    ) -> SessionRow | None:
        """Begin a session; None when it exists already, with the same beginning.

        A fork has a `base`, and begins by closing what was open there (`carried`).
        """
        found = self._tx.find_session(tenant, session_id)
        if found is not None:
            stored = self._tx.find_entry(found.key, identity(created))
            offered = decode_body(encode(self._redacted(created)))
            if stored is not None and same_content(stored.body, offered):
                return None
            raise IdConflict(f"session {session_id!r} exists already, with another beginning")
        if base is not None:
            self._live(base)
        reach = 0 if created.fork is None else created.fork.at
        row = SessionRow(
            key=0,
            id=session_id,
            tenant=tenant,
            head=reach,
            created_at_us=at_us,
            base=base,
            base_seq=reach,
        )
        row.key = self._tx.create_session(row)
        standing = SessionState(row, None, self._tx.stamp(row.key))
        self._standings[row.key] = standing
        self._touched.add(row.key)
        self._write(standing, created, at_us)
        for body in carried:
            self._write_closing(standing, body, at_us)
        return msgspec.structs.replace(row)

    def about(self, key: int, body: e.Body, at_us: int) -> tuple[Receipt, SessionRow]:
        """Append an entry that needs no fence: renamed, archived, note, imported, compaction …"""
        standing = self._standing(key)
        restoring = isinstance(body, e.Restored)
        checks.check_live(
            session_id=standing.row.id, deleted=standing.row.about.deleted and not restoring
        )
        if isinstance(body, e.Tagged):
            checks.check_tags(retagged(standing.row.about.tags, body))
        receipt = self._write(standing, body, at_us)
        return receipt, msgspec.structs.replace(standing.row)

    def compact(self, key: int, body: e.Compacted, head: int, at_us: int) -> Receipt | None:
        """Append a compaction that was planned at `head`; None when others rewound since."""
        standing = self._live(key)
        since = self._tx.marked_entries(key, HISTORY, after=head)
        if any(isinstance(entry.body, e.Rewound | e.Undone) for entry in since):
            return None
        return self._write(standing, body, at_us)

    def rewind(self, key: int, body: e.Rewound, head: int, at_us: int) -> Receipt | None:
        """Append a rewind that was planned at `head`; None when the journal has grown since."""
        standing = self._live(key)
        if standing.turn is not None:
            raise busy(standing.row.id, standing.turn.id, standing.turn.holder)
        return None if standing.row.head != head else self._write(standing, body, at_us)

    def undo(self, key: int, seq: int | None, at_us: int) -> Receipt:
        """Undo a compaction or rewind, if it may still be undone."""
        standing = self._live(key)
        turns = self._tx.marked_entries(key, TURNS, after=seq or 0)
        newest = turns[-1].seq if turns else 0
        body = check_undo(self._tx.marked_entries(key, HISTORY), seq, newest)
        return self._write(standing, body, at_us)

    def delete_session(
        self, key: int, body: e.Deleted, at_us: int, *, as_of_us: int | None = None
    ) -> Receipt:
        """Close what runs, then take the session out of every list.

        With `as_of_us`, only if nothing has happened to it since then.
        """
        standing = self._standing(key)
        if standing.row.about.deleted:
            return Receipt(standing.row.head, repeated=True)
        _check_unchanged(standing.row, as_of_us)
        if standing.turn is not None:
            self._close(standing, interrupted(standing.turn.id, "deleted"), at_us)
        return self.about(key, body, at_us)[0]

    def erase(
        self, keys: Sequence[int], at_us: int, *, as_of_us: int | None = None
    ) -> tuple[int, int]:
        """Remove sessions for good, forks before what they are made of; entries and blobs gone."""
        self.need(keys)
        rows = [self._erasable(key) for key in keys]
        for row in rows:
            _check_unchanged(row, as_of_us)
            left = [fork for fork in self._tx.forks_of(row.key) if fork not in keys]
            if left:
                raise has_forks(row.id, self._tx, left)
        entries = blobs = 0
        for row in rows:
            self._tx.unindex(row.key)
            count = self._tx.erase_session(row.key)
            blobs += self._tx.drop_loose_blobs(row.key)
            self._tx.note_erasure(row, count, at_us)
            self._standings.pop(row.key, None)
            entries += count
        return entries, blobs

    def tidy_index(self) -> None:
        """Let nothing of erased documents stand in the search index. Raises SearchDamaged."""
        self._tx.tidy_index()

    def _erasable(self, key: int) -> SessionRow:
        """A session in which nobody works; a damaged one can be erased too, as it is told to be."""
        try:
            standing = self._standing(key)
        except SessionDamaged:
            return self._tx.origin(key)
        turn = standing.turn
        if turn is not None and self._tx.is_alive(turn.holder):
            raise busy(standing.row.id, turn.id, turn.holder)
        return standing.row

    def scrubbed(self, tenant: str, sessions: Sequence[str], at_us: int) -> None:
        """What was erased of these sessions is gone from the file too."""
        for session_id in sessions:
            self._tx.scrubbed(tenant, session_id, at_us)

    def rebuild(self, key: int) -> None:
        """Derive anew what is kept beside a session's journal."""
        self._tx.stamp(key)  # nobody else appends between reading it and saving what comes of it
        rebuild(self._tx, key)
        self._standings.pop(key, None)

    def _close(
        self,
        standing: SessionState,
        ending: e.TurnEnding,
        at_us: int,
        buffers: Sequence[StreamBuffer] = (),
    ) -> int:
        """End the running turn; the seq of its ending."""
        turn = standing.turn
        assert turn is not None
        waiting = {buffer.seq: buffer for buffer in buffers}
        streams = open_streams(turn)
        bodies = closing(turn, ending, lambda seq: self._deltas(standing, seq, waiting.get(seq)))
        for body in bodies:
            # What a turn has open has no end in the journal, unless that is damaged. Then too the
            # turn ends.
            with suppress(IdConflict):
                self._write_closing(standing, body, at_us)
        for seq in streams:
            self._drop(standing, seq)
        standing.turn = None
        return standing.row.head


def _check_unchanged(row: SessionRow, as_of_us: int | None) -> None:
    if as_of_us is not None and row.updated_at_us != as_of_us:
        raise InvalidEntry(f"session {row.id!r} was changed meanwhile; look at it again")


def busy(session_id: str, turn_id: str, holder: str) -> SessionBusy:
    return SessionBusy(
        f"session {session_id!r} is busy: turn {turn_id!r} runs in {holder}; stop it first, or "
        "fork the session",
        turn_id=turn_id,
        holder=holder,
    )


def has_forks(session_id: str, reader: Reader, forks: Sequence[int]) -> SessionHasForks:
    ids = tuple(reader.origin(fork).id for fork in forks)
    return SessionHasForks(
        f"session {session_id!r} has forks that are made of its entries ({', '.join(ids)}); erase "
        "them with it (forks=True), or keep it",
        forks=ids,
    )


def interrupted(turn_id: str, reason: str) -> e.TurnEnding:
    return e.TurnEnding(turn_id=turn_id, status="interrupted", reason=reason)


def crashed(turn_id: str) -> e.TurnEnding:
    return interrupted(turn_id, "crashed")


def derived(reader: Reader, key: int) -> tuple[SessionRow, list[Spent]]:
    """What a session's own entries amount to. Raises SessionDamaged when one cannot be read."""
    row = reader.origin(key)
    entries = reader.entries(key, after=row.base_seq)
    for entry in entries:
        row.head = entry.seq
        advance(row, entry.seq, entry.at_us, entry.body)
    return row, fold_usage(entries)


def labels_of(row: SessionRow) -> list[tuple[str, str]]:
    """What a session is found by: the kind of each label, and the label."""
    tags = [("tag", tag) for tag in row.about.tags]
    return [*tags, *(("model", model) for model in row.about.models)]


def rebuild(tx: Transaction, key: int) -> None:
    """Save it in place of what was saved.

    Raises SessionDamaged, with nothing changed. If interrupted: rolled back with its transaction.
    """
    row, usage = derived(tx, key)
    tx.save_session(row)
    tx.save_labels(row)
    tx.drop_usage(key)
    for spent in usage:
        tx.spend(key, spent)
