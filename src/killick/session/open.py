"""From what a user names as a store to an open database."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from killick.errors import StoreError, needs_extra
from killick.journal import checks
from killick.journal.checks import check_numbers
from killick.journal.redaction import Redact, Redactor, redact_secrets
from killick.model.limits import (
    ANSWER_SECONDS,
    FLUSH_BYTES,
    LEASE_SECONDS,
    LOCK_WAIT_SECONDS,
    STREAM_BUFFER_BYTES,
    WINDOW_SECONDS,
)
from killick.model.messages import plain
from killick.session.runtime import Clock, IdSource, Runtime, random_ids, system_clock
from killick.stores.contract import Database

LOG: Final = logging.getLogger("killick")

Durability = Literal["full", "normal"]
DEFAULT_TENANT: Final = "default"
"""Whose sessions a store opens that names no tenant."""
SERVERS: Final = ("postgresql://", "postgres://")
_PASSWORDS: Final = re.compile(r"(?i)((?<=://)[^:@/?]*:)[^?]*(?=@)|([?&]\w*password=)[^&]*")
Url = str | os.PathLike[str] | Database | None


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options with which a store is opened."""

    tenant: str | None = None
    durability: Durability = "full"
    window_seconds: float = WINDOW_SECONDS
    buffer_bytes: int = STREAM_BUFFER_BYTES
    flush_bytes: int = FLUSH_BYTES
    lock_wait_seconds: float = LOCK_WAIT_SECONDS
    lease_seconds: float = LEASE_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    network: bool = False
    indexing: bool = True
    clock: Clock = system_clock
    ids: IdSource = random_ids
    redact: Redact | Literal["secrets"] | None = None

    def __post_init__(self) -> None:
        if self.durability not in ("full", "normal"):
            raise ValueError(f'durability={self.durability!r}; it is "full" or "normal"')
        if self.tenant is not None:
            checks.check_text(self.tenant, "the tenant")
        check_numbers(
            window_seconds=self.window_seconds,
            buffer_bytes=self.buffer_bytes,
            flush_bytes=self.flush_bytes,
            lock_wait_seconds=self.lock_wait_seconds,
            lease_seconds=self.lease_seconds,
            answer_seconds=self.answer_seconds,
        )
        _redactor(self.redact)


def opener(url: Url, options: StoreOptions) -> Callable[[], Runtime]:
    """Return a function that opens the store that `url` names now.

    A child after fork() calls it again, in whatever folder it is by then.
    """
    named = _settled(url)
    return lambda: _open(named, options)


def _open(named: Path | str | Database | None, options: StoreOptions) -> Runtime:
    if options.tenant is None:
        options = replace(options, tenant=os.environ.get("KILLICK_TENANT") or None)
    return Runtime(
        _database(named, options),
        tenant=DEFAULT_TENANT if options.tenant is None else plain(options.tenant),
        clock=options.clock,
        ids=options.ids,
        window_seconds=options.window_seconds,
        buffer_bytes=options.buffer_bytes,
        flush_bytes=options.flush_bytes,
        redactor=_redactor(options.redact),
        indexing=options.indexing,
    )


def _redactor(redact: Redact | str | None) -> Redactor | None:
    if redact is None:
        return None
    if callable(redact):
        return Redactor(redact)
    if redact == "secrets":
        return Redactor(redact_secrets)
    raise ValueError(f'redact={redact!r}; it is a function from text to text, or "secrets"')


def default_path() -> Path:
    """Return the path of the default store."""
    import platformdirs  # takes a while, and most name their store

    return Path(platformdirs.user_data_dir("killick", appauthor=False)) / "killick.db"


def old_default_path() -> Path | None:
    """Return the default store from before the renaming, if there is no new one."""
    import platformdirs

    old = Path(platformdirs.user_data_dir("holdfast", appauthor=False)) / "holdfast.db"
    return old if old.exists() and not default_path().exists() else None


def _settled(url: Url) -> Path | str | Database | None:
    """The same by a name that means it everywhere: a file's whole path, or a server's URL."""
    named = (os.environ.get("KILLICK_STORE") or None) if url is None else url
    if isinstance(named, str) and named.startswith(SERVERS):
        return named
    if isinstance(named, str | os.PathLike):
        return file_path(named).absolute()
    if named is not None and not hasattr(named, "writing"):
        raise TypeError(f"a store is a path or a URL, and this is a {type(named).__name__}")
    return named


def _database(named: Path | str | Database | None, options: StoreOptions) -> Database:
    if isinstance(named, str):
        return _on_server(named, options)
    if named is not None and not isinstance(named, Path):
        return named
    from killick.stores.sqlite import SqliteDatabase

    return SqliteDatabase(
        named or _made_default(),
        durability=options.durability,
        wait_seconds=options.lock_wait_seconds,
        network=options.network,
    )


def _made_default() -> Path:
    path, old = default_path(), old_default_path()
    if old is not None:
        LOG.warning("the default store from before the renaming is not used", extra={"path": old})
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _on_server(url: str, options: StoreOptions) -> Database:
    with needs_extra("postgres", "a store on PostgreSQL"):
        from killick.stores.postgres import PostgresDatabase
    return PostgresDatabase(
        url,
        durability=options.durability,
        wait_seconds=options.lock_wait_seconds,
        lease_seconds=options.lease_seconds,
        answer_seconds=options.answer_seconds,
        tenant=options.tenant,
    )


def mask_passwords(url: str) -> str:
    """Return a URL with dots in place of its passwords, to be shown or logged."""
    return _PASSWORDS.sub(lambda match: f"{match[1] or match[2]}…", url)


def file_path(url: str | os.PathLike[str]) -> Path:
    """The file that a path or URL names. Raises StoreError for what names none."""
    text = os.fspath(url)
    if not text:
        raise StoreError("the name of the store is empty; name a file, or nothing for the default")
    if text.removeprefix("sqlite:///") == ":memory:":
        raise StoreError("a store is a file; for tests there is killick.stores.memory.MemoryDisk")
    if text.startswith(SERVERS):
        raise StoreError("a store on a server has no file of its own; name a file")
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
        # As elsewhere: three slashes and a relative path, or four and an absolute one.
    elif "://" in text or text.startswith("file:"):
        raise StoreError(
            f"{mask_passwords(text)!r} is no store: name a file, sqlite:///… or postgresql://…"
        )
    return Path(text).expanduser()
