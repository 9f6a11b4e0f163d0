"""Changing what is in view: compact, rewind, undo, hide, show, fork. Written once for both faces.

Each looks at the journal first and decides what its entry will name (`journal.compaction`), then
appends it. What lies before a seq never changes, so a plan stays right while others write. Only a
rewind reaches to the head, and is planned again when the journal has grown meanwhile; a compaction
is, when what is in view has changed.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from killick.errors import InvalidEntry
from killick.journal import checks
from killick.journal.checks import check_counts
from killick.journal.compaction import (
    Compacting,
    check_in_view,
    check_seq,
    encloses,
    plan_compaction,
    plan_fork,
    plan_rewind,
    plan_visibility,
)
from killick.journal.fold import Messages
from killick.journal.kinds import HISTORY, ending_identity, result_identity
from killick.journal.turn_state import fold_turn
from killick.journal.visibility import in_view
from killick.model import entries as e
from killick.model.messages import Message, plain
from killick.model.sessions import Fork, Namer
from killick.session.core.session import (
    SessionCore,
    open_session,
    read_deltas,
    read_for_model,
    read_history,
)
from killick.session.core.tail import newest_start
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import is_dead
from killick.stores import engine as ops
from killick.stores.contract import Reader, SessionRow
from killick.stores.engine.state import EngineState, Receipt
from killick.stores.engine.tool_ops import settlements


class HistoryCore:
    """Changes the history of one session."""

    def __init__(self, session: SessionCore) -> None:
        self._session = session

    @property
    def _key(self) -> int:
        return self._session.key

    # -- compaction ----------------------------------------------------------------------------

    def compact(
        self,
        summary: str,
        through: int,
        *,
        first: int,
        as_of: int | None,
        keep: Sequence[int],
        provider: str | None,
        model: str | None,
        usage: e.Usage | None,
        tokens_before: int | None,
        tokens_after: int | None,
    ) -> Flow[Receipt]:
        chosen = tuple(keep)
        body = e.Compacted(
            id=self._session.runtime().ids("ent"),
            summary=summary,
            first=first,
            through=through,
            provider=provider,
            model=model,
            usage=usage,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
        )
        checks.check_content(body)
        while True:
            head, plan = yield from read(
                lambda reader: self._plan(reader, first, through, chosen, as_of)
            )
            body = msgspec.structs.replace(body, keep=plan.keep, rest=plan.rest)
            at = self._session.runtime().clock()
            receipt = yield from write(_compacting(self._key, body, head, at))
            if receipt is not None:
                self._session.saw(receipt.seq)
                return receipt

    def _plan(
        self,
        reader: Reader,
        first: int,
        through: int,
        chosen: Sequence[int],
        as_of: int | None,
    ) -> tuple[int, Compacting]:
        head = self._row(reader).head
        check_seq(through, head, "through")
        check_seq(first, head, "first")
        if as_of is not None:
            check_seq(as_of, head, "as_of")
        for seq in chosen:
            check_seq(seq, head, "keep")
        history = read_history(reader, self._key)
        check_in_view(history, through, "through")
        _, end = self._turn_around(reader, through)
        entries = in_view(history, read_for_model(reader, self._key, history, end))
        left = (entry for entry in entries if history.compacted_by(entry.seq) is None)
        plan = plan_compaction(
            left, history, first=first, through=through, chosen=chosen, as_of=as_of
        )
        return head, plan

    # -- rewinding -----------------------------------------------------------------------------

    def rewind(self, through: int) -> Flow[Receipt]:
        runtime = self._session.runtime()
        entry_id = runtime.ids("ent")
        if (yield from read(lambda reader: is_dead(reader, self._row(reader), surely=True))):
            yield from self._session.recover()
        while True:
            head, keep, whole = yield from read(lambda reader: self._plan_rewind(reader, through))
            body = e.Rewound(id=entry_id, through=through, keep=keep, encloses=whole)
            at = runtime.clock()
            receipt = yield from write(_rewinding(self._key, body, head, at))
            if receipt is not None:
                self._session.saw(receipt.seq)
                return receipt

    def _plan_rewind(self, reader: Reader, through: int) -> tuple[int, tuple[int, ...], bool]:
        head = self._row(reader).head
        check_seq(through, head, "through", least=0)
        history = read_history(reader, self._key)
        check_in_view(history, through, "through")
        after = self._turn_at(reader, through) - 1
        entries = in_view(history, reader.entries(self._key, after=after))
        changes = reader.marked_entries(self._key, HISTORY, after=through)
        return head, plan_rewind(entries, through=through), encloses(changes, through)

    def undo(self, seq: int | None) -> Flow[Receipt]:
        check_counts(seq=seq)
        at = self._session.runtime().clock()
        return self._session.write(lambda engine: ops.undo(engine, self._key, seq, at))

    # -- hiding --------------------------------------------------------------------------------

    def see(
        self, message: int | Message, *, person: bool | None, model: bool | None
    ) -> Flow[Receipt]:
        """Say who is shown a message from now on; None leaves it as it was."""
        if person is None and model is None:
            raise InvalidEntry("say for whom: person, model, or both")
        seq = message.seq if isinstance(message, Message) else message
        message_id, entries = yield from read(lambda reader: self._plan_visibility(reader, seq))
        body = e.Visibility(
            id=self._session.runtime().ids("ent"),
            seq=seq,
            message_id=message_id,
            entries=entries,
            person=person,
            model=model,
        )
        return (yield from self._session.describe(body))

    def _plan_visibility(self, reader: Reader, seq: int) -> tuple[str, tuple[int, ...]]:
        check_seq(seq, self._row(reader).head, "the place of a message")
        begin, end = self._turn_around(reader, seq)
        return plan_visibility(reader.entries(self._key, after=begin - 1, through=end), seq)

    # -- forking -------------------------------------------------------------------------------

    def fork(
        self,
        at: int | None,
        session_id: str | None,
        *,
        title: str | None,
        titled_by: Namer,
        tags: Sequence[str],
    ) -> Flow[SessionCore]:
        """Begin a session that shares this one's entries up to `at`."""
        opening, runtime = self._session.opening, self._session.runtime()
        row, reach, carried = yield from read(lambda reader: self._plan_fork(reader, at))
        created = e.SessionCreated(
            type=row.about.type,
            title=title,
            titled_by=titled_by if title is not None else None,
            project=row.about.project,
            tags=checks.as_tags(tags),
            parent=row.about.parent,
            fork=Fork(row.id, reach),
        )
        checks.check_content(created)
        minted = runtime.ids("ses") if session_id is None else plain(session_id)
        checks.check_id(minted, "session id")
        now = runtime.clock()
        forked = yield from write(
            lambda engine: ops.create_session(
                engine,
                session_id=minted,
                tenant=runtime.tenant,
                created=created,
                at_us=now,
                base=self._key,
                carried=carried,
            )
        )
        if forked is None:
            return (yield from open_session(opening, minted))
        return SessionCore(opening, forked)

    def _plan_fork(
        self, reader: Reader, at: int | None
    ) -> tuple[SessionRow, int, Sequence[tuple[e.Body, int | None]]]:
        row = self._row(reader)
        reach = row.head if at is None else at
        check_seq(reach, row.head, "at")
        begin, end = self._turn_around(reader, reach)
        entries = reader.entries(self._key, after=begin - 1, through=end)
        if end is not None and end > reach:
            entries += self._late(reader, entries)
        deltas = partial(read_deltas, reader, self._key)
        return row, reach, plan_fork(entries, at=reach, deltas=deltas)

    def _late(self, reader: Reader, entries: Sequence[e.Entry]) -> list[e.Entry]:
        """Find what came for these entries after the last of them."""
        fold = Messages()
        for entry in entries:
            fold.take(entry)
        later = [reader.find_entry(self._key, name) for name in fold.awaiting()]
        turn = fold_turn(entries)
        for call in () if turn is None else turn.unanswered():
            later.append(
                reader.find_entry(self._key, result_identity(call.message_id, call.call_id))
            )
            later += settlements(reader, self._key, call)
        late = {
            entry.seq: entry for entry in later if entry is not None and entry.seq > entries[-1].seq
        }
        return [late[seq] for seq in sorted(late)]

    # -- small things --------------------------------------------------------------------------

    def _row(self, reader: Reader) -> SessionRow:
        return self._session.row(reader)

    def _turn_at(self, reader: Reader, seq: int) -> int:
        """Return where the turn began that ran at this seq, or ran last before it."""
        started = newest_start(reader, self._key, before=seq + 1)
        return 1 if started is None else started.seq

    def _turn_around(self, reader: Reader, seq: int) -> tuple[int, int | None]:
        """Return begin and end of the turn that ran at this seq, or ran last before it."""
        begin = self._turn_at(reader, seq)
        started = reader.entries(self._key, after=begin - 1, limit=1)[0].body
        if not isinstance(started, e.TurnStarted):
            return begin, None
        end = reader.find_entry(self._key, ending_identity(started.turn_id))
        return begin, None if end is None else max(end.seq, seq)


def _compacting(
    key: int, body: e.Compacted, head: int, at_us: int
) -> Callable[[EngineState], Receipt | None]:
    return lambda engine: ops.compact(engine, key, body, head, at_us)


def _rewinding(
    key: int, body: e.Rewound, head: int, at_us: int
) -> Callable[[EngineState], Receipt | None]:
    return lambda engine: ops.rewind(engine, key, body, head, at_us)
