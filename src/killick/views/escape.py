"""Text of a journal made harmless: what a reader cannot see is shown as an escape.

A terminal obeys control characters, and a model reads invisible ones, in which a stored text can
carry words that no person saw. Lone surrogates cannot be sent as UTF-8 at all.
"""

import json
import re
from typing import Final

_INVISIBLE: Final = (  # but not the two joiners, which words of several scripts and emoji need
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # all but tab and newline
_SURROGATES: Final = "\ud800-\udfff"
_HOSTILE: Final = re.compile(f"[{_CONTROLS}{_INVISIBLE}{_SURROGATES}]")
_HOSTILE_OR_BREAK: Final = re.compile(f"[\t\n{_CONTROLS}{_INVISIBLE}{_SURROGATES}]")
_SPACES: Final = re.compile(r"\s+")


def escape(text: str) -> str:
    """A text of several lines, harmless: newlines and tabs stay, what else is not seen is shown."""
    return _HOSTILE.sub(_escaped, text.replace("\r\n", "\n"))


def escape_line(text: str) -> str:
    """The same in one line: newlines and tabs are shown as escapes too."""
    return _HOSTILE_OR_BREAK.sub(_escaped, text)


def one_line(text: str) -> str:
    """A sentence that may have been wrapped, in one line."""
    return escape_line(_SPACES.sub(" ", text).strip())


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def escape_json(text: str) -> str:
    """A JSON text, harmless and still the same JSON."""
    return _HOSTILE.sub(lambda match: json.dumps(match[0])[1:-1], text).replace("\x7f", "\\u007f")


def quote(text: str) -> str:
    """A text of several lines, harmless, each begun with a mark that it cannot forge."""
    return "\n".join(f"> {line}".rstrip() for line in escape(text).rstrip("\n").split("\n"))


def shorten(text: str, most: int) -> str:
    """A text of at most `most` characters, cut in the middle, which then says how much is gone."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]} […{len(text) - head - tail:,} characters…] {text[-tail:]}"
