"""The named statements of queries.sql."""

import pytest

from killick.stores.sql import parse
from killick.stores.sqlite.schema import SQL, SqliteQueries


def test_a_block_is_named_by_the_line_above_it() -> None:
    assert parse("-- one --\nSELECT 1;\n\n-- two --\nSELECT\n2;\n") == {
        "one": "SELECT 1",
        "two": "SELECT\n2",
    }


def test_other_comments_are_left_out() -> None:
    assert parse("-- one --\n-- Why it is so.\nSELECT 1;") == {"one": "SELECT 1"}


def test_a_block_without_a_field_fails_at_import() -> None:
    with pytest.raises(TypeError):
        SqliteQueries(**{**SQL._asdict(), "extra": "SELECT 1"})


def test_every_field_has_a_statement() -> None:
    assert all(sql.strip() for sql in SQL)
