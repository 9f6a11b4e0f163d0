"""Entries that were made elsewhere, with their own times: the way in for imports.

They come in whole turns. A turn that is imported was over before it came here, so no lease is taken
for it, and an import that dies leaves no turn behind that seems to run.
"""

from collections.abc import Sequence

from killick.errors import IdConflict, InvalidEntry, SessionNotFound, TurnNotFound
from killick.journal import checks
from killick.journal.audit import audit_continuation
from killick.journal.codec import decode_body, encode
from killick.journal.kinds import identity, named_identity, same_content, subject
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.stores.engine.search_ops import IndexOperations
from killick.stores.engine.session_ops import busy
from killick.stores.engine.state import Receipt, SessionState


class ImportOperations(IndexOperations):
    """What the engine does with entries from elsewhere; live turns build on it."""

    def import_entries(self, session_id: str, tenant: str, entries: Sequence[e.Entry]) -> Receipt:
        """Append entries in the places that they name, all or none; the last of them.

        An entry at seq 1 begins the session. Entries that are there already, in these places,
        change nothing.
        """
        found = self._tx.find_session(tenant, session_id)
        if found is None:
            return self._import_new(session_id, tenant, entries)
        standing = self._standing(found.key)
        row = standing.row
        if entries[0].seq <= row.head:
            return self._already(standing, entries)
        if standing.turn is not None:
            raise busy(row.id, standing.turn.id, standing.turn.holder)
        if entries[0].seq != row.head + 1:
            raise InvalidEntry(
                f"session {row.id!r} ends at seq {row.head}, and the entries begin at "
                f"{entries[0].seq}; import what lies between first"
            )
        self._admit_import(standing, entries)
        return self._append_all(standing, entries)

    def _import_new(self, session_id: str, tenant: str, entries: Sequence[e.Entry]) -> Receipt:
        first = entries[0]
        if first.seq != 1:
            raise SessionNotFound(f"no session {session_id!r} that could go on at {first.seq}")
        if not isinstance(first.body, e.SessionCreated) or first.body.fork is not None:
            raise InvalidEntry("a journal begins with session_created, which names no fork")
        self._admit_import(None, entries)
        made = self.create_session(
            session_id=session_id, tenant=tenant, created=first.body, at_us=first.at_us
        )
        assert made is not None
        return self._append_all(self._standing(made.key), entries[1:])

    def _append_all(self, standing: SessionState, entries: Sequence[e.Entry]) -> Receipt:
        for entry in entries:
            receipt = self._write(standing, entry.body, entry.at_us)
            assert not receipt.repeated
            if isinstance(entry.body, e.TurnStarted):
                standing.turn = TurnState(receipt.seq, entry.body)
            elif isinstance(entry.body, e.TurnEnding):
                standing.turn = None
        return Receipt(standing.row.head)

    def _admit_import(self, standing: SessionState | None, entries: Sequence[e.Entry]) -> None:
        """Everything that can be wrong is found before the first is written."""
        deleted = standing is not None and standing.row.about.deleted
        for entry in entries:
            if standing is not None:
                self._admit_place(standing, entry.body, deleted=deleted)
            deleted = isinstance(entry.body, e.Deleted) or (
                deleted and not isinstance(entry.body, e.Restored)
            )
        broken = audit_continuation(
            entries,
            turn_of=lambda turn_id: self._turn_before(standing, turn_id),
            is_queued=lambda prompt_id: self._is_queued(standing, prompt_id),
        )
        if broken:
            seq, what = broken[0]
            raise InvalidEntry(f"the entry for seq {seq} cannot follow there: {what}")

    def _admit_place(self, standing: SessionState, body: e.Body, *, deleted: bool) -> None:
        checks.check_live(
            session_id=standing.row.id, deleted=deleted and not isinstance(body, e.Restored)
        )
        if self._tx.find_entry(standing.row.key, identity(body)) is not None:
            raise IdConflict(
                f"{e.kind_of(body)} {subject(body)!r} is recorded already in another place"
            )

    def _turn_before(self, standing: SessionState | None, turn_id: str) -> TurnState | None:
        if standing is None:
            return None
        try:
            return self._past_turn(standing, turn_id)
        except TurnNotFound:
            return None

    def _is_queued(self, standing: SessionState | None, prompt_id: str) -> bool:
        if standing is None:
            return False
        name = named_identity(prompt_id, "prompt_queued")
        return self._tx.find_entry(standing.row.key, name) is not None

    def _already(self, standing: SessionState, entries: Sequence[e.Entry]) -> Receipt:
        """What is there already, if it is all of it. Raises IdConflict."""
        for entry in entries:
            body = decode_body(encode(self._redacted(entry.body)))
            stored = self._tx.find_entry(standing.row.key, identity(body))
            if stored is None or stored.seq != entry.seq or not same_content(stored.body, body):
                raise IdConflict(
                    f"session {standing.row.id!r} has another entry at seq {entry.seq}; fork it "
                    "where the two part"
                )
        return Receipt(entries[-1].seq, repeated=True)
