"""Apply a stream's items to a message: parse bytes, read events, write deltas."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from killick.errors import InvalidEntry
from killick.model.messages import File, Image
from killick.recorders.actions import (
    Action,
    CallPiece,
    EndPart,
    Event,
    ExtraFields,
    MediaPiece,
    ReasoningPiece,
    StreamReader,
    TextPiece,
    WholePart,
    to_json,
    unsent,
)
from killick.recorders.model_call import StreamShape
from killick.session.core.stream import Deltas

_DECODE: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode


class EventLines:
    """Takes bytes or text in whatever pieces they come; gives the JSON objects that are whole."""

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []
        # Bytes that are no characters are shown as such; text may have halves of one, as it came.
        self._errors = "replace"

    def feed(self, piece: bytes | str) -> list[dict[str, Any]]:
        if isinstance(piece, str):
            piece, self._errors = piece.encode("utf-8", "surrogatepass"), "surrogatepass"
        # A "\\r" at the end of a piece stays in the line until its "\\n" is there.
        lines = (self._line + piece).replace(b"\r\n", b"\n").split(b"\n")
        self._line = lines.pop()
        events: list[dict[str, Any]] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                value = self._parse(data)
                if isinstance(value, dict):  # no `[DONE]`, and the like
                    events.append(value)
        return events

    def _parse(self, data: bytes) -> Any:
        """Parse what is JSON, to Python at least: half characters, NaN, numbers without a bound."""
        try:
            return _DECODE(data)
        except ValueError:
            pass
        except RecursionError:
            return None
        try:
            return json.loads(data.decode("utf-8", self._errors))
        except (ValueError, RecursionError):
            return None


NO_END: Final = "the stream ended without its end marker"
LEFT: Final = "the consumer stopped reading"


class DeltaApplier:
    """Feeds a stream's items to a reader, and the reader's actions to a message."""

    def __init__(self, kind: StreamShape, reply: Deltas) -> None:
        self._kind = kind
        self._reply = reply
        self._reader: StreamReader = kind.reader(f"call_{reply.id[-12:]}")
        self._lines: EventLines | None = None
        self._aliases: dict[str, list[str]] = {}

    def feed(self, item: Any) -> Iterator[MediaPiece]:
        """Record one item of the stream; what is yielded must be placed before going on."""
        is_wire = isinstance(item, bytes | str | bytearray | memoryview)
        for each in self._split(item) if is_wire else (item,):
            try:
                event = self._kind.event(each)
                for action in () if event is None else self._read(event):
                    if isinstance(action, MediaPiece):
                        yield action
                    else:
                        self.apply(action)
            except RecursionError:  # like one that is no JSON: it nests too deeply to be read
                if not is_wire:
                    raise

    def feed_response(self, response: Any) -> Iterator[MediaPiece]:
        """Record one whole response."""
        event = self._kind.event(response)
        for part in self._kind.whole(event) if event is not None else ():
            yield from self.feed(part)

    def place(self, media: MediaPiece, blob: str) -> None:
        """Add the image or file whose bytes are stored under this name."""
        kind = Image if media.media_type.startswith("image/") else File
        self._reply.part(kind(blob, media.media_type))

    def close(self, why: str | None = None) -> Iterator[MediaPiece]:
        """Write what was held back, and whether the answer is whole."""
        for action in self._reader.close():
            if isinstance(action, MediaPiece):
                yield action
            else:
                self.apply(action)
        if self._reader.cut is not None:
            self._reply.cut_off(self._reader.cut)
        elif not self._reader.ended:
            self._reply.cut_off(why or NO_END)

    @property
    def ended(self) -> bool:
        """True once the shape's end mark came."""
        return self._reader.ended

    def _split(self, piece: bytes | str) -> list[Event]:
        if self._lines is None:
            self._lines = EventLines()
        return self._lines.feed(piece if isinstance(piece, bytes | str) else bytes(piece))

    def _read(self, event: Event) -> list[Action]:
        try:
            return self._reader.read(event)
        except (LookupError, TypeError, ValueError, AttributeError):
            return [unsent(self._kind.provider, event=event)]

    def apply(self, action: Action) -> None:
        """Write one action that needs no blob; what is refused is kept as opaque data."""
        try:
            self._write(action)
        except InvalidEntry as refused:
            self._reply.part(unsent(self._kind.provider, refused=action, why=str(refused)).part)

    def _write(self, action: Action) -> None:
        reply = self._reply
        if isinstance(action, TextPiece):  # as most are
            reply.text(action.text)
            return
        match action:
            case ReasoningPiece(text, signature, encrypted):
                reply.reasoning(text, signature=signature, encrypted=encrypted)
            case CallPiece(call_id, name, arguments, tool_type, done):
                reply.tool_call(
                    call_id, name=name, arguments=arguments, tool_type=tool_type, done=done
                )
            case WholePart(part):
                reply.part(part)
            case EndPart():
                reply.end_part()
            case ExtraFields(shape, fields, of):
                plain: dict[str, Any] = json.loads(to_json(fields))
                reply.extra({shape: plain}, call_id=of)
            case MediaPiece():
                raise AssertionError("bytes are placed by the face")
            case _:
                reply.finish(
                    finish_reason=action.finish_reason,
                    usage=action.usage,
                    provider_ids=self._named(action.ids),
                )

    def _named(self, ids: tuple[tuple[str, str], ...]) -> dict[str, str]:
        """Return new ids under their names; a changed one gets a number beside the first."""
        named: dict[str, str] = {}
        for name, value in ids:
            known = self._aliases.setdefault(name, [])
            if value not in known:
                known.append(value)
                named[name if len(known) == 1 else f"{name}_{len(known)}"] = value
        return named
