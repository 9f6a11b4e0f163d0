"""Columns of many rows, as PostgreSQL's binary arrays.

psycopg writes lists as text, one element at a time and bytes in hexadecimal: most of what an append
among many would cost, here and on the server, which has to read it again.
"""

from struct import Struct
from typing import Any, Final

from psycopg import Connection, pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

_HEADER: Final = Struct("!iiIii").pack
"""Dimensions, whether there are NULLs, the type of an element, how many, the first one's number."""

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
        cells = [_NULL if one is None else _NUMBER(8, one) for one in obj]
        return _array(_BIGINT, cells)


class _Byteas(Dumper):
    format = pq.Format.BINARY
    oid = 1001

    def dump(self, obj: Byteas) -> Buffer:
        cells = [_NULL if one is None else _LENGTH(len(one)) + one for one in obj]
        return _array(_BYTEA, cells)


def _array(of: int, cells: list[bytes]) -> bytes:
    # That there may be NULLs is said of every array: whoever reads it looks at each length anyway.
    return _HEADER(1, 1, of, len(cells), 1) + b"".join(cells)


def teach(connection: Connection[Any]) -> None:
    """Let a connection take these as parameters."""
    connection.adapters.register_dumper(Bigints, _Bigints)
    connection.adapters.register_dumper(Byteas, _Byteas)
