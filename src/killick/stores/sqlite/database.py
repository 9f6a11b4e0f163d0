"""The SQLite store: its connections and its one transaction helper; nothing is decided here."""

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import apsw

from killick.errors import (
    KillickError,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreReadOnly,
    StoreReplaced,
    UsageError,
)
from killick.model.limits import LOCK_WAIT_SECONDS
from killick.stores.contract import BackupReceipt, Pace, RestoreReceipt, Traces
from killick.stores.sqlite import maintain, migrate, renewal
from killick.stores.sqlite.connection import (
    Durability,
    Inode,
    Visit,
    check_library,
    check_name,
    connect,
    gate,
    inode,
    is_writable,
    opening,
    prepare,
    translate_error,
)
from killick.stores.sqlite.connection import change_mark as file_change_mark
from killick.stores.sqlite.generation import (
    check_log,
    check_readable,
    finish_restore,
    has_log,
    read_generation,
    renew,
    restoring,
)
from killick.stores.sqlite.lockfile import LockFile, locker_of
from killick.stores.sqlite.migrate import (
    Copier,
    bring_up_to_date,
    check_format,
    is_behind,
    stored_version,
)
from killick.stores.sqlite.packs import PackCache, has_packs
from killick.stores.sqlite.rows import SqliteReader, SqliteTransaction
from killick.stores.sqlite.sweep import Sweeper

_READERS_IDLE: Final = 4


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise SQLite's errors as ours, with the original as the cause."""
    try:
        yield
    except KillickError:
        raise
    except apsw.Error as error:
        raise translate_error(error, what) from error


def check_same(path: str, opened: Inode) -> None:
    """Notice that the file was replaced or deleted under an open store."""
    try:
        now = os.stat(path)  # noqa: PTH116  (on the way of every write: a Path costs twice)
    except FileNotFoundError:
        raise StoreReplaced(
            f"{path} was deleted while it was open; nothing more is written to it"
        ) from None
    except OSError as error:
        raise StoreDegraded(f"{path} cannot be reached: {error.strerror}; try again") from error
    if (now.st_dev, now.st_ino) != opened:
        raise StoreReplaced(
            f"{path} was replaced by another file while it was open; close this store and open "
            "the new one"
        )


class _Writing:
    """One transaction. A class, because on this path a generator costs too much."""

    __slots__ = ("_database", "_tx")

    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    def __enter__(self) -> SqliteTransaction:
        self._tx = self._database.begin()
        return self._tx

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        database, connection, failed = self._database, self._tx.connection, error
        try:
            if failed is None:
                self._tx.save_links()
                self._tx.drop_unused()
                database.commit(connection)
        except BaseException as caught:  # noqa: BLE001  (undone, then raised below)
            failed = caught
        if failed is None:
            database.end()
            return
        try:
            database.undo(connection, failed)
        finally:
            database.end()
        if isinstance(failed, apsw.Error):
            raise database.explain(failed) from failed
        if failed is not error:
            raise failed


class SqliteDatabase:
    """One opening of one store file."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "full",
        wait_seconds: float = LOCK_WAIT_SECONDS,
        network: bool = False,
    ) -> None:
        check_library()
        self._durability = durability
        self._wait_seconds = wait_seconds
        self._readers: list[apsw.Connection] = []
        self._writer: apsw.Connection | None = None
        self._writing = _Writing(self)
        self._tx: SqliteTransaction | None = None
        self._visit: Visit | None = None
        self._packs = PackCache()
        self._watching: apsw.Connection | None = None
        self._watchings = 0
        self._heads: dict[int, tuple[Any, ...]] = {}
        self._newest_pack = 0
        self._version: int | None = None
        self._generation = 0
        self._poisoned: StoreError | None = None
        self._closed = False
        self._pid = os.getpid()
        self._lock: LockFile | None = None
        with opening(path):
            self.path = prepare(path, network=network)
            self.read_only = not is_writable(self.path)
            self._inode = inode(self.path)
            self._path = str(self.path)
            _databases.add(self)
            self._open()

    def _open(self) -> None:
        name = Path(f"{self.path}-lock")
        self.unfolded = False
        if self.read_only:
            self.holder = "read-only"
            with translated(f"opening {self.path}"):
                check_readable(self.path, LockFile.generation_at(name))
                with contextlib.closing(self._connect(writable=False)) as connection:
                    check_format(connection, self.path)
            return
        self._lock = LockFile.open(name)
        try:
            self._open_writer()
        except BaseException:
            self._lock.close()
            raise

    # -- transactions --------------------------------------------------------------------------

    def writing(self) -> "_Writing":
        """Begin and commit a transaction, here only. For the writer thread.

        If interrupted: rolled back, or committed as a whole; the commit is the last step.
        """
        return self._writing

    def begin(self) -> SqliteTransaction:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} or its folder may not be written by this user")
        try:
            check_same(self._path, self._inode)
            self._lock.acquire_turn(self._wait_seconds)
        except OSError as error:
            raise StoreDegraded(f"writing to {self.path}: {error}; try again") from error
        self._visit = gate.enter()
        try:
            connection = self._writer
            if connection is None or self._poisoned is not None:
                connection = self._sound_connection()
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self.end()
            if isinstance(error, apsw.Error):
                raise self.explain(error) from error
            raise
        # True if another connection has committed since this one's own last commit.
        self._generation += self._version != connection.data_version()
        tx = self._tx
        if tx is None or tx.connection is not connection:
            tx = self._tx = SqliteTransaction(connection, self._lock.is_alive, self._packs)
        tx.begin(self._generation)
        return tx

    def commit(self, connection: apsw.Connection) -> None:
        connection.execute("COMMIT")
        self._version = connection.data_version()

    def end(self) -> None:
        self._visit = None
        assert self._lock is not None
        self._lock.release_turn()

    def undo(self, connection: apsw.Connection, error: BaseException) -> None:
        """Roll back; a connection that failed at I/O, or cannot roll back, is not used again."""
        if self._tx is not None:
            self._tx.forget_packs()
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error as failed:
                self._poisoned = translate_error(failed, "rolling back")
        cause = error if isinstance(error, apsw.Error) else error.__cause__
        if isinstance(cause, apsw.IOError | apsw.NotADBError):
            self._poisoned = translate_error(cause, "writing")

    def _sound_connection(self) -> apsw.Connection:
        """Return the writer's connection, opened and verified again after a failure.

        After a failed fsync the kernel may have dropped what it could not write and call the next
        fsync a success. So nothing more is acknowledged on that connection: the file is opened
        anew, its structure checked, and every page that is only in the log written again into the
        database and synced there.
        """
        if self._poisoned is not None:
            self._discard_writer()
            connection = self._connect(writable=True)
            try:
                self._verify(connection)
            except BaseException:
                connection.close(force=True)
                raise
            self._writer, self._poisoned, self._version = connection, None, None
        if self._writer is None:
            self._writer, self._version = self._connect(writable=True), None
        return self._writer

    def _verify(self, connection: apsw.Connection) -> None:
        # Entries and deltas are verified whenever they are read: damage to one session must not
        # keep the others from being written. What all sessions share is checked here.
        for table in ("meta", "sessions"):
            verdict = connection.pragma("quick_check", table)
            if verdict != "ok":
                raise StoreDegraded(f"{self.path} did not pass its check: {verdict}")
        connection.pragma("journal_mode", "wal")  # a backup comes without a log
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    @contextmanager
    def reading(self) -> Iterator[SqliteReader]:
        """Read as of one moment. Never held open across a yield to a caller."""
        check_same(self._path, self._inode)
        with gate():
            try:
                connection = self._take_reader()
                try:
                    connection.execute("BEGIN")
                    yield SqliteReader(connection, self.is_alive, self._packs)
                finally:
                    self._give_back(connection)
            except apsw.Error as error:
                raise translate_error(error, f"reading {self.path}") from error

    def _take_reader(self) -> apsw.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect(writable=False)

    def _give_back(self, connection: apsw.Connection) -> None:
        # A read transaction has nothing to keep, so ending it is always a rollback.
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            connection.close()
            return
        # A read-only opening may have opened the file as immutable: for this read only.
        if len(self._readers) < _READERS_IDLE and not self._closed and not self.read_only:
            self._readers.append(connection)
        else:
            connection.close()

    # -- others --------------------------------------------------------------------------------

    def explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error):
            return error
        explained = self._in_our_words(error, f"writing to {self.path}")
        explained.__cause__ = error
        return explained

    def _in_our_words(self, error: apsw.Error, what: str) -> StoreError:
        if isinstance(error, apsw.BusyError):
            owner = locker_of(Path(f"{self.path}-shm"))
            return StoreBusy(
                f"{what}: waited {self._wait_seconds:g} s for SQLite's lock, held by {owner}; end "
                "it or let it finish, then try again"
            )
        return translate_error(error, what)

    def is_alive(self, holder: str) -> bool:
        return self._lock is None or self._lock.is_alive(holder)

    def change_mark(self) -> int:
        check_same(self._path, self._inode)
        if self.read_only:
            return file_change_mark(self.path)
        with gate(), translated(f"watching {self.path}"):
            # The number is only comparable on one connection, so watching has one of its own.
            if self._watching is None:
                self._watching = self._connect(writable=False)
                self._watchings += 1
            return self._watchings << 32 | int(self._watching.pragma("data_version"))

    def changed(self, followed: Collection[int]) -> Collection[int]:
        """Return those with a new head, and those with a stream that has grown."""
        before = self._heads
        with self.reading() as reader:
            self._heads = reader.heads(followed)
            self._newest_pack, packed = reader.packed_since(self._newest_pack)
        return [
            key for key, head in self._heads.items() if key in packed or before.get(key) != head
        ]

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        """Do nothing: every commit moves the mark, whatever it is about."""

    def pace(self) -> Pace:
        return Pace()

    # -- care ----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self._alone() as connection:
            return maintain.check(connection)

    def reindex(self) -> None:
        """If interrupted: the indexes are as they were, or made anew."""
        with self._alone_writing() as connection:
            connection.execute("REINDEX")

    def copies(self) -> tuple[str, ...]:
        return tuple(file.name for file in maintain.copies(self.path))

    def check_room(self, keys: Sequence[int]) -> None:
        with self.reading() as reader:
            size = sum(map(reader.size_of, keys))
        maintain.check_room(self.path, size)

    def sweep(self, files: Sequence[str] = ()) -> Traces:
        """If interrupted: some bytes are cleared, and every row is as it was."""
        self._recover_lost_pages()
        check_same(self._path, self._inode)
        with gate(), translated(f"clearing {self.path}"):
            connect_one = functools.partial(self._connect, writable=True)
            swept = Sweeper(self.path, connect_one, self._having_turn, self._wait_seconds).run()
        names = (self.path.name, f"{self.path.name}-wal")
        if swept is None:
            return Traces(clean=False, files=names)
        clean = not swept.damaged
        return Traces(clean=clean, pages=swept.pages, cleared=swept.cleared, files=names)

    def _recover_lost_pages(self) -> None:
        """Write the file anew if pages in it belong to no table: a search index was given up.

        If interrupted: the file is as it was, or written anew; nothing that is stored is lost.
        """
        lost = "FROM meta WHERE name = 'lost_pages'"
        with self._alone() as connection:
            if not connection.execute(f"SELECT 1 {lost}").get:
                return
        with self._alone_writing() as connection:
            connection.execute("VACUUM")
            connection.execute(f"DELETE {lost}")

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        with gate(), translated(f"reading {self.path}"):
            return maintain.find_traces(self.path, needles)

    def back_up(
        self, target: Path, progress: maintain.Progress | None, *, renew: bool = False
    ) -> BackupReceipt:
        """If interrupted: there is no file of that name, or a whole and verified one."""
        with self._alone() as connection:
            if renew and target.exists():
                if target.samefile(self.path):
                    raise UsageError(f"{target} is the store itself; name a backup")
                return maintain.renew(connection, target, progress)
            return maintain.back_up(connection, target, progress)

    @contextmanager
    def _alone_writing(self) -> Iterator[apsw.Connection]:
        """Yield a connection with the turn to write; other writers wait meanwhile."""
        with self._having_turn(), self._alone(writable=True) as connection:
            yield connection

    @contextmanager
    def _having_turn(self) -> Iterator[None]:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} or its folder may not be written by this user")
        self._lock.acquire_turn(self._wait_seconds)
        try:
            yield
        finally:
            self._lock.release_turn()

    @contextmanager
    def _alone(self, *, writable: bool = False) -> Iterator[apsw.Connection]:
        """Yield a connection for one piece of work that takes long; fork() waits for its end."""
        check_same(self._path, self._inode)
        with gate(), translated(f"looking after {self.path}"):
            connection = self._connect(writable=writable)
            try:
                yield connection
            finally:
                connection.close(force=True)

    # -- opening and closing -------------------------------------------------------------------

    def _connect(self, *, writable: bool) -> apsw.Connection:
        return connect(
            self.path,
            durability=self._durability,
            wait_seconds=self._wait_seconds,
            writable=writable,
        )

    def _open_writer(self) -> None:
        assert self._lock is not None
        with contextlib.ExitStack() as turn:
            turn.enter_context(self._having_turn())
            try:
                with gate(), translated(f"opening {self.path}"):
                    copy = self._connect_writer(self._lock, turn)
                self.holder = self._lock.take_holder()
            except BaseException:
                self._discard_writer()
                raise
        if copy is not None and self._is_sound():
            copy.unlink(missing_ok=True)

    def _is_sound(self) -> bool:
        """Look at a file that was migrated, with no lock; the copy of before is needed if not."""
        with self._alone() as connection:
            return maintain.check(connection, quick=True) == []

    def _copy_first(self, version: int, turn: contextlib.ExitStack) -> Path:
        """Copy the file before it is migrated; the turn is given back meanwhile."""
        turn.close()
        connect_one = functools.partial(self._connect, writable=True)
        return Copier(self.path, connect_one, self._having_turn, self._wait_seconds).run(
            version, turn
        )

    def _connect_writer(self, lock: LockFile, turn: contextlib.ExitStack) -> Path | None:
        """Open the file, if its log is its own; with the turn to write.

        Returns the copy of before a migration, if it was migrated.
        The lock file has the generation before anything is added to the log.
        If interrupted: it has the file's, or none, or there is no log.
        """
        alone = lock.is_alone()
        if alone:
            finish_restore(self.path)
        elif restoring(self.path).exists():
            raise StoreBusy(
                f"a backup waits to replace {self.path}, which is open in {lock.opened_by()}; end "
                "it, then try again"
            )
        self._inode = inode(self.path)  # not before: it may have been replaced
        generation, written = read_generation(self.path), lock.generation()
        check_log(self.path, generation, written, alone=alone)
        lock.set_generation(generation)
        left = has_log(self.path) and alone
        self._writer = self._connect(writable=True)
        if left:
            self._copy_back(self._writer)
        behind = is_behind(self._writer, self.path)
        copy = None
        if behind is not None:
            self._refuse_beside_older(lock, behind)
            copy = self._copy_first(behind, turn)
            self._refuse_beside_older(lock, behind)  # one may have opened it meanwhile
        check_same(self._path, self._inode)
        bring_up_to_date(self._writer, self.path)
        self.unfolded = has_packs(self._writer)
        if generation is None:
            lock.set_generation(read_generation(self.path))
        elif alone:
            self._settle_header(self._writer, lock, new=generation != (written or 0))
        return copy

    def _refuse_beside_older(self, lock: LockFile, version: int) -> None:
        """Raise StoreBusy where an older version has a file open that it could not use any more."""
        user = None if version >= migrate.OLDEST else lock.opened_by()
        if user is not None:
            raise StoreBusy(
                f"{self.path} is open in {user}, an older version that cannot use the file once "
                "this one has brought it up to date; end it, then open the store again"
            )

    def _settle_header(self, connection: apsw.Connection, lock: LockFile, *, new: bool) -> None:
        """Give a new file a generation of its own; see that a file is written through a log.

        A commit without a log is not on the disk until the folder is synced, which SQLite leaves
        out. So a store that could not be settled is read, and settled before it is written.
        """
        try:
            if new:
                renew(connection)
                lock.set_generation(read_generation(self.path))
            connection.pragma("journal_mode", "wal")
        except (apsw.BusyError, apsw.FullError) as error:  # another program reads; the disk is full
            self._poisoned = translate_error(error, "opening")
            lock.set_generation(None)

    def _copy_back(self, connection: apsw.Connection) -> None:
        """Copy a log that no process has open into the database, before anything is added to it.

        It was left by a crash, or by a disk that failed. Then it may be in the kernel's memory
        only: what could not be synced reads well, and is gone after a power cut with all behind it.
        """
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return  # another program reads; it is not kept from that
        except apsw.FullError as error:
            self._poisoned = translate_error(error, "opening")  # readable; mended before a write

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            # What closing cannot do, as copying the log back, the next opening does.
            with contextlib.suppress(apsw.Error):
                writer.close(force=True)

    def hurry(self, seconds: float) -> None:
        self._wait_seconds = min(self._wait_seconds, seconds)
        if self._writer is not None:
            self._writer.set_busy_timeout(int(self._wait_seconds * 1_000))

    def close(self) -> None:
        """Let go of everything; what was acknowledged is on the disk already."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # nothing was inherited that could be closed
        try:
            # What was acknowledged is on the disk; a checkpoint that fails now can be made later.
            with gate(), contextlib.suppress(apsw.Error):
                while self._readers:
                    self._readers.pop().close()
                watching, self._watching = self._watching, None  # fork() lets go of what is open
                if watching is not None:
                    watching.close()
                self._discard_writer()
        finally:
            if self._lock is not None:
                self._lock.release_holder(self.holder)
                self._lock.close()

    def let_go(self) -> None:
        """Close every connection, before fork(); each is opened again when it is needed.

        A child that inherits a connection inherits SQLite's belief that its locks are held, while
        the kernel gives them to the parent alone. Nothing may be open when the two part.
        """
        connections = (*self._readers, self._writer, self._watching)
        self._readers, self._writer, self._watching = [], None, None
        for connection in connections:
            if connection is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close(force=True)


def restore_backup(
    path: Path,
    backup: Path,
    *,
    wait_seconds: float,
    network: bool,
    progress: maintain.Progress | None,
) -> RestoreReceipt:
    """Put a checked copy of a backup in a store's place, which no process may have open.

    Raises StoreBusy, which names a process that has it open.
    If interrupted: the store is as it was, or the restored one once it is opened.
    """
    check_library()
    with opening(path):
        path = check_name(path, network=network)
        if not backup.is_file():
            raise UsageError(f"there is no file {backup}; nothing was changed")
        with contextlib.closing(LockFile.open(Path(f"{path}-lock"))) as lock:
            lock.acquire_turn(wait_seconds)
            try:
                with gate(), translated(f"restoring {path}"):
                    return _restore(path, Path(os.path.realpath(backup)), lock, progress)
            finally:
                lock.release_turn()


def _restore(
    path: Path, backup: Path, lock: LockFile, progress: maintain.Progress | None
) -> RestoreReceipt:
    user = lock.opened_by()
    if user is not None:
        raise StoreBusy(f"{path} is open in {user}; end it, then restore: nothing was changed")
    if backup == path:
        raise UsageError(f"{backup} is the store itself; name a backup")
    renewal.finish(backup)
    finish_restore(path)
    for left in path.parent.glob(f"{restoring(path).name}.*"):  # by a restore that was killed
        left.unlink()
    check_readable(backup, LockFile.generation_at(Path(f"{backup}-lock")))
    wait = LOCK_WAIT_SECONDS
    with contextlib.closing(
        connect(backup, durability="full", wait_seconds=wait, writable=False)
    ) as source:
        if not stored_version(source, backup):
            raise StoreNotOurs(f"{backup} is empty and no backup; nothing was changed")
        made = maintain.back_up(source, restoring(path), progress, like=path)
    kept = finish_restore(path)
    replaced = None if kept is None else str(kept)
    return RestoreReceipt(str(path), made.bytes, made.sessions, made.entries, replaced=replaced)


_databases: "weakref.WeakSet[SqliteDatabase]" = weakref.WeakSet()


def _before_fork() -> None:
    gate.shut()
    for database in list(_databases):
        database.let_go()


def _after_fork_in_child() -> None:
    gate.reset()
    LockFile.forget_inherited()


os.register_at_fork(
    before=_before_fork, after_in_parent=gate.open, after_in_child=_after_fork_in_child
)
