"""The calls of a turn that broke, and of those it goes on with, that a turn can still finish."""

from collections.abc import Iterable, Iterator

import msgspec

from killick.journal.kinds import turn_identity
from killick.journal.turn_state import CallState, TurnState
from killick.journal.visibility import in_view
from killick.model import entries as e
from killick.model.effects import REPEATABLE
from killick.model.messages import ToolCall
from killick.session.core.session import SessionCore, read_history
from killick.session.drive.steps import Flow, read
from killick.stores.contract import Reader


class UnfinishedCall(msgspec.Struct, frozen=True):
    """A call without a result of which no model was told yet.

    It `needs_check` when it was started, must not have its effect twice, and is not settled.
    """

    call: ToolCall
    turn_id: str
    needs_check: bool


def unfinished_calls(session: SessionCore, turn_id: str) -> Flow[list[UnfinishedCall]]:
    """Return the calls that were left unfinished, in order. Raises TurnNotFound."""
    return (yield from read(lambda reader: _unfinished(session, reader, turn_id)))


def _unfinished(session: SessionCore, reader: Reader, turn_id: str) -> list[UnfinishedCall]:
    session.row(reader)
    session.require_turn(reader, turn_id)
    line = list(_line(reader, session.key, turn_id))
    turns = {body.turn_id: TurnState(seq, body) for seq, body in line}
    entries = reader.entries(session.key, after=min(seq for seq, _ in line) - 1)
    history = read_history(reader, session.key)
    return fold_unfinished(turns, in_view(history, entries))


def _line(reader: Reader, key: int, turn_id: str) -> Iterator[tuple[int, e.TurnStarted]]:
    """Yield the start of a turn, of the turn that it continues, and so on."""
    name: str | None = turn_id
    known = set[str]()
    while name is not None and name not in known:
        known.add(name)
        entry = reader.find_entry(key, turn_identity(name))
        if entry is None or not isinstance(entry.body, e.TurnStarted):
            return
        yield entry.seq, entry.body
        name = entry.body.continues


def fold_unfinished(
    turns: dict[str, TurnState], entries: Iterable[e.Entry]
) -> list[UnfinishedCall]:
    """Fold the entries from the first of these turns on. What a model was told is finished."""
    made: dict[tuple[str, str], tuple[str, ToolCall]] = {}
    denied: set[str] = set()
    for entry in entries:
        body = entry.body
        turn = turns.get(getattr(body, "turn_id", ""))
        if turn is not None and not isinstance(body, e.TurnStarted):
            turn.apply(entry.seq, body)
        match body:
            case e.ModelCallStarted():
                made.clear()
            case e.MessageRecorded() | e.MessageEnded() if body.turn_id in turns:
                calls = [part for part in body.parts if isinstance(part, ToolCall)]
                made.update({(body.id, call.id): (body.turn_id, call) for call in calls})
            case e.ApprovalDecided(approved=False):
                denied.add(body.id)
            case _:
                pass
    unfinished = []
    for (message_id, call_id), (turn_id, call) in made.items():
        state = turns[turn_id].find_call(call_id, message_id)
        if state is not None and _is_open(turns[turn_id], state, denied):
            once = state.is_unsettled and state.effect not in REPEATABLE
            unfinished.append(UnfinishedCall(call, turn_id, once))
    return unfinished


def _is_open(turn: TurnState, call: CallState, denied: set[str]) -> bool:
    if call.answered or call.hosted or (call.asked in denied) or (call.asked in turn.waiting):
        return False
    if not call.starts and not turn.is_proven_unstarted(call):
        return False  # whether it ran was not seen
    return call.settled is None or call.settled.outcome == "did_not_run"
