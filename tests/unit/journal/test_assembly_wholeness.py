"""When the arguments of a tool call are whole: piece by piece, and all at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.journal.assembly import ObjectScanner, is_whole_object
from tests.unit.journal.making import quick

jsonish = st.text(st.sampled_from('{}[]":,\\ \n1a'), max_size=24)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=3).map(json.dumps)


def scan(text: str, pieces: list[int]) -> tuple[bool, bool]:
    scanner = ObjectScanner()
    for start, end in zip([0, *pieces], [*pieces, len(text)], strict=True):
        scanner.feed(text[start:end])
    return scanner.closed, scanner.broken


@quick
@given(jsonish | objects, st.data())
def test_a_scanner_sees_the_same_in_every_splitting(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    assert scan(text, cuts) == scan(text, [])
    assert scan(text, list(range(len(text)))) == scan(text, [])


@quick
@given(jsonish | objects)
def test_whatever_is_whole_was_seen_to_close_unbroken(text: str) -> None:
    if is_whole_object(text):
        assert scan(text, []) == (True, False)


@quick
@given(objects)
def test_every_object_is_whole(text: str) -> None:
    assert is_whole_object(text)
    assert scan(text, []) == (True, False)


@quick
@given(objects, st.data())
def test_no_beginning_of_an_object_is_whole(text: str, data: st.DataObject) -> None:
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert not is_whole_object(cut)
    assert not scan(cut, [])[0]


@quick
@given(jsonish)
def test_wholeness_is_what_a_json_parser_says_it_is(text: str) -> None:
    try:
        expected = isinstance(json.loads(text), dict)
    except ValueError:
        expected = False
    assert is_whole_object(text) == expected


@pytest.mark.parametrize("text", ["", " ", "[]", "1", '"{}"', "null", "{} {}", "{}x", "{", "}{"])
def test_what_is_not_one_object_is_not_whole(text: str) -> None:
    assert not is_whole_object(text)


@pytest.mark.parametrize("text", ["{}", " {} ", '{"a": "}"}', '{"a": "\\"}"}', "\n{\t}\r\n"])
def test_blanks_and_braces_in_strings_do_not_matter(text: str) -> None:
    assert is_whole_object(text)
    assert scan(text, []) == (True, False)


def test_what_goes_on_after_the_end_is_broken() -> None:
    scanner = ObjectScanner()
    scanner.feed("{}")
    assert (scanner.closed, scanner.broken) == (True, False)
    scanner.feed(" \n")
    assert not scanner.broken
    scanner.feed("{")
    assert scanner.broken


def test_what_is_not_an_object_is_broken_from_its_first_character() -> None:
    scanner = ObjectScanner()
    scanner.feed("[")
    assert (scanner.closed, scanner.broken) == (False, True)


def test_an_object_with_an_escaped_lone_surrogate_is_whole() -> None:
    """Models do write these; JSON's grammar allows them and every parser of Python reads them."""
    assert is_whole_object('{"a": "\\ud800"}')


def test_arguments_that_nest_too_deeply_are_an_answer_and_not_an_exception() -> None:
    """The fold of every later write asks this; it may say yes or no, it may not raise."""
    deep = '{"a":' + "[" * 50_000 + "]" * 50_000 + "}"
    assert is_whole_object(deep) in (True, False)


def test_a_number_too_large_for_a_float_does_not_make_a_call_less_whole() -> None:
    assert is_whole_object('{"a": 1e999}')
