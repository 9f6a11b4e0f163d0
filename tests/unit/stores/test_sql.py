"""The named statements of queries.sql."""

import pytest

from killick.stores.sql import load, parse


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
