"""What the server really gives, and what can be said of erased bytes."""

from pathlib import Path
from typing import Any, Final

from killick.errors import UsageError
from killick.stores.contract import BackupReceipt, Traces

NOT_SEEN_FROM_HERE: Final = (
    "the server's files, until its vacuum has reused the space of removed rows",
    "the server's write-ahead log, its archive, and standbys",
)


def advice(row: Any) -> list[str]:
    """What about the server weakens a promise, in lines that begin with `server:`."""
    fsync, full_pages, commits, named, standby, replicas = row
    found = []
    if fsync != "on":
        found.append(
            "server: fsync is off, so what was acknowledged is lost when the machine goes down"
        )
    if full_pages != "on":
        found.append("server: full_page_writes is off; a torn page cannot be mended after a crash")
    if standby:
        found.append("server: it is a standby in recovery; nothing can be written here")
    if replicas and not named:
        found.append(
            "server: its standbys follow asynchronously; after a failover the newest entries of a "
            "session may be missing, always from its end"
        )
    if commits in ("off", "local") and named:
        found.append(
            f"server: synchronous_commit is {commits} there; a store that asks for full durability "
            "waits for the standbys all the same"
        )
    return found


def traces() -> Traces:
    """No row is left; what the server keeps in its files cannot be looked at from here."""
    return Traces(unverified=NOT_SEEN_FROM_HERE)


def back_up(target: Path) -> BackupReceipt:
    raise UsageError(
        f"nothing was written to {target}: a store on PostgreSQL is backed up by its server "
        "(pg_dump --schema, pg_basebackup); `killick copy` makes a file of it"
    )
