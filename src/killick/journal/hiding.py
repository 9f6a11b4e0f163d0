"""What somebody sees of entries some of which are hidden from them."""

import msgspec

from killick.journal.history import Hidden
from killick.model import entries as e
from killick.model.parts import Part, ToolCall, ToolResult


class Hiding:
    """Takes entries in order and gives each as it may be seen.

    A call must have its result, so what is hidden of a result is what it says: `blank` stands for
    it. What a hidden tool printed goes altogether, and so do results that are recorded as messages
    for the calls of a hidden message: those messages have ids of their own.
    """

    def __init__(self, hidden: Hidden, blank: str) -> None:
        self._hidden = hidden
        self._blank = blank
        self._calls: set[tuple[str, str]] = set()

    def see(self, entry: e.Entry) -> e.Entry | None:
        """The entry without what is hidden; None when nothing of it is left."""
        if not self._hidden.places:
            return entry
        body = entry.body
        if self._hidden.has(entry):
            self._calls.update(_calls_of(body))
            return None
        self._calls.difference_update(_calls_of(body))  # providers repeat ids
        match body:
            case e.ToolOutput() | e.LateText() if self._hidden.has_result(body):
                return None
            case e.ToolFinished() | e.LateResult() if self._hidden.has_result(body):
                blank = msgspec.structs.replace(
                    body, result=self._blanked(body.result), output=None
                )
                return msgspec.structs.replace(entry, body=blank)
            case e.MessageRecorded():
                return self._message(entry, body)
            case _:
                return entry

    def _message(self, entry: e.Entry, body: e.MessageRecorded) -> e.Entry | None:
        parts = tuple(part for part in body.parts if not self._answers_hidden(body, part))
        if entry.seq in self._hidden.places:
            parts = tuple(
                self._blanked(part) if isinstance(part, ToolResult) else part
                for part in parts
                if isinstance(part, ToolResult | ToolCall)
            )
        if parts == body.parts:
            return entry
        kept = msgspec.structs.replace(body, parts=parts)
        return msgspec.structs.replace(entry, body=kept) if parts else None

    def _answers_hidden(self, body: e.MessageRecorded, part: Part) -> bool:
        return isinstance(part, ToolResult) and (body.turn_id, part.call_id) in self._calls

    def _blanked(self, result: ToolResult) -> ToolResult:
        return msgspec.structs.replace(result, content=self._blank, structured=None)


def _calls_of(body: e.Body) -> set[tuple[str, str]]:
    match body:
        case e.MessageRecorded() | e.MessageEnded():
            return {(body.turn_id, part.id) for part in body.parts if isinstance(part, ToolCall)}
        case e.ToolCalled():
            return {(body.turn_id, body.call_id)}
        case _:
            return set()
