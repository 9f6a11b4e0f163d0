"""What a terminal may be sent. A model's output is hostile input: nothing in it may be obeyed.

Control characters move the cursor, retitle the window and fill the clipboard; bidirectional
overrides and invisible characters make a text read as another one. All are shown as escapes, so a
reader sees that they were there.
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


def clean(text: str) -> str:
    """A text of several lines, harmless: newlines and tabs stay, what else is not seen is shown."""
    return _HOSTILE.sub(_escape, text.replace("\r\n", "\n"))


def clean_line(text: str) -> str:
    """The same in one line: newlines and tabs are shown as escapes too."""
    return _HOSTILE_OR_BREAK.sub(_escape, text)


def one_line(text: str) -> str:
    """A sentence that may have been wrapped, in one line."""
    return clean_line(_SPACES.sub(" ", text).strip())


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def clean_json(text: str) -> str:
    """A JSON text, harmless and still the same JSON."""
    return _HOSTILE.sub(lambda found: json.dumps(found[0])[1:-1], text).replace("\x7f", "\\u007f")
