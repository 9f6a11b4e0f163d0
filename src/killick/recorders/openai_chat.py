"""OpenAI Chat Completions: chunks with deltas; calls come by their index, their ids once.

The end marker is a finish reason: `[DONE]` is not shown by the SDK, and some servers leave it out.
Only the first choice is the message; what the others say is kept beside it.
"""

from base64 import b64decode
from typing import Any, Final

from killick.journal.assembly import is_whole_object
from killick.recorders.actions import (
    Action,
    CallFacts,
    CallPiece,
    EndPart,
    Event,
    MediaPiece,
    ReasoningPiece,
    TextPiece,
    count,
    extra,
    text_of,
    unsent,
    usage,
)

_CUT: Final = frozenset({"length", "content_filter", "error"})
"""Finish reasons after which a call may be in the middle of its arguments."""
_KNOWN: Final = frozenset({"index", "id", "type", "function", "custom"})
_KNOWN_INSIDE: Final = frozenset({"name", "arguments", "input"})
"""The fields of a call that have a place in a part; the others are kept with it."""


class _Calling:
    """One tool call; `given` is the id that the server has for it."""

    def __init__(self) -> None:
        self.given = ""
        self.id = ""
        self.name = ""
        self.custom = False
        self.opened = False
        self.waiting = ""
        self.pieces: list[str] = []
        self.more: Event = {}


class ChatReader:
    """Reads `chat.completion.chunk` objects, or one whole `chat.completion`."""

    def __init__(self, prefix: str) -> None:
        self.ended = False
        self.cut: str | None = None
        self._prefix = prefix
        self._response_id: str | None = None
        self._calls: list[_Calling] = []
        self._at: dict[int, _Calling] = {}
        self._refused = False
        self._thinks_in: str | None = None
        self._beside: dict[str, list[Any]] = {}
        self._audio: list[str] = []

    def read(self, event: Event) -> list[Action]:
        if event.get("error"):
            self.cut = _error_text(event["error"])
            return []
        actions: list[Action] = []
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._choice(choice, actions)
            else:
                self._beside.setdefault("choices", []).append(choice)
        response_id, tokens = event.get("id"), event.get("usage")
        if tokens or response_id != self._response_id:  # it is in every chunk, and may change
            self._response_id = response_id
            ids = (("response", response_id),) if response_id else ()
            actions.append(CallFacts(usage=_usage(tokens), ids=ids))
        return actions

    def _choice(self, choice: Event, actions: list[Action]) -> None:
        # One whole response has its message where a stream has deltas.
        self._delta(choice.get("delta") or _in_order(choice.get("message") or {}), actions)
        reason = choice.get("finish_reason")
        if reason:
            self.ended = True
            self._finish(reason, actions)
            actions.append(CallFacts(finish_reason=reason))

    def _delta(self, delta: Event, actions: list[Action]) -> None:
        for key, value in delta.items():
            if key == "content" and isinstance(value, str):
                if value:
                    actions.append(TextPiece(value))
            elif value:
                self._field(key, value, actions)

    def _field(self, key: str, value: Any, actions: list[Action]) -> None:
        match key:
            case "content":
                self._content(value, actions)
            case "role" | "parsed":
                pass
            case "reasoning_content" | "reasoning":
                if self._thinks_in in (None, key):  # some servers say it under both names
                    self._thinks_in = key
                    actions.append(ReasoningPiece(text_of(value)))
            case "refusal":
                if not self._refused:
                    self._refused = True
                    # A refusal is what was said; the mark before it says what kind of saying it is.
                    actions += [EndPart(), unsent("openai", refusal=True)]
                actions.append(TextPiece(value))
            case "tool_calls":
                for position, piece in enumerate(value):
                    self._piece(piece, position, actions)
            case "function_call":
                legacy = {"index": 0, "id": f"{self._prefix}_0", "function": value}
                self._piece(legacy, 0, actions)
            case "images":
                for image in value:
                    self._image(image, actions)
            case "annotations":
                self._beside.setdefault("citations", []).extend(value)
            case "audio":
                self._hear(value, actions)
            case _:
                self._beside.setdefault("extra", []).append({key: value})

    def _content(self, content: Any, actions: list[Action]) -> None:
        for part in content:
            if isinstance(part, dict) and part.get("type") == "text":
                actions.append(TextPiece(text_of(part.get("text"))))
            else:
                self._beside.setdefault("content", []).append(part)

    # -- calls ---------------------------------------------------------------------------------

    def _piece(self, piece: Event, position: int, actions: list[Action]) -> None:
        """Add a piece to its call, which opens when its id and name are known."""
        body = piece.get("function") or piece.get("custom") or {}
        given, name = text_of(piece.get("id")), text_of(body.get("name"))
        text = text_of(body.get("arguments") or body.get("input"))
        index = self._index(piece, position)
        call = self._at.get(index)
        if call is None or _is_another(call, given, name, text):
            call = self._at[index] = _Calling()
            self._calls.append(call)
        call.custom = call.custom or piece.get("type") == "custom"
        call.id = call.id or self._unused(given)
        call.given = call.given or given
        call.name = call.name or name
        call.pieces.append(text)
        more = {key: value for key, value in piece.items() if key not in _KNOWN}
        inside = {key: value for key, value in body.items() if key not in _KNOWN_INSIDE}
        call.more |= {**more, **({"function": inside} if inside else {})}
        if call.opened:
            self._keep_more(call, actions)
            if text:
                actions.append(CallPiece(call.id, arguments=text))
            return
        call.waiting += text
        if call.id and call.name:
            self._open(call, actions)

    def _index(self, piece: Event, position: int) -> int:
        index = piece.get("index")
        return index if isinstance(index, int) else position

    def _unused(self, call_id: str) -> str:
        """Return an unused id; some servers give two calls of one message the same."""
        taken = {call.id for call in self._calls}
        return f"{call_id}_{len(taken)}" if call_id in taken and call_id else call_id

    def _open(self, call: _Calling, actions: list[Action]) -> None:
        call.opened = True
        kind = "custom" if call.custom else "function"
        opening = CallPiece(call.id, call.name, "" if call.more else call.waiting, kind)  # type: ignore[arg-type]
        actions.append(opening)
        if call.more:  # before the call is whole: it is shown with them
            self._keep_more(call, actions)
            actions.append(CallPiece(call.id, arguments=call.waiting))

    def _keep_more(self, call: _Calling, actions: list[Action]) -> None:
        actions += extra("openai-chat", call.more, frozenset(), call.id)
        call.more = {}

    def _finish(self, reason: str, actions: list[Action]) -> None:
        for number, call in enumerate(self._calls):
            text = "".join(call.pieces)
            if not call.opened and call.name:
                call.id = call.id or f"{self._prefix}_{number}"
                self._open(call, actions)
            whole = is_whole_object(text)
            if reason in _CUT and not whole:
                self.cut = f"the answer ended with {reason!r} in the middle of a tool call"
            elif call.opened and not whole and (call.custom or not text.strip()):
                actions.append(CallPiece(call.id, done=True))

    # -- what is beside the text -----------------------------------------------------------------

    def _image(self, image: Event, actions: list[Action]) -> None:
        url = text_of((image.get("image_url") or {}).get("url"))
        head, separator, data = url.partition(";base64,")
        if separator and head.startswith("data:"):
            actions.append(MediaPiece(b64decode(data), head.removeprefix("data:")))
        else:
            self._beside.setdefault("images", []).append(image)

    def _hear(self, audio: Event, actions: list[Action]) -> None:
        if audio.get("transcript"):
            actions.append(TextPiece(audio["transcript"]))
        if audio.get("data"):
            self._audio.append(audio["data"])
        rest = {key: value for key, value in audio.items() if key not in ("transcript", "data")}
        if rest:
            self._beside.setdefault("audio", []).append(rest)

    def _heard(self) -> list[Action]:
        """Return the audio in one piece; as it came, if it cannot be decoded."""
        try:
            heard = b"".join(b64decode(piece) for piece in self._audio)
        except (TypeError, ValueError):
            return [unsent("openai", audio_data=self._audio)]
        return [MediaPiece(heard, "application/octet-stream")]

    def close(self) -> list[Action]:
        actions: list[Action] = []
        if self._audio:
            actions += self._heard()
        waiting = [
            {"id": call.id, "name": call.name, "arguments": call.waiting}
            for call in self._calls
            if not call.opened
        ]
        if waiting:
            self._beside["unfinished"] = waiting
        if self._beside:
            actions.append(unsent("openai", **self._beside))
        return actions


def _is_another(call: _Calling, given: str, name: str, text: str) -> bool:
    """Tell whether a piece begins another call. Some servers give all calls one index, or none."""
    if not name or not call.name or (given and given == call.given):
        return False
    if not given and not text.strip():
        return False
    so_far = "".join(call.pieces)
    return is_whole_object(so_far) or (name != call.name and not so_far.strip())


def _in_order(message: Event) -> Event:
    """Return a whole message's fields in the order of a stream: reasoning first."""
    thoughts = [key for key in ("reasoning_content", "reasoning") if key in message]
    return {key: message[key] for key in [*thoughts, *message]}


def _usage(tokens: Any) -> Any:
    return usage(
        tokens,
        input=count(tokens, "prompt_tokens"),
        output=count(tokens, "completion_tokens"),
        cached=count(tokens, "prompt_tokens_details", "cached_tokens"),
        reasoning=count(tokens, "completion_tokens_details", "reasoning_tokens"),
    )


def _error_text(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return f"the provider reported an error: {message}"
