"""What may follow what. Every entry of every session passes here before it is written.

Rule 1: content is checked against the limits before it is handed over (`checks.check_content`).
Rule 2: messages, model calls, tools and endings belong to a running turn (`admit`); they need its
        fence, or come from elsewhere for a call that the turn has made.
Rule 3: a turn that has ended takes late results and text, once each, and nothing else.
Rule 4: a deleted session takes nothing but its restoring (`checks.check_live`).

Whether an id was used before is not decided here: the database knows, by the entry's identity.
"""

from collections.abc import Iterable

from killick.errors import (
    CallNotFound,
    IdConflict,
    InvalidEntry,
    MessageNotFound,
    ToolAlreadyStarted,
    ToolNotApproved,
)
from killick.journal.turn_state import CallState, TurnState
from killick.model import entries as e
from killick.model.messages import Part, ToolCall, ToolResult


def admit(turn: TurnState, body: e.Body) -> None:
    """Refuse what may not follow in this running turn."""
    match body:
        case e.MessageRecorded():
            _admit_results(turn, body.id, body.parts)
        case e.MessageEnded() | e.ToolCalled():
            message_id = body.id if isinstance(body, e.MessageEnded) else body.message_id
            if message_id not in turn.messages:
                raise MessageNotFound(f"message {message_id!r} was never started in this turn")
        case e.ToolStarted():
            call = require_call(turn, body.call_id, body.message_id)
            if call.started_seq is not None or call.answered:
                raise _started_before(call)
        case e.ToolFinished():
            require_call(turn, body.result.call_id, body.message_id)
        case e.ModelCallEnded():
            if body.id not in turn.model_calls:
                raise InvalidEntry(f"model call {body.id!r} is not open in this turn")
        case _:
            pass


def admit_late(turn: TurnState, body: e.LateResult | e.LateText) -> None:
    """Rule 3: only for an ended turn, only for what the turn knows."""
    if turn.ended is None:
        raise InvalidEntry(f"turn {turn.id!r} is still running; nothing of it can be late")
    if isinstance(body, e.LateResult):
        require_call(turn, body.result.call_id, body.message_id)
    elif body.message_id not in turn.messages:
        raise MessageNotFound(f"turn {turn.id!r} has no message {body.message_id!r}")


def admit_late_start(turn: TurnState, body: e.ToolStarted, running: TurnState) -> None:
    """A call of an ended turn may be started once, in a turn that continues that one."""
    if turn.ended is None or running.continues != turn.id:
        raise InvalidEntry(
            f"tool call {body.call_id!r} is of turn {turn.id!r}; it can be started in a turn that "
            "continues that one"
        )
    call = require_call(turn, body.call_id, body.message_id)
    if call.started_seq is not None or call.answered:
        raise _started_before(call)


def admit_approved(call: CallState, decided: e.ApprovalDecided | None) -> None:
    """A call that a person was asked about starts when the answer is yes.

    Asked of whoever is about to start it, and not of a journal: that tells what was done.
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
        "it, and record a result that tells the model so",
        approval_id=call.asked,
        denied=True,
    )


def _started_before(call: CallState) -> ToolAlreadyStarted:
    return ToolAlreadyStarted(
        f"tool call {call.call_id!r} was started before; to run it again, let the model call it "
        "again"
    )


def require_call(turn: TurnState, call_id: str, message_id: str | None = None) -> CallState:
    """The call, if it was made and is whole. Raises CallNotFound."""
    call = turn.find_call(call_id, message_id)
    if call is None:
        raise CallNotFound(
            f"no whole tool call {call_id!r} was made in turn {turn.id!r}; record the message that "
            "makes it first (a call that was cut off in its arguments is no call)"
        )
    return call


def _admit_results(turn: TurnState, message_id: str, parts: Iterable[Part]) -> None:
    """Results inside a whole message need their call, from before or from the same message."""
    made = {part.id for part in parts if isinstance(part, ToolCall)}
    answered: set[str] = set()
    for part in parts:
        if not isinstance(part, ToolResult):
            continue
        if part.call_id in answered:
            raise IdConflict(f"tool call {part.call_id!r} has two results in one message")
        answered.add(part.call_id)
        if part.call_id in made:
            continue
        if require_call(turn, part.call_id).answered and message_id not in turn.messages:
            raise IdConflict(f"tool call {part.call_id!r} has its result already")
