"""A plain answer in each provider's events: some text, then some calls."""

import json
from collections.abc import Sequence
from typing import Any

from tests.recorders.corpora import Event, wire
from tests.recorders.server import Script

CallPiece = tuple[str, str]
"""An id and a tool's name; every call has the same small arguments."""

ARGUMENTS = {"place": "here"}


def answer(
    shape: str, words: list[str], calls: Sequence[CallPiece] = (), *, stalls: bool = False
) -> Script:
    """The script of one answer; one that stalls never comes to its end."""
    events = _SHAPES[shape](words, calls)
    if stalls:
        return Script(wire(shape, [one for one in events if not one.get("_end")]), "stall")
    return Script(wire(shape, events))


def plain_events(shape: str, words: list[str], calls: Sequence[CallPiece] = ()) -> list[Event]:
    return _SHAPES[shape](words, calls)


def _chat(words: list[str], calls: Sequence[CallPiece]) -> list[Event]:
    def chunk(delta: Event, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "_end": finish is not None}

    events = [chunk({"role": "assistant", "content": word}) for word in words]
    for index, (call_id, name) in enumerate(calls):
        head: Event = {"index": index, "id": call_id, "type": "function"}
        head["function"] = {"name": name, "arguments": ""}
        events.append(chunk({"tool_calls": [head]}))
        piece = {"index": index, "function": {"arguments": json.dumps(ARGUMENTS)}}
        events.append(chunk({"tool_calls": [piece]}))
    return [*events, chunk({}, "tool_calls" if calls else "stop")]


def _messages(words: list[str], calls: Sequence[CallPiece]) -> list[Event]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    events: list[Event] = [
        {"type": "message_start", "message": message | {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for word in words:
        delta = {"type": "text_delta", "text": word}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": "content_block_stop", "index": 0, "_end": True})
    for index, (call_id, name) in enumerate(calls, 1):
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    about = {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}}
    return [*events, about | {"_end": True}, {"type": "message_stop", "_end": True}]


def _responses(words: list[str], calls: Sequence[CallPiece]) -> list[Event]:
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    response |= {"status": "in_progress", "output": [], "tools": [], "tool_choice": "auto"}
    response |= {"parallel_tool_calls": True}
    part: Event = {"type": "output_text", "text": "", "annotations": []}
    item: Event = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    item["content"] = []
    where = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "logprobs": []}
    whole = item | {"status": "completed", "content": [part | {"text": "".join(words)}]}
    events: list[Event] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", "part": part, **where},
        *({"type": "response.output_text.delta", "delta": word, **where} for word in words),
        {"type": "response.output_item.done", "output_index": 0, "item": whole, "_end": True},
    ]
    items = [whole]
    for index, (call_id, name) in enumerate(calls, 1):
        call: Event = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id}
        call |= {"name": name, "arguments": json.dumps(ARGUMENTS), "status": "completed"}
        items.append(call)
        started = call | {"arguments": "", "status": "in_progress"}
        kind = "response.output_item"
        events.append({"type": f"{kind}.added", "output_index": index, "item": started})
        events.append({"type": f"{kind}.done", "output_index": index, "item": call})
    done = response | {"status": "completed", "output": items}
    events.append({"type": "response.completed", "response": done, "_end": True})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _gemini(words: list[str], calls: Sequence[CallPiece]) -> list[Event]:
    def chunk(parts: list[Event], **more: Any) -> Event:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, **more}]}

    events = [chunk([{"text": word}]) for word in words]
    for call_id, name in calls:
        call = {"id": call_id, "name": name, "args": ARGUMENTS}
        events.append(chunk([{"functionCall": call}]))
    return [*events, chunk([{"text": ""}], finishReason="STOP") | {"_end": True}]


_SHAPES = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
    "gemini": _gemini,
}
