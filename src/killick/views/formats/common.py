"""Shared by the providers' shapes: options, text that can be sent, images and files."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

import msgspec

from killick.journal.assembly import is_whole_object
from killick.model.messages import File, Image, Opaque, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.hosted import hosted, is_hosted
from killick.views.neutral import UNREAD, Neutral, Repair, text_of
from killick.views.profiles import NEUTRAL, Profile, is_signed_by, normal

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
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
"""Files that are text: a provider that takes no such files is given the text."""

_PAGE_TOKENS: Final = {"anthropic": 3000, "openai": 1500, "gemini": 560}
_PAGE: Final = re.compile(rb"/Type\s*/Page\b")
_BYTES_PER_PAGE: Final = 50_000
"""Of a PDF whose pages cannot be counted."""

DOCUMENT_BYTES_MAX: Final = 20 * 1024 * 1024

Json = dict[str, Any]
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_GEMINI: Final = frozenset(
    {"text", "inline_data", "file_data", "executable_code", "code_execution_result"}
    | {"tool_call", "tool_response"}
)
"""One of these makes an object a part of Gemini's; the others' blocks have a type."""


class Media(msgspec.Struct, frozen=True):
    """Bytes that a provider can be sent; of a text file, also its text."""

    media_type: str
    data: str
    name: str | None = None
    text: str | None = None
    sides: tuple[int, int] = (0, 0)
    pages: int = 0

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"

    @property
    def as_text(self) -> str:
        """Return a text file's text with its name, for a provider that takes no such files."""
        return phrases.file_text(self.name or "without a name", self.text or "")


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
    format: str = "neutral"
    profile: Profile = NEUTRAL
    loaded: dict[tuple[str, str, bool], "Media | str"] = {}

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
        loaded = self._load(part)
        if (
            isinstance(loaded, Media)
            and isinstance(part, Image)
            and loaded.media_type not in images
        ):
            loaded = phrases.left_out(f"An image ({part.media_type})")
        if isinstance(loaded, str):
            self.left_out(message, f"{part.media_type} that the provider does not take")
        return loaded

    def _load(self, part: Image | File) -> Media | str:
        key = (part.blob, part.media_type, isinstance(part, Image))
        if key not in self.loaded:
            self.loaded[key] = load_media(part, self.blobs)
        loaded = self.loaded[key]
        if isinstance(loaded, Media) and isinstance(part, File):
            return msgspec.structs.replace(loaded, name=part.name)
        return loaded

    def is_ours(self, message: Neutral, signer: str) -> bool:
        """Tell whether the signatures of an answer are this signer's."""
        return is_signed_by(signer, message.provider, message.model)

    def media_tokens(self, part: Image | File, count: Callable[[str], int]) -> int:
        """Return what an image or a file costs beside the text that is sent."""
        media = self._load(part)
        if isinstance(media, str):
            return 0
        if media.text is not None:
            inline = self.format in ("openai-chat", "anthropic")  # there it is among the words
            return 0 if inline else count(media.text)
        if isinstance(part, File):
            return media.pages * _PAGE_TOKENS[self.profile.tokens]
        return image_tokens(media.sides, self.profile.tokens)

    def media_bytes(self, part: Image | File) -> int:
        """Return the bytes of an image or a file in a request."""
        media = self._load(part)
        return 0 if isinstance(media, str) else len(media.data)


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


def sent_back(part: Text | ToolCall, shape: str, *names: str) -> Json:
    """Return those further fields of a part that this shape takes back, as they came in it."""
    fields = (part.extra or {}).get(shape) or {}
    return {name: fields[name] for name in names if name in fields}


def result_text(result: ToolResult, message: Neutral | None = None) -> str:
    """A result as text, for providers that take nothing else; never empty.

    With the `message` that it is in, for a shape that has no other way to say that a tool failed.
    """
    text = text_of(result)
    if not text:
        return phrases.no_output(is_error=result.is_error)
    flagged = message is None or not result.is_error or result.call_id in message.made_up
    return clean(text if flagged else phrases.failed(text))


def opaque_object(
    part: Opaque, provider: str, message: Neutral, options: RenderOptions
) -> Json | str | None:
    """A provider's own data for that provider; for another, a sentence on a tool that it ran."""
    value = None
    name = normal(part.provider)
    if name == provider or (name == f"{provider}-block" and is_hosted(part)):
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
    if isinstance(part, File) and part.media_type.casefold().startswith(_TEXTS):
        return _load_text(part, blobs) or phrases.left_out(what)
    allowed, most = (images, IMAGE_BYTES_MAX) if image else (DOCUMENTS, DOCUMENT_BYTES_MAX)
    if part.media_type not in allowed:
        return phrases.left_out(what)
    data = blobs(part.blob)
    if not data or len(data) > most:
        return phrases.left_out(what)
    media_type = sniff(data) or (None if image else part.media_type)
    sides = image_sides(data)
    if media_type not in allowed or (image and max(sides) > IMAGE_SIDE_MAX):
        return phrases.left_out(what)  # providers refuse a whole request for one bad image
    name = part.name if isinstance(part, File) else None
    pages = 0 if image else len(_PAGE.findall(data)) or len(data) // _BYTES_PER_PAGE + 1
    return Media(media_type, b64encode(data).decode(), name, sides=sides, pages=pages)


def _load_text(part: File, blobs: Blobs) -> Media | None:
    """Return a text file, if its bytes are text; every provider that takes any takes plain text."""
    data = blobs(part.blob)
    try:
        text = (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if not text.strip():
        return None
    return Media("text/plain", b64encode(text.encode()).decode(), part.name, text)


def limit_media(
    messages: Sequence[Neutral], options: RenderOptions, *, all_sent: bool = True
) -> list[Neutral]:
    """Return the messages with the newest images and files that a request of the server takes.

    A sentence stands for each older one. Over the number of images some go at once, ten where a
    request may have many, so that not each new image changes what was sent before. Where a budget
    leaves messages out, that changes in any case, and what is left out has no size.
    """
    named = [part for message in messages for part in named_media(message)]
    images = sum(isinstance(part, Image) for part in named)
    most, bytes_most = options.profile.images, options.profile.request_bytes
    over = 0 if most is None else max(images - most, 0)
    at_once = max(1, min(10, (most or 0) // 4)) if all_sent else 1
    drop = ceil(over / at_once) * at_once
    bytes_most = bytes_most if all_sent else None
    size = 0
    if named and bytes_most is not None:
        size = sum(len(text) for message in messages for text in _words(message))
        size += sum(options.media_bytes(part) for part in named)
    if not drop and (bytes_most is None or size <= bytes_most):
        return list(messages)
    left: list[Neutral] = []
    for message in messages:
        parts: list[Any] = []
        for part in message.parts:
            inner = part.content if isinstance(part, ToolResult) else (part,)
            kept: list[Any] = []
            for each in inner:
                is_image = isinstance(each, Image)
                too_much = bytes_most is not None and size > bytes_most
                if isinstance(each, Image | File) and ((is_image and drop > 0) or too_much):
                    drop -= is_image
                    size -= options.media_bytes(each)
                    what, why = "older file", "over what a request may have"
                    if is_image:
                        what = "image" if most == 0 else "older image"
                        why = "the server takes none" if most == 0 else why
                    kept.append(Text(phrases.left_out(f"An {what} ({each.media_type})")))
                    options.left_out(message, f"an {what}: {why}")
                else:
                    kept.append(each)
            if isinstance(part, ToolResult) and not isinstance(part.content, str):
                parts.append(msgspec.structs.replace(part, content=tuple(kept)))
            else:
                parts.append(part if isinstance(part, ToolResult) else kept[0])
        left.append(msgspec.structs.replace(message, parts=tuple(parts)))
    return left


def without_media(messages: Sequence[Neutral]) -> list[Neutral]:
    """Return the messages as they are read, without what was not and without images and files."""
    left: list[Neutral] = []
    for message in messages:
        if message == UNREAD:
            continue
        if named_media(message):
            parts = tuple(
                msgspec.structs.replace(part, content=result_text(part))
                if isinstance(part, ToolResult)
                else part
                for part in message.parts
                if not isinstance(part, Image | File)
            )
            message = msgspec.structs.replace(message, parts=parts)
        if message.parts:
            left.append(message)
    return left


def named_media(message: Neutral) -> list[Image | File]:
    """Return the images and files of a message and of its results."""
    parts: list[Image | File] = []
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) else (part,)
        parts += [each for each in inner if isinstance(each, Image | File)]
    return parts


def _words(message: Neutral) -> list[str]:
    words = [part.text for part in message.parts if isinstance(part, Text)]
    words += [part.arguments for part in message.parts if isinstance(part, ToolCall)]
    return words + [result_text(part) for part in message.parts if isinstance(part, ToolResult)]


def image_tokens(sides: tuple[int, int], by: str) -> int:
    """Return the tokens of an image as its provider publishes them; unknown sides are large."""
    width, height = (side or 1568 for side in sides)
    if by == "anthropic":
        return min(ceil(width * height / 750), 1600) + 1
    if by == "gemini":
        return 258 if max(width, height) <= 384 else 1120
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    tiles = ceil(width * scale / 512) * ceil(height * scale / 512)
    return 85 + 170 * tiles


def sniff(data: bytes) -> str | None:
    """Tell the type by the bytes: providers look at them, and refuse a wrong name."""
    for start, media_type in _STARTS:
        if data.startswith(start):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def image_sides(data: bytes) -> tuple[int, int]:
    """Count the pixels of an image's width and height; 0 where its head does not say."""
    match sniff(data):
        case "image/png":
            return _big(data[16:20]), _big(data[20:24])
        case "image/gif":
            return _little(data[6:8]), _little(data[8:10])
        case "image/jpeg":
            return _jpeg_sides(data)
        case "image/webp":
            return _webp_sides(data)
        case _:
            return 0, 0


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
