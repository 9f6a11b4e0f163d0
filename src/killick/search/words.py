"""Text to the words that an index holds, and where in the text they stand.

The whole of it is done here, so that every store finds the same: a database is given words that are
folded already, with spaces between them, and only has to keep them.

Rule 1: a word is a run of letters and digits, without regard to case, accents and vowel points.
Rule 2: scripts that are written without spaces are cut into pairs of characters, each overlapping
        the next; the last character of a run stands alone as well, so that one character is found
        wherever it is, as the beginning of a pair.
Rule 3: a longer run than a word may be is cut into several, one after another.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

WORD_CHARS_MAX: Final = 64

_INDIC = "\u0900-\u0963\u0966-\u0dff"
"""Scripts whose vowel signs are part of a word, as whole blocks: `\\w` would cut words at them."""

_UNSPACED = (
    "\u0e00-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad"  # Thai … Lanna
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Korean
    "\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u2e80-\u2fd5\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Chinese
)

_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
)
"""What stands above, below and inside of letters, and can be left out when one writes."""


_PLAIN: Final = "".join(chr(n).lower() if chr(n).isalnum() else " " for n in range(128))
"""What each character of ASCII is in an index."""


class Word(NamedTuple):
    """A word as it is indexed, and the characters of the text that it was made of.

    `kind` is "word"; or "pair" or "last" for what a run without spaces was cut into.
    """

    text: str
    start: int
    end: int
    kind: str = "word"


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns when they are first needed, not when the package is imported."""
    return (
        re.compile(f"[a-z0-9]{{1,{WORD_CHARS_MAX}}}"),
        re.compile(rf"(?:[^\W_]|[{_INDIC}{_UNSPACED}{_MARKS}])+"),
        re.compile(f"([{_UNSPACED}]+)|(?:[^\\W_{_UNSPACED}]|[{_INDIC}]){{1,{WORD_CHARS_MAX}}}"),
        re.compile(f"[{_MARKS}]+"),
    )


def fold(text: str) -> str:
    """Remove what a search does not regard: case, accents, widths. The length may change."""
    if text.isascii():
        return text.lower()
    marks = _patterns()[3]
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", marks.sub("", apart)).casefold()


def unbroken(text: str) -> str:
    """Return a text as it is indexed to be searched for parts of words."""
    return fold(text).replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text in order."""
    plain, runs, _, _ = _patterns()
    if text.isascii():
        for match in plain.finditer(text.lower()):
            yield Word(match[0], match.start(), match.end())
        return
    for match in runs.finditer(text):
        yield from _cut(match[0], match.start())


def indexed(text: str) -> str:
    """Return the words of a text with spaces between them, for an index."""
    if text.isascii():
        runs = text.translate(_PLAIN).split()
        if max(map(len, runs), default=0) <= WORD_CHARS_MAX:
            return " ".join(runs)
    return " ".join(word.text for word in words(text))


def _cut(run: str, start: int) -> Iterator[Word]:
    """Cut one run of a text, which may be in several scripts, into words."""
    if run.isascii():
        for piece in _patterns()[0].finditer(run.lower()):
            yield Word(piece[0], start + piece.start(), start + piece.end())
        return
    folded = fold(run)
    exact = len(folded) == len(run)
    for match in _patterns()[2].finditer(folded):
        first = start + match.start() if exact else start
        last = start + match.end() if exact else start + len(run)
        if not match[1]:
            yield Word(match[0], first, last)
            continue
        characters = match[1]
        for number in range(len(characters) - 1):
            at = first + number
            end = at + 2 if exact else last
            yield Word(characters[number : number + 2], at if exact else first, end, "pair")
        yield Word(characters[-1], last - 1 if exact else first, last, "last")
