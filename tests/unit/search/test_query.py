"""What a person types into a search."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.errors import InvalidQuery
from killick.search.query import (
    QUERY_CHARS_MAX,
    Either,
    Every,
    Phrase,
    holds,
    occurs,
    parse,
    phrases,
)

A, B, C, D = (Phrase((letter,)) for letter in "abcd")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a", A),
        ("a b", Every((A, B))),
        ("a AND b", Every((A, B))),
        ("a OR b", Either((A, B))),
        ("a b OR c d", Either((Every((A, B)), Every((C, D))))),
        ("a (b OR c)", Every((A, Either((B, C))))),
        ("a NOT b", Every((A,), (B,))),
        ("NOT b a", Every((A,), (B,))),
        ("a AND NOT b NOT c", Every((A,), (B, C))),
        ("a NOT (b OR c)", Every((A,), (Either((B, C)),))),
        ("NOT NOT a", A),
        ("a NOT (NOT b)", Every((A, B))),
        ("a (NOT b NOT c)", Every((A,), (Either((B, C)),))),
        ("a (b OR NOT c)", Every((A,), (Every((C,), (B,)),))),
        ('"a b"', Phrase(("a", "b"))),
        ('"a b" c', Every((Phrase(("a", "b")), C))),
        ("a_b.c", Phrase(("a", "b", "c"))),
        ("a*", Phrase(("a",), prefix=True)),
        ('"a b"*', Phrase(("a", "b"), prefix=True)),
        ("and or not", Every((Phrase(("and",)), Phrase(("or",)), Phrase(("not",))))),
        ('"AND"', Phrase(("and",))),
        ("東京都", Phrase(("東京", "京都"))),
        ("東京都*", Phrase(("東京", "京都"))),
        ("京", Phrase(("京",), prefix=True)),
        ("東京tower", Phrase(("東京", "京", "tower"))),
    ],
)
def test_what_a_query_means(text: str, query: object) -> None:
    assert parse(text) == query


@pytest.mark.parametrize(
    "text",
    ["a", "a AND", "OR a", "a OR", "AND AND a", "a NOT", "(a", "a)", ")a(", "((a", '"a', "a ***"],
)
def test_what_cannot_be_understood_is_passed_over(text: str) -> None:
    assert parse(text) == A


@pytest.mark.parametrize("text", ["", " ", '""', '"', "***", '"*" * "', "AND", "NOT", "()", "\0"])
def test_a_query_in_which_nothing_is_left_says_what_to_do(text: str) -> None:
    with pytest.raises(InvalidQuery, match="name at least one word"):
        parse(text)


@pytest.mark.parametrize("text", ["NOT a", "NOT a NOT b", "a OR NOT b", "NOT (a b)"])
def test_a_query_that_only_says_what_is_not_wanted_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery, match="word that is, as in: word NOT other"):
        parse(text)


@pytest.mark.parametrize("text", ["a" * (QUERY_CHARS_MAX + 1), "(" * 500 + "a", "a " * 2_000])
def test_a_query_that_is_too_much_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        parse(text)


@given(st.text() | st.text(alphabet='ab"*() ANDORNOT京\0\ud800é', max_size=60))
def test_nothing_but_the_one_error_is_ever_raised(text: str) -> None:
    with contextlib.suppress(InvalidQuery):
        assert phrases(parse(text))


def test_holds_asks_for_all_for_none_and_for_any() -> None:
    query = parse("a (b OR c) NOT d")
    for has, true in (("ab", True), ("ac", True), ("a", False), ("abd", False), ("bc", False)):
        assert holds(query, lambda one, has=has: one.words[0] in has) is true  # type: ignore[misc]


def test_a_phrase_occurs_where_all_of_its_words_stand() -> None:
    found = ["an", "old", "linker", "error"]
    assert occurs(Phrase(("linker", "error")), found, 2)
    assert occurs(Phrase(("linker", "err"), prefix=True), found, 2)
    assert not occurs(Phrase(("linker", "err")), found, 2)
    assert not occurs(Phrase(("error", "code")), found, 3)
