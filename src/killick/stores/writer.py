"""The one thread that writes: group commit, flushes on time, retries.

Callers hand over operations and wait for their outcome. All operations that wait when a commit ends
share the next one, so durability costs one fsync for many. The thread is a daemon that no signal
handler runs in; an interrupted caller abandons its wait, never the write.

The search index, and after it the sums by day, are brought up in idle moments: when nothing was
written for a while, or, when writing never rests, now and then if no operation waits. Where nothing
is behind, that costs nothing. A thread that ends brings them up for at most a second, so that what
it wrote is found by the next process.
"""

import contextlib
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from killick.errors import (
    HandleClosed,
    KillickError,
    SearchDamaged,
    StaleFence,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreReadOnly,
)
from killick.journal.redaction import Redactor
from killick.model.limits import WINDOW_SECONDS
from killick.stores.behind import CLOSE_SECONDS, Behind, Broken
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import (
    Database,
    Figures,
    Histogram,
    LocksNeeded,
    RetryTransaction,
    SessionLocked,
    Transaction,
)
from killick.stores.engine import flush, put_blob
from killick.stores.engine.state import DropCallback, EngineState, Op, StoreBodyFirst, finish
from killick.stores.log import log

T = TypeVar("T")

_BATCH_MAX: Final = 1_024
"""Operations in one commit; a bound on how long the first of them waits."""

_CROWD: Final = 8
_CROWD_SECONDS: Final = 0.001
"""How long a commit waits for the callers of one before it to come back that had more than that."""

_GATHER_AT_MOST: Final = 0.8
"""Of their window, for deltas to wait for others. A slow commit leaves less of it, down to half."""

_FORGETTING: Final = 0.9
"""How much of a slow commit is remembered by each that comes after it."""

_RETRY_SECONDS: Final = 0.25
"""How long after a failed flush the next one is tried."""

_LOCKED_SECONDS: Final = 0.05
"""How long after it met a session that another process keeps locked an operation is tried again."""

_IDLE_SECONDS: Final = 0.1
_BUSY_SECONDS: Final = 1.0
_SLICE_RETRY_SECONDS: Final = 5.0
"""How long nothing was written before a slice; how long at most it waits; after one that failed."""

_FOLD_SECONDS: Final = 2.0
_FOLD_STEP_SECONDS: Final = 0.1
_FOLD_RETRY_SECONDS: Final = 5.0
"""How long streams share rows before a fold begins; between its steps; after one that failed."""

_SUM_IDLE_SECONDS: Final = 0.5
_SUM_BUSY_SECONDS: Final = 2.0
"""When sessions are counted: a report adds what the sums lack, so that there is no hurry."""

_REFUSALS: Final = (KillickError, StoreBodyFirst, LocksNeeded, SessionLocked)
"""The errors that an operation may raise and leave the others in its commit alone."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class _RetriedOp(Op[Any]):
    """An operation that no caller waits for and that is tried again while the store fails."""

    __slots__ = ()


class _FlushOp(Op[dict[int, KillickError | SessionLocked]]):
    """The writer's own operation: write what streams have gathered."""

    __slots__ = ("buffers",)

    def __init__(self, buffers: Sequence[StreamBuffer]) -> None:
        super().__init__(lambda engine: flush(engine, buffers))
        self.buffers = buffers


class _FoldOp(Op[bool]):
    """The writer's own operation: fold streams out of the rows that they share."""

    def __init__(self, *, at_once: bool = False) -> None:
        super().__init__(lambda engine: engine.tx.fold_deltas(at_once=at_once))


class Metrics:
    """Counts kept by the writer thread; a reader on another thread may be one value behind."""

    def __init__(self) -> None:
        self._seconds = [0] * (len(_SECONDS) + 1)
        self._sizes = [0] * (len(_SIZES) + 1)
        self._seconds_total = 0.0
        self._operations = 0
        self.refused = 0
        self.recovered = 0

    def committed(self, operations: int, seconds: float) -> None:
        self._seconds[bisect_left(_SECONDS, seconds)] += 1
        self._sizes[bisect_left(_SIZES, operations)] += 1
        self._seconds_total += seconds
        self._operations += operations

    def figures(self, *, turns: int, followers: int) -> Figures:
        return Figures(
            operations=self._operations,
            refused=self.refused,
            commit_seconds=Histogram(_SECONDS, tuple(self._seconds), self._seconds_total),
            commit_sizes=Histogram(_SIZES, tuple(self._sizes), float(self._operations)),
            turns=turns,
            followers=followers,
            recovered=self.recovered,
        )


class SliceSchedule:
    """Decides when the writer does the next slice of what is behind it: the index, or the sums.

    `due` is None while there is no reason.
    """

    def __init__(
        self,
        *,
        wanted: bool = True,
        idle_seconds: float = _IDLE_SECONDS,
        busy_seconds: float = _BUSY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted
        self._idle_seconds, self._busy_seconds = idle_seconds, busy_seconds
        self._clock = clock
        self._behind_since: float | None = None
        self._resting = False
        # What other openings left behind is looked for once, when this one has turned out to stay.
        self.due = clock() + busy_seconds if wanted else None

    def wrote(self) -> None:
        """Note that something was committed which is behind now."""
        if not self._wanted or self._resting:
            return
        now = self._clock()
        if self._behind_since is None:
            self._behind_since = now
        self.due = min(now + self._idle_seconds, self._behind_since + self._busy_seconds)

    def is_due(self) -> bool:
        return self.due is not None and self._clock() >= self.due

    def done(self, *, more: bool) -> None:
        """Note that a slice was taken."""
        self._behind_since = self._clock() if more else None
        self.due = self._behind_since

    def passed_over(self) -> None:
        """Look again in a moment: another process has done the slice, or keeps it locked."""
        self.due = self._clock() + self._idle_seconds

    def failed(self, error: BaseException) -> None:
        """Rest until asked if the index is damaged or may not be written; else retry later."""
        self._resting = isinstance(error, SearchDamaged | StoreReadOnly)
        self._behind_since = None
        self.due = None if self._resting else self._clock() + _SLICE_RETRY_SECONDS

    def wake(self) -> None:
        """Try again whatever was wrong: a caller searches, or has rebuilt the index."""
        if self._wanted:
            self._resting = False
            self.wrote()


class FoldSchedule:
    """Decides when the writer folds; a step goes with the next flush, or, `due`, alone."""

    def __init__(self, *, unfolded: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way = False
        self.due: float | None = None
        self.wrote(unfolded=unfolded)

    def wrote(self, *, unfolded: bool | None) -> None:
        """Note whether streams share rows after a commit; None where it did not look."""
        if self.due is None or unfolded is False:
            self.due = self._clock() + _FOLD_SECONDS if unfolded else None

    def is_due(self, *, flushing: bool) -> bool:
        step = flushing and self._under_way
        return self.due is not None and (step or self._clock() >= self.due)

    def folded(self, *, more: bool) -> None:
        """Note that a step was taken; the streams that were packed meanwhile wait again."""
        self._under_way = more
        if self.due is not None:
            self.due = self._clock() + (_FOLD_STEP_SECONDS if more else _FOLD_SECONDS)

    def failed(self) -> None:
        self._under_way = False
        self.due = self._clock() + _FOLD_RETRY_SECONDS


_Deferred = list[tuple[Op[Any], StoreBodyFirst | SessionLocked]]
"""The operations that a commit left out, each with the reason."""


class _Signal:
    """Wakes the writer for something that is not an operation."""


_WAKE, _FLUSH, _INDEX, _CLOSE = (_Signal() for _ in range(4))


class Writer:
    """Owns the database's writing side and the deltas that wait for it."""

    def __init__(
        self,
        database: Database,
        *,
        window_seconds: float = WINDOW_SECONDS,
        indexing: bool = True,
        on_commit: Callable[[Collection[int]], None] = lambda _keys: None,
        redactor: Redactor | None = None,
    ) -> None:
        self._database = database
        self._engine = EngineState(redactor)
        self._window_seconds = window_seconds
        self._commit_seconds = 0.0  # how long commits took lately
        self._on_commit = on_commit
        self._queue: SimpleQueue[Op[Any] | DropCallback | _Signal] = SimpleQueue()
        self._dirty: SimpleQueue[StreamBuffer] = SimpleQueue()
        self._retries: SimpleQueue[Callable[[EngineState], Any]] = SimpleQueue()
        self._drop_callbacks: set[DropCallback] = set()
        self._postponed: dict[Op[Any], float] = {}  # waiting for a locked session, until
        self._locked_since: dict[StreamBuffer, float] = {}
        self._armed = False
        self._deadline: float | None = None
        self._closed = False
        self._drained = self._ended = False
        self._broke: BaseException | None = None  # the error that ended the thread
        self._under_way: Sequence[Op[Any]] = ()
        self._last_batch = 0
        self._schedule = SliceSchedule(wanted=indexing)
        self._sum_schedule = SliceSchedule(
            wanted=indexing, idle_seconds=_SUM_IDLE_SECONDS, busy_seconds=_SUM_BUSY_SECONDS
        )
        self._behind = Behind(database, self._transact, self._schedule, self._sum_schedule)
        self._fold_schedule = FoldSchedule(unfolded=database.unfolded)
        self.status = "ok"
        self.metrics = Metrics()
        self._thread = threading.Thread(target=self._run, name="killick-writer", daemon=True)
        self._thread.start()

    # -- for callers ---------------------------------------------------------------------------

    def submit(self, op: Op[T]) -> Op[T]:
        """Hand an operation over; its outcome comes through the op. Safe in a finaliser.

        If interrupted: the operation was handed over or it was not.
        """
        if self._closed:
            raise _closed()
        self._queue.put(op)
        if self._ended:  # since the check above: the thread does not look there any more
            self._refuse_rest()
        return op

    def within_window(self, buffer: StreamBuffer) -> None:
        """Flush a stream within its window. Does not wait."""
        self._dirty.put(buffer)
        if not self._armed:
            self._armed = True
            self._queue.put(_WAKE)

    def at_once(self) -> None:
        """Flush now: a stream has gathered enough. Does not wait."""
        self._queue.put(_FLUSH)

    def retry_until_written(self, apply: Callable[[EngineState], Any]) -> None:
        """Try an operation until the store can do it, so that no turn's ending is lost.

        If interrupted: it was handed over or it was not.
        """
        if not self._closed:
            self._queue.put(_RetriedOp(apply))

    def run_when_dropped(self, thing: object, apply: Callable[[EngineState], Any]) -> DropCallback:
        """Run an operation, with retries, when the last reference to `thing` is dropped.

        If interrupted: the callback is registered, or no handle was returned.
        """
        callback = DropCallback(thing, self._queue.put)
        callback.apply = apply
        self._drop_callbacks.add(callback)  # a weak reference that is collected itself never fires
        return callback

    def forget(self, callback: DropCallback) -> None:
        """Unregister a drop callback."""
        self._drop_callbacks.discard(callback)

    def index_soon(self) -> None:
        """Bring index and sums up soon: a caller saw that one is behind. Does not wait."""
        self._schedule.wake()
        self._sum_schedule.wake()
        self._queue.put(_INDEX)

    def is_current_thread(self) -> bool:
        """True in a finaliser that runs on the writer thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float) -> bool:
        """Write everything handed over so far, then end the thread; False if time ran out."""
        self._closed = True
        self._queue.put(_CLOSE)
        if not self.is_current_thread():
            self._thread.join(timeout)
            if self._drained:  # all is written, and the index is brought up
                self._thread.join(2 * CLOSE_SECONDS)
        return not self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._broke = error
            raise
        finally:
            self._ended = True
            self._refuse([*self._under_way, *self._postponed])
            self._refuse_rest()

    def _work(self) -> None:
        closing = False
        while not closing or self._postponed:
            ops, closed = self._gather()
            self._under_way = ops
            closing = closing or closed
            due = self._deadline is not None and time.monotonic() >= self._deadline
            if due or closing:
                ops.extend(self._flushes())
            if (self._postponed or not self._retries.empty()) and (ops or closing or due):
                # Retries first: a new turn may be waiting for the old one's ending. Then what was
                # postponed, in its order before the operations that came later.
                retries = [self._retries.get_nowait() for _ in range(self._retries.qsize())]
                ops = [*map(_RetriedOp, retries), *self._postponed, *ops]
            flushing = bool(ops) and isinstance(ops[-1], _FlushOp)
            if self._fold_schedule.due and self._fold_schedule.is_due(flushing=flushing):
                ops.append(_FoldOp())
            if ops:
                self._last_batch = len(ops)
                self._schedule.wrote()
                self._commit(ops)
                if self._engine.uncounted:
                    self._engine.uncounted = False
                    if self._sum_schedule.due is None:
                        self._sum_schedule.wrote()
            self._under_way = ()
            if self._queue.empty() and not closing:
                if self._schedule.is_due():
                    self._behind.index()
                elif self._sum_schedule.is_due():
                    self._behind.count()
        self._drained = True
        if self._fold_schedule.due is not None:
            self._fold_last()
        if self._engine.appended:
            self._behind.bring_up()

    def _refuse_rest(self) -> None:
        """Refuse operations that came too late; their callers would wait for ever."""
        while True:
            try:
                item = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(item, Op):
                self._refuse([item])

    def _refuse(self, ops: Sequence[Op[Any]]) -> None:
        for op in ops:
            if not op.finished:
                op.error = _closed() if self._broke is None else _died(self._broke)
                op.error.__cause__ = self._broke
                finish([op])

    def _gather(self) -> tuple[list[Op[Any]], bool]:
        """Wait for work, then take all that is there."""
        ops: list[Op[Any]] = []
        try:
            item = self._queue.get(timeout=self._patience())
        except Empty:
            return ops, False
        if self._last_batch > _CROWD:
            self._let_others_come()
        while True:
            if isinstance(item, Op):
                ops.append(item)
            elif isinstance(item, DropCallback):
                self._drop_callbacks.discard(item)
                ops.append(_RetriedOp(item.apply))
            elif item is _CLOSE:
                return ops, True
            elif item is _FLUSH:
                self._deadline = 0.0
            elif item is not _INDEX and self._deadline is None:
                self._deadline = time.monotonic() + self._gather_seconds()
            # Only this thread takes, so what is there now is there when it is taken.
            if self._queue.empty() or len(ops) == _BATCH_MAX:
                return ops, False
            item = self._queue.get_nowait()

    def _gather_seconds(self) -> float:
        """Return how long deltas may wait for others and still be committed in their window."""
        window = self._window_seconds
        return min(max(window - 2 * self._commit_seconds, window / 2), window * _GATHER_AT_MOST)

    def _let_others_come(self) -> None:
        """Wait for callers that were answered together and come back together.

        Without this the first to come back gets a commit of its own, and its statements and the
        others' Python compete for the interpreter.
        """
        expected = self._last_batch - 1
        deadline = time.monotonic() + _CROWD_SECONDS
        while self._queue.qsize() < expected and time.monotonic() < deadline:
            time.sleep(_CROWD_SECONDS / 20)

    def _patience(self) -> float | None:
        until = self._deadline
        for due in (self._schedule.due, self._sum_schedule.due, self._fold_schedule.due):
            if due is not None:
                until = due if until is None else min(until, due)
        return None if until is None else max(0.0, until - time.monotonic())

    def _flushes(self) -> list[Op[Any]]:
        self._deadline = None
        self._armed = False
        buffers: dict[int, StreamBuffer] = {}
        while not self._dirty.empty():  # only this thread takes
            buffer = self._dirty.get_nowait()
            buffers[id(buffer)] = buffer
        return [_FlushOp(list(buffers.values()))] if buffers else []

    def _commit(self, ops: Sequence[Op[Any]]) -> None:
        """Commit all in one transaction; one each when an operation broke it for the others."""
        began = time.monotonic()
        try:
            deferred = self._transact(ops)
        except BaseException as error:  # noqa: BLE001  (raised to the callers)
            deferred = self._commit_failed(ops, error)
        took = time.monotonic() - began
        self.metrics.committed(len(ops), took)
        self._commit_seconds = max(took, self._commit_seconds * _FORGETTING)
        if deferred:
            self._settle_rest(ops, deferred)
        else:
            self._settle(ops)

    def _settle_rest(self, ops: Sequence[Op[Any]], deferred: _Deferred) -> None:
        """Settle the operations that are done, postpone or repeat the others."""
        bodies = [(op, why) for op, why in deferred if isinstance(why, StoreBodyFirst)]
        locked = [(op, why) for op, why in deferred if isinstance(why, SessionLocked)]
        later = {*(op for op, _ in bodies), *self._postpone(locked)}
        self._settle([op for op in ops if op not in later])
        for op, needed in bodies:
            self._commit_with_body(op, needed)

    def _postpone(self, locked: Sequence[tuple[Op[Any], SessionLocked]]) -> list[Op[Any]]:
        """Return the operations that go on waiting for their session; the others have failed."""
        now = time.monotonic()
        for op, why in locked:
            if now < self._postponed.setdefault(op, now + why.seconds):
                self._wake_in(_LOCKED_SECONDS)
            else:
                op.error = _still_locked(why)
                del self._postponed[op]
        return [op for op, _ in locked if op in self._postponed]

    def _wake_in(self, seconds: float) -> None:
        soon = time.monotonic() + seconds
        self._deadline = soon if self._deadline is None else min(self._deadline, soon)

    def _commit_failed(self, ops: Sequence[Op[Any]], error: BaseException) -> _Deferred:
        """Commit each operation alone if one of them broke the transaction; else note the error."""
        deferred: _Deferred = []
        if not isinstance(error, Broken):
            for op in ops:
                op.error = error
        elif len(ops) == 1:
            if isinstance(error.cause, StoreBodyFirst | SessionLocked):
                return [(ops[0], error.cause)]
            ops[0].error = self._database.explain(error.cause)
        else:
            for op in ops:
                try:
                    deferred += self._transact([op])
                except BaseException as alone:  # noqa: BLE001  (raised to its caller)
                    deferred += self._commit_failed([op], alone)
        return deferred

    def _transact(self, ops: Sequence[Op[Any]]) -> _Deferred:
        while True:
            deferred: _Deferred = []
            try:
                with self._database.writing() as tx:
                    self._engine.begin(tx)
                    waiting, keys = self._apply(tx, ops, deferred)
                    while waiting:
                        tx.lock(keys)
                        waiting, keys = self._apply(tx, waiting, deferred)
            except RetryTransaction:
                self._engine.rolled_back()
                continue
            except BaseException:
                self._engine.rolled_back()
                raise
            self._engine.committed()
            unfolded = tx.unfolded
            if unfolded or self._fold_schedule.due is not None:
                self._fold_schedule.wrote(unfolded=unfolded)
            return deferred

    def _apply(
        self, tx: Transaction, ops: Sequence[Op[Any]], deferred: _Deferred
    ) -> tuple[list[Op[Any]], set[int]]:
        """Run operations; return those that need sessions locked first, and these sessions.

        Operations on one session keep their order: all of them wait for it, or none does.
        """
        waiting: list[Op[Any]] = []
        keys: set[int] = set()
        for op in ops:
            before, savepoint = tx.writes, self._engine.savepoint()
            op.error = None
            try:
                op.value = op.apply(self._engine)
            except RetryTransaction:
                raise
            except BaseException as error:
                if tx.writes != before or not isinstance(error, _REFUSALS):
                    raise Broken(error) from error
                self._engine.give_back(savepoint)
                if isinstance(error, LocksNeeded):
                    waiting.append(op)
                    keys.update(error.keys)
                elif isinstance(error, StoreBodyFirst | SessionLocked):
                    deferred.append((op, error))
                else:
                    op.error = error
        return waiting, keys

    def _fold_last(self) -> None:
        """Leave no shared rows behind, unless another process writes; then the next one folds."""
        self._database.hurry(CLOSE_SECONDS)
        with contextlib.suppress(Exception):  # they are read where they are
            self._transact([_FoldOp(at_once=True)])

    def _commit_with_body(self, op: Op[Any], needed: StoreBodyFirst) -> None:
        """Store a large body in a transaction of its own, then run its operation in another."""
        store = Op(
            lambda engine: put_blob(
                engine, needed.tenant, needed.digest, needed.data, self._database.holder
            )
        )
        self._commit([store])
        if store.error is not None:
            op.error = store.error
            self._settle([op])
        else:
            self._commit([op])

    def _settle(self, ops: Sequence[Op[Any]]) -> None:
        if self._postponed:
            for op in ops:
                self._postponed.pop(op, None)
        self._note_outcomes(ops)
        self._on_commit(self._engine.take_changed())
        # The last thing to do: a caller that wakes wants the interpreter, which this thread holds.
        finish(ops)

    def _note_outcomes(self, ops: Sequence[Op[Any]]) -> None:
        """Note what the outcomes say of the store's status, of flushes and of retries."""
        for op in ops:
            if op.error is None:
                if self.status != "ok":
                    self.status = "ok"
                    log(logging.INFO, "store well again", holder=self._database.holder)
            else:
                self.metrics.refused += 1
                self._note_refused(op.error)
            if isinstance(op, _FlushOp):
                self._note_flush(op)
            elif isinstance(op, _FoldOp):
                self._note_fold(op)
            elif isinstance(op, _RetriedOp) and isinstance(op.error, StoreError):
                self._retries.put(op.apply)
                self._wake_in(_RETRY_SECONDS)

    def _note_refused(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            if self.status == "ok":
                holder = self._database.holder
                log(logging.WARNING, "store degraded", holder=holder, error=str(error))
            self.status = "degraded"
        elif isinstance(error, StaleFence):
            holder = self._database.holder
            log(logging.WARNING, "fenced out", holder=holder, error=str(error))

    def _note_fold(self, op: _FoldOp) -> None:
        if op.error is None:
            self._fold_schedule.folded(more=op.value)
        else:
            log(logging.WARNING, "streams could not be folded", error=str(op.error))
            self._fold_schedule.failed()

    def _note_flush(self, op: _FlushOp) -> None:
        refused = {} if op.error is not None else op.value
        now = time.monotonic()
        for buffer in op.buffers:
            error = op.error or refused.get(id(buffer))
            if not isinstance(error, SessionLocked):
                self._locked_since.pop(buffer, None)
            elif now - self._locked_since.setdefault(buffer, now) > error.seconds:
                error = _still_locked(error)
            if isinstance(error, SessionLocked):
                self._flush_again(buffer, _LOCKED_SECONDS)
            elif isinstance(error, KillickError) and not isinstance(error, StoreError):
                buffer.error = error  # the turn is over; its end keeps the text as late
            elif error is not None:
                buffer.error = StoreDegraded(f"the stream's text could not be written: {error}")
                buffer.error.__cause__ = error
                self._flush_again(buffer, _RETRY_SECONDS)

    def _flush_again(self, buffer: StreamBuffer, seconds: float) -> None:
        self._dirty.put(buffer)
        self._armed = True
        self._wake_in(seconds)


def _closed() -> HandleClosed:
    return HandleClosed("the store was closed; open it again")


def _died(cause: BaseException) -> StoreDegraded:
    return StoreDegraded(
        f"the thread that writes has ended: {cause!r}; what was under way may be stored or not, "
        "and nothing more is written here; open the store again"
    )


def _still_locked(locked: SessionLocked) -> StoreBusy:
    return StoreBusy(
        f"another process has kept the session locked for {locked.seconds:g} s; nothing was "
        "written, try again"
    )
