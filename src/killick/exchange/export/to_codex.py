"""A session as a rollout of Codex, to be put under `sessions/` of its home.

It is written in the `legacy` history mode, which every version reads: items for the model, and
events beside them for the person. It names no provider of the model: Codex refuses a session whose
provider it does not know, and takes its own where none is named.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from killick.exchange.export.handover import (
    Answered,
    Handover,
    Holds,
    Spoken,
    base64,
    iso,
    json_line,
)
from killick.exchange.export.native import (
    Losses,
    NativeLine,
    NativeLines,
    NativeTalk,
    hold_image,
    hold_result,
    utf8,
)
from killick.journal.kinds import digest
from killick.model import entries as e
from killick.model.messages import Image, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult
from killick.model.sessions import TurnInfo

_WITHOUT_FLOATS: Final = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "user_message", "agent_message", "task_started", "task_complete",
    "turn_aborted", "token_count",
}  # fmt: skip
"""Kinds of records that hold texts and whole numbers, and nothing that was kept as it came."""
_KNOWN: Final = {"interrupted", "replaced", "review_ended", "budget_limited"}


class ToCodex:
    """See `native.Target`."""

    name = "codex"
    suffix = ".jsonl"

    def hold(self, part: Part, role: Role, losses: Losses) -> Part | None:
        match part:
            case Text():
                return part if part.text else None
            case Image():
                return hold_image(part, losses)
            case Reasoning():
                return _reasoning(part, losses)
            case ToolCall():
                return _call(part, losses)
            case ToolResult():
                return _result(part, losses)
            case Opaque(provider="codex-item") if role == "assistant":
                return part
            case Opaque():
                losses.add("a provider's own data")
            case _:
                losses.add("files")
        return None

    def hold_turn(self, turn: TurnInfo, losses: Losses) -> None:
        if turn.status == "failed":
            losses.add("that a turn failed: it is said to be interrupted")
        elif turn.status == "interrupted" and turn.reason not in _KNOWN:
            losses.add("why a turn was interrupted")

    def hold_line(self, line: NativeLine, losses: Losses) -> NativeLine | None:
        if not line.model:
            losses.add("messages that are hidden from the model: they are left out")
            return None
        if not line.person and line.message.role != "system":
            losses.add("that a message is hidden from the person")
        return line

    def expected(self, talk: NativeTalk) -> Iterator[tuple[Role, tuple[Part, ...]]]:
        return ((line.message.role, tuple(line.message.parts)) for line in talk.lines())

    def write(self, talk: NativeTalk) -> Iterator[bytes]:
        return _Writing(talk).lines()


def _reasoning(part: Reasoning, losses: Losses) -> Reasoning | None:
    if part.signature is not None:
        losses.add("signatures of reasoning")
    if not part.text and part.encrypted is None:
        return None
    return Reasoning(part.text, encrypted=part.encrypted or None)


def _call(part: ToolCall, losses: Losses) -> ToolCall:
    if part.tool_type not in ("function", "custom"):
        losses.add("what kind of tool was called")
        return ToolCall(part.id, part.name, part.arguments)
    return part


def _result(part: ToolResult, losses: Losses) -> ToolResult:
    if part.is_error:
        losses.add("that a result was an error")
    if part.structured is not None:
        losses.add("structured results")
    return ToolResult(part.call_id, hold_result(part, losses).content)


@lru_cache(maxsize=16)
def _stamp(at_us: int) -> str:
    """Return a time; the lines of a message have the same."""
    return iso(at_us)


def _json_bytes(record: dict[str, Any]) -> bytes:
    """Return a record as Python's own encoder writes it; where there are no floats, faster."""
    if record["payload"].get("type") in _WITHOUT_FLOATS:
        with suppress(UnicodeEncodeError):
            return msgspec.json.format(msgspec.json.encode(record), indent=0)
    return utf8(json.dumps(record, ensure_ascii=False))


class _Writing:
    """The lines of one rollout."""

    def __init__(self, talk: NativeTalk) -> None:
        self._talk = talk
        self._id = thread_id(talk.info.id, talk.info.created_at_us)
        self._custom: set[str] = set()
        self._total: dict[str, int] = {}
        self._model = next((lines.model for _, lines in talk.turns if lines.model), "unknown")
        self._waiting = sorted(talk.summaries, key=lambda summary: summary[1].through)

    def lines(self) -> Iterator[bytes]:
        yield self._meta()
        for turn, lines in self._talk.turns:
            yield from self._turn(turn, lines)
        yield from self._summaries(1 << 62, self._talk.info.updated_at_us)

    def _line(self, at_us: int, kind: str, **payload: Any) -> bytes:
        record = {"timestamp": _stamp(at_us), "type": kind, "payload": payload}
        return _json_bytes(record) + b"\n"

    def _event(self, at_us: int, kind: str, **payload: Any) -> bytes:
        return self._line(at_us, "event_msg", type=kind, **payload)

    def _item(self, at_us: int, kind: str, **payload: Any) -> bytes:
        return self._line(at_us, "response_item", type=kind, **payload)

    def _meta(self) -> bytes:
        talk, project = self._talk, self._talk.info.project
        at = talk.info.created_at_us
        more = {} if talk.system is None else {"base_instructions": {"text": talk.system}}
        return self._line(
            at,
            "session_meta",
            id=self._id,
            session_id=self._id,
            timestamp=_stamp(at),
            cwd=(project.directory or project.root) if project is not None else "/",
            originator="killick",
            cli_version="0.0.0",
            source="cli",
            history_mode="legacy",
            **more,
        )

    def _turn(self, turn: TurnInfo, lines: NativeLines) -> Iterator[bytes]:
        begun, ended = turn.started_at_us, turn.ended_at_us or turn.started_at_us
        self._model = lines.model or self._model
        yield self._event(begun, "task_started", turn_id=turn.id, model_context_window=None)
        project = self._talk.info.project
        yield self._line(
            begun,
            "turn_context",
            turn_id=turn.id,
            cwd=(project.directory or project.root) if project is not None else "/",
            approval_policy="on-request",
            sandbox_policy={"type": "read-only"},
            model=self._model,
            summary="auto",
        )
        last = None
        for line in lines:
            yield from self._summaries(line.message.seq, line.at_us)
            yield from self._message(line)
            if line.message.role == "assistant" and line.message.text:
                last = line.message.text
        if turn.status == "completed":
            yield self._event(ended, "task_complete", turn_id=turn.id, last_agent_message=last)
            return
        reason = turn.reason if turn.status == "interrupted" and turn.reason in _KNOWN else None
        yield self._event(ended, "turn_aborted", turn_id=turn.id, reason=reason or "interrupted")

    def _message(self, line: NativeLine) -> Iterator[bytes]:
        at = line.at_us
        yield from (self._line(at, "response_item", **item) for item in self._items(line))
        message = line.message
        match message.role:
            case "user":
                yield self._event(at, "user_message", message=message.text, local_images=[])
            case "assistant":
                if message.text:
                    yield self._event(at, "agent_message", message=message.text)
                yield self._event(at, "token_count", info=self._used(line.usage), rate_limits=None)
            case _:
                pass

    def _items(self, line: NativeLine) -> Iterator[dict[str, Any]]:
        message = line.message
        role = {"system": "developer"}.get(message.role, message.role)
        spoken = list[dict[str, Any]]()
        for part in (*message.parts, None):
            if isinstance(part, Text | Image):
                spoken.append(self._content(part, message.role))
                continue
            if spoken:
                yield {"type": "message", "role": role, "content": spoken}
                spoken = []
            if part is not None:
                yield self._part(part)

    def _content(self, part: Text | Image, role: Role) -> dict[str, Any]:
        if isinstance(part, Image):
            data = b64encode(self._talk.blobs(part.blob) or b"").decode("ascii")
            return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{data}"}
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Reasoning():
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                return {
                    "type": "reasoning",
                    "summary": summary,
                    "encrypted_content": part.encrypted,
                }
            case ToolCall(tool_type="custom"):
                self._custom.add(part.id)
                return {"type": "custom_tool_call", "call_id": part.id, "name": part.name,
                        "input": part.arguments}  # fmt: skip
            case ToolCall():
                return {"type": "function_call", "name": part.name, "call_id": part.id,
                        "arguments": part.arguments}  # fmt: skip
            case ToolResult():
                kind = "custom_tool_call" if part.call_id in self._custom else "function_call"
                output = part.content if isinstance(part.content, str) else [
                    self._content(inner, "tool") for inner in part.content
                    if isinstance(inner, Text | Image)
                ]  # fmt: skip
                return {"type": f"{kind}_output", "call_id": part.call_id, "output": output}
            case Opaque():
                item: dict[str, Any] = msgspec.json.decode(part.data)
                return item
            case _:
                raise TypeError(f"not to be written: {part!r}")

    def _used(self, usage: e.Usage | None) -> dict[str, Any]:
        used = usage or e.Usage()
        last = {
            "input_tokens": used.input, "cached_input_tokens": used.cached,
            "output_tokens": used.output, "reasoning_output_tokens": used.reasoning,
            "total_tokens": used.input + used.output,
        }  # fmt: skip
        self._total = {name: self._total.get(name, 0) + count for name, count in last.items()}
        return {"total_token_usage": self._total, "last_token_usage": last}

    def _summaries(self, before: int, at_us: int) -> Iterator[bytes]:
        """Yield the compactions whose last message was written."""
        while self._waiting and self._waiting[0][1].through < before:
            _, body = self._waiting.pop(0)
            yield self._line(
                at_us,
                "compacted",
                message=body.summary,
                replacement_history=list(self._replacement(body)),
            )

    def _replacement(self, body: e.Compacted) -> Iterator[dict[str, Any]]:
        """Yield what Codex then sends the model: instructions, kept messages, the summary."""
        keep = set(body.keep)
        for line in self._talk.lines(
            lambda seq: seq < body.first or (seq <= body.through and seq in keep)
        ):
            yield from self._items(line)
        text = [{"type": "input_text", "text": body.summary}]
        yield {"type": "message", "role": "user", "content": text}


def thread_id(session_id: str, at_us: int) -> str:
    """Return a UUID of version 7, as Codex needs it, from the session's time and id."""
    rest = int(digest(session_id.encode("utf-8", "surrogatepass"))[-19:], 16)
    value = (max(at_us, 0) // 1_000 & (1 << 48) - 1) << 80 | 7 << 76 | 2 << 62
    value |= (rest & (1 << 12) - 1) << 64 | (rest >> 12 & (1 << 62) - 1)
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


# -- to go on there --------------------------------------------------------------------------------

HOLDS: Final = Holds(
    images=True, reasoning=lambda part, provider: provider == "openai" and bool(part.encrypted)
)


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of a rollout with what a model would be sent now."""
    at = iso(handover.created_us)
    meta = {"id": handover.native_id, "session_id": handover.native_id, "timestamp": at}
    meta |= {"cwd": handover.folder, "originator": "killick", "cli_version": "0.0.0"}
    meta |= {"source": "cli", "history_mode": "legacy"}
    yield json_line({"timestamp": at, "type": "session_meta", "payload": meta})
    for item in handover.items:
        for kind, payload in _records(item):
            yield json_line({"timestamp": iso(item.at_us), "type": kind, "payload": payload})


def _records(item: Spoken | Answered) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(item, Answered):
        output = item.text if not item.images else _contents(item.text, item.images, "input_text")
        result = {"type": "function_call_output", "call_id": item.call_id, "output": output}
        yield "response_item", result
        return
    for part in item.reasoning:
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        thought = {"type": "reasoning", "summary": summary, "encrypted_content": part.encrypted}
        yield "response_item", thought
    kind = "output_text" if item.role == "assistant" else "input_text"
    if content := _contents(item.text, item.images, kind):
        yield "response_item", {"type": "message", "role": item.role, "content": content}
    if item.role == "user" and not item.synthetic:
        shown = {"type": "user_message", "message": item.text, "local_images": []}
        yield "event_msg", shown
    elif item.role == "assistant" and item.text:
        yield "event_msg", {"type": "agent_message", "message": item.text}
    for call in item.calls:
        made = {"type": "function_call", "name": call.name, "call_id": call.id}
        yield "response_item", made | {"arguments": call.arguments}


def _contents(text: str, images: list[tuple[str, bytes]], kind: str) -> list[dict[str, Any]]:
    words = [{"type": kind, "text": text}] if text else []
    urls = (f"data:{kind};base64,{base64(data)}" for kind, data in images)
    return [*words, *({"type": "input_image", "image_url": url} for url in urls)]
