"""What the providers' shapes share."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from killick.journal.assembly import is_whole_object
from killick.model.messages import File, Image, Opaque, Text, ToolCall, ToolResult
from killick.views import media
from killick.views.media import Blobs
from killick.views.neutral import Neutral, Repair

Json = dict[str, Any]
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_GEMINI: Final = frozenset(
    {"text", "inline_data", "file_data", "executable_code", "code_execution_result"}
)
"""One of these makes an object a part of Gemini's; the others' blocks have a type."""


class Rendered:
    """A provider's messages, and for each the entries that it comes from."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._seqs: list[list[int]] = []

    @property
    def origins(self) -> list[tuple[int, ...]]:
        return [tuple(dict.fromkeys(seqs)) for seqs in self._seqs]

    def add(self, message: Json, seqs: tuple[int, ...]) -> None:
        self.messages.append(message)
        self._seqs.append(list(seqs))

    def extend_last(self, seqs: tuple[int, ...]) -> None:
        """The last message was given more content from these entries."""
        self._seqs[-1] += seqs


class RenderOptions(msgspec.Struct, frozen=True):
    """How a context is to be rendered, and where to say what had to be left out."""

    blobs: Blobs
    repairs: list[Repair]
    reasoning: bool = True

    def left_out(self, one: Neutral, what: str) -> None:
        self.repairs.append(Repair(one.seqs[0] if one.seqs else 0, "left out", what))

    def load(
        self, part: Image | File, one: Neutral, images: frozenset[str] = media.IMAGES
    ) -> media.Media | str:
        """The media that a part names, or what is said in its place."""
        loaded = media.load(part, self.blobs, images=images)
        if isinstance(loaded, str):
            self.left_out(one, f"{part.media_type} that the provider does not take")
        return loaded


Render = Callable[[Sequence[Neutral], RenderOptions], Rendered]


def clean(text: str) -> str:
    """Text that UTF-8 can carry: a request with a lone surrogate is refused whole."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def is_clean(*texts: str | None) -> bool:
    """Whether signed text can be passed on exactly; if not, its block is left out."""
    return not any(_SURROGATES.search(text) for text in texts if text)


def arguments_text(call: ToolCall) -> str:
    """Arguments as JSON text of an object, which is what providers demand to see again."""
    if call.tool_type != "custom" and _is_sendable(call.arguments):
        return clean(call.arguments)
    if not call.arguments.strip():
        return "{}"
    name = "input" if call.tool_type == "custom" else "arguments"
    return json.dumps({name: clean(call.arguments)}, ensure_ascii=False)


def _is_sendable(arguments: str) -> bool:
    """Whether a provider can read this back: an object, finite numbers, no lone surrogates."""
    if not is_whole_object(arguments):
        return False
    try:
        return is_clean(json.dumps(json.loads(arguments), allow_nan=False, ensure_ascii=False))
    except ValueError:
        return False


def arguments_object(call: ToolCall) -> Json:
    """Arguments as an object."""
    value: Json = json.loads(arguments_text(call), parse_constant=str)
    return value


def result_text(result: ToolResult) -> str:
    """A result as text, for providers that take nothing else; never empty."""
    if isinstance(result.content, str):
        text = result.content
    else:
        text = "\n".join(part.text for part in result.content if isinstance(part, Text))
    if not text.strip() and result.structured is not None:
        text = json.dumps(result.structured, ensure_ascii=False)
    return clean(text) if text.strip() else "(no output)"


def opaque_object(part: Opaque, provider: str, one: Neutral, options: RenderOptions) -> Json | None:
    """A provider's own data for that provider, and for no other."""
    value = None
    if part.provider == provider:
        try:
            value = json.loads(part.data)
        except ValueError:
            value = None
    if isinstance(value, dict) and (isinstance(value.get("type"), str) or _GEMINI & set(value)):
        return value
    options.left_out(one, f"opaque data of {part.provider}")
    return None


def render(neutral: Sequence[Neutral], _: RenderOptions) -> Rendered:
    rendered = Rendered()
    for one in neutral:
        parts = msgspec.to_builtins(one.parts)
        said = {"role": one.role, "parts": parts, "synthetic": one.synthetic}
        if one.provider is not None:  # the only one that may be given its signatures back
            said["provider"] = one.provider
        rendered.add(said, one.seqs)
    return rendered
