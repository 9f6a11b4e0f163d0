"""One conversation of an editor with an ACP agent, recorded as it passes.

The protocol shows an editor what an agent says and does, not the requests to its model. So a
message is what came between two results, and a call has the name and input that the editor was
shown. A call is recorded when it is announced, its start when the agent says `in_progress`, and
its result when it says `completed` or `failed`. Not every agent says `in_progress`: turns have
`starts="unseen"`, so a call without a result is told as unknown, never as not run.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from killick.exchange.recap import unfold
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.messages import Image, Message, Part, Text, ToolCall, ToolResult
from killick.session.sync import Session
from killick.session.sync_blocks import Stream, Tool, Turn
from killick.views.transcript import Shown, ShownTool

Json = dict[str, Any]
PutBlob = Callable[[bytes], str]
_LATER_INPUT: Final = "killick.acp.input"
_UNKNOWN: Final = "[The outcome of this tool call is unknown. Check it before repeating it.]"


class AcpCall(msgspec.Struct):
    """A tool call as far as the agent has told of it."""

    id: str
    """Its id in the journal: an agent may use one of its own twice in a turn."""
    name: str
    title: str = ""
    input: Any = None
    written: str | None = None
    """The arguments, once they are recorded."""
    tool: Tool | None = None
    printed: str = ""
    content: list[Any] = []
    over: bool = False


class AcpConversation:
    """Records one session. `turn` is the one that a prompt of the editor runs now."""

    def __init__(self, session: Session, put_blob: PutBlob) -> None:
        self.session = session
        self.turn: Turn | None = None
        self.is_cancelled = False
        self._put_blob = put_blob
        self._stream: Stream | None = None
        self._message_id: str | None = None
        self._is_answered = False
        self._calls: dict[str, AcpCall] = {}
        self._left: dict[str, tuple[str, AcpCall]] = {}
        """Calls without a result of turns that are over, with the ids of these."""

    # -- turns ---------------------------------------------------------------------------------

    def begin(self, blocks: object) -> None:
        """Begin a turn with the editor's prompt, durable on return.

        If interrupted: the turn has begun or it has not.
        """
        parts = list(prompt_parts(blocks, self._put_blob))
        turn = self.session.turn(parts or None, starts="unseen")
        turn.begin()
        self.turn, self.is_cancelled, self._is_answered = turn, False, False

    def end(
        self, *, cause: Cause | None = None, error: BaseException | None = None,
        usage: e.Usage | None = None, reason: str | None = None,
    ) -> None:  # fmt: skip
        """End the turn that runs, durable on return. If interrupted: the ending is written."""
        turn = self.turn
        if turn is None:
            return
        try:
            if error is None and cause is None and self._stream is not None:
                self._stream.finish(finish_reason=reason, usage=usage)
                self._close_stream()
        except BaseException as failed:
            error = failed
            raise
        finally:
            self.turn = self._stream = None
            open_calls = {native: call for native, call in self._calls.items() if not call.over}
            self._left |= {native: (turn.id, call) for native, call in open_calls.items()}
            self._calls = {}
            turn.end(error, cause)

    # -- what the agent tells ------------------------------------------------------------------

    def take(self, update: Json) -> None:
        """Record one update. What comes while no prompt runs is a replay, or late."""
        kind = update.get("sessionUpdate")
        if kind == "session_info_update" and isinstance(update.get("title"), str):
            self.session.rename(update["title"], by="model")
        elif kind == "tool_call_update" and self._is_late(update):
            self._take_late(update)
        elif self.turn is None:
            return
        elif kind == "agent_message_chunk":
            text = block_text(update.get("content"))
            if text:
                self._spoken(update).text(text)
        elif kind == "agent_thought_chunk":
            text = block_text(update.get("content"))
            if text:
                self._spoken(update).reasoning(text)
        elif kind in ("tool_call", "tool_call_update"):
            self._take_call(update)

    def ask(self, call: Json) -> e.ApprovalAsked | None:
        """Record that a call waits for the person, durable on return."""
        if self.turn is None:
            return None
        known = self._call({**call, "sessionUpdate": "tool_call_update"})
        if known is None or known.tool is not None or known.over:
            return None
        self._write(known)
        return self.turn.ask_approval(known.id, known.written or "{}")

    def _spoken(self, update: Json) -> Stream:
        """Return the message that words belong to; words after a result begin a new one."""
        message_id = update.get("messageId")
        changed = isinstance(message_id, str) and message_id != self._message_id
        if self._stream is not None and (self._is_answered or (changed and self._message_id)):
            self._close_stream()
        self._message_id = message_id if isinstance(message_id, str) else None
        return self._open_stream()

    def _open_stream(self) -> Stream:
        assert self.turn is not None
        if self._stream is None:
            self._stream = self.turn.stream().begin()
            self._is_answered = False
        return self._stream

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._write_all()
            stream, self._stream = self._stream, None
            stream.end()

    # -- tools ---------------------------------------------------------------------------------

    def _take_call(self, update: Json) -> None:
        known = self._call(update)
        if known is None or known.over:
            return
        status = update.get("status")
        is_first = known.written is None
        if status in ("in_progress", "completed", "failed") or _is_input(known.input):
            self._write(known)
        if status == "in_progress" and known.tool is None:
            assert self.turn is not None
            known.tool = self.turn.tool(known.id).begin()
        if known.tool is not None and status not in ("completed", "failed"):
            self._print(known)
        if status in ("completed", "failed"):
            self._finish(known, update, is_error=status == "failed")
        elif not is_first and known.written != _arguments(known) and _is_input(known.input):
            self.session.note(_LATER_INPUT, {"call": known.id, "input": known.input})
            known.written = _arguments(known)

    def _call(self, update: Json) -> AcpCall | None:
        """Return the call that an update is about, with what the update adds to it."""
        native = update.get("toolCallId")
        if not isinstance(native, str) or not native:
            return None
        known = self._calls.get(native)
        begins_again = known is not None and known.over and update["sessionUpdate"] == "tool_call"
        if known is None or begins_again:
            number = sum(1 for call in self._calls.values() if call.id.startswith(f"{native}#"))
            name = native if known is None else f"{native}#{number + 2}"
            if begins_again and known is not None:
                self._calls[known.id] = known
            if self._stream is not None and self._is_answered and not self._is_waiting():
                self._close_stream()
            known = self._calls[native] = AcpCall(name, _name(update))
            if self.turn is not None:  # its head is there, if nothing else comes
                self._open_stream().tool_call(known.id, name=known.name)
        if isinstance(update.get("title"), str):
            known.title = update["title"]
        if update.get("rawInput") is not None:
            known.input = update["rawInput"]
        if isinstance(update.get("content"), list):
            known.content = update["content"]
        return known

    def _is_waiting(self) -> bool:
        return any(call.written is None for call in self._calls.values())

    def _write(self, call: AcpCall) -> None:
        """Hand the arguments over, once: from here on the call is whole."""
        if call.written is None:
            call.written = _arguments(call)
            self._open_stream().tool_call(call.id, arguments=call.written)

    def _write_all(self) -> None:
        for call in self._calls.values():
            self._write(call)

    def _print(self, call: AcpCall) -> None:
        """Hand over what the output has grown by; an agent repeats it from the beginning."""
        text = content_text(call.content)
        assert call.tool is not None
        new = text.removeprefix(call.printed) if text.startswith(call.printed) else f"\n{text}"
        if new:
            call.tool.output(new)
            call.printed = text

    def _finish(self, call: AcpCall, update: Json, *, is_error: bool) -> None:
        """Record a result, durable on return; one whose start was not told, without a start."""
        assert self.turn is not None
        content, structured = _result(call, update)
        if not self._is_waiting():
            self._close_stream()
        self._is_answered = call.over = True
        if call.tool is not None:
            call.tool.finish(content, is_error=is_error, structured=structured)
            call.tool.end()
            return
        result = ToolResult(call.id, content, is_error, structured)
        self.turn.record(Message(role="tool", parts=[result]))

    def _is_late(self, update: Json) -> bool:
        native = update.get("toolCallId")
        return isinstance(native, str) and native in self._left and native not in self._calls

    def _take_late(self, update: Json) -> None:
        """Keep the result of a call whose turn has ended."""
        status = update.get("status")
        if status in ("completed", "failed"):
            turn_id, call = self._left.pop(update["toolCallId"])
            content, structured = _result(call, update)
            self.session.finish_tool(
                turn_id, call.id, content, is_error=status == "failed", structured=structured
            )


# -- the protocol's values ---------------------------------------------------------------------


def prompt_parts(blocks: object, put_blob: PutBlob) -> Iterator[Part]:
    """Yield the parts of a prompt."""
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        data = block.get("data")
        if block.get("type") == "image" and isinstance(data, str):
            try:
                yield Image(put_blob(b64decode(data)), str(block.get("mimeType") or "image/png"))
            except ValueError:
                yield Text("[an image that is no base64]")
        elif block_text(block):
            yield Text(block_text(block))


def block_text(block: object) -> str:
    """Return a content block as text."""
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "resource_link":
            return f"[{block.get('name') or 'resource'}]({block.get('uri')})"
        case "resource":
            inner = block.get("resource")
            inner = inner if isinstance(inner, dict) else {}
            return f"[{inner.get('uri')}]\n{inner.get('text') or ''}"
        case str() as kind:
            return f"[{kind}]"
        case _:
            return ""


def content_text(content: Iterable[object]) -> str:
    """Return the content of a tool call as text; of a change to a file, its new text."""
    texts = []
    for item in content:
        if not isinstance(item, dict):
            continue
        match item.get("type"):
            case "content":
                texts.append(block_text(item.get("content")))
            case "diff":
                texts.append(f"[{item.get('path')}]\n{item.get('newText') or ''}")
            case _:
                pass
    return "\n".join(filter(None, texts))


def _result(call: AcpCall, update: Json) -> tuple[str, Any]:
    """Return a result's text, and beside it what text cannot hold."""
    raw = update.get("rawOutput")
    content = update.get("content")
    text = content_text(content if isinstance(content, list) else call.content)
    if not text and raw is not None:
        text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    diffs = [item for item in call.content if isinstance(item, dict) and item.get("type") == "diff"]
    return text, {"diffs": diffs} if diffs else None


def _name(update: Json) -> str:
    """Return the name of a tool, where the agent tells it; else its kind."""
    meta = update.get("_meta")
    metas = [meta, *meta.values()] if isinstance(meta, dict) else []
    for each in metas:
        if isinstance(each, dict) and isinstance(each.get("toolName"), str):
            return str(each["toolName"]) or "tool"
    kind = update.get("kind")
    return kind if isinstance(kind, str) and kind else "tool"


def _is_input(value: object) -> bool:
    """Tell whether an input says what is done; opencode announces a call with its folder alone."""
    return isinstance(value, dict) and bool(set(value) - {"cwd"})


def _arguments(call: AcpCall) -> str:
    value = call.input if _is_input(call.input) else {"title": call.title}
    return json.dumps(value, ensure_ascii=False)


def replay(shown: Iterable[Shown]) -> Iterator[Json]:
    """Yield a transcript as the updates that an agent replays when it loads a session."""
    for item in unfold(list(shown)):
        if item.kind != "message":
            continue
        kind = "user_message_chunk" if item.role == "user" else "agent_message_chunk"
        if item.text:
            yield {"sessionUpdate": kind, "content": {"type": "text", "text": item.text}}
        for tool in item.tools:
            yield _replayed(tool, item.seq)


def _replayed(tool: ShownTool, seq: int) -> Json:
    result = tool.result
    text = _UNKNOWN if result is None else _plain(result)
    arguments = ToolCall(tool.call_id, tool.name, tool.arguments).arguments
    try:
        given = json.loads(arguments)
    except ValueError:
        given = {"input": arguments}
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": f"{seq}/{tool.call_id}",
        "title": tool.name,
        "status": "completed" if tool.state == "finished" else "failed",
        "rawInput": given,
        "content": [{"type": "content", "content": {"type": "text", "text": text}}],
    }


def _plain(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part.text for part in result.content if isinstance(part, Text))
