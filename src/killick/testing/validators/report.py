"""What a validator finds, and the checks that all formats share: JSON, shapes, names, media."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from killick.testing.validators.media import Media, is_base64, seen

Types = type | tuple[type, ...]
Json = dict[str, Any]

NONE = type(None)


class Violation(msgspec.Struct, frozen=True):
    """A rule that is broken, the place as a path such as `messages[3].content[0]`, and how."""

    rule: str
    where: str
    detail: str


class Shape(msgspec.Struct, frozen=True):
    """The keys of an object, with their types; a key that is in neither is refused."""

    needed: Mapping[str, Types]
    optional: Mapping[str, Types] = {}


class Report:
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
            one, path = todo.pop()
            if isinstance(one, str):
                size += self._string(one, path)
            elif isinstance(one, list | tuple):
                todo.extend((inner, f"{path}[{index}]") for index, inner in enumerate(one))
            elif isinstance(one, dict):
                for key, inner in one.items():
                    if isinstance(key, str):
                        size += self._string(key, f"{path}.{key!r}")
                        todo.append((inner, f"{path}.{key}"))
                    else:
                        self.add("not-json", path, f"the key {key!r} is not a string")
            elif isinstance(one, float) and (one != one or one in (float("inf"), -float("inf"))):
                self.add("not-json", path, f"{one} is no number in JSON")
            elif one is not None and not isinstance(one, bool | int | float):
                self.add("not-json", path, f"a {type(one).__name__} cannot be written as JSON")
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
        """Whether an object has the keys of its shape; an unknown key is told, but fits."""
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

    def media(self, data: str, media_type: str, limits: Media, where: str) -> None:
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
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def kind(value: object) -> str:
    """A type's name in the words of JSON."""
    names = {NONE: "null", dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), type(value).__name__)


def check_complete(report: Report, messages: Sequence[Mapping[str, Any]]) -> None:
    """A list of messages that a model is to go on from."""
    if not messages:
        report.add("empty-request", "messages", "there is no message")
    elif tag(messages[-1], "role") == "assistant":
        where = f"messages[{len(messages) - 1}]"
        report.add("ends-with-assistant", where, "the last message is the assistant's")
