"""A connection that does not wait for ever: it hangs up on a server that is silent for too long.

TCP notices a machine that is gone. It does not notice a server that accepts and is silent: its
processes are frozen, its disk hangs, or something in between swallows its answers.
"""

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from killick.errors import (
    KillickError,
    ServerTooOld,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreReadOnly,
)
from killick.model.limits import ANSWER_SECONDS
from killick.stores.postgres.statements import (
    DEFAULT_SCHEMA,
    PostgresQueries,
    check_schema,
    register_arrays,
)

T = TypeVar("T")

_STATE: Final = "SELECT 1 FROM pg_stat_activity WHERE pid = %(pid)s AND state NOT LIKE 'idle%%'"


class Silent(psycopg.OperationalError):
    """The server was silent for longer than it may be; the connection is closed."""


class _Pipeline(psycopg.Pipeline):
    """Ends with a Sync and nothing after it.

    psycopg sends a Flush behind it. A server that reads that after it was done takes its client to
    be at work, and never ends the transaction of one that was frozen.
    """

    def _exit_gen(self) -> Generator[Any, Any, None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            yield from self._fetch_gen(flush=False)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose server must answer in time while a caller waits."""

    answer_seconds: float = ANSWER_SECONDS
    """For how long it may be silent."""

    unhurried = False
    """Whether a statement may take as long as it takes, while the server is at work on it."""

    conninfo = ""
    server_pid: int | None = None
    """The server's process behind it; None if a pooler gives each transaction to another."""

    _hung_up = False

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Send the statements of a block together; blocks are never nested."""
        assert self._pipeline is None
        self._pipeline = _Pipeline(self)
        try:
            with self._pipeline as entered:
                yield entered
        finally:
            self._pipeline = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server, as psycopg does for every purpose, but not for ever."""
        seconds = self.answer_seconds
        try:
            return super().wait(self._listening(gen, seconds), *args, **kwargs)
        except psycopg.OperationalError as error:
            if not self._hung_up:
                raise
            self.close()
            raise Silent(f"the server has not answered for {seconds:g} s") from error

    def _listening(self, gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
        """Pass on what psycopg waits for, and look at the clock when nothing came."""
        heard = time.monotonic()
        at_work = True
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > seconds:
                    # The answer to finished work may be on its way: only two looks count.
                    was_at_work, at_work = at_work, self.unhurried and self._is_at_work()
                    if not (self.unhurried and (at_work or was_at_work)):
                        self._hang_up()
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value

    def _is_at_work(self) -> bool:
        """Ask the same server, on another connection, whether it is at work on this one."""
        info = self.info
        there: dict[str, Any] = {"host": info.host, "hostaddr": info.hostaddr, "port": info.port}
        there = {name: value for name, value in there.items() if value}
        try:
            address = make_conninfo(self.conninfo, **{**there, "target_session_attrs": "any"})
            with Connection.connect(address, autocommit=True) as another:
                another.answer_seconds = self.answer_seconds
                working = another.execute(_STATE, {"pid": self.server_pid}).fetchone()
        except (psycopg.Error, OSError):
            return False
        return self.server_pid is None or working is not None

    def _hang_up(self) -> None:
        """End it as the network would: libpq finds the end of the connection by itself."""
        if self._hung_up:
            return
        self._hung_up = True
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self.fileno())) as end,
        ):
            end.shutdown(socket.SHUT_RDWR)


Durability = Literal["full", "normal"]

OLDEST_SERVER: Final = 15

_DEFAULTS: Final = {
    "fallback_application_name": "killick",
    # A server that went away without a word is noticed in seconds, not in hours.
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_TLS: Final = ("certificate", "does not support SSL", "sslmode", "tlsv1 alert", "sslv3 alert")

_NEVER: Final = sys.maxsize
"""After how many runs psycopg prepares a statement by itself. Most must not be prepared: a pooler
may not keep it, what was prepared in a pipeline that failed is not there afterwards, and a plan for
any session is no better than one for this session, which knows the one partition to look at."""

_READING_SECONDS: Final = 600.0
"""For how long a client that reads may be busy between two statements: it locks nothing."""


# psycopg warns of every connection that is lost in a pipeline; without a handler Python prints it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Address(msgspec.Struct, frozen=True):
    """The place of a store: libpq's parameters, the database to show to people, the schema.

    `named` is the schema that the URL names; without one the server decides (`find_schema`).
    """

    conninfo: str
    database: str
    named: str | None = None

    @property
    def schema(self) -> str:
        return self.named or DEFAULT_SCHEMA

    @property
    def shown(self) -> str:
        return f"{self.database}, schema {self.schema}"


def read_url(url: str) -> Address:
    """Read a URL: everything that libpq understands, and `schema`. Raises StoreError."""
    base, _, query = url.partition("?")
    options = query.split("&")  # and put together again as they are, for libpq to read
    schemas = [unquote(text[7:]) for text in options if text.startswith("schema=")]
    schema = check_schema(schemas[-1]) if schemas else None
    rest = "&".join(text for text in options if text and not text.startswith("schema="))
    try:
        parameters = conninfo_to_dict(f"{base}?{rest}")
    except psycopg.ProgrammingError as error:
        user = base.partition("://")[2].rpartition("@")[0]
        reason = str(error).replace(user, "…") if user else str(error)  # a password may be in it
        raise StoreError(f"the address of the PostgreSQL server cannot be read: {reason}") from None
    stated = {name: str(value) for name, value in parameters.items() if value is not None}
    host = stated.get("host") or stated.get("hostaddr") or os.environ.get("PGHOST")
    database = f"{stated.get('dbname') or 'the default database'} on {host or 'the local socket'}"
    defaults = dict(_DEFAULTS)
    if os.environ.get("PGCONNECT_TIMEOUT"):
        del defaults["connect_timeout"]  # what is in the environment counts, as for libpq
    return Address(make_conninfo(**{**defaults, **stated}), database, schema)


class ConnectionSettings(msgspec.Struct, frozen=True):
    """Settings of every transaction: its durability, and for how long it waits."""

    durability: Durability
    wait_seconds: float
    answer_seconds: float
    idle_seconds: float = _READING_SECONDS
    """After which the server gives up a transaction whose client says nothing, and its locks."""

    tenant: int | None = None
    """The number of the one tenant whose rows the server shows to a role that it binds."""
    bound: bool = False
    """Whether row security binds this role, so that every statement needs the tenant."""

    def parameters(self, synchronous_commit: str) -> dict[str, str]:
        return {
            "tenant": "" if self.tenant is None else str(self.tenant),
            # None at all would be for ever.
            "lock_timeout": f"{max(1, int(self.wait_seconds * 1000))}ms",
            "idle_timeout": f"{int(self.idle_seconds * 1000)}ms",
            "synchronous_commit": self._durable(synchronous_commit),
        }

    def _durable(self, configured: str) -> str:
        if self.durability == "normal":
            return "off"
        # Never weaker than the server is set to: it may wait for standbys to have applied it.
        return configured if configured in ("on", "remote_apply") else "on"


class Link:
    """A connection, and facts about the server behind it."""

    __slots__ = ("bound", "connection", "parameters", "pooled", "standby")

    def __init__(self, connection: Connection, settings: ConnectionSettings) -> None:
        self.connection = connection
        _check_version(connection.info.server_version)
        row = connection.execute(
            "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit')"
        ).fetchone()
        assert row is not None
        pid, self.standby, synchronous_commit = row
        # A pooler hands out a process number of its own.
        self.pooled = pid != connection.info.backend_pid
        connection.server_pid = None if self.pooled else pid
        self.parameters = settings.parameters(synchronous_commit)
        self.bound = settings.bound
        if not self.pooled:
            self._set_for_session()

    def _set_for_session(self) -> None:
        self.connection.execute(
            "SELECT set_config('lock_timeout', %(lock_timeout)s, false),"
            " set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false),"
            " set_config('synchronous_commit', %(synchronous_commit)s, false),"
            " set_config('killick_store.tenant', %(tenant)s, false),"
            " set_config('jit', 'off', false),"  # compiling a search of 200 words took 30 s
            " set_config('client_connection_check_interval', '5s', false),"
            " set_config('tcp_keepalives_idle', '5', false),"
            " set_config('tcp_keepalives_interval', '2', false),"
            " set_config('tcp_keepalives_count', '3', false)",
            self.parameters,
        )

    @property
    def broken(self) -> bool:
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        self.connection.close()


def ends_connection(error: psycopg.Error) -> bool:
    """Tell whether the server or the wire has ended the connection that raised this.

    A server that is told to end a backend says so (57P…) before it hangs up, and psycopg raises
    that before it has noticed; what the client library finds out by itself has no SQLSTATE. Nor
    has a parameter that it refuses to send, which says nothing about the connection.
    """
    state = error.sqlstate
    if state is None:
        return not isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    return state.startswith(("08", "57P"))


def connect(address: Address, settings: ConnectionSettings) -> Link:
    """Connect. Raises psycopg's errors, and StoreError for a server that cannot be used."""
    connection = _opened(address.conninfo)
    try:
        connection.conninfo = address.conninfo
        connection.answer_seconds = settings.answer_seconds
        # One type for all numbers: statements are then the same whatever their values are.
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        register_arrays(connection)
        return Link(connection, settings)
    except BaseException:
        connection.close()
        raise


def _opened(conninfo: str) -> Connection:
    try:
        return Connection.connect(conninfo, autocommit=True, prepare_threshold=_NEVER)
    except OSError as error:
        # psycopg needs a file to wait for the server, and there was none left for it.
        raise psycopg.OperationalError(f"no connection can be opened here: {error}") from error


def _check_version(version: int) -> None:
    if version < OLDEST_SERVER * 10_000:
        raise ServerTooOld(
            f"the server is PostgreSQL {version // 10_000}; a store needs {OLDEST_SERVER} or newer"
        )


def run(
    connection: Connection,
    sql: str,
    bindings: Mapping[str, Any] | None = None,
    *,
    binary: bool = False,
    prepare: bool = False,
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Run a statement of ours; no text of a user is ever part of it."""
    return connection.execute(sql.encode(), bindings, binary=binary, prepare=prepare)


def run_alone(
    line: Link, sql: str, bindings: Mapping[str, Any] | None = None
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Run a statement that is a transaction of its own; behind a pooler it takes its tenant along.

    If interrupted: it is done as a whole, or not at all.
    """
    if not (line.pooled and line.bound):
        return run(line.connection, sql, bindings)
    with line.connection.transaction():
        set_tenant(line)
        return run(line.connection, sql, bindings)


def set_tenant(line: Link) -> None:
    """Name the tenant for the rest of a transaction behind a pooler; elsewhere it is set already.

    If interrupted: the transaction sees no row of any tenant.
    """
    if line.pooled and line.bound:
        line.connection.execute(
            "SELECT set_config('killick_store.tenant', %(tenant)s, true)", line.parameters
        )


class StatementRunner:
    """Runs statements on one connection, inside the transaction that its caller has begun."""

    def __init__(self, connection: Connection, sql: PostgresQueries) -> None:
        self._connection = connection
        self._sql = sql

    def fetch(self, sql: str, bindings: dict[str, Any] | None = None) -> list[Any]:
        """Return all rows of one statement; bytes come as they are."""
        return run(self._connection, sql, bindings, binary=True).fetchall()

    def fetch_one(self, sql: str, bindings: dict[str, Any]) -> Any:
        rows = self.fetch(sql, bindings)
        return rows[0] if rows else None

    def take_time(self) -> None:
        """Let the next statements take as long as they take: they go over all of something."""
        self._connection.unhurried = True


def refuses_encryption(error: psycopg.Error) -> bool:
    """Return whether TLS failed, for lack of it or of a trusted certificate: waiting is no use."""
    message = str(error)
    return error.sqlstate is None and any(phrase in message for phrase in _TLS)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise PostgreSQL's errors as ours, with the original as the cause."""
    try:
        yield
    except KillickError:
        raise
    except psycopg.Error as error:
        raise translate_error(error, what) from error


def translate_error(error: psycopg.Error, what: str) -> StoreError:
    """Return the error of ours that tells the caller what to do about one of PostgreSQL's."""
    reason = " ".join(str(error).split()) or type(error).__name__
    match error:
        case pg.LockNotAvailable():
            return StoreBusy(f"{what}: another process held the session; try again ({reason})")
        case pg.ReadOnlySqlTransaction():
            return StoreReadOnly(
                f"{what}: the server is a standby in recovery, or read-only ({reason}); "
                "name the primary, or promote it"
            )
        case pg.InsufficientPrivilege():
            return StoreReadOnly(
                f"{what}: this role may not do that ({reason}); the owner of the tables may, and "
                "gives another role what a store needs by `killick grant ROLE`"
            )
        case pg.TooManyConnections():
            return StoreDegraded(
                f"{what}: the server has no connection left ({reason}); nothing was acknowledged"
            )
        case pg.DiskFull():
            return StoreDegraded(
                f"{what}: the server's disk is full ({reason}); nothing was acknowledged, make room"
            )
        case pg.InvalidAuthorizationSpecification() | pg.InvalidPassword():
            return StoreError(f"{what}: the server refuses this user ({reason})")
        case pg.InvalidCatalogName() | pg.InvalidSchemaName():
            return StoreError(f"{what}: {reason}")
        case pg.UndefinedTable():
            return StoreNotOurs(f"{what}: the schema holds no store of Killick ({reason})")
        case pg.DeadlockDetected() | pg.SerializationFailure():
            return StoreBusy(f"{what}: other transactions were in the way; try again ({reason})")
        case pg.QueryCanceled():
            return StoreDegraded(f"{what}: the server gave up ({reason}); nothing was acknowledged")
        case Silent():
            return StoreDegraded(
                f"{what}: {reason}; nothing was acknowledged, the same store works again when the "
                "server does"
            )
        case psycopg.OperationalError() if refuses_encryption(error):
            return StoreError(f"{what}: no encrypted connection that both sides accept ({reason})")
        case psycopg.OperationalError():
            return StoreDegraded(
                f"{what}: the server cannot be reached ({reason}); nothing was acknowledged, "
                "the same store works again when the server does"
            )
        case _:
            return StoreDegraded(f"{what}: {reason}; nothing was acknowledged, try again")
