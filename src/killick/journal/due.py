"""Due work: whether a worker may continue a session's newest turn, folded from its entries.

Nothing is due unless its turn was begun with `resume`. Then it is due when it broke by accident,
no person asked for a stop, no approval waits, and no call is left that may have had an effect which
must not be there twice.
"""

from typing import Final

import msgspec

from killick.journal.assembly import is_whole_object
from killick.journal.closing import keeps_waiting
from killick.model import entries as e
from killick.model.effects import REPEATABLE
from killick.model.messages import ToolCall, ToolResult

DUE_CAUSES: Final = frozenset[str | None]({"crashed", "terminated", "shut_down", "timed_out"})
"""Endings by accident: no person wished for them, and no code was at fault."""

_FIRST_BACKOFF_US: Final = 1_000_000
_LONGEST_BACKOFF_US: Final = 3_600_000_000


class Due(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest turn as work, if it may be continued; or that the session is paused.

    `unsettled` are its calls, by message and call, that must not have their effect twice and left
    no result; of those that `passed`, a newer call has the id, to which a recorded result belongs.
    `asked` are the questions that wait. `limited` says that its last model call was refused by a
    limit. `token`, `taker` and `until_us` are of work that was taken and not begun. It rests since
    `ended_us`: when it ended, or was taken.
    """

    turn_id: str = ""
    allowed: int = 0
    attempts: int = 0
    running: bool = False
    stopped: bool = False
    ended_us: int = 0
    resume_us: int | None = None
    unsettled: tuple[tuple[str, str], ...] = ()
    passed: tuple[tuple[str, str], ...] = ()
    limited: bool = False
    asked: tuple[str, ...] = ()
    token: str | None = None
    taker: str | None = None
    until_us: int = 0
    paused: bool = False

    @property
    def is_open(self) -> bool:
        """True if the turn has broken and nothing but time stands between it and a worker."""
        waits = self.running or self.paused or self.unsettled or self.asked
        return self.allowed > 0 and not waits


def begun(due: Due | None, body: e.TurnStarted, *, imported: bool) -> Due | None:
    """Return what is known after a turn has begun. One that continues the work goes on with it."""
    if due is not None and body.work is not None and body.work == due.token:
        return msgspec.structs.replace(
            due, turn_id=body.turn_id, running=True, asked=(), token=None, taker=None, until_us=0
        )
    allowed = 0 if imported or body.starts != "seen" else body.resume
    if allowed:
        paused = due is not None and due.paused
        return Due(body.turn_id, allowed, running=True, paused=paused)
    return nothing_due(due)


def paused(due: Due | None, body: e.Paused) -> Due | None:
    """Return what is known after a session was paused, which voids what was taken, or not."""
    known = msgspec.structs.replace(
        due or Due(), paused=body.paused, token=None, taker=None, until_us=0
    )
    return None if known == Due() else known


def step(due: Due, at_us: int, body: e.Body) -> Due | None:
    """Return what is known after one more entry."""
    replace = msgspec.structs.replace
    match body:
        case e.ToolStarted() if body.effect not in REPEATABLE:
            return replace(due, unsettled=(*due.unsettled, (body.message_id, body.call_id)))
        case e.ToolFinished() | e.LateResult():
            return _settled(due, body.message_id, body.result.call_id)
        case e.Settled():
            return _settled(due, body.message_id, body.call_id)
        case e.MessageRecorded() | e.MessageEnded() if due.unsettled:
            return _after_message(due, body)
        case e.LimitHit():
            return replace(due, limited=True)
        case e.ModelCallStarted() if due.limited:
            return replace(due, limited=False)
        case e.ApprovalAsked():
            return replace(due, asked=(*due.asked, body.id))
        case e.ApprovalDecided():
            return replace(due, asked=tuple(each for each in due.asked if each != body.id))
        case e.StopAsked(turn_id=due.turn_id) if body.cause not in DUE_CAUSES:
            return replace(due, stopped=True)
        case e.TurnEnding(turn_id=due.turn_id):
            return _ended(due, at_us, body)
        case e.WorkTaken():
            return replace(
                due,
                attempts=body.attempt,
                token=body.id,
                taker=body.taker,
                until_us=body.until_us,
                ended_us=at_us,
                resume_us=None,
            )
        case e.ResumeAt():
            return replace(due, resume_us=body.at_us)
        case e.AttemptsUsed() | e.Rewound():
            return nothing_due(due)
        case _:
            return due


def _after_message(due: Due, body: e.MessageRecorded | e.MessageEnded) -> Due:
    """Return what is known after a message: providers repeat ids of calls."""
    whole = isinstance(body, e.MessageRecorded) or body.state == "complete"
    made = {
        part.id
        for part in body.parts
        if isinstance(part, ToolCall) and (whole or is_whole_object(part.arguments))
    }
    passed = due.passed + tuple(
        call for call in due.unsettled if call[1] in made and call[0] != body.id
    )
    answers = {part.call_id for part in body.parts if isinstance(part, ToolResult)}
    left = tuple(call for call in due.unsettled if call in passed or call[1] not in answers)
    if (left, passed) == (due.unsettled, due.passed):
        return due
    return msgspec.structs.replace(due, unsettled=left, passed=passed)


def _settled(due: Due, message_id: str, call_id: str) -> Due:
    left = tuple(call for call in due.unsettled if call != (message_id, call_id))
    return due if left == due.unsettled else msgspec.structs.replace(due, unsettled=left)


def _ended(due: Due, at_us: int, body: e.TurnEnding) -> Due | None:
    if body.cause not in DUE_CAUSES or due.stopped or due.limited:
        return nothing_due(due)
    asked = due.asked if keeps_waiting(body) else ()
    return msgspec.structs.replace(due, running=False, ended_us=at_us, asked=asked)


def nothing_due(due: Due | None) -> Due | None:
    """Return what is known when there is nothing to continue: whether the session is paused."""
    return Due(paused=True) if due is not None and due.paused else None


def ready_us(due: Due | None) -> int | None:
    """Return from when on a worker may look at it, by the database's clock; None if never.

    Used-up work is looked at too: the worker that does records it.
    """
    if due is None or not due.is_open:
        return None
    lapses = 0 if due.token is None else due.until_us
    return lapses if due.attempts >= due.allowed else max(lapses, rested_us(due))


def rested_us(due: Due) -> int:
    """Return when it has rested after its last attempt, also one that was never begun."""
    if due.resume_us is not None:
        return due.resume_us
    return due.ended_us + backoff_us(due.attempts)


def backoff_us(attempts: int) -> int:
    """Return how long a turn rests after so many attempts: none at first, then twice as long."""
    if attempts == 0:
        return 0
    return min(_FIRST_BACKOFF_US << min(attempts - 1, 20), _LONGEST_BACKOFF_US)
