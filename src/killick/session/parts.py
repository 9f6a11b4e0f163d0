"""Following a session part by part: the start of each part, its text as it grows, its end.

The events of a message are the same, and in the same order, for a reader that follows it live, one
that goes on from a cursor, and one that comes when all is over; how the text is cut into deltas is
not. So the parts of a message are shown one after another, also where a provider sends the
arguments of two calls by turns, and a message that is over is shown where it began.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from killick.journal.assembly import assemble, is_whole_object
from killick.journal.kinds import message_end_identity, message_identity
from killick.model import entries as e
from killick.model.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from killick.session.follow import AnyFollower, Cursor, OpenStream, deltas_of, name_of, output_of
from killick.stores.contract import Reader

PartType = Literal["text", "reasoning", "tool_call", "tool_result", "image", "file", "opaque"]

_BLANK: Final = " \t\r\n"


class PartEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The start, a piece of the text, or the end of one part of a message.

    `seq` is where its message, its tool or what came late began, `index` the number of the part in
    its message. `part` is at the start of a call the call without arguments, and at the end the
    whole part: None when a tool was left without a result. `late` says that its turn was over.
    """

    kind: Literal["start", "delta", "end"]
    type: PartType
    seq: int
    turn_id: str
    message_id: str
    role: Role
    index: int
    call_id: str | None = None
    text: str = ""
    part: Part | None = None
    late: bool = False


class PartItem(NamedTuple):
    """An event, and the cursor that goes on after it."""

    item: PartEvent
    cursor: str


class _Stream(OpenStream):
    """One message, tool or late piece, as far as its parts were shown. `signed` are those ended."""

    __slots__ = ("kept", "late", "role", "sealed")

    def __init__(
        self, seq: int, turn_id: str, message_id: str, call_id: str | None, role: Role
    ) -> None:
        super().__init__(seq, turn_id, message_id, call_id)
        self.role: Role = role
        self.late = False
        self.kept: dict[int, list[e.Delta]] = {}
        self.sealed: set[str] = set()

    def copy(self) -> "_Stream":
        copied = _Stream(self.seq, self.turn_id, self.message_id, self.call_id, self.role)
        copied.flush, copied.lengths, copied.signed = self.flush, {**self.lengths}, {*self.signed}
        copied.kept = {number: [*deltas] for number, deltas in self.kept.items()}
        copied.sealed, copied.late = {*self.sealed}, self.late
        return copied

    @property
    def shown_id(self) -> str:
        """The id of the message that `session.messages` shows: a result's has the call's in it."""
        return self.message_id if self.call_id is None else f"{self.message_id}/{self.call_id}"

    def keep(self, deltas: Iterable[e.Delta]) -> None:
        for delta in deltas:
            self.kept.setdefault(delta.part, []).append(delta)

    def is_over(self, number: int, part: Part) -> bool:
        """Tell whether a part of a message that still streams can grow no more."""
        if isinstance(part, ToolCall):
            return part.id in self.sealed or is_whole_object(part.arguments)
        if isinstance(part, Text | Reasoning):
            signed = isinstance(part, Reasoning) and (part.signature or part.encrypted)
            return bool(signed) or number < max(self.kept)
        return True


class PartCursor(Cursor):
    """How far a session was shown, part by part."""

    open: dict[str, _Stream]  # type: ignore[assignment]

    def copy(self) -> "PartCursor":
        copied = PartCursor(self.after)
        copied.begun = self.begun
        copied.open = {name: stream.copy() for name, stream in self.open.items()}
        return copied

    def find_again(self, entry: e.Entry) -> None:
        match entry.body:
            case e.MessageStarted() as body:
                self._open(_Stream(entry.seq, body.turn_id, body.id, None, body.role))
            case e.ToolStarted() as body:
                message_id, call_id = body.message_id, body.call_id
                self._open(_Stream(entry.seq, body.turn_id, message_id, call_id, "tool"))
            case _:
                super().find_again(entry)

    def advance(
        self,
        stream: _Stream,
        seen: list[PartItem],
        *,
        whole: bool = False,
        last: Part | None = None,
    ) -> None:
        """Add what is new in a stream; if it is `whole`, all of its parts have ended.

        `last` is the result of a tool, whose text is what it printed.
        """
        for number in sorted(stream.kept):
            if number in stream.signed:
                continue
            part = assemble(stream.kept[number])[0] if stream.call_id is None else last
            text = _text(part) if stream.call_id is None else _joined(stream.kept[number])
            shown = stream.lengths.get(number)
            if shown is None:
                stream.lengths[number] = shown = 0
                self._emit(stream, seen, "start", number, part)
            if len(text) > shown:
                stream.lengths[number] = len(text)
                self._emit(stream, seen, "delta", number, part, text[shown:])
            if not whole and (part is None or not stream.is_over(number, part)):
                return
            stream.signed.add(number)
            self._emit(stream, seen, "end", number, part)

    def _emit(
        self,
        stream: _Stream,
        seen: list[PartItem],
        kind: Literal["start", "delta", "end"],
        number: int,
        part: Part | None,
        text: str = "",
    ) -> None:
        call = part.id if isinstance(part, ToolCall) else stream.call_id
        call = part.call_id if isinstance(part, ToolResult) else call
        given: Part | None = None
        if kind == "end":
            given = _trimmed(part)
        elif kind == "start" and isinstance(part, ToolCall):
            given = ToolCall(part.id, part.name, "", part.tool_type)
        event = PartEvent(
            kind=kind,
            type=_type(part),
            seq=stream.seq,
            turn_id=stream.turn_id,
            message_id=stream.shown_id,
            role=stream.role,
            index=number,
            call_id=call,
            text=text,
            part=given,
            late=stream.late,
        )
        seen.append(PartItem(event, str(self)))

    def show_whole(
        self, stream: _Stream, deltas: Iterable[e.Delta], seen: list[PartItem], last: Part | None
    ) -> None:
        """Show what begins and ends with one entry."""
        name = f"{stream.seq}"
        self._open(stream)
        self.open[name] = self.open.pop(name_of(stream.message_id, stream.call_id))
        stream.keep(deltas)
        self.advance(stream, seen, whole=True, last=last)
        del self.open[name]

    def show_end(
        self, stream: _Stream, deltas: Sequence[e.Delta], seen: list[PartItem], last: Part | None
    ) -> None:
        """Show the rest of a stream that has ended, with all that it holds."""
        if deltas or stream.call_id is None:
            stream.kept.clear()
        stream.keep(deltas)
        if stream.call_id is not None:
            stream.kept.setdefault(0, [])
        self.advance(stream, seen, whole=True, last=last)


class PartFollower(AnyFollower[PartItem]):
    """Remembers which parts were shown, and how far."""

    cursor: PartCursor

    def _cursor(self, after: int | str) -> PartCursor:
        return PartCursor(after)

    def _show_deltas(self, reader: Reader, stream: OpenStream, seen: list[PartItem]) -> None:
        assert isinstance(stream, _Stream)
        for number, flush in reader.deltas(self._key, stream.seq, after=stream.flush):
            stream.flush = number
            stream.keep(flush)
        self.cursor.advance(stream, seen)

    def _take(self, reader: Reader, entry: e.Entry, seen: list[PartItem]) -> None:
        cursor, body = self.cursor, entry.body
        match body:
            case e.MessageStarted():
                cursor.after = entry.seq
                cursor.find_again(entry)
                self._look_ahead(reader, cursor.open[name_of(body.id, None)], seen)
            case e.ToolStarted():
                cursor.after = entry.seq
                cursor.find_again(entry)
                stream = cursor.open[name_of(body.message_id, body.call_id)]
                stream.kept.setdefault(0, [])
                cursor.advance(stream, seen)
            case e.ToolCalled():
                called = cursor.open.get(name_of(body.message_id, None))
                if called is not None:
                    called.sealed.add(body.call_id)
                    cursor.advance(called, seen)
            case e.MessageRecorded():
                made = _Stream(entry.seq, body.turn_id, body.id, None, body.role)
                cursor.show_whole(made, deltas_of(body.parts), seen, None)
            case e.LateText():
                self._take_late_text(entry.seq, body, seen)
            case _:
                self._take_end(reader, entry, seen)
        cursor.after = entry.seq

    def _look_ahead(self, reader: Reader, stream: _Stream, seen: list[PartItem]) -> None:
        """Show a message that is over where it began, as a live reader has seen it."""
        end = reader.find_entry(self._key, message_end_identity(stream.message_id))
        if end is not None and isinstance(end.body, e.MessageEnded):
            self.cursor.show_end(stream, deltas_of(end.body.parts), seen, None)

    def _take_end(self, reader: Reader, entry: e.Entry, seen: list[PartItem]) -> None:
        cursor, body = self.cursor, entry.body
        names = cursor.ended_by(body)
        for name in names:
            deltas: Sequence[e.Delta] = ()
            last: Part | None = None
            if isinstance(body, e.MessageEnded):
                deltas = deltas_of(body.parts)
            elif isinstance(body, e.ToolOutput):
                deltas = (e.Delta(0, 0, "output", body.output),)
            elif isinstance(body, e.ToolFinished):
                deltas, last = output_of(body), body.result
            cursor.show_end(cursor.open[name], deltas, seen, last)
            del cursor.open[name]
        if names:
            return
        match body:
            case e.MessageEnded():
                start = reader.find_entry(self._key, message_identity(body.id))
                if start is not None and isinstance(start.body, e.MessageStarted):
                    role, seq = start.body.role, start.seq
                    made = _Stream(seq, body.turn_id, body.id, None, role)
                    cursor.show_whole(made, deltas_of(body.parts), seen, None)
            case e.ToolFinished() | e.LateResult():
                call_id = body.result.call_id
                made = _Stream(entry.seq, body.turn_id, body.message_id, call_id, "tool")
                made.late = isinstance(body, e.LateResult)
                made.kept[0] = []
                cursor.show_whole(made, output_of(body), seen, body.result)
            case _:
                pass

    def _take_late_text(self, seq: int, body: e.LateText, seen: list[PartItem]) -> None:
        role: Role = "assistant" if body.call_id is None else "tool"
        made = _Stream(seq, body.turn_id, body.message_id, body.call_id, role)
        made.late = True
        pieces = [msgspec.structs.replace(delta, offset=0) for delta in body.deltas]
        self.cursor.show_whole(made, pieces, seen, None)


def _type(part: Part | None) -> PartType:
    """Return the name of a part's type; a tool without its result has that of the result."""
    return "tool_result" if part is None else part.__struct_config__.tag  # type: ignore[return-value]


def _text(part: Part | None) -> str:
    match _trimmed(part):
        case Text(text=text) | Reasoning(text=text):
            return text
        case ToolCall(arguments=arguments):
            return arguments
        case ToolResult(content=str() as content):
            return content
        case _:
            return ""


def _trimmed(part: Part | None) -> Part | None:
    """Return a part without the white space behind whole arguments, which may come afterwards."""
    if isinstance(part, ToolCall) and is_whole_object(part.arguments):
        return msgspec.structs.replace(part, arguments=part.arguments.rstrip(_BLANK))
    return part


def _joined(deltas: Sequence[e.Delta]) -> str:
    length, pieces = 0, []
    for delta in deltas:
        fresh = delta.text[max(0, length - delta.offset) :]
        pieces.append(fresh)
        length += len(fresh)
    return "".join(pieces)
