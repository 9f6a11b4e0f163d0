"""What each SDK's own accumulator makes of the events, and what we recorded, in one plain form.

A list of tuples: what was said and thought, what was called, what is kept as it came.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from anthropic.lib.streaming._messages import accumulate_event
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

from killick.model.messages import Image, Opaque, Part, Reasoning, Text, ToolCall

Plain = list[tuple[Any, ...]]


class Accumulator(Protocol):
    def take(self, item: Any) -> None: ...
    def plain(self) -> Plain: ...


def joined(plain: Plain) -> Plain:
    """Neighbours of one kind as one: where a part ends is not what these tests are about."""
    found: Plain = []
    for one in plain:
        if found and one[0] == found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + one[1])
        elif one not in (("text", ""), ("thought", "", None)):
            found.append(one)
    return found


def recorded(parts: Sequence[Part]) -> Plain:
    plain: Plain = []
    for part in parts:
        match part:
            case Text(text):
                plain.append(("text", text))
            case Reasoning(text, signature, encrypted):
                plain.append(("thought", text, encrypted or signature))
            case ToolCall(call_id, name, arguments):
                plain.append(("call", call_id, name, arguments))
            case Image(_, media_type):
                plain.append(("image", media_type))
            case Opaque(_, data):
                value = json.loads(data)
                if "type" in value or "executable_code" in value or "outcome" in str(value):
                    plain.append(("kept", value))
    return joined(plain)


class Chat:
    def __init__(self) -> None:
        self._state: Any = ChatCompletionStreamState()
        self._any = False

    def take(self, item: Any) -> None:
        self._any = True
        self._state.handle_chunk(item)

    def plain(self) -> Plain:
        if not self._any:
            return []
        message = self._state.current_completion_snapshot.choices[0].message
        thought = (message.model_extra or {}).get("reasoning_content")
        plain: Plain = [("thought", thought or "", None), ("text", message.content or "")]
        plain += [("text", message.refusal or "")]
        for call in message.tool_calls or ():
            plain.append(("call", call.id, call.function.name, call.function.arguments or ""))
        return joined(plain)


class Messages:
    def __init__(self) -> None:
        self._snapshot: Any = None
        self._json: dict[int, bytes] = {}
        self._stopped: set[int] = set()

    def take(self, item: Any) -> None:
        if item.type == "content_block_stop":
            self._stopped.add(item.index)
        if item.type != "ping":
            self._snapshot = accumulate_event(
                event=item, current_snapshot=self._snapshot, json_bufs=self._json
            )

    def plain(self) -> Plain:
        plain: Plain = []
        for index, block in enumerate(self._snapshot.content if self._snapshot else ()):
            match block.type:
                case "text":
                    plain.append(("text", block.text))
                case "thinking":
                    plain.append(("thought", block.thinking, block.signature or None))
                case "redacted_thinking":
                    plain.append(("thought", "", block.data))
                case "tool_use":
                    text = self._json.get(index, b"").decode()
                    plain.append(("call", block.id, block.name, text))
                case _ if index in self._stopped:
                    plain.append(("kept", block.to_dict()))
        return joined(plain)


class Responses:
    """The SDK's own for text and calls; it leaves reasoning and custom input to its caller."""

    def __init__(self) -> None:
        self._state: Any = ResponseStreamState(input_tools=[], text_format=omit)
        self._grown: dict[int, str] = {}

    def take(self, item: Any) -> None:
        self._state.handle_event(item)
        index = getattr(item, "output_index", 0)
        if item.type.endswith((".reasoning_summary_text.delta", ".custom_tool_call_input.delta")):
            self._grown[index] = self._grown.get(index, "") + item.delta
        elif item.type == "response.reasoning_summary_part.added" and item.summary_index:
            self._grown[index] += "\n\n"

    def plain(self) -> Plain:
        done, begun = self._state._completed_output, self._state._output_items
        plain: Plain = []
        for index in sorted(begun):
            item = done.get(index, begun[index])
            match item.type:
                case "message":
                    plain += [("text", part.text) for part in item.content]
                case "reasoning":
                    plain.append(
                        ("thought", self._grown.get(index, ""), item.encrypted_content or None)
                    )
                case "function_call":
                    plain.append(("call", item.call_id, item.name, item.arguments))
                case "custom_tool_call":
                    plain.append(("call", item.call_id, item.name, self._grown.get(index, "")))
                case "image_generation_call" if index in done:
                    plain.append(("image", "image/png"))
                case _ if index in done:
                    plain.append(("kept", item.to_dict()))
        return joined(plain)


class Gemini:
    """The SDK has none; a caller appends parts to parts."""

    def __init__(self) -> None:
        self._plain: Plain = []

    def take(self, item: Any) -> None:
        for part in item.candidates[0].content.parts:
            if part.text is not None and part.thought:
                last = self._plain.pop()[1] if self._plain else ""
                self._plain.append(("thought", last + part.text, None))
            elif part.text is not None:
                self._plain.append(("text", part.text))
            elif part.function_call:
                call = part.function_call
                self._plain.append(("call", call.name, call.args))
            elif part.inline_data:
                self._plain.append(("image", part.inline_data.mime_type))
            else:
                self._plain.append(("kept", part.model_dump(mode="json", exclude_none=True)))

    def plain(self) -> Plain:
        return joined(self._plain)


ACCUMULATORS: dict[str, type[Accumulator]] = {
    "openai-chat": Chat,
    "openai-responses": Responses,
    "anthropic": Messages,
    "gemini": Gemini,
}


def without_ids(plain: Plain) -> Plain:
    """Gemini's calls have no ids and no text of their arguments; ours do."""
    return [(*one[:1], one[2], json.loads(one[3])) if one[0] == "call" else one for one in plain]
