"""The named statements of queries.sql for one schema, and the parameters that they take.

The key of a session is its tenant's number and its own, in one. Both are needed to find a row, and
both are random enough to spread over partitions: the first is a hash of the tenant's name, the
second is drawn when the session is created. Nothing counts them.
"""

import re
import secrets
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

from killick.errors import StoreError
from killick.journal.codec import to_bytes
from killick.stores.sql import parse

DEFAULT_SCHEMA: Final = "killick"

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_OURS: Final = re.compile(r"\bkillick\.")


class PostgresQueries(SimpleNamespace):
    """One attribute for each block; a misspelt one fails where it is used."""

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")


def check_schema(name: str) -> str:
    """Return a name that needs no quoting, in SQL or as a channel's name. Raises StoreError."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"{name!r} cannot be the schema of a store: use small letters, digits and _, at most 48"
        )
    return name


def in_schema(sql: str, schema: str) -> str:
    """Put a store's own schema where the files say `killick.entries`."""
    return _OURS.sub(f'"{schema}".', sql)


@cache
def queries(schema: str) -> PostgresQueries:
    """Return every statement, about the tables of this schema."""
    text = files("killick.stores.postgres").joinpath("queries.sql").read_text(encoding="utf-8")
    return PostgresQueries(**{name: in_schema(sql, schema) for name, sql in parse(text).items()})


# -- arrays ------------------------------------------------------------------------------------

_HEADER: Final = Struct("!iiIii").pack
"""Dimensions, whether there are NULLs, the type of a value, their number, the first one's index."""

_NUMBER: Final = Struct("!iq").pack
_LENGTH: Final = Struct("!i").pack
_NULL: Final = _LENGTH(-1)
_BIGINT: Final = 20
_BYTEA: Final = 17


class Bigints(tuple[int | None, ...]):
    """Sent as bigint[]."""

    __slots__ = ()


class Byteas(tuple[bytes | None, ...]):
    """Sent as bytea[]."""

    __slots__ = ()


class _Bigints(Dumper):
    format = pq.Format.BINARY
    oid = 1016

    def dump(self, obj: Bigints) -> Buffer:
        return _array(_BIGINT, [_NULL if value is None else _NUMBER(8, value) for value in obj])


class _Byteas(Dumper):
    format = pq.Format.BINARY
    oid = 1001

    def dump(self, obj: Byteas) -> Buffer:
        cells = [_NULL if value is None else _LENGTH(len(value)) + value for value in obj]
        return _array(_BYTEA, cells)


def _array(kind: int, cells: list[bytes]) -> bytes:
    # Every array says that it may have NULLs: the server reads each length anyway.
    return _HEADER(1, 1, kind, len(cells), 1) + b"".join(cells)


def register_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let a connection take both as parameters."""
    connection.adapters.register_dumper(Bigints, _Bigints)
    connection.adapters.register_dumper(Byteas, _Byteas)


# -- keys --------------------------------------------------------------------------------------

_MASK: Final = (1 << 64) - 1


def tenant_number(name: str) -> int:
    return int.from_bytes(blake2b(to_bytes(name), digest_size=8).digest()) >> 1


def new_number() -> int:
    return secrets.randbits(63)


def join(tenant: int, session: int) -> int:
    return tenant << 64 | session


def split(key: int) -> tuple[int, int]:
    return key >> 64, key & _MASK


def of(key: int, **more: Any) -> dict[str, Any]:
    """Return the parameters of a statement about one session."""
    return {"tenant": key >> 64, "session": key & _MASK, **more}


def columns(keys: Sequence[int]) -> dict[str, Any]:
    """Return the parameters of a statement about several sessions."""
    return {
        "tenants": Bigints(key >> 64 for key in keys),
        "sessions": Bigints(key & _MASK for key in keys),
    }


def filters_of(query: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a query as parameters, text as bytes; the tenant by its number."""
    fields = {name: getattr(query, name) for name in query.__struct_fields__}
    as_stored = {name: to_bytes(text) for name, text in fields.items() if isinstance(text, str)}
    return {**fields, **as_stored, "tenant": tenant_number(fields["tenant"])}


def identity_key(identity: str) -> bytes:
    """Return an identity as the index holds it; the session stands before it there."""
    return blake2b(to_bytes(identity), digest_size=16).digest()
