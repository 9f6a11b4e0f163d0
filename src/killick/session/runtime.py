"""One opening of a store in one process: its clock, ids, writer, watcher and running turns."""

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import uuid_utils

from killick.errors import HandleClosed, KillickError, StoreBusy, UsageError
from killick.journal.redaction import Redactor
from killick.model import entries as e
from killick.model.sessions import moment
from killick.session.drive.steps import Read, Work
from killick.session.drive.wakeup_fd import Bells
from killick.session.watcher import Watcher
from killick.stores import engine as ops
from killick.stores.contract import (
    Claim,
    Database,
    Figures,
    Reader,
    ReadInterrupted,
    SessionRow,
    check_doubt,
)
from killick.stores.engine.state import EngineState, Op, finish
from killick.stores.log import log
from killick.stores.writer import Writer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Clock = Callable[[], int]
"""Microseconds since 1970. Recorded with every entry, never used to order anything."""

Prefix = Literal["ses", "turn", "msg", "call", "ent", "queue"]
IdSource = Callable[[Prefix], str]
"""A new id: unique for ever, and ascending, so that indexes grow at their end."""


def system_clock() -> int:
    return time.time_ns() // 1_000


def random_ids(prefix: Prefix) -> str:
    """Return a new id. Raises UsageError while this machine's clock is before 1970."""
    if time.time_ns() < 0:  # the library would panic, past every `except Exception`
        raise UsageError(
            f"this machine's clock says {moment(system_clock()):%Y-%m-%d}, and ids count the time "
            "since 1970: set the clock, or open the store with ids=… of your own"
        )
    return f"{prefix}_{uuid_utils.uuid7().hex}"


EXIT_SECONDS: Final = 5.0
"""How long leaving a store, or the interpreter, waits for what was handed over."""

_READ_THREADS: Final = 4

_VERIFIED_MAX: Final = 4_096
"""Of how many sessions it is remembered that they were checked; beyond, the older half goes."""


class Process:
    """Stands for this process; a child after fork() has another. Comparing it is no system call."""

    current: ClassVar[object] = object()

    @classmethod
    def begin(cls) -> None:
        cls.current = object()


os.register_at_fork(after_in_child=Process.begin)


class RunningTurn(Protocol):
    """A turn, as far as the runtime uses it."""

    @property
    def key(self) -> int: ...
    @property
    def claim(self) -> Claim: ...
    def stop(self, asked: e.StopAsked) -> None: ...
    def close_write(self, reason: str) -> Callable[[EngineState], object]: ...


class Runtime:
    """Shared by both faces and by every session, turn and stream of one store."""

    def __init__(
        self,
        database: Database,
        *,
        tenant: str,
        clock: Clock,
        ids: IdSource,
        window_seconds: float,
        buffer_bytes: int,
        flush_bytes: int,
        redactor: Redactor | None = None,
        indexing: bool = True,
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.clock = clock
        self.ids = ids
        self.buffer_bytes = buffer_bytes
        self.flush_bytes = flush_bytes
        self.redactor = redactor
        self.process = Process.current
        self.watcher = Watcher(database, self._look_for_stops)
        self.writer = Writer(
            database,
            window_seconds=window_seconds,
            indexing=indexing,
            on_commit=self.watcher.committed,
            redactor=redactor,
        )
        self.bells = Bells()
        self.verified: dict[int, int] = {}
        self._turns: weakref.WeakValueDictionary[str, RunningTurn] = weakref.WeakValueDictionary()
        self._pool: ThreadPoolExecutor | None = None
        self._closing = threading.RLock()  # a signal handler may close what is being closed
        self.closed = False
        _runtimes.add(self)

    # -- work ----------------------------------------------------------------------------------

    def is_ours(self) -> bool:
        """False in a child that inherited this through fork()."""
        return self.process is Process.current

    def post(self, apply: Callable[[EngineState], object]) -> None:
        """Hand an operation over and wait for nothing: for finalisers, which may run anywhere."""
        if self.is_ours() and not self.closed:
            self.writer.submit(Op(apply))

    def read(self, read: Callable[[Reader], Any], *, again: int = 2) -> Any:
        """Read as of one moment; so often again on another connection, if one is ended under it."""
        if self.closed:
            raise HandleClosed("the store was closed; open it again")
        try:
            with self.database.reading() as reader:
                return read(reader)
        except ReadInterrupted:
            if not again:
                raise
        return self.read(read, again=again - 1)

    def look(self, step: Read[Any] | Work[Any]) -> Any:
        """Carry out a step that writes no entry, on the caller's thread."""
        if isinstance(step, Read):
            return self.read(step.read)
        if self.closed:
            raise HandleClosed("the store was closed; open it again")
        return step.work(self.database)

    def look_elsewhere(self, step: Read[Any] | Work[Any], op: Op[Any]) -> None:
        """The same on another thread, for callers that may not block; the outcome is in `op`."""
        if self.closed:
            raise HandleClosed("the store was closed; open it again")
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # brings logging along

            self._pool = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="killick-reader")
        try:
            self._pool.submit(self._look_into, step, op)
        except RuntimeError as closing:
            raise HandleClosed("the store was closed; open it again") from closing

    def _look_into(self, step: Read[Any] | Work[Any], op: Op[Any]) -> None:
        try:
            op.value = self.look(step)
        except BaseException as error:  # noqa: BLE001  (raised where the read was asked for)
            op.error = error
        finish([op])

    def figures(self) -> Figures:
        """Count what was done since the store was opened here, and what is open now."""
        turns, followers = len(self._turns), self.watcher.followers
        return self.writer.metrics.figures(turns=turns, followers=followers)

    def remember_verified(self, key: int, head: int) -> None:
        """Note up to which entry a session was checked."""
        known = self.verified
        known.pop(key, None)  # the newest goes last
        if len(known) >= _VERIFIED_MAX:
            for oldest in list(known)[: _VERIFIED_MAX // 2]:  # other threads open sessions, too
                known.pop(oldest, None)
        known[key] = head

    # -- turns that run here -------------------------------------------------------------------

    def turn_began(self, turn: RunningTurn) -> None:
        self._turns[turn.claim.turn_id] = turn
        self.watcher.run_began(turn.key)

    def turn_ended(self, turn_id: str) -> None:
        turn = self._turns.pop(turn_id, None)
        if turn is not None:
            self.watcher.run_ended(turn.key)

    def _running_turns(self) -> list[RunningTurn]:
        # Not values(): turns come and go on other threads while this one looks.
        turns = (reference() for reference in self._turns.valuerefs())
        return [turn for turn in turns if turn is not None]

    def deliver_stop(self, turn_id: str, asked: e.StopAsked) -> None:
        """A stop was asked for in this process; if the turn runs here, tell it at once."""
        turn = self._turns.get(turn_id)
        if turn is not None:
            _deliver(turn, asked)

    def _look_for_stops(self) -> None:
        """Another process has committed: perhaps a stop for a turn that runs here."""
        if not self._turns:
            return
        try:
            with self.database.reading() as reader:
                stopping = dict(reader.stopping())
                for turn in self._running_turns() if stopping else ():
                    if turn.key in stopping:
                        self._look_for_stop(reader, turn, stopping[turn.key])
        except KillickError:
            return  # the turn's own next write says what is wrong

    def _look_for_stop(self, reader: Reader, turn: RunningTurn, seq: int) -> None:
        asked = reader.entries(turn.key, after=seq - 1, limit=1)[0].body
        if isinstance(asked, e.StopAsked) and asked.turn_id == turn.claim.turn_id:
            _deliver(turn, asked)

    # -- the end -------------------------------------------------------------------------------

    def close(self, *, reason: str = "store_closed", seconds: float = EXIT_SECONDS) -> None:
        """End the turns that still run, write everything handed over, and let go.

        Raises StoreBusy when that takes longer: it goes on, and what is open is closed after it.

        If interrupted: what was handed over is still being written; call again to wait for it.
        """
        if not self.is_ours():
            return
        with self._closing:
            if self.closed:
                return
            with suppress(HandleClosed):  # closing it was interrupted, and is gone on with
                for turn in self._running_turns():
                    self.writer.submit(Op(turn.close_write(reason)))
                    self.turn_ended(turn.claim.turn_id)
                # Blobs that nothing came to refer to before their writer was gone.
                self.writer.submit(Op(lambda engine: ops.collect_blobs(engine, if_due=True)))
            ended = self.writer.close(seconds)
            self.watcher.close()
            if self._pool is not None:
                self._pool.shutdown(wait=True)
            self.closed = True
            _runtimes.discard(self)
            if not ended:
                later = threading.Thread(
                    target=self._close_later, name="killick-closing", daemon=True
                )
                with suppress(RuntimeError):  # the interpreter ends, and with it all that is open
                    later.start()
                raise StoreBusy(
                    f"what was handed over could not be written within {seconds:g} s of closing "
                    "the store; it is still being written, for as long as this process lives"
                )
            self.database.close()

    def _close_later(self) -> None:
        self.writer.close(threading.TIMEOUT_MAX)
        self.database.close()


class StoreOpening:
    """Opens a store when it is first needed, once in each process."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self._runtime: Runtime | None = None
        # One for each process: a child may inherit one that a thread of its parent holds.
        self._opening: dict[int, threading.RLock] = {}

    def runtime(self) -> Runtime:
        """Return this process's runtime; open the store if it is not open yet."""
        runtime = self.opened()
        if runtime is not None:
            return runtime
        with self._opening.setdefault(os.getpid(), threading.RLock()):
            runtime = self.opened()
            if runtime is None:
                runtime = self._runtime = self._make()
        return runtime

    def opened(self) -> Runtime | None:
        runtime = self._runtime
        return runtime if runtime is not None and runtime.is_ours() else None


def is_dead(reader: Reader, row: SessionRow, *, surely: bool = False) -> bool:
    """Return whether a turn is recorded as running whose holder has lost its right to run it.

    Raises HolderInDoubt, if the caller wants to know `surely`, where only a second look tells.
    """
    if row.turn_seq is None:
        return False
    started = reader.entries(row.key, after=row.turn_seq - 1, limit=1)[0].body
    assert isinstance(started, e.TurnStarted)
    if not reader.is_alive(started.holder):
        return True
    if surely:
        check_doubt(reader, started.holder)
    return False


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """An open store never keeps a process alive, and a process that ends keeps what it was told."""
    failures: list[StoreBusy] = []
    for runtime in list(_runtimes):
        try:
            runtime.close(reason="process_exit")
        except StoreBusy as failure:
            failures.append(failure)
    if failures:
        raise failures[0]  # the others say the same


def _deliver(turn: RunningTurn, asked: e.StopAsked) -> None:
    turn.stop(asked)
    log(logging.INFO, "stop delivered", turn_id=turn.claim.turn_id, cause=asked.cause)
