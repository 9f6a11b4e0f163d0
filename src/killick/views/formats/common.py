"""Shared by the providers' shapes: options, text that can be sent, images and files."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from killick.journal.assembly import is_whole_object
from killick.model.messages import File, Image, Opaque, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.hosted import hosted
from killick.views.neutral import Neutral, Repair

Blobs = Callable[[str], bytes | None]
"""The bytes of a blob, by its name; None when there is none."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_BYTES_MAX: Final = 5 * 1024 * 1024 * 3 // 4
"""Five megabytes once it is encoded, which every provider takes."""

IMAGE_SIDE_MAX: Final = 8000
"""Pixels that the strictest provider takes on a side."""

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)

DOCUMENTS: Final = frozenset({"application/pdf"})
DOCUMENT_BYTES_MAX: Final = 20 * 1024 * 1024

Json = dict[str, Any]
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_GEMINI: Final = frozenset(
    {"text", "inline_data", "file_data", "executable_code", "code_execution_result"}
)
"""One of these makes an object a part of Gemini's; the others' blocks have a type."""


class Media(msgspec.Struct, frozen=True):
    """Bytes that a provider can be sent."""

    media_type: str
    data: str
    name: str | None = None

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


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
    """Options of rendering a context, and the list of repairs to add to."""

    blobs: Blobs
    repairs: list[Repair]
    reasoning: bool = True

    def left_out(self, message: Neutral, what: str) -> None:
        self.repairs.append(Repair(message.seqs[0] if message.seqs else 0, "left out", what))

    def hosted(self, part: Opaque, message: Neutral) -> str:
        """Return the sentence on a tool that a provider ran, or "" if this is no such."""
        sentence = hosted(part, message.parts)
        if sentence is None:
            self.left_out(message, f"opaque data of {part.provider}")
            return ""
        seq = message.seqs[0] if message.seqs else 0
        self.repairs.append(Repair(seq, "told as text", f"a tool that {part.provider} ran"))
        return clean(sentence)

    def load(
        self, part: Image | File, message: Neutral, images: frozenset[str] = IMAGES
    ) -> Media | str:
        """The media that a part names, or what is said in its place."""
        loaded = load_media(part, self.blobs, images=images)
        if isinstance(loaded, str):
            self.left_out(message, f"{part.media_type} that the provider does not take")
        return loaded


Render = Callable[[Sequence[Neutral], RenderOptions], Rendered]


def clean(text: str) -> str:
    """Text that UTF-8 can carry: a request with a lone surrogate is refused whole."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def is_clean(*texts: str | None) -> bool:
    """Tell whether signed text can be passed on exactly; if not, its block is left out."""
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
    """Tell whether a provider can read it: an object, finite numbers, no lone surrogates."""
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


def result_text(result: ToolResult, message: Neutral | None = None) -> str:
    """A result as text, for providers that take nothing else; never empty.

    With the `message` that it is in, for a shape that has no other way to say that a tool failed.
    """
    if isinstance(result.content, str):
        text = result.content
    else:
        text = "\n".join(part.text for part in result.content if isinstance(part, Text))
    if not text.strip() and result.structured is not None:
        text = json.dumps(result.structured, ensure_ascii=False)
    if not text.strip():
        return phrases.no_output(is_error=result.is_error)
    flagged = message is None or not result.is_error or result.call_id in message.made_up
    return clean(text if flagged else phrases.failed(text))


def opaque_object(
    part: Opaque, provider: str, message: Neutral, options: RenderOptions
) -> Json | str | None:
    """A provider's own data for that provider; for another, a sentence on a tool that it ran."""
    value = None
    if part.provider == provider:
        try:
            value = json.loads(part.data)
        except ValueError:
            value = None
    if isinstance(value, dict) and (isinstance(value.get("type"), str) or _GEMINI & set(value)):
        return value
    return options.hosted(part, message) or None


def render(neutral: Sequence[Neutral], _: RenderOptions) -> Rendered:
    rendered = Rendered()
    for message in neutral:
        parts = msgspec.to_builtins(message.parts)
        rendered_message = {"role": message.role, "parts": parts, "synthetic": message.synthetic}
        if message.provider is not None:  # the only one that may be given its signatures back
            rendered_message["provider"] = message.provider
        rendered.add(rendered_message, message.seqs)
    return rendered


def load_media(part: Image | File, blobs: Blobs, *, images: frozenset[str] = IMAGES) -> Media | str:
    """The media that a part names, or what is said in its place."""
    image = isinstance(part, Image)
    what = f"An image ({part.media_type})" if image else f"A file ({part.media_type})"
    allowed, most = (images, IMAGE_BYTES_MAX) if image else (DOCUMENTS, DOCUMENT_BYTES_MAX)
    if part.media_type not in allowed:
        return phrases.left_out(what)
    data = blobs(part.blob)
    if not data or len(data) > most:
        return phrases.left_out(what)
    media_type = sniff(data) or (None if image else part.media_type)
    if media_type not in allowed or (image and longest_side(data) > IMAGE_SIDE_MAX):
        return phrases.left_out(what)  # providers refuse a whole request for one bad image
    name = part.name if isinstance(part, File) else None
    return Media(media_type, b64encode(data).decode(), name)


def sniff(data: bytes) -> str | None:
    """Tell the type by the bytes: providers look at them, and refuse a wrong name."""
    for start, media_type in _STARTS:
        if data.startswith(start):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def longest_side(data: bytes) -> int:
    """Count the pixels of an image's longer side; 0 where its head does not say."""
    match sniff(data):
        case "image/png":
            sides = _big(data[16:20]), _big(data[20:24])
        case "image/gif":
            sides = _little(data[6:8]), _little(data[8:10])
        case "image/jpeg":
            sides = _jpeg_sides(data)
        case "image/webp":
            sides = _webp_sides(data)
        case _:
            sides = 0, 0
    return max(sides)


def _jpeg_sides(data: bytes) -> tuple[int, int]:
    """From the frame header; the segments before it say how long they are."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(data[at + 7 : at + 9]), _big(data[at + 5 : at + 7])
        at += 2 + max(_big(data[at + 2 : at + 4]), 2)
    return 0, 0


def _webp_sides(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return _little(data[24:27]) + 1, _little(data[27:30]) + 1
        case b"VP8L":
            bits = _little(data[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
