"""Events of parts, endings and messages to those of AG-UI. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from killick.model import entries as e
from killick.model.messages import Reasoning, Text, ToolCall, ToolResult
from killick.session.parts import PartEvent
from killick.views.formats.common import result_text

AgUiEvent = dict[str, Any]


def of_part(event: PartEvent) -> list[AgUiEvent]:
    """Return the events of AG-UI for the start, a piece or the end of a part.

    The id of a call is its message's and its own: providers use an id again.
    """
    message_id = f"{event.message_id}:{event.index}"
    match event.type, event.kind:
        case "text", "start":
            return [_event("TEXT_MESSAGE_START", messageId=message_id, role=event.role)]
        case "text", "delta":
            return [_event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=event.text)]
        case "text", "end":
            return [_event("TEXT_MESSAGE_END", messageId=message_id)]
        case "reasoning", _:
            return _reasoning(event, message_id)
        case "tool_call", _:
            return _call(event)
        case "tool_result", "end" if isinstance(event.part, ToolResult):
            return [
                _event(
                    "TOOL_CALL_RESULT",
                    messageId=f"{event.message_id}:result",
                    toolCallId=event.message_id,
                    content=result_text(event.part),
                    role="tool",
                )
            ]
        case _:
            return []


def _reasoning(event: PartEvent, message_id: str) -> list[AgUiEvent]:
    about = {"messageId": message_id}
    if event.kind == "start":
        begun = _event("REASONING_START", **about)
        return [begun, _event("REASONING_MESSAGE_START", **about, role="reasoning")]
    if event.kind == "delta":
        return [_event("REASONING_MESSAGE_CONTENT", **about, delta=event.text)]
    return [_event("REASONING_MESSAGE_END", **about), _event("REASONING_END", **about)]


def _call(event: PartEvent) -> list[AgUiEvent]:
    call_id = f"{event.message_id}/{event.call_id}"
    if event.kind == "start":
        name = event.part.name if isinstance(event.part, ToolCall) else "tool"
        return [_event("TOOL_CALL_START", toolCallId=call_id, toolCallName=name)]
    if event.kind == "delta":
        return [_event("TOOL_CALL_ARGS", toolCallId=call_id, delta=event.text)]
    return [_event("TOOL_CALL_END", toolCallId=call_id)]


def started(thread_id: str, run_id: str) -> AgUiEvent:
    return _event("RUN_STARTED", threadId=thread_id, runId=run_id)


def ending(
    ended: e.TurnEnding, waiting: Sequence[e.ApprovalAsked], thread_id: str, run_id: str
) -> AgUiEvent:
    """Return the event that ends a run; a turn that waited for a person then is an interrupt."""
    if ended.status == "failed":
        message = ended.reason or "the run failed"
        return _event("RUN_ERROR", message=message, code=ended.cause or "failed")
    outcome: dict[str, Any] = {"type": "success"}
    if ended.status == "interrupted":
        outcome = {"type": "cancelled"}
        if waiting:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(asked) for asked in waiting]}
    return _event("RUN_FINISHED", threadId=thread_id, runId=run_id, outcome=outcome)


def _interrupt(asked: e.ApprovalAsked) -> dict[str, Any]:
    call_id = f"{asked.message_id}/{asked.call_id}"
    return {"id": asked.id, "reason": "tool_call", "toolCallId": call_id}


def waiting_at_the_end(
    entries: Iterable[e.Entry], turn_id: str
) -> tuple[e.TurnEnding | None, list[e.ApprovalAsked]]:
    """Return how a turn ended, and what it had asked that was not decided by then."""
    asked: dict[str, e.ApprovalAsked] = {}
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked(turn_id=asker) as body if asker == turn_id:
                asked[body.id] = body
            case e.ApprovalDecided(id=name):
                asked.pop(name, None)
            case e.TurnEnding(turn_id=over) as body if over == turn_id:
                return body, list(asked.values())
            case _:
                pass
    return None, []


def snapshot(messages: Iterable[Any]) -> AgUiEvent:
    """Return `session.messages()` as one event, for a client that comes anew."""
    shown: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            shown += [
                {
                    "id": f"{message.id}:result",
                    "role": "tool",
                    "toolCallId": message.id,
                    "content": result_text(part),
                }
                for part in message.parts
                if isinstance(part, ToolResult)
            ]
        else:
            shown += _said(message)
    return _event("MESSAGES_SNAPSHOT", messages=shown)


def _said(message: Any) -> list[dict[str, Any]]:
    """Return a message part by part, as a client has it that followed the run."""
    shown: list[dict[str, Any]] = []
    for index, part in enumerate(message.parts):
        about = {"id": f"{message.id}:{index}", "role": message.role}
        match part:
            case Text(text=text):
                shown.append({**about, "content": text})
            case Reasoning(text=text):
                shown.append({**about, "role": "reasoning", "content": text})
            case ToolCall():
                function = {"name": part.name, "arguments": part.arguments}
                call_id = f"{message.id}/{part.id}"
                call = {"id": call_id, "type": "function", "function": function}
                shown.append({"id": call_id, "role": "assistant", "toolCalls": [call]})
            case _:
                pass
    return shown


def _event(kind: str, **fields: Any) -> AgUiEvent:
    return {"type": kind, **fields}
