"""A recorded session answers a test's requests, as the model did.

A request is answered if its conversation is, unit by unit, the beginning of the recorded one, and
an answer of the model follows there. Results of tools are compared by the ids of their calls alone:
they say times and paths.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from killick.model.messages import Message, Reasoning, Text, ToolCall
from killick.proxy.forward import ProxySettings, Receive, Scope, Send, _error, _respond, _target
from killick.proxy.history import conversation
from killick.proxy.launch import LOGGER, run
from killick.proxy.request import (
    Brought,
    NotUnderstood,
    RequestUnit,
    read_request,
    same,
    units_of,
)
from killick.proxy.wire import Unreadable, decoder_of, header, route_of, shape_of
from killick.recorders.model_call import Shape
from killick.server.connections import bind
from killick.server.log import Log
from killick.session.sync import Session


class Step(msgspec.Struct, frozen=True):
    """One unit of a recorded conversation; an answer has its message."""

    unit: RequestUnit
    words: str
    answer: Message | None = None


class Difference(msgspec.Struct, frozen=True):
    """The first place at which a request is not the recorded conversation."""

    place: int
    why: str


def steps_of(messages: Sequence[Message]) -> list[Step]:
    """Return the conversation that stored messages make."""
    by_seq = {message.seq: message for message in messages}
    steps = []
    for seq, unit in units_of(messages):
        message = by_seq[seq]
        answer = message if unit.role == "assistant" and message.state == "complete" else None
        steps.append(Step(unit, _words(unit.role, message.text), answer))
    return steps


def find_answer(steps: Sequence[Step], brought: Sequence[Brought]) -> Message | Difference:
    """Return the answer that was given to this conversation, or where it is another one."""
    for position, piece in enumerate(brought):
        if position >= len(steps):
            return Difference(position, f"the session ends before {_words_of(piece)}")
        step = steps[position]
        if not same(step.unit, piece.unit):
            return Difference(
                position, f"the request has {_words_of(piece)}, the session {step.words}"
            )
    if len(brought) >= len(steps):
        return Difference(len(brought), "the session has no answer to this")
    answer = steps[len(brought)].answer
    if answer is None:
        return Difference(len(brought), f"no whole answer follows, but {steps[len(brought)].words}")
    return answer


def _words_of(piece: Brought) -> str:
    return _words(piece.unit.role, piece.text)


def _words(role: str, text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return f"{role} {short!r}"


# -- answers in each shape -------------------------------------------------------------------------


def speak(shape: Shape, answer: Message, model: str, *, stream: bool) -> bytes:
    """Return an answer as a server of this shape sends it."""
    if not stream:
        return json.dumps(_WHOLE[shape](answer, model), ensure_ascii=False).encode()
    return b"".join(_EVENTS[shape](answer, model))


def _event(data: object, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name is not None else ""
    body = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {body}\n\n".encode()


def _calls(answer: Message) -> list[ToolCall]:
    return [c for c in answer.tool_calls if c.tool_type in ("function", "custom")]


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


def _chat_message(answer: Message) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in _calls(answer)
    ]
    return message | ({"tool_calls": calls} if calls else {})


def _chat_whole(answer: Message, model: str) -> dict[str, Any]:
    reason = "tool_calls" if _calls(answer) else "stop"
    choice = {"index": 0, "message": _chat_message(answer), "finish_reason": reason}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {"id": answer.id, "object": "chat.completion", "created": 0, "model": model,
            "choices": [choice], "usage": usage}  # fmt: skip


def _chat_events(answer: Message, model: str) -> Iterator[bytes]:
    whole = _chat_message(answer)
    calls = [{"index": n, **call} for n, call in enumerate(whole.pop("tool_calls", []))]
    deltas: list[dict[str, Any]] = [{**whole, **({"tool_calls": calls} if calls else {})}]
    for delta, reason in ((deltas[0], None), ({}, "tool_calls" if calls else "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield _event({"id": answer.id, "object": "chat.completion.chunk", "created": 0,
                      "model": model, "choices": [choice]})  # fmt: skip
    yield _event("[DONE]")


def _anthropic_blocks(answer: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in answer.parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Reasoning) and part.signature:
            blocks.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
        elif isinstance(part, ToolCall) and part.tool_type == "function":
            blocks.append({"type": "tool_use", "id": part.id, "name": part.name,
                           "input": _object(part.arguments)})  # fmt: skip
    return blocks


def _anthropic_whole(answer: Message, model: str) -> dict[str, Any]:
    reason = "tool_use" if _calls(answer) else "end_turn"
    return {"id": answer.id, "type": "message", "role": "assistant", "model": model,
            "content": _anthropic_blocks(answer), "stop_reason": reason, "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0}}  # fmt: skip


def _anthropic_events(answer: Message, model: str) -> Iterator[bytes]:
    whole = _anthropic_whole(answer, model)
    begun = {**whole, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": begun}, "message_start")
    for index, block in enumerate(whole["content"]):
        empty, deltas = _anthropic_pieces(block)
        start = {"type": "content_block_start", "index": index, "content_block": empty}
        yield _event(start, "content_block_start")
        for delta in deltas:
            piece = {"type": "content_block_delta", "index": index, "delta": delta}
            yield _event(piece, "content_block_delta")
        yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
    about = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    last = {"type": "message_delta", "delta": about, "usage": {"output_tokens": 0}}
    yield _event(last, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")


def _anthropic_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    text = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _responses_whole(answer: Message, model: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        output.append({"id": f"{answer.id}_m", "type": "message", "role": "assistant",
                       "status": "completed", "content": content})  # fmt: skip
    for n, call in enumerate(_calls(answer)):
        custom = call.tool_type == "custom"
        output.append({"id": f"{answer.id}_{n}", "call_id": call.id, "name": call.name,
                       "type": "custom_tool_call" if custom else "function_call",
                       "input" if custom else "arguments": call.arguments,
                       "status": "completed"})  # fmt: skip
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
             "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    return {"id": answer.id, "object": "response", "created_at": 0, "status": "completed",
            "model": model, "output": output, "usage": usage}  # fmt: skip


def _responses_events(answer: Message, model: str) -> Iterator[bytes]:
    whole = _responses_whole(answer, model)
    begun = {**whole, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        where = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            empty = {**item, "content": [], "status": "in_progress"}
            events.append({"type": "response.output_item.added", "item": empty, **where})
            events.append({"type": "response.output_text.delta", "content_index": 0,
                           "delta": item["content"][0]["text"], **where})  # fmt: skip
        else:
            events.append({"type": "response.output_item.added", "item": item, **where})
        events.append({"type": "response.output_item.done", "item": item, **where})
    events.append({"type": "response.completed", "response": whole})
    for number, event in enumerate(events):
        yield _event({**event, "sequence_number": number}, str(event["type"]))


def _gemini_whole(answer: Message, model: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": answer.text}] if answer.text else []
    parts += [
        {"functionCall": {"id": c.id, "name": c.name, "args": _object(c.arguments)}}
        for c in _calls(answer)
    ]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "modelVersion": model, "responseId": answer.id}


def _gemini_events(answer: Message, model: str) -> Iterator[bytes]:
    yield _event(_gemini_whole(answer, model))


_WHOLE = {
    "openai-chat": _chat_whole,
    "openai-responses": _responses_whole,
    "anthropic": _anthropic_whole,
    "gemini": _gemini_whole,
}
_EVENTS = {
    "openai-chat": _chat_events,
    "openai-responses": _responses_events,
    "anthropic": _anthropic_events,
    "gemini": _gemini_events,
}


# -- serving ---------------------------------------------------------------------------------------


class Replay:
    """A recorded session, as an ASGI application."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        route = route_of(_target(scope))
        shape = shape_of(scope["method"], route.path)
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if shape is None:
            await _error(send, None, 404, "Only requests to a model are answered from a session.")
            return
        try:
            decoded = decoder_of(header(scope["headers"], b"content-encoding"))(bytes(body))
            request = read_request(shape, route.path, decoded)
        except (NotUnderstood, Unreadable) as error:
            await _error(send, shape, 400, str(error))
            return
        answer = find_answer(self._steps, conversation(request))
        if isinstance(answer, Difference):
            text = f"Not in the recorded session, from unit {answer.place + 1} on: {answer.why}"
            await _error(send, shape, 409, text)
            return
        model = request.asked.get("model")
        spoken = speak(shape, answer, str(model or "replay"), stream=request.stream)
        kind = b"text/event-stream" if request.stream else b"application/json"
        await _respond(send, 200, kind, spoken)


async def serve_replay(session: Session, settings: ProxySettings, ready: Any) -> None:
    """Answer requests from a session until a signal comes."""
    steps = steps_of(session.messages())
    listener = bind(settings.host, settings.port)
    try:
        await run(Replay(steps), listener, settings, Log(LOGGER), ready)
    finally:
        listener.close()
