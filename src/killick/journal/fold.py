"""Folds a journal into its messages and its turns, for every reader.

A fold takes entries in order and may be given a tail of a journal: what
began before the tail is then not shown, what began in it is shown whole.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from killick.journal.assembly import assemble
from killick.journal.kinds import (
    ending_identity,
    late_text_identity,
    message_end_identity,
    result_identity,
)
from killick.model import entries as e
from killick.model.messages import Message
from killick.model.sessions import TurnInfo

Deltas = Callable[[int], Sequence[e.Delta]]


class Messages:
    """Folds entries into messages, each in the place where it started."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._turn_ids: dict[str, str] = {}  # all messages of a turn share the text of its id
        self._started: dict[str, int] = {}
        self._tools: dict[int, e.ToolStarted] = {}
        self._ended_turns: set[str] = set()
        self._over = 0

    def take(self, entry: e.Entry) -> None:
        body = entry.body
        match body:
            case e.MessageRecorded():
                self._messages[entry.seq] = Message(
                    body.role,
                    body.parts,
                    body.id,
                    "complete",
                    self._turn_ids.setdefault(body.turn_id, body.turn_id),
                    entry.seq,
                    body.model_call_id,
                )
            case e.MessageStarted():
                self._started[body.id] = entry.seq
                self._messages[entry.seq] = Message(
                    body.role, (), body.id, "streaming", body.turn_id, entry.seq, body.model_call_id
                )
            case e.MessageEnded():
                self._replace(body.id, state=body.state, parts=body.parts)
            case e.ToolStarted():
                self._tools[entry.seq] = body
            case e.ToolFinished() | e.LateResult():
                self._take_result(entry.seq, body)
            case e.LateText(call_id=None):
                self._take_late_text(body)
            case e.TurnEnding():
                self._ended_turns.add(body.turn_id)
            case e.Rewound():
                self._over = entry.seq
            case _:
                pass

    def finish(self, deltas: Deltas) -> list[Message]:
        """Return the messages in order; what still streams has the parts that have come so far."""
        shown = []
        for seq in sorted(self._messages):
            message = self._messages[seq]
            if message.state == "streaming":
                if message.turn_id in self._ended_turns or seq < self._over:
                    continue  # it had nothing in it when its turn was closed
                message = msgspec.structs.replace(message, parts=assemble(deltas(seq)))
            shown.append(message)
        return shown

    def awaiting(self) -> list[str]:
        """Return the identities of later entries that can still change what was taken so far."""
        names: list[str] = []
        for message_id, seq in self._started.items():
            message = self._messages[seq]
            if message.state != "complete":
                names += [message_end_identity(message_id), late_text_identity(message_id)]
                names.append(ending_identity(message.turn_id or ""))
        for seq, started in self._tools.items():
            if seq not in self._messages:
                names.append(result_identity(started.message_id, started.call_id))
        return names

    def count(self) -> int:
        """Count the messages so far, at most."""
        return len(self._messages)

    def _replace(self, message_id: str, **changes: object) -> None:
        seq = self._started.get(message_id)
        if seq is not None:
            self._messages[seq] = msgspec.structs.replace(self._messages[seq], **changes)

    def _take_result(self, seq: int, body: e.ToolFinished | e.LateResult) -> None:
        if isinstance(body, e.LateResult) and body.second:
            return  # the first is the message
        if body.started is not None and body.started not in self._tools:
            return  # it began before the entries that were taken
        seq = body.started or seq
        message_id = f"{body.message_id}/{body.result.call_id}"
        self._messages[seq] = Message(
            "tool", (body.result,), message_id, "complete", body.turn_id, seq
        )

    def _take_late_text(self, body: e.LateText) -> None:
        seq = self._started.get(body.message_id)
        if seq is not None:
            self._replace(
                body.message_id,
                parts=assemble(body.deltas, onto=self._messages[seq].parts),
                state="complete" if body.whole else "partial",
            )


def fold_messages(entries: Iterable[e.Entry], deltas: Deltas) -> list[Message]:
    """Return all messages of these entries."""
    fold = Messages()
    for entry in entries:
        fold.take(entry)
    return fold.finish(deltas)


def fold_turns(entries: Iterable[e.Entry]) -> list[TurnInfo]:
    """Return all turns of these entries, in the order in which they started."""
    turns: dict[str, TurnInfo] = {}
    for entry in entries:
        match entry.body:
            case e.TurnStarted() as body:
                turns[body.turn_id] = TurnInfo(
                    id=body.turn_id,
                    seq=entry.seq,
                    status="running",
                    reason=None,
                    detail=None,
                    started_at_us=entry.at_us,
                    ended_at_us=None,
                    continues=body.continues,
                    retry_of=body.retry_of,
                    starts=body.starts,
                )
            case e.TurnEnding() as body if body.turn_id in turns:
                turns[body.turn_id] = msgspec.structs.replace(
                    turns[body.turn_id],
                    status=body.status,
                    reason=body.reason,
                    detail=body.detail,
                    cause=body.cause,
                    ended_at_us=entry.at_us,
                )
            case _:
                pass
    return list(turns.values())
