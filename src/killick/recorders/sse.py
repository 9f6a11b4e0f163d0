"""Server-sent events out of bytes, for clients that use no SDK."""

import codecs
import json
from typing import Any


class EventLines:
    """Takes bytes or text in whatever pieces they come; gives the JSON objects that are whole."""

    def __init__(self) -> None:
        # Pieces may end inside a character; one that is broken for good is shown as such.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._data: list[str] = []

    def feed(self, piece: bytes | str) -> list[dict[str, Any]]:
        text = piece if isinstance(piece, str) else self._decoder.decode(piece)
        # A "\\r" at the end of a piece stays in the line until its "\\n" is there.
        lines = (self._line + text).replace("\r\n", "\n").split("\n")
        self._line = lines.pop()
        found: list[dict[str, Any]] = []
        for line in lines:
            self._take(line, found)
        return found

    def _take(self, line: str, found: list[dict[str, Any]]) -> None:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            value = _object(data)
            if value is not None:
                found.append(value)


def _object(data: str) -> dict[str, Any] | None:
    """The object that the data is; `[DONE]` and the like are none."""
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
