"""Order rules: which entry may follow what, as one table that docs/journal.md prints.

`ORDER` has a row for each kind of entry. Its cells say what is the case after an entry of that kind
when its turn runs, when its turn is over (for a kind that names no turn: when any turn runs, when
none does), and when the session is deleted: the next state, or the error that refuses the entry.
`needs` refuses an entry that its turn does not know enough for. A repeated id is not refused here:
the database finds it by the entry's identity.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from killick.errors import (
    CallFinished,
    CallNotFound,
    IdConflict,
    InvalidEntry,
    KillickError,
    MessageNotFound,
    OutcomeUnsettled,
    SessionBusy,
    SessionDeleted,
    ToolAlreadyStarted,
    ToolNotApproved,
    TurnEnded,
)
from killick.journal.kinds import message_of
from killick.journal.turn_state import CallState, TurnState
from killick.model import entries as e
from killick.model.effects import REPEATABLE
from killick.model.messages import ToolCall, ToolResult

State = Literal["running", "over", "deleted"]
Step = State | type[KillickError]
Need = Callable[[TurnState, Any, TurnState | None], object]
"""Raises when the turn lacks what an entry needs; the first line of its docstring says what. The
third argument is the turn that runs, when the entry is of another one."""


class Rule(NamedTuple):
    """The row of one kind: in which states it is admitted, and which state follows."""

    running: Step
    over: Step
    needs: Need | None = None
    deleted: Step = SessionDeleted


def admit(turn: TurnState, body: e.Body, running: TurnState | None = None) -> None:
    """Refuse what may not follow in its turn; `running` is the turn that runs, if another one."""
    rule = ORDER[type(body)]
    step = rule.running if turn.ended is None else rule.over
    if not isinstance(step, str):
        raise _refusal(step, turn, e.kind_of(body))
    if rule.needs is not None:
        rule.needs(turn, body, running)


def needs_running_turn(body: e.Body) -> bool:
    """Return True for an entry that belongs to a turn and is refused once that is over."""
    return not isinstance(ORDER[type(body)].over, str)


def _refusal(error: type[KillickError], turn: TurnState, kind: str) -> KillickError:
    if error is SessionBusy:
        return SessionBusy(f"turn {turn.id!r} is running", turn_id=turn.id, holder=turn.holder)
    if turn.ended is None:
        return error(f"turn {turn.id!r} is still running; nothing of it can be late")
    return error(f"turn {turn.id!r} has ended; it takes no {kind} any more")


def require_call(turn: TurnState, call_id: str, message_id: str | None = None) -> CallState:
    """Return the call, if it was made and is whole. Raises CallNotFound."""
    call = turn.find_call(call_id, message_id)
    if call is None:
        raise CallNotFound(
            f"no whole tool call {call_id!r} was made in turn {turn.id!r}; record the message that "
            "makes it first (a call that was cut off in its arguments is no call)"
        )
    return call


def admit_approved(call: CallState, decided: e.ApprovalDecided | None) -> None:
    """Refuse to start a call that a person was asked about, unless the answer is yes.

    The engine asks before it starts a tool. An audit does not: a journal tells what was done.
    """
    if call.asked is None or (decided is not None and decided.approved):
        return
    if decided is None:
        raise ToolNotApproved(
            f"tool call {call.call_id!r} waits for a person's decision, {call.asked!r}; start it "
            "when session.decide_approval(…, approved=True) has been recorded",
            approval_id=call.asked,
        )
    why = f": {decided.reason}" if decided.reason else ""
    raise ToolNotApproved(
        f"tool call {call.call_id!r} was denied by {decided.by or 'a person'}{why}; do not start "
        "it and go on: session.context tells the model so",
        approval_id=call.asked,
        denied=True,
    )


def admit_unseen(turn: TurnState, call: CallState, effect: str) -> None:
    """Refuse to start a call that may have run where no start is seen, as one that was started.

    The engine asks before it starts a tool of an ended turn; an audit does not.
    """
    if call.starts or turn.is_proven_unstarted(call) or effect in REPEATABLE:
        return
    if call.settled is None:
        raise _unsettled(turn, call, "may have run, and its starts were not seen")


# -- needs -------------------------------------------------------------------------------------


def _reason(turn: TurnState, body: e.TurnEnding, _: TurnState | None) -> None:
    """a reason, unless it is completed"""
    if body.status != "completed" and not body.reason:
        raise InvalidEntry(f"turn {turn.id!r} ended as {body.status} without a reason")


def _open_model_call(turn: TurnState, body: e.ModelCallEnded, _: TurnState | None) -> None:
    """a model call that is open"""
    if body.id not in turn.model_calls:
        raise InvalidEntry(f"model call {body.id!r} is not open in this turn")


def _message(turn: TurnState, body: e.Body, _: TurnState | None) -> None:
    """a message of the turn"""
    message_id = message_of(body)
    if message_id not in turn.messages:
        raise MessageNotFound(f"message {message_id!r} was never started in turn {turn.id!r}")


def _call(turn: TurnState, body: e.ToolFinished | e.LateResult, _: TurnState | None) -> None:
    """a whole call"""
    require_call(turn, body.result.call_id, body.message_id)


def _new_call(turn: TurnState, body: e.ToolStarted, running: TurnState | None) -> None:
    """a whole call that was not started, or may be again; over, a running turn that continues it"""
    late = turn.ended is not None
    continued = late and running is not None and turn.id in running.line
    if (late or running is not None) and not continued:
        raise InvalidEntry(
            f"tool call {body.call_id!r} is of turn {turn.id!r}; it can be started in a turn that "
            "continues that one"
        )
    call = require_call(turn, body.call_id, body.message_id)
    if call.answered or (call.starts and not continued):
        raise ToolAlreadyStarted(
            f"tool call {call.call_id!r} was started before; to run it again, let the model call "
            "it again"
        )
    if body.number != call.starts + 1:
        raise InvalidEntry(
            f"tool call {call.call_id!r} has {call.starts} starts, and this is number {body.number}"
        )
    _admit_repeat(turn, call)


def _admit_repeat(turn: TurnState, call: CallState) -> None:
    """Refuse to run a call again that may have had an effect which must not be there twice."""
    settled = call.settled
    if settled is not None and settled.outcome != "did_not_run" and call.effect not in REPEATABLE:
        raise ToolAlreadyStarted(
            f"tool call {call.call_id!r} ran, as a {settled.by} has settled; to run it again, let "
            "the model call it again"
        )
    if call.is_unsettled and call.effect not in REPEATABLE:
        raise _unsettled(turn, call, "was started and left no result")


def _unsettled(turn: TurnState, call: CallState, why: str) -> OutcomeUnsettled:
    return OutcomeUnsettled(
        f"tool call {call.call_id!r} of turn {turn.id!r} {why}, and its effect must not be there "
        "twice; find out what it did, then call session.settle"
        f"({turn.id!r}, {call.call_id!r}, …)",
        turn_id=turn.id,
        call_id=call.call_id,
    )


def _settleable(turn: TurnState, body: e.Settled, running: TurnState | None) -> None:
    """a call that may have run, without a result, that runs no more"""
    call = require_call(turn, body.call_id, body.message_id)
    if call.answered:
        raise CallFinished(
            f"tool call {call.call_id!r} has its real result; there is nothing to settle"
        )
    if running is not None and (call.started_seq or 0) > running.seq:
        raise SessionBusy(
            f"tool call {call.call_id!r} was started again and runs in turn {running.id!r}",
            turn_id=running.id,
            holder=running.holder,
        )
    if turn.is_proven_unstarted(call):
        raise InvalidEntry(
            f"tool call {call.call_id!r} was never started, so it did not run; there is nothing to "
            "settle"
        )
    if body.number != call.starts:
        raise InvalidEntry(f"tool call {call.call_id!r} was started again since")
    before = None if call.settled is None else call.settled.id
    if body.replaces != before:
        raise IdConflict(
            f"tool call {call.call_id!r} is settled already as {call.settled.outcome!r}, by entry "
            f"{before!r}; give replaces={before!r} to correct it"
            if call.settled is not None
            else f"tool call {call.call_id!r} has no settlement {body.replaces!r} to replace"
        )


def _calls(turn: TurnState, body: e.MessageRecorded, _: TurnState | None) -> None:
    """for each result in it, a call without one, made before or in the same message"""
    results = [part for part in body.parts if isinstance(part, ToolResult)]
    if not results:
        return
    made = {part.id for part in body.parts if isinstance(part, ToolCall)}
    answered: set[str] = set()
    for part in results:
        if part.call_id in answered:
            raise IdConflict(f"tool call {part.call_id!r} has two results in one message")
        answered.add(part.call_id)
        if part.call_id in made:
            continue
        if require_call(turn, part.call_id).answered and body.id not in turn.messages:
            raise IdConflict(f"tool call {part.call_id!r} has its result already")


# -- the table ---------------------------------------------------------------------------------

_ANYTIME: Final = (
    *(e.SessionCreated, e.Renamed, e.Archived, e.Pinned, e.Tagged, e.Moved, e.Note, e.Imported),
    *(e.PromptWaiting, e.PromptWithdrawn, e.ApprovalDecided, e.LimitsSet),
    *(e.Compacted, e.Undone, e.Visibility, e.Unknown, e.Paused, e.ResumeAt),
)
_RUNNING: Final = (
    *(e.ModelCallStarted, e.MessageStarted, e.ToolOutput, e.ApprovalAsked),
    e.LimitHit,
)

ORDER: Final[dict[type, Rule]] = {
    **dict.fromkeys(_ANYTIME, Rule("running", "over")),
    **dict.fromkeys(_RUNNING, Rule("running", TurnEnded)),
    e.Deleted: Rule("deleted", "deleted"),
    e.Restored: Rule("running", "over", deleted="over"),
    e.Rewound: Rule(SessionBusy, "over"),
    e.TurnStarted: Rule(SessionBusy, "running"),
    e.TurnEnding: Rule("over", TurnEnded, _reason),
    e.StopAsked: Rule("running", InvalidEntry),
    e.PromptTaken: Rule("running", InvalidEntry),
    e.ModelCallEnded: Rule("running", TurnEnded, _open_model_call),
    e.MessageRecorded: Rule("running", TurnEnded, _calls),
    e.MessageEnded: Rule("running", TurnEnded, _message),
    e.ToolCalled: Rule("running", TurnEnded, _message),
    e.ToolStarted: Rule("running", "over", _new_call),
    e.WorkTaken: Rule(SessionBusy, "over"),
    e.AttemptsUsed: Rule(SessionBusy, "over"),
    e.Settled: Rule(SessionBusy, "over", _settleable),
    e.ToolFinished: Rule("running", InvalidEntry, _call),
    e.LateResult: Rule(InvalidEntry, "over", _call),
    e.LateText: Rule(InvalidEntry, "over", _message, deleted="deleted"),
}
