"""A lease is renewed long before it is over: one renewal may fail, and the next comes in time."""

import psycopg

from killick import Store
from killick.stores.postgres import PostgresDatabase
from tests.postgres_fixtures import Shared
from tests.waiting import until

SECONDS = 3.0
LEFT = (
    "SELECT until, EXTRACT(epoch FROM until - clock_timestamp()) FROM killick.holders"
    " WHERE holder = %s"
)


def test_a_lease_is_renewed_while_much_of_it_is_left(server: Shared) -> None:
    """A third of it has passed when it is renewed; on a busy machine it may be half."""
    database = PostgresDatabase(server.server.url(), lease_seconds=SECONDS)
    connect = psycopg.connect(server.server.conninfo(), autocommit=True)
    with Store(database, indexing=False), connect as connection:

        def look() -> tuple[object, float]:
            row = connection.execute(LEFT, (database.holder,)).fetchone()
            assert row is not None
            return row[0], float(row[1])

        for _ in range(2):
            seen = [look()]
            until(lambda seen=seen: seen.append(look()) or seen[-1][0] != seen[0][0])  # type: ignore[misc]
            assert seen[-2][1] > SECONDS / 4
