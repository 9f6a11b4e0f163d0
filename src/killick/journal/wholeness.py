"""Whether the text of a tool call's arguments is a whole JSON object yet.

Arguments come in pieces. Parsing all of them again for each piece would cost the square of their
length, so a scanner follows the braces and only then is the text parsed, once.
"""

import json

_BLANK = " \t\r\n"


class ObjectScanner:
    """Follows the text of one JSON object; `closed` once its last brace was seen."""

    __slots__ = ("_depth", "_escaped", "_in_string", "broken", "closed")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.closed = False
        self.broken = False

    def feed(self, text: str) -> None:
        """Take the next piece. What is not an object, or goes on after its end, is `broken`."""
        for char in text:
            if self._in_string:
                self._feed_string(char)
            elif self.closed or self._depth == 0:
                self._feed_outside(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                self.closed = self._depth == 0

    def _feed_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False

    def _feed_outside(self, char: str) -> None:
        if char in _BLANK:
            return
        if char == "{" and not self.closed:
            self._depth = 1
        else:
            self.broken = True


def is_whole_object(text: str) -> bool:
    """Whether the text is one JSON object and nothing else."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
