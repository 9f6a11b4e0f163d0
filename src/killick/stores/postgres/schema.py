"""The named statements of queries.sql, for one schema."""

import re
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Final

from killick.errors import StoreError
from killick.stores.sql import parse

DEFAULT_SCHEMA: Final = "killick"

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_OURS: Final = re.compile(r"\bkillick\.")


class PostgresQueries(SimpleNamespace):
    """One attribute for each block; a misspelt one fails where it is asked for."""

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")


def check_schema(name: str) -> str:
    """A name that needs no quoting, in SQL or in the name of a channel."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"{name!r} cannot be the schema of a store: use small letters, digits and _, at most 48"
        )
    return name


def in_schema(sql: str, schema: str) -> str:
    """The files say `killick.entries`; a store may have another schema for its own."""
    return _OURS.sub(f'"{schema}".', sql)


@cache
def queries(schema: str) -> PostgresQueries:
    """Every statement, about the tables of this schema."""
    text = files("killick.stores.postgres").joinpath("queries.sql").read_text(encoding="utf-8")
    return PostgresQueries(**{name: in_schema(sql, schema) for name, sql in parse(text).items()})
