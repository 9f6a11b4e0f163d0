"""Images and files inside a request: what a provider takes, and what can be seen from the data.

It reads heads of images as `views.formats.common` does, and shares nothing with it: this checks
what that has let through, and a mistake must not be made on both sides.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

HEAD = 64 * 1024
"""Characters of base64 that are decoded to find an image's type and size."""

_STANDARD = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_URLSAFE = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]+)*),", re.ASCII)


class MediaLimits(msgspec.Struct, frozen=True):
    """Media that a provider takes: exact types, prefixes of types, characters, pixels a side."""

    types: frozenset[str]
    characters: int
    prefixes: tuple[str, ...] = ()
    pixels: int = 0
    urlsafe: bool = False

    def takes(self, media_type: str) -> bool:
        return media_type in self.types or media_type.startswith(self.prefixes)


class MediaFacts(msgspec.Struct, frozen=True):
    """The head of an image; a side of 0 is unknown."""

    media_type: str
    width: int
    height: int


def is_base64(data: str, *, urlsafe: bool = False) -> bool:
    """Non-empty, of whole groups of four, in one alphabet."""
    if len(data) % 4:
        return False
    if _STANDARD.fullmatch(data):
        return True
    return urlsafe and _URLSAFE.fullmatch(data) is not None


def data_url(url: str) -> tuple[str, str] | None:
    """The media type and the base64 data of a data URL, or None when it is none of this kind."""
    head = _DATA_URL.match(url)
    if head is None or not head[2].endswith(";base64"):
        return None
    return head[1], url[head.end() :]


def seen(data: str) -> MediaFacts | None:
    """Read the head of an image; None if it is not recognised, which is no violation."""
    try:
        head = base64.b64decode(data[:HEAD].translate({45: 43, 95: 47}), validate=True)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return MediaFacts("image/png", _big(head[16:20]), _big(head[20:24]))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return MediaFacts("image/gif", _little(head[6:8]), _little(head[8:10]))
    if head.startswith(b"\xff\xd8\xff"):
        return MediaFacts("image/jpeg", *_jpeg(head))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return MediaFacts("image/webp", 0, 0)
    return None


def _jpeg(head: bytes) -> tuple[int, int]:
    """Width and height from the frame header, if it is among the first segments."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(head[at + 7 : at + 9]), _big(head[at + 5 : at + 7])
        at += 2 + max(_big(head[at + 2 : at + 4]), 2)
    return 0, 0


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


Types = type | tuple[type, ...]
Json = dict[str, Any]

NONE = type(None)


class Violation(msgspec.Struct, frozen=True):
    """A rule that is broken, where, as a path such as `messages[3].content[0]`, and how."""

    rule: str
    where: str
    detail: str


class Shape(msgspec.Struct, frozen=True):
    """The keys of an object, with their types; a key that is in neither is refused."""

    needed: Mapping[str, Types]
    optional: Mapping[str, Types] = {}


class Findings:
    """Collects violations of the rules of one format; a rule that it does not name is a mistake."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.rules = rules
        self.found: list[Violation] = []

    def add(self, rule: str, where: str, detail: str) -> None:
        if rule not in self.rules:
            raise LookupError(rule)
        self.found.append(Violation(rule, where, detail))

    def json(self, value: object, where: str) -> int:
        """Look at every value for what JSON or UTF-8 cannot carry; return the size of its text."""
        size = 0
        todo: list[tuple[object, str]] = [(value, where)]
        while todo:
            value, path = todo.pop()
            if isinstance(value, str):
                size += self._string(value, path)
            elif isinstance(value, list | tuple):
                todo.extend((inner, f"{path}[{index}]") for index, inner in enumerate(value))
            elif isinstance(value, dict):
                for key, inner in value.items():
                    if isinstance(key, str):
                        size += self._string(key, f"{path}.{key!r}")
                        todo.append((inner, f"{path}.{key}"))
                    else:
                        self.add("not-json", path, f"the key {key!r} is not a string")
            elif isinstance(value, float) and (
                value != value or value in (float("inf"), -float("inf"))
            ):
                self.add("not-json", path, f"{value} is no number in JSON")
            elif value is not None and not isinstance(value, bool | int | float):
                self.add("not-json", path, f"a {type(value).__name__} cannot be written as JSON")
        return size

    def _string(self, text: str, where: str) -> int:
        if text.isascii():
            return len(text)
        try:
            return len(text.encode())
        except UnicodeEncodeError as error:
            self.add("surrogate", where, f"a lone surrogate at {error.start}")
            return len(text)

    def fits(self, value: object, shape: Shape, where: str) -> bool:
        """Tell whether an object has the keys of its shape; an unknown key is a violation."""
        if not isinstance(value, dict):
            self.add("shape", where, f"an object is expected, not {kind(value)}")
            return False
        fits = True
        for key, types in shape.needed.items():
            if key not in value:
                self.add("shape", where, f"`{key}` is missing")
                fits = False
            elif not isinstance(value[key], types):
                self.add("shape", f"{where}.{key}", f"{kind(value[key])} is not accepted")
                fits = False
        for key in value.keys() - shape.needed.keys():
            if key not in shape.optional:
                self.add("unknown-key", where, f"`{key}` is not known here")
            elif not isinstance(value[key], shape.optional[key]):
                self.add("shape", f"{where}.{key}", f"{kind(value[key])} is not accepted")
                fits = False
        return fits

    def matches(self, rule: str, pattern: re.Pattern[str], text: str, where: str) -> None:
        if not pattern.fullmatch(text):
            self.add(rule, where, f"{text!r} does not match {pattern.pattern}")

    def arguments(self, text: str, where: str) -> None:
        """Arguments that are JSON text must be the text of an object."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            self.add("arguments", where, f"not JSON: {error}")
            return
        if not isinstance(value, dict):
            self.add("arguments", where, f"an object is expected, not {kind(value)}")

    def media(self, data: str, media_type: str, limits: MediaLimits, where: str) -> None:
        """Look at base64 data: its type, whether it can be decoded, its size and dimensions."""
        taken = limits.takes(media_type)
        if not taken:
            self.add("media-type", where, f"{media_type!r} is not accepted")
        if not is_base64(data, urlsafe=limits.urlsafe):
            self.add("base64", where, "the data is not base64")
            return
        if len(data) > limits.characters:
            self.add("media-size", where, f"{len(data)} characters, {limits.characters} at most")
            return
        image = seen(data)
        if image is None:
            return
        if taken and media_type.startswith("image/") and image.media_type != media_type:
            self.add("media-type", where, f"{media_type!r} is given, {image.media_type!r} it is")
        if limits.pixels and max(image.width, image.height) > limits.pixels:
            size = f"{image.width}x{image.height}"
            self.add("media-size", where, f"{size} pixels, {limits.pixels} at most on a side")


def tag(value: object, key: str = "type") -> str:
    """The text under a key, empty when there is none; anything may have been handed over."""
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def kind(value: object) -> str:
    """A type's name in the words of JSON."""
    names = {NONE: "null", dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), type(value).__name__)


def check_complete(report: Findings, messages: Sequence[Mapping[str, Any]]) -> None:
    """A list of messages that a model is to go on from."""
    if not messages:
        report.add("empty-request", "messages", "there is no message")
    elif tag(messages[-1], "role") == "assistant":
        where = f"messages[{len(messages) - 1}]"
        report.add("ends-with-assistant", where, "the last message is the assistant's")
