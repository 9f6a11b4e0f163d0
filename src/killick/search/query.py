"""Parses what a person types into a search; refuses it with one error, never a syntax error.

    linker error        both words
    "linker error"      one after the other; so is what has no spaces: `ld.so`, `no_such_file`
    link*               words that begin so
    a OR b, NOT c, ( )  in capitals; NOT binds closest, then AND, which may be left out, then OR

Whatever cannot be understood is passed over: an operator without a word, a parenthesis without its
other half. Only a query in which nothing is left, or only what is not wanted, is refused.

Understood is a tree of `Phrase`, `Every` and `Either`. "Not" is only ever beside something that is
looked for, which is what indexes can do; the rest is turned around until it is, or refused.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from killick.errors import InvalidQuery
from killick.search.words import words

QUERY_CHARS_MAX: Final = 10_000
QUERY_WORDS_MAX: Final = 1_000
QUERY_DEPTH_MAX: Final = 20

_TOKEN: Final = re.compile(r'"([^"]*)"?(\*?)|([()])|([^\s"()]+)')
_OPERATORS: Final = frozenset({"AND", "OR", "NOT"})


class Phrase(msgspec.Struct, frozen=True):
    """Words one after the other; with `prefix`, the last one may go on."""

    words: tuple[str, ...]
    prefix: bool = False


class Every(msgspec.Struct, frozen=True):
    """All of some things, and none of others."""

    wanted: "tuple[Query, ...]"
    unwanted: "tuple[Query, ...]" = ()


class Either(msgspec.Struct, frozen=True):
    """At least one of several things."""

    choices: "tuple[Query, ...]"


Query = Phrase | Every | Either
_Operand = tuple[Query, bool]
"""A query, and whether it is what is not wanted."""


def parse(text: str) -> Query:
    """Return the query that a text means. Raises InvalidQuery, which says what to do."""
    if len(text) > QUERY_CHARS_MAX:
        raise InvalidQuery(
            f"the query has {len(text):,} characters; at most {QUERY_CHARS_MAX:,} are understood"
        )
    operand = _Parser(text).either(0)
    if operand is None:
        raise InvalidQuery(f"nothing to search for in {_short(text)}: name at least one word")
    query, unwanted = operand
    if unwanted:
        raise InvalidQuery(
            f"{_short(text)} says only what is not wanted; name a word that is, as in: word NOT "
            "other"
        )
    if count(query) > QUERY_WORDS_MAX:
        raise InvalidQuery(f"the query has more than {QUERY_WORDS_MAX:,} words; search for fewer")
    return query


def phrase(text: str, *, prefix: bool = False) -> Phrase | None:
    """Return the words of a text as they stand in an index; None when there are none."""
    indexed = list(words(text))
    if not indexed:
        return None
    *before, last = indexed
    if last.kind == "last":
        # A run without spaces may go on after what was asked for, so its last pair is the end;
        # a single character is the beginning of some pair, or stands alone.
        prefix = not (before and before[-1].kind == "pair")
        indexed = indexed if prefix else before
    return Phrase(tuple(word.text for word in indexed), prefix)


def phrases(query: Query) -> list[Phrase]:
    """Return all that is looked for, without what is not wanted."""
    match query:
        case Phrase():
            return [query]
        case Every():
            return [each for part in query.wanted for each in phrases(part)]
        case Either():
            return [each for part in query.choices for each in phrases(part)]


def count(query: Query) -> int:
    """Count the words of a query."""
    match query:
        case Phrase():
            return len(query.words)
        case Every():
            return sum(map(count, (*query.wanted, *query.unwanted)))
        case Either():
            return sum(map(count, query.choices))


def holds(query: Query, has: Callable[[Phrase], bool]) -> bool:
    """Return True if a query is true of something with the phrases for which `has` is."""
    match query:
        case Phrase():
            return has(query)
        case Every():
            wanted = all(holds(part, has) for part in query.wanted)
            return wanted and not any(holds(part, has) for part in query.unwanted)
        case Either():
            return any(holds(part, has) for part in query.choices)


def occurs(wanted: Phrase, among: Sequence[str], at: int) -> bool:
    """Return True if a phrase begins at this index of a list of words."""
    last = at + len(wanted.words) - 1
    if last >= len(among) or tuple(among[at:last]) != wanted.words[:-1]:
        return False
    word = among[last]
    return word.startswith(wanted.words[-1]) if wanted.prefix else word == wanted.words[-1]


class _Parser:
    """Descends from OR to AND to NOT to what is in parentheses."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def _peek(self) -> str:
        """An operator or a parenthesis; "" for a word, and "end"."""
        if self._at == len(self._tokens):
            return "end"
        token = self._tokens[self._at]
        sign: str = token[3] or ""
        return sign or (token[4] if token[4] in _OPERATORS else "")

    def either(self, depth: int) -> _Operand | None:
        if depth > QUERY_DEPTH_MAX:
            raise InvalidQuery(f"more than {QUERY_DEPTH_MAX} parentheses inside one another")
        choices: list[_Operand] = []
        while True:
            choice = self._every(depth)
            if choice is not None:
                choices.append(choice)
            if self._peek() == ")" and depth == 0:
                self._at += 1  # it closes nothing
                continue
            if self._peek() != "OR":
                break
            self._at += 1
        return _either(choices)

    def _every(self, depth: int) -> _Operand | None:
        operands: list[_Operand] = []
        while self._peek() not in ("OR", ")", "end"):
            if self._peek() == "AND":
                self._at += 1
                continue
            operand = self._operand(depth)
            if operand is not None:
                operands.append(operand)
        return _every(operands)

    def _operand(self, depth: int) -> _Operand | None:
        turned = False
        while self._peek() == "NOT":
            turned = not turned
            self._at += 1
        if self._peek() in ("AND", "OR", ")", "end"):
            return None
        if self._peek() == "(":
            self._at += 1
            operand = self.either(depth + 1)
            if self._peek() == ")":
                self._at += 1
        else:
            operand = self._phrase()
        return None if operand is None else (operand[0], operand[1] != turned)

    def _phrase(self) -> _Operand | None:
        token = self._tokens[self._at]
        self._at += 1
        if token[4] is not None:
            parsed = phrase(token[4], prefix=token[4].endswith("*"))
        else:
            parsed = phrase(token[1], prefix=bool(token[2]))
        return None if parsed is None else (parsed, False)


def _every(operands: Sequence[_Operand]) -> _Operand | None:
    wanted = tuple(query for query, unwanted in operands if not unwanted)
    unwanted = tuple(query for query, unwanted in operands if unwanted)
    if len(operands) < 2:
        return operands[0] if operands else None
    if not wanted:  # none of these is: not any of these
        return Either(unwanted), True
    return Every(wanted, unwanted), False


def _either(choices: Sequence[_Operand]) -> _Operand | None:
    if len(choices) < 2:
        return choices[0] if choices else None
    wanted = tuple(query for query, unwanted in choices if not unwanted)
    unwanted = tuple(query for query, unwanted in choices if unwanted)
    if unwanted:  # this, or not that: not (that without this)
        return Every(unwanted, wanted), True
    return Either(wanted), False


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
