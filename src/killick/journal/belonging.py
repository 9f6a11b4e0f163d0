"""Which entries belong together: a message with its end, its tools and their results."""

from collections.abc import Iterable

from killick.journal.wholeness import is_whole_object
from killick.model import entries as e
from killick.model.parts import Part, ToolCall, ToolResult


class Group:
    """A message, in the place where it began, and everything of it that stands elsewhere."""

    __slots__ = ("ended", "message_id", "model_call_id", "open_calls", "role", "seqs", "turn_id")

    def __init__(self, entry: e.Entry, body: e.MessageRecorded | e.MessageStarted) -> None:
        self.message_id = body.id
        self.turn_id = body.turn_id
        self.model_call_id = body.model_call_id
        self.role = body.role
        self.seqs = [entry.seq]
        self.ended = isinstance(body, e.MessageRecorded)
        self.open_calls: set[str] = set()

    @property
    def seq(self) -> int:
        return self.seqs[0]

    @property
    def finished(self) -> bool:
        """Whether nothing of it is still to come, as far as its own entries tell."""
        return self.ended and not self.open_calls


class Groups:
    """Takes entries in order and says which belong to which message."""

    def __init__(self) -> None:
        self.all: list[Group] = []
        self._groups: dict[str, Group] = {}
        self._calls: dict[str, Group] = {}
        self._model_calls: dict[str, int] = {}

    def begun_at(self, seq: int) -> Group | None:
        """The message that begins at this seq."""
        return next((group for group in self.all if group.seq == seq), None)

    def take(self, entry: e.Entry) -> Group | None:
        """The group of this entry, if it has one."""
        body = entry.body
        match body:
            case e.MessageRecorded():
                return self._record(entry, body)
            case e.MessageStarted():
                return self._begin(entry, body)
            case e.ModelCallStarted():
                self._model_calls[body.id] = entry.seq
                return None
            case _:
                group_id = message_of(body)
                group = self._groups.get(group_id) if group_id is not None else None
                if group is not None:
                    group.seqs.append(entry.seq)
                    self._apply(group, body)
                return group

    def _record(self, entry: e.Entry, body: e.MessageRecorded) -> Group:
        """A message that answers calls belongs to the message that made them."""
        results = [part for part in body.parts if isinstance(part, ToolResult)]
        owner = next((self._calls[r.call_id] for r in results if r.call_id in self._calls), None)
        if owner is None:
            owner = self._begin(entry, body)
        else:
            owner.seqs.append(entry.seq)
            self._groups[body.id] = owner
        self._make_calls(owner, body.parts, complete=True)
        for result in results:
            self._answer(result.call_id)
        return owner

    def _begin(self, entry: e.Entry, body: e.MessageRecorded | e.MessageStarted) -> Group:
        group = self._groups[body.id] = Group(entry, body)
        self.all.append(group)
        started = self._model_calls.get(body.model_call_id or "")
        if started is not None:
            group.seqs.append(started)
        return group

    def _apply(self, group: Group, body: e.Body) -> None:
        match body:
            case e.MessageEnded():
                group.ended = True
                self._make_calls(group, body.parts, complete=body.state == "complete")
            case e.ToolCalled():
                self._make(group, body.call_id)
            case e.ToolFinished() | e.LateResult():
                group.open_calls.discard(body.result.call_id)
            case _:
                pass

    def _make_calls(self, group: Group, parts: Iterable[Part], *, complete: bool) -> None:
        for part in parts:
            if not isinstance(part, ToolCall) or self._calls.get(part.id) is group:
                continue
            if complete or is_whole_object(part.arguments):
                self._make(group, part.id)

    def _make(self, group: Group, call_id: str) -> None:
        self._calls[call_id] = group
        group.open_calls.add(call_id)

    def _answer(self, call_id: str) -> None:
        group = self._calls.get(call_id)
        if group is not None:
            group.open_calls.discard(call_id)


def message_of(body: e.Body) -> str | None:
    """The message that an entry says it is part of."""
    match body:
        case e.MessageRecorded() | e.MessageStarted() | e.MessageEnded():
            return body.id
        case (
            e.ToolCalled()
            | e.ToolStarted()
            | e.ToolOutput()
            | e.ToolFinished()
            | e.LateResult()
            | e.LateText()
            | e.ApprovalAsked()
        ):
            return body.message_id
        case _:
            return None
