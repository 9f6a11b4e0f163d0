"""What the providers' shapes share."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.journal.wholeness import is_whole_object
from holdfast.model.parts import Opaque, Text, ToolCall, ToolResult
from holdfast.views.media import Blobs
from holdfast.views.neutral import Neutral

Json = dict[str, Any]
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class Rendered(msgspec.Struct):
    """A provider's messages, and for each the entries that it comes from."""

    messages: list[Json]
    origins: list[tuple[int, ...]]

    def add(self, message: Json, seqs: tuple[int, ...]) -> None:
        self.messages.append(message)
        self.origins.append(seqs)

    def extend_last(self, seqs: tuple[int, ...]) -> None:
        """The last message was given more content from these entries."""
        self.origins[-1] = tuple(dict.fromkeys((*self.origins[-1], *seqs)))


class Options(msgspec.Struct, frozen=True):
    """How a context is to be rendered."""

    blobs: Blobs
    reasoning: bool = True


Render = Callable[[Sequence[Neutral], Options], Rendered]


def clean(text: str) -> str:
    """Text that UTF-8 can carry: a request with a lone surrogate is refused whole."""
    return _SURROGATES.sub("\ufffd", text)


def is_clean(*texts: str | None) -> bool:
    """Whether signed text can be passed on exactly; if not, its block is left out."""
    return not any(_SURROGATES.search(text) for text in texts if text)


def arguments_text(call: ToolCall) -> str:
    """Arguments as JSON text of an object, which is what providers demand to see again."""
    if call.tool_type != "custom" and is_whole_object(call.arguments):
        return clean(call.arguments)
    if not call.arguments.strip():
        return "{}"
    name = "input" if call.tool_type == "custom" else "arguments"
    return json.dumps({name: clean(call.arguments)}, ensure_ascii=False)


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


def opaque_object(part: Opaque, provider: str) -> Json | None:
    """A provider's own data for that provider, and for no other."""
    if part.provider != provider:
        return None
    try:
        value = json.loads(part.data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
