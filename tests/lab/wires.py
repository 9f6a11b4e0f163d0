"""Four ways to speak with a model: which one a request is, its answers, and what it says."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from tests.lab.script import Call, Item, Text, Think

Wire = Literal["chat", "responses", "anthropic", "gemini"]
Json = dict[str, Any]
_PIECE: Final = 7
_USED: Final = 11


@dataclass(frozen=True)
class Said:
    """One thing that a request tells the model, whatever the wire."""

    kind: Literal["system", "user", "assistant", "reasoning", "call", "result"]
    text: str
    name: str = ""
    id: str = ""


def wire_of(path: str) -> Wire | None:
    """Return the wire of a request to a model by its path; None for any other request."""
    path = urlsplit(path).path.rstrip("/")
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return None


def is_streamed(wire: Wire, path: str, body: Json) -> bool:
    """Tell whether the client asked for a stream."""
    if wire == "gemini":
        return ":streamGenerateContent" in path
    return body.get("stream") is True


def has_tools(body: Json) -> bool:
    """Tell whether the request offers tools; requests for titles and the like offer none."""
    return bool(body.get("tools"))


# -- answers ---------------------------------------------------------------------------------------


class Speaker:
    """One answer on one wire: events as they are streamed, or the whole as one document."""

    def __init__(self, wire: Wire, body: Json, number: int) -> None:
        self.wire = wire
        self._model = str(body.get("model") or "scripted")
        self._number = number
        self._items: list[Item] = []
        self._calls = 0
        self._is_open = False
        """Whether the last item is a text that may go on: a gate stands within it."""

    def named(self, item: Call) -> Call:
        """Return the call with its id."""
        self._calls += 1
        made = item.id or f"call_{self._number}_{self._calls}"
        return replace(item, id=made)

    def begin(self) -> Iterator[bytes]:
        """Yield what comes before the first item."""
        match self.wire:
            case "chat":
                yield self._chunk({"role": "assistant", "content": ""})
            case "responses":
                yield self._event("response.created", response=self._response("in_progress", []))
            case "anthropic":
                yield self._event("message_start", message=self._message([], None))
            case "gemini":
                pass

    def say(self, item: Item) -> Iterator[bytes]:
        """Yield the events of one item: words in pieces, a call whole.

        A text stays open until something else comes, so that a gate can stand within it.
        """
        if not isinstance(item, Text | Think | Call):
            return
        last = self._items[-1] if self._items else None
        if self._is_open and isinstance(item, Text) and isinstance(last, Text):
            self._items[-1] = Text(last.text + item.text)
            yield from self._pieces(len(self._items) - 1, item)
            return
        yield from self._close()
        index = len(self._items)
        self._items.append(item)
        self._is_open = isinstance(item, Text)
        match self.wire:
            case "chat":
                yield from self._chat(item)
            case "responses":
                yield from self._responses(index, item)
            case "anthropic":
                yield from self._anthropic(index, item)
            case "gemini":
                for part in self._gemini_parts(item, pieces=True):
                    yield _data(self._candidate([part], None))

    def _pieces(self, index: int, item: Text) -> Iterator[bytes]:
        """Yield more words of a text that is open."""
        for piece in _pieces(item.text):
            match self.wire:
                case "chat":
                    yield self._chunk({"content": piece})
                case "responses":
                    at = {"output_index": index, "item_id": f"msg_{self._number}_{index}"}
                    kind = "response.output_text.delta"
                    yield self._event(kind, **at, content_index=0, delta=piece)
                case "anthropic":
                    delta = {"type": "text_delta", "text": piece}
                    yield self._event("content_block_delta", index=index, delta=delta)
                case "gemini":
                    yield _data(self._candidate([{"text": piece}], None))

    def _close(self) -> Iterator[bytes]:
        """Yield the end of a text that was open."""
        if not self._is_open:
            return
        self._is_open = False
        index = len(self._items) - 1
        if self.wire == "anthropic":
            yield self._event("content_block_stop", index=index)
        elif self.wire == "responses":
            done = self._output(index, self._items[index])
            part = done["content"][0]
            at: Json = {"output_index": index, "item_id": done["id"], "content_index": 0}
            yield self._event("response.output_text.done", **at, text=part["text"])
            yield self._event("response.content_part.done", **at, part=part)
            yield self._event("response.output_item.done", output_index=index, item=done)

    def end(self) -> Iterator[bytes]:
        """Yield what comes behind the last item."""
        yield from self._close()
        called = any(isinstance(item, Call) for item in self._items)
        match self.wire:
            case "chat":
                yield self._chunk({}, finish="tool_calls" if called else "stop")
                yield self._chunk(None)
                yield b"data: [DONE]\n\n"
            case "responses":
                done = self._response(
                    "completed", [self._output(*i) for i in enumerate(self._items)]
                )
                yield self._event("response.completed", response=done)
            case "anthropic":
                stop = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}
                yield self._event("message_delta", delta=stop, usage={"output_tokens": _USED})
                yield self._event("message_stop")
            case "gemini":
                yield _data(self._candidate([], "STOP"))

    def whole(self, items: Sequence[Item]) -> Json:
        """Return the answer as one document."""
        self._items = [item for item in items if isinstance(item, Text | Think | Call)]
        called = any(isinstance(item, Call) for item in self._items)
        match self.wire:
            case "chat":
                message: Json = {"role": "assistant", "content": self._words(Text) or None}
                if calls := [i for i in self._items if isinstance(i, Call)]:
                    message["tool_calls"] = [_chat_call(i) for i in calls]
                choice = {"index": 0, "message": message,
                          "finish_reason": "tool_calls" if called else "stop"}  # fmt: skip
                return {"id": f"chatcmpl-{self._number}", "object": "chat.completion", "created": 1,
                        "model": self._model, "choices": [choice], "usage": _CHAT_USED}  # fmt: skip
            case "responses":
                output = [self._output(*item) for item in enumerate(self._items)]
                return self._response("completed", output)
            case "anthropic":
                blocks = [self._block(item) for item in self._items]
                return self._message(blocks, "tool_use" if called else "end_turn")
            case _:
                parts = [part for item in self._items for part in self._gemini_parts(item)]
                return self._candidate(parts, "STOP")

    def _words(self, kind: type[Text | Think]) -> str:
        return "".join(item.text for item in self._items if isinstance(item, kind))

    def _event(self, kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **fields})

    # Chat Completions

    def _chunk(self, delta: Json | None, finish: str | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        chunk = {"id": f"chatcmpl-{self._number}", "object": "chat.completion.chunk", "created": 1,
                 "model": self._model, "choices": choices}  # fmt: skip
        return _data(chunk if delta is not None else chunk | {"usage": _CHAT_USED})

    def _chat(self, item: Item) -> Iterator[bytes]:
        match item:
            case Text():
                yield from (self._chunk({"content": piece}) for piece in _pieces(item.text))
            case Think():
                yield from (self._chunk({"reasoning_content": p}) for p in _pieces(item.text))
            case Call():
                index = sum(isinstance(other, Call) for other in self._items) - 1
                yield self._chunk({"tool_calls": [{"index": index, **_chat_call(item)}]})
            case _:
                pass

    # Responses

    def _response(self, status: str, output: list[Json]) -> Json:
        used = {"input_tokens": _USED, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": _USED, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2 * _USED}  # fmt: skip
        return {"id": f"resp_{self._number}", "object": "response", "created_at": 1,
                "status": status, "model": self._model, "output": output, "error": None,
                "incomplete_details": None, "instructions": None, "metadata": {},
                "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto",
                "tools": [], "top_p": 1.0,
                "usage": used if status == "completed" else None}  # fmt: skip

    def _output(self, index: int, item: Item) -> Json:
        match item:
            case Call():
                group = {} if item.namespace is None else {"namespace": item.namespace}
                return {"type": "function_call", "id": f"fc_{self._number}_{index}",
                        "call_id": item.id, "name": item.name, "status": "completed",
                        "arguments": json.dumps(item.arguments), **group}  # fmt: skip
            case Think():
                return {"type": "reasoning", "id": f"rs_{self._number}_{index}",
                        "summary": [{"type": "summary_text", "text": item.text}]}  # fmt: skip
            case _:
                words = item.text if isinstance(item, Text) else ""
                part = {"type": "output_text", "text": words, "annotations": []}
                return {"type": "message", "id": f"msg_{self._number}_{index}",
                        "role": "assistant", "status": "completed", "content": [part]}  # fmt: skip

    def _responses(self, index: int, item: Item) -> Iterator[bytes]:
        done = self._output(index, item)
        at: Json = {"output_index": index, "item_id": done["id"]}
        begun = {**done, "status": "in_progress"} if not isinstance(item, Think) else dict(done)
        match item:
            case Text():
                empty = {"type": "output_text", "text": "", "annotations": []}
                yield self._added(index, begun | {"content": []})
                yield self._event("response.content_part.added", **at, content_index=0, part=empty)
                yield from self._pieces(index, item)
                return
            case Think():
                yield self._added(index, begun | {"summary": []})
                for piece in _pieces(item.text):
                    yield self._event(
                        "response.reasoning_summary_text.delta", **at, summary_index=0, delta=piece
                    )
            case Call():
                yield self._added(index, begun | {"arguments": ""})
                kind = "response.function_call_arguments"
                yield self._event(f"{kind}.delta", **at, delta=done["arguments"])
                yield self._event(f"{kind}.done", **at, arguments=done["arguments"])
            case _:
                pass
        yield self._event("response.output_item.done", output_index=index, item=done)

    def _added(self, index: int, item: Json) -> bytes:
        return self._event("response.output_item.added", output_index=index, item=item)

    # Anthropic

    def _message(self, blocks: list[Json], stop: str | None) -> Json:
        return {"id": f"msg_{self._number}", "type": "message", "role": "assistant",
                "model": self._model, "content": blocks, "stop_reason": stop,
                "stop_sequence": None,
                "usage": {"input_tokens": _USED, "output_tokens": _USED}}  # fmt: skip

    def _block(self, item: Item) -> Json:
        match item:
            case Call():
                return {"type": "tool_use", "id": item.id, "name": item.name,
                        "input": dict(item.arguments)}  # fmt: skip
            case Think():
                return {"type": "thinking", "thinking": item.text, "signature": "c2NyaXB0ZWQ="}
            case _:
                return {"type": "text", "text": item.text if isinstance(item, Text) else ""}

    def _anthropic(self, index: int, item: Item) -> Iterator[bytes]:
        block, deltas = self._block(item), list[Json]()
        match item:
            case Text():
                block["text"] = ""
                yield self._event("content_block_start", index=index, content_block=block)
                yield from self._pieces(index, item)
                return
            case Think():
                block |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": p} for p in _pieces(item.text)]
                deltas.append({"type": "signature_delta", "signature": "c2NyaXB0ZWQ="})
            case Call():
                block["input"] = {}
                whole = json.dumps(item.arguments)
                deltas = [{"type": "input_json_delta", "partial_json": whole}]
            case _:
                pass
        yield self._event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield self._event("content_block_delta", index=index, delta=delta)
        yield self._event("content_block_stop", index=index)

    # Gemini

    def _gemini_parts(self, item: Item, *, pieces: bool = False) -> Iterator[Json]:
        match item:
            case Text():
                for piece in _pieces(item.text) if pieces else [item.text]:
                    yield {"text": piece}
            case Think():
                yield {"text": item.text, "thought": True}
            case Call():
                call = {"name": item.name, "args": dict(item.arguments), "id": item.id}
                yield {"functionCall": call}
            case _:
                pass

    def _candidate(self, parts: list[Json], finish: str | None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        used = {"promptTokenCount": _USED, "candidatesTokenCount": _USED,
                "totalTokenCount": 2 * _USED}  # fmt: skip
        return {"candidates": [candidate], "usageMetadata": used, "modelVersion": self._model,
                "responseId": f"gemini_{self._number}"}  # fmt: skip


_CHAT_USED: Final = {
    "prompt_tokens": _USED,
    "completion_tokens": _USED,
    "total_tokens": 2 * _USED,
}


def failure(wire: Wire | None, status: int, message: str) -> Json:
    """Return the body with which the provider refuses."""
    if wire == "gemini":
        return {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}
    error = {"type": "invalid_request_error", "message": message}
    return {"type": "error", "error": error} if wire == "anthropic" else {"error": error}


def _chat_call(item: Call) -> Json:
    function = {"name": item.name, "arguments": json.dumps(item.arguments)}
    return {"id": item.id, "type": "function", "function": function}


def _data(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


# -- requests --------------------------------------------------------------------------------------


def bare(call_id: str) -> str:
    """Return the id as the model gave it: Gemini CLI puts the tool's name before it."""
    return call_id.rpartition("__")[2]


def said(wire: Wire, body: Json) -> list[Said]:
    """Read a request as one list: what the model is told, in order, results and calls apart."""
    match wire:
        case "chat":
            found = _said_chat(body)
        case "responses":
            found = _said_responses(body)
        case "anthropic":
            found = _said_anthropic(body)
        case "gemini":
            found = _said_gemini(body)
    return list(found)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text_of(part) for part in content)
    if isinstance(content, dict):
        for key in ("text", "content", "output"):
            if key in content:
                return _text_of(content[key])
        return json.dumps(content)
    return "" if content is None else str(content)


def _speaker(role: Any) -> Literal["system", "user", "assistant"]:
    if role in ("system", "developer"):
        return "system"
    return "assistant" if role == "assistant" else "user"


def _said_chat(body: Json) -> Iterator[Said]:
    for message in body.get("messages", []):
        role = message.get("role")
        text = _text_of(message.get("content"))
        if role == "tool":
            yield Said("result", text, id=message.get("tool_call_id", ""))
            continue
        if thought := message.get("reasoning_content"):
            yield Said("reasoning", thought)
        if text or role != "assistant":
            yield Said(_speaker(role), text)
        for call in message.get("tool_calls") or []:
            function = call["function"]
            yield Said("call", function["arguments"], function["name"], call.get("id", ""))


def _said_responses(body: Json) -> Iterator[Said]:
    if body.get("instructions"):
        yield Said("system", body["instructions"])
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in items:
        match item.get("type", "message"):
            case "message":
                yield Said(_speaker(item.get("role")), _text_of(item.get("content")))
            case "function_call" | "custom_tool_call":
                arguments = item.get("arguments", item.get("input", ""))
                yield Said("call", arguments, item["name"], item["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                yield Said("result", _text_of(item.get("output")), id=item["call_id"])
            case "reasoning":
                yield Said("reasoning", _text_of(item.get("summary")))
            case _:
                yield Said("system", json.dumps(item))


def _said_anthropic(body: Json) -> Iterator[Said]:
    if body.get("system"):
        yield Said("system", _text_of(body["system"]))
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    yield Said(message["role"], block["text"])
                case "thinking":
                    yield Said("reasoning", block["thinking"])
                case "tool_use":
                    yield Said("call", json.dumps(block["input"]), block["name"], block["id"])
                case "tool_result":
                    yield Said("result", _text_of(block.get("content")), id=block["tool_use_id"])
                case _:
                    yield Said(message["role"], json.dumps(block))


def _said_gemini(body: Json) -> Iterator[Said]:
    if body.get("systemInstruction"):
        yield Said("system", _text_of(body["systemInstruction"].get("parts")))
    for content in body.get("contents", []):
        role: Literal["user", "assistant"] = (
            "assistant" if content.get("role") == "model" else "user"
        )
        for part in content.get("parts", []):
            if "functionCall" in part:
                call = part["functionCall"]
                yield Said(
                    "call", json.dumps(call.get("args", {})), call["name"], call.get("id", "")
                )
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                yield Said(
                    "result", _text_of(answer.get("response")), answer["name"], answer.get("id", "")
                )
            elif part.get("thought"):
                yield Said("reasoning", part.get("text", ""))
            else:
                yield Said(role, _text_of(part))
