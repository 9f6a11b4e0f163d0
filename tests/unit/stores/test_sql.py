"""The named statements of queries.sql."""

import pytest

from killick.stores.sql import beyond, chosen, load, parse


def test_a_block_is_named_by_the_line_above_it() -> None:
    assert parse("-- one --\nSELECT 1;\n\n-- two --\nSELECT\n2;\n") == {
        "one": "SELECT 1",
        "two": "SELECT\n2",
    }


def test_other_comments_are_left_out() -> None:
    assert parse("-- one --\n-- Why it is so.\nSELECT 1;") == {"one": "SELECT 1"}


def test_a_misspelt_statement_raises() -> None:
    with pytest.raises(AttributeError, match="no statement 'entrys'"):
        load("killick.stores.sqlite").entrys  # noqa: B018


@pytest.mark.parametrize(
    ("prefix", "after"),
    [(b"", b"\xff"), (b"ab", b"ac"), (b"\0", b"\1"), (b"\xc3\xbf", b"\xc3\xc0")],
)
def test_what_comes_after_all_text_that_begins_alike(prefix: bytes, after: bytes) -> None:
    assert beyond(prefix) == after


def test_lines_are_chosen_by_the_way_and_by_the_filters_that_are_given() -> None:
    sql = "SELECT\na /* by time, tag */\nb /* by tag */\nc /* if tag */\nd /* else tag */\ne"
    assert chosen(sql, "time", frozenset()).split() == ["SELECT", "a", "e"]
    assert chosen(sql, "time", frozenset({"tag"})).split() == ["SELECT", "a", "c", "d", "e"]
    assert chosen(sql, "tag", frozenset({"tag"})).split() == ["SELECT", "a", "b", "c", "e"]
