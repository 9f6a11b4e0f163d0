"""Arrays that we pack ourselves say to the server what psycopg's lists say."""

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick.stores.postgres.statements import Bigints, Byteas, register_arrays
from tests.postgres_fixtures import Shared

Connection = psycopg.Connection[tuple[object, ...]]

# Each example asks the same connection something new and leaves nothing on it.
one_connection = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def connection(server: Shared) -> Iterator[Connection]:
    with psycopg.connect(server.server.conninfo()) as opened:
        register_arrays(opened)
        yield opened


@one_connection
@given(numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_numbers(connection: Connection, numbers: list[int | None]) -> None:
    same = "SELECT %s::bigint[] IS NOT DISTINCT FROM %s::bigint[], %s::bigint[]"
    found = connection.execute(same, (Bigints(numbers), numbers, Bigints(numbers))).fetchone()
    assert found == (True, numbers)


@one_connection
@given(pieces=st.lists(st.none() | st.binary()))
def test_bytes(connection: Connection, pieces: list[bytes | None]) -> None:
    same = "SELECT %s::bytea[] IS NOT DISTINCT FROM %s::bytea[], %s::bytea[]"
    found = connection.execute(same, (Byteas(pieces), pieces, Byteas(pieces))).fetchone()
    assert found == (True, pieces)


def test_columns_of_different_types_stay_beside_each_other(connection: Connection) -> None:
    rows = connection.execute(
        "SELECT * FROM unnest(%s::bigint[], %s::bytea[])",
        (Bigints([1, None, 3]), Byteas([b"a", b"", None])),
    ).fetchall()
    assert rows == [(1, b"a"), (None, b""), (3, None)]
