"""Closes a turn: the one function behind leaving a block, Stop, take-over and recovery."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from killick.journal.assembly import assemble, output_text
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.causes import KEEP_WAITING

Deltas = Callable[[int], Sequence[e.Delta]]
"""The deltas of the stream that started at this seq."""

AWAITING_APPROVAL: Final = "awaiting_approval"
"""The reason that is shown of a turn that still waits for a person."""


def keeps_waiting(ending: e.TurnEnding) -> bool:
    """Return True if a question to a person waits on after this ending."""
    return ending.status == "interrupted" and ending.cause in KEEP_WAITING


def closing(turn: TurnState, ending: e.TurnEnding, deltas: Deltas) -> list[e.Body]:
    """Return the entries that close a running turn, the ending last.

    Messages that still stream become partial, with what came; one with nothing in it leaves the
    ending alone. Tools that still run keep what they printed and get no result: their outcome is
    unknown, and nothing may claim otherwise. A turn that waited for an approval and was not
    stopped says that it did: the next process that opens it can still decide.
    """
    if turn.waiting and keeps_waiting(ending):
        detail, stop = ending.detail or ending.reason, turn.stop
        if stop is None or stop.cause in KEEP_WAITING:
            ending = msgspec.structs.replace(ending, reason=AWAITING_APPROVAL, detail=detail)
        else:  # a person had stopped it, and its holder did not get to say so
            ending = msgspec.structs.replace(
                ending, cause=stop.cause, reason=stop.reason, detail=detail
            )
    bodies: list[e.Body] = []
    for message_id, seq in turn.open_messages.items():
        parts = assemble(deltas(seq))
        if parts:
            bodies.append(
                e.MessageEnded(id=message_id, turn_id=turn.id, state="partial", parts=parts)
            )
    for call in turn.open_tools():
        assert call.started_seq is not None
        output = output_text(deltas(call.started_seq))
        if output:
            bodies.append(
                e.ToolOutput(
                    turn_id=turn.id,
                    message_id=call.message_id,
                    call_id=call.call_id,
                    output=output,
                )
            )
    bodies.extend(
        e.ModelCallEnded(id=call_id, turn_id=turn.id, error=ending.reason or "not ended")
        for call_id in sorted(turn.model_calls)
    )
    bodies.append(ending)
    return bodies


def open_streams(turn: TurnState) -> list[int]:
    """Return the seqs of everything in the turn that may have deltas."""
    tools = [call.started_seq for call in turn.open_tools() if call.started_seq is not None]
    return [*turn.open_messages.values(), *tools]


class WaitingCall:
    """Takes entries in order; `asked` are the questions that wait, by their ids, in order.

    They are those of the turn that runs, or of one that was interrupted and not stopped.
    """

    def __init__(self) -> None:
        self.asked: dict[str, e.ApprovalAsked] = {}

    def take(self, body: e.Body) -> None:
        match body:
            case e.ApprovalAsked():
                self.asked[body.id] = body
            case e.ApprovalDecided():
                self.asked.pop(body.id, None)
            case e.TurnStarted():
                self.asked.clear()  # the conversation has gone on without them
            case e.TurnEnding() if not keeps_waiting(body):
                self.asked.clear()  # a person stopped it, or it is over otherwise
            case _:
                pass


def waiting(entries: Iterable[e.Entry]) -> list[e.ApprovalAsked]:
    """Return what waits after these entries, which begin no later than the newest turn."""
    fold = WaitingCall()
    for entry in entries:
        fold.take(entry.body)
    return list(fold.asked.values())


def broke_off(body: e.TurnEnding) -> bool:
    """Tell whether a turn ended unasked: its process died, or its source ends there."""
    return body.status == "interrupted" and body.cause in ("crashed", "other")
