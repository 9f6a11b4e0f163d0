"""Connecting again: what a moment mends is waited for, what it does not is raised at once."""

from typing import Any

import psycopg
import pytest

from killick.stores.postgres.pool import patiently


class Refusing:
    """A server that refuses so often, then is there."""

    def __init__(self, error: psycopg.Error, times: int) -> None:
        self.error = error
        self.left = times

    def connect(self) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return None


def test_a_server_that_restarts_is_waited_for() -> None:
    server = Refusing(psycopg.OperationalError("connection refused"), 2)
    patiently(server.connect, 30)
    assert server.left == 0


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.InvalidPassword("no"),
        psycopg.errors.InvalidCatalogName("no"),
        psycopg.OperationalError("fe_sendauth: no password supplied"),
        psycopg.OperationalError('database "x" does not exist'),
    ],
)
def test_a_wrong_password_or_database_is_not_tried_again(error: psycopg.Error) -> None:
    server = Refusing(error, 2)
    with pytest.raises(psycopg.Error):
        patiently(server.connect, 30)
    assert server.left == 1
