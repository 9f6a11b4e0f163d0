"""Putting a backup in the place of a store."""

import os
from pathlib import Path

from killick.errors import UsageError
from killick.model.limits import LOCK_WAIT_SECONDS
from killick.session.core.queries import Progress
from killick.session.open import SERVERS, default_path, file_path
from killick.stores.contract import RestoreReceipt


def restore_backup(
    backup: str | os.PathLike[str],
    store: str | os.PathLike[str] | None = None,
    *,
    lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    network: bool = False,
    progress: Progress | None = None,
) -> RestoreReceipt:
    """Put a checked copy of a backup in the place of a store; the backup stays as it is.

    The store is a file, named as for `Store`; it need not exist. What was there is kept beside it,
    with its log, as `work.db-replaced-…`, which opens as a store.

    Raises StoreBusy, which names a process that has the store open; UsageError for a store on a
    server; StoreNotOurs, StoreNewer and StoreDegraded for a file that is no backup, or damaged. The
    store is as it was then.

    If interrupted, by `kill -9` or a power cut too: the store is as it was, or the restored one.
    """
    named = (os.environ.get("KILLICK_STORE") or None) if store is None else store
    if isinstance(named, str) and named.startswith(SERVERS):
        raise UsageError("a store on PostgreSQL is restored by its server (pg_restore, psql)")
    path = default_path() if named is None else file_path(named).absolute()
    if named is None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    from killick.stores.sqlite.database import restore_backup as restore

    return restore(
        path,
        Path(backup).expanduser(),
        wait_seconds=lock_wait_seconds,
        network=network,
        progress=progress,
    )
