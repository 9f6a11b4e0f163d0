"""The one thread that writes: group commit, flushes on time, failures told to those concerned.

Callers hand over operations and wait for their outcome. Whatever is waiting when a commit ends
shares the next one, so durability costs one fsync for many. The thread is a daemon that no signal
handler runs in; an interrupted caller abandons its wait, never the write.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from killick.errors import (
    HandleClosed,
    KillickError,
    SearchDamaged,
    StoreBusy,
    StoreDegraded,
    StoreError,
)
from killick.journal.redaction import Redactor
from killick.model.limits import WINDOW_SECONDS
from killick.search.documents import read_batch
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import (
    Database,
    LocksNeeded,
    RetryTransaction,
    SessionLocked,
    Transaction,
)
from killick.stores.engine import flush, index, index_is_damaged, put_blob
from killick.stores.engine.search_ops import Idleness
from killick.stores.engine.state import EngineState, StoreBodyFirst
from killick.stores.ops import DropCallback, Op, Tally, finish

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

_HELD_SECONDS: Final = 0.05
"""How long after it met a session that others keep locked an operation is tried again."""

_REFUSALS: Final = (KillickError, StoreBodyFirst, LocksNeeded, SessionLocked)
"""What an operation may raise and leave the others in its commit alone."""


_Deferred = list[tuple[Op[Any], StoreBodyFirst | SessionLocked]]
"""What could not be done in a commit, and why."""


class _Signal:
    """Wakes the writer for something that is not an operation."""


_WAKE: Final = _Signal()
_FLUSH: Final = _Signal()
_INDEX: Final = _Signal()
_CLOSE: Final = _Signal()


class Writer:
    """Owns the database's writing side and the deltas that wait for it."""

    def __init__(
        self,
        database: Database,
        *,
        window_seconds: float = WINDOW_SECONDS,
        indexing: bool = True,
        on_commit: Callable[[], None] = lambda: None,
        redactor: Redactor | None = None,
    ) -> None:
        self._database = database
        self._engine = EngineState(redactor)
        self._window_seconds = window_seconds
        self._commit_seconds = 0.0  # what commits have taken lately
        self._on_commit = on_commit
        self._queue: SimpleQueue[Op[Any] | DropCallback | _Signal] = SimpleQueue()
        self._dirty: SimpleQueue[StreamBuffer] = SimpleQueue()
        self._owed: SimpleQueue[Callable[[EngineState], Any]] = SimpleQueue()
        self._partings: set[DropCallback] = set()
        self._aside: dict[Op[Any], float] = {}  # what waits for a session, and until when
        self._held_since: dict[StreamBuffer, float] = {}  # streams that do, since when
        self._armed = False
        self._deadline: float | None = None
        self._closed = False
        self._ended = False
        self._broke: BaseException | None = None  # what no operation was to blame for
        self._under_way: Sequence[Op[Any]] = ()
        self._last_batch = 0
        self._idleness = Idleness(wanted=indexing)
        self.status = "ok"
        self.tally = Tally()
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
        if self._ended:  # between the question and the putting: nobody looks there any more
            self._refuse_rest()
        return op

    def within_window(self, buffer: StreamBuffer) -> None:
        """A stream has something to write. Does not wait."""
        self._dirty.put(buffer)
        if not self._armed:
            self._armed = True
            self._queue.put(_WAKE)

    def at_once(self) -> None:
        """A stream has gathered enough to be written now. Does not wait."""
        self._queue.put(_FLUSH)

    def retry_until_written(self, apply: Callable[[EngineState], Any]) -> None:
        """Try an operation until the store can do it: the ending of a turn must not be lost.

        If interrupted: it was handed over or it was not.
        """
        if not self._closed:
            self._queue.put(_Owed(apply))

    def run_when_dropped(self, thing: object, apply: Callable[[EngineState], Any]) -> DropCallback:
        """Owe an operation from the moment that nobody holds the thing any more.

        If interrupted: it is owed then, or whoever called has nothing to show for it.
        """
        parting = DropCallback(thing, self._queue.put)
        parting.apply = apply
        self._partings.add(parting)  # what is garbage itself tells nobody
        return parting

    def forget(self, parting: DropCallback) -> None:
        """It is not owed after all."""
        self._partings.discard(parting)

    def index_soon(self) -> None:
        """Somebody saw that the search index is behind. Does not wait."""
        self._idleness.wake()
        self._queue.put(_INDEX)

    def is_current_thread(self) -> bool:
        """A finaliser may run on the writer's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float) -> bool:
        """Write everything handed over so far, then end the thread; False if time ran out."""
        self._closed = True
        self._queue.put(_CLOSE)
        if not self.is_current_thread():
            self._thread.join(timeout)
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
            self._refuse([*self._under_way, *self._aside])
            self._refuse_rest()

    def _work(self) -> None:
        closing = False
        while not closing or self._aside:
            ops, closed = self._gather()
            self._under_way = ops
            closing = closing or closed
            due = self._flush_is_due()
            if due or closing:
                ops.extend(self._flushes())
            if (self._aside or not self._owed.empty()) and (ops or closing or due):
                # What is owed comes first: a turn may be waiting for it to be over. What was put
                # aside comes before what was said later.
                ops = [*self._take_owed(), *self._aside, *ops]
            if ops:
                self._last_batch = len(ops)
                self._idleness.wrote()
                self._commit(ops)
            self._under_way = ()
            if self._idleness.is_due() and self._queue.empty() and not closing:
                self._index()

    def _refuse_rest(self) -> None:
        """What came too late is refused: whoever waits for it would wait for ever."""
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
                self._partings.discard(item)
                ops.append(_Owed(item.apply))
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
        """How long deltas wait for others, so that the commit still ends within their window."""
        window = self._window_seconds
        return min(max(window - 2 * self._commit_seconds, window / 2), window * _GATHER_AT_MOST)

    def _let_others_come(self) -> None:
        """Callers answered together come back together: let them.

        Without this the first to come back gets a commit of its own, and its statements and the
        others' Python compete for the interpreter.
        """
        expected = self._last_batch - 1
        deadline = time.monotonic() + _CROWD_SECONDS
        while self._queue.qsize() < expected and time.monotonic() < deadline:
            time.sleep(_CROWD_SECONDS / 20)

    def _patience(self) -> float | None:
        until, due = self._deadline, self._idleness.due
        if due is not None:
            until = due if until is None else min(until, due)
        return None if until is None else max(0.0, until - time.monotonic())

    def _flush_is_due(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _take_owed(self) -> list[Op[Any]]:
        owed: list[Op[Any]] = []
        while not self._owed.empty():
            owed.append(_Owed(self._owed.get_nowait()))
        return owed

    def _flushes(self) -> list[Op[Any]]:
        self._deadline = None
        self._armed = False
        buffers: dict[int, StreamBuffer] = {}
        while True:
            try:
                buffer = self._dirty.get_nowait()
            except Empty:
                break
            buffers[id(buffer)] = buffer
        return [_Flush(list(buffers.values()))] if buffers else []

    def _commit(self, ops: Sequence[Op[Any]]) -> None:
        """One transaction for all; one each when an operation broke it for the others."""
        deferred: _Deferred = []
        began = time.monotonic()
        try:
            deferred += self._transact(ops)
        except _Broken as broken:
            if len(ops) == 1:
                deferred += self._judge_broken(ops[0], broken)
            else:
                for op in ops:
                    deferred += self._commit_alone(op)
        except BaseException as error:  # noqa: BLE001  (told to every caller, none of it swallowed)
            for op in ops:
                op.error = error
        took = time.monotonic() - began
        self.tally.committed(len(ops), took)
        self._commit_seconds = max(took, self._commit_seconds * _FORGETTING)
        if deferred:
            self._settle_rest(ops, deferred)
        else:
            self._settle(ops)

    def _settle_rest(self, ops: Sequence[Op[Any]], deferred: "_Deferred") -> None:
        """Settle those that are done, and see to the others."""
        bodies = [(op, why) for op, why in deferred if isinstance(why, StoreBodyFirst)]
        held = [(op, why) for op, why in deferred if isinstance(why, SessionLocked)]
        later = {*(op for op, _ in bodies), *self._put_aside(held)}
        self._settle([op for op in ops if op not in later])
        for op, needed in bodies:
            self._commit_with_body(op, needed)

    def _put_aside(self, held: Sequence[tuple[Op[Any], SessionLocked]]) -> list[Op[Any]]:
        """Those that go on waiting for their session; the others are told."""
        now = time.monotonic()
        for op, why in held:
            if now < self._aside.setdefault(op, now + why.seconds):
                self._wake_in(_HELD_SECONDS)
            else:
                op.error = _kept_locked(why)
                del self._aside[op]
        return [op for op, _ in held if op in self._aside]

    def _wake_in(self, seconds: float) -> None:
        soon = time.monotonic() + seconds
        self._deadline = soon if self._deadline is None else min(self._deadline, soon)

    def _commit_alone(self, op: Op[Any]) -> "_Deferred":
        op.error = None
        try:
            return self._transact([op])
        except _Broken as broken:
            return self._judge_broken(op, broken)
        except BaseException as error:  # noqa: BLE001  (told to its caller)
            op.error = error
            return []

    def _judge_broken(self, op: Op[Any], broken: "_Broken") -> "_Deferred":
        if isinstance(broken.cause, StoreBodyFirst | SessionLocked):
            return [(op, broken.cause)]
        op.error = self._database.explain(broken.cause)
        return []

    def _transact(self, ops: Sequence[Op[Any]]) -> "_Deferred":
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
            return deferred

    def _apply(
        self, tx: Transaction, ops: Sequence[Op[Any]], deferred: "_Deferred"
    ) -> tuple[list[Op[Any]], set[int]]:
        """Carry operations out; those that could not be yet, and the sessions to be locked first.

        Operations on one session keep their order: all of them wait for it, or none does.
        """
        waiting: list[Op[Any]] = []
        keys: set[int] = set()
        for op in ops:
            before, mark = tx.writes, self._engine.savepoint()
            op.error = None
            try:
                op.value = op.apply(self._engine)
            except RetryTransaction:
                raise
            except BaseException as error:
                if tx.writes != before or not isinstance(error, _REFUSALS):
                    raise _Broken(error) from error
                self._engine.give_back(mark)
                if isinstance(error, LocksNeeded):
                    waiting.append(op)
                    keys.update(error.keys)
                elif isinstance(error, StoreBodyFirst | SessionLocked):
                    deferred.append((op, error))
                else:
                    op.error = error
        return waiting, keys

    def _index(self) -> None:
        """A slice of the search index, alone in its transaction: it is nobody's who writes."""
        try:
            with self._database.reading() as reader:
                batch = read_batch(reader)
            if batch.entries:
                op = Op(lambda engine: index(engine, batch))
                self._transact([op])
                if not op.result():
                    self._idleness.passed_over()
                    return
            self._idleness.indexed(more=bool(batch.entries))
        except BaseException as error:  # noqa: BLE001  (told to whoever searches)
            self._indexing_failed(error.cause if isinstance(error, _Broken) else error)

    def _indexing_failed(self, error: BaseException) -> None:
        self._idleness.failed(error)
        if isinstance(error, SearchDamaged) and error.__cause__ is not None:
            reason = str(error.__cause__)
            with contextlib.suppress(Exception):  # then the next search finds it as we did
                self._transact([Op(lambda engine: index_is_damaged(engine, reason))])

    def _commit_with_body(self, op: Op[Any], needed: StoreBodyFirst) -> None:
        """A body over the limit gets a transaction of its own, then its operation another."""
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
        if self._aside:
            for op in ops:
                self._aside.pop(op, None)
        self._judge(ops)
        self._on_commit()
        # The last thing to do: a caller that wakes wants the interpreter, which this thread holds.
        finish(ops)

    def _judge(self, ops: Sequence[Op[Any]]) -> None:
        """Keep the store's status, and the fate of each flush, as the outcomes show them."""
        for op in ops:
            if op.error is None:
                self.status = "ok"
            else:
                self.tally.refused()
                if isinstance(op.error, StoreError):
                    self.status = "degraded"
            if isinstance(op, _Flush):
                self._judge_flush(op)
            elif isinstance(op, _Owed) and isinstance(op.error, StoreError):
                self._owed.put(op.apply)
                self._deadline = time.monotonic() + _RETRY_SECONDS

    def _judge_flush(self, flush: "_Flush") -> None:
        refused = {} if flush.error is not None else flush.value
        for buffer in flush.buffers:
            error = flush.error or refused.get(id(buffer))
            if isinstance(error, SessionLocked):
                self._come_back_to(buffer, error)
                continue
            self._held_since.pop(buffer, None)
            if isinstance(error, KillickError) and not isinstance(error, StoreError):
                buffer.error = error  # the turn is over; its end keeps the text as late
            elif error is not None:
                self._retry(buffer, error)

    def _retry(self, buffer: StreamBuffer, error: BaseException) -> None:
        failed = StoreDegraded(f"the stream's text could not be written: {error}")
        failed.__cause__ = error
        buffer.error = failed
        self._dirty.put(buffer)
        self._armed = True
        self._deadline = time.monotonic() + _RETRY_SECONDS

    def _come_back_to(self, buffer: StreamBuffer, held: SessionLocked) -> None:
        """A stream of a session that others keep locked: no error, unless it takes too long."""
        now = time.monotonic()
        if now - self._held_since.setdefault(buffer, now) > held.seconds:
            self._retry(buffer, _kept_locked(held))
        else:
            self._dirty.put(buffer)
            self._armed = True
            self._wake_in(_HELD_SECONDS)


class _Owed(Op[Any]):
    """An operation that nobody waits for and that is tried again while the store fails."""

    __slots__ = ()


class _Flush(Op[dict[int, KillickError | SessionLocked]]):
    """The writer's own operation: nobody waits for it."""

    __slots__ = ("buffers",)

    def __init__(self, buffers: Sequence[StreamBuffer]) -> None:
        super().__init__(lambda engine: flush(engine, buffers))
        self.buffers = buffers


def _closed() -> HandleClosed:
    return HandleClosed("the store was closed; open it again")


def _died(cause: BaseException) -> StoreDegraded:
    died = StoreDegraded(
        f"the thread that writes has ended: {cause!r}; what was under way may be stored or not, "
        "and nothing more is written here; open the store again"
    )
    died.__cause__ = cause
    return died


def _kept_locked(held: SessionLocked) -> StoreBusy:
    return StoreBusy(
        f"somebody else has kept the session locked for {held.seconds:g} s; nothing was written, "
        "try again"
    )


class _Broken(Exception):
    """An operation failed after it had written; the transaction is not worth keeping."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause
