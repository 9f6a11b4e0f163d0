"""What a URL says: to libpq, and to us."""

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from killick.errors import StoreError
from killick.stores.postgres.connection import ConnectionSettings, ends_connection, read_url
from killick.stores.postgres.statements import join, split, tenant_number


def test_everything_but_the_schema_goes_to_libpq_as_it_is() -> None:
    address = read_url(
        "postgresql://me:p%2Bw@h1:1,h2:2/db?schema=mine&options=-c%20geqo%3Doff&connect_timeout=9"
    )
    told = conninfo_to_dict(address.conninfo)
    assert address.schema == "mine"
    assert (told["host"], told["port"], told["password"]) == ("h1,h2", "1,2", "p+w")
    assert (told["options"], told["connect_timeout"]) == ("-c geqo=off", "9")
    assert "p+w" not in address.shown


def test_the_environment_of_libpq_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is not overridden by defaults of ours; what the URL says comes first."""
    assert conninfo_to_dict(read_url("postgresql://h/db").conninfo)["connect_timeout"] == "5"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    monkeypatch.setenv("PGHOST", "there")
    told = conninfo_to_dict(read_url("postgresql:///db").conninfo)
    assert "connect_timeout" not in told
    assert "application_name" not in told
    assert read_url("postgresql:///db").shown.startswith("db on there")
    stated = read_url("postgresql://h/db?connect_timeout=9&application_name=mine").conninfo
    assert conninfo_to_dict(stated)["connect_timeout"] == "9"
    assert conninfo_to_dict(stated)["application_name"] == "mine"


def test_an_address_without_a_host_is_libpqs() -> None:
    told = conninfo_to_dict(read_url("postgresql:///db?host=/run/pg&schema=mine").conninfo)
    assert (told["dbname"], told["host"]) == ("db", "/run/pg")
    assert "user" not in conninfo_to_dict(read_url("postgresql://").conninfo)


def test_an_address_that_cannot_be_read_does_not_show_its_password() -> None:
    with pytest.raises(StoreError, match="cannot be read") as raised:
        read_url("postgresql://me:ses ame@h/db")
    assert "ame@" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_not_waiting_is_not_waiting_for_ever() -> None:
    """No lock timeout at all would be what 0 means to the server."""
    assert ConnectionSettings("full", 0, 30).parameters("on")["lock_timeout"] == "1ms"


def test_a_schema_has_a_default_and_a_plain_name() -> None:
    assert read_url("postgresql://h/db").schema == "killick"
    for bad in ("Up", "a-b", "1a", "a%22", "x" * 49):
        with pytest.raises(StoreError, match="cannot be the schema"):
            read_url(f"postgresql://h/db?schema={bad}")


@pytest.mark.parametrize(
    ("durability", "configured", "used"),
    [
        ("full", "off", "on"),
        ("full", "local", "on"),
        ("full", "on", "on"),
        ("full", "remote_apply", "remote_apply"),
        ("normal", "on", "off"),
    ],
)
def test_durability_is_never_weaker_than_asked_for(
    durability: str, configured: str, used: str
) -> None:
    settings = ConnectionSettings("full" if durability == "full" else "normal", 30, 30)
    assert settings.parameters(configured)["synchronous_commit"] == used


def test_a_key_is_its_tenant_and_its_session() -> None:
    tenant = tenant_number("\ud800 any name")
    assert 0 <= tenant < 2**63
    assert split(join(tenant, 2**63 - 1)) == (tenant, 2**63 - 1)


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (psycopg.OperationalError("consuming input failed"), True),
        (psycopg.DatabaseError("server closed the connection unexpectedly"), True),
        (pg.AdminShutdown("terminating connection"), True),
        (pg.DivisionByZero("division by zero"), False),
        (psycopg.DataError("text fields cannot contain NUL bytes"), False),
        (psycopg.ProgrammingError("cannot adapt type"), False),
    ],
)
def test_a_parameter_that_is_refused_here_does_not_end_the_connection(
    error: psycopg.Error, ended: bool
) -> None:
    assert ends_connection(error) is ended
