"""A turn, written once for both faces: taking the lease, writing inside it, its one ending."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from killick.errors import (
    ForeignHandle,
    KillickError,
    LimitReached,
    PromptQueued,
    SessionBusy,
    StoreError,
    TurnEnded,
    TurnStopped,
    UsageError,
)
from killick.journal import checks
from killick.journal.checks import check_is
from killick.journal.kinds import digest, keyed_id
from killick.journal.turn_state import waiting
from killick.model import entries as e
from killick.model.causes import Cause, check_cause
from killick.model.messages import Message, Prompt
from killick.model.sessions import Limits, Starts
from killick.session.core.session import SessionCore
from killick.session.drive.exit_guard import attach, ending, interruption
from killick.session.drive.steps import Flow, Pause, Write, read, write
from killick.session.runtime import is_dead
from killick.stores import engine as ops
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Reader
from killick.stores.engine.state import DropCallback, EngineState, Op, Receipt
from killick.stores.engine.turn_ops import IfBusy, Over, TurnEntered, TurnStart, interrupted

_LOOK_AGAIN_SECONDS: Final = 0.25
"""How often a caller that waits for a turn checks whether its holder still lives."""


class TurnOptions:
    """Options with which a turn begins."""

    __slots__ = (
        "continues", "if_busy", "key", "limits", "resume", "retry_of", "starts", "wait_seconds",
        "work",
    )  # fmt: skip

    def __init__(
        self,
        *,
        key: str | None,
        if_busy: IfBusy,
        continues: str | None,
        retry_of: str | None,
        wait_seconds: float | None,
        starts: Starts,
        limits: Limits | None = None,
        resume: int = 0,
        work: str | None = None,
    ) -> None:
        checks.check_limits(limits)
        self.limits = limits
        if if_busy not in ("refuse", "wait", "queue", "interrupt", "take_over"):
            raise ValueError(
                f'if_busy={if_busy!r}; it is "refuse", "wait", "queue", "interrupt" or "take_over"'
            )
        if starts not in ("seen", "unseen"):
            raise ValueError(f'starts={starts!r}; it is "seen" or "unseen"')
        if key is not None:
            checks.check_id(key, "key")
        if wait_seconds is not None and not isinstance(wait_seconds, int | float):
            raise TypeError(f"wait_seconds is a number of seconds, and this is {wait_seconds!r}")
        checks.check_count("resume", resume)
        if resume and starts == "unseen":
            raise ValueError(
                'resume needs starts="seen": else no worker could tell what may be repeated'
            )
        if work is not None:
            checks.check_id(work, "token of the work")
            if resume:
                raise ValueError(
                    "work goes on with what its first turn allowed; give resume to that one"
                )
        self.resume = resume
        self.work = work
        self.key = key
        self.if_busy = if_busy
        self.continues = continues
        self.retry_of = retry_of
        self.wait_seconds = wait_seconds
        self.starts = starts


class _Append:
    """The commonest write. Closures would be ten objects for the garbage collector, for each.

    It does not hold the turn: a turn without another holder is over.
    """

    __slots__ = ("_at_us", "_bodies", "_claim", "_session")

    def __init__(
        self, session: SessionCore, claim: Claim, bodies: tuple[e.Body, ...], at_us: int
    ) -> None:
        self._session = session
        self._claim = claim
        self._bodies = bodies
        self._at_us = at_us

    def __call__(self, engine: EngineState) -> Receipt:
        return self.all(engine)[-1]

    def all(self, engine: EngineState) -> list[Receipt]:
        return ops.append(engine, self._session.key, self._claim, self._bodies, self._at_us)

    def done(self, receipt: Receipt) -> None:
        self._session.saw(receipt.seq)

    def all_done(self, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            self._session.saw(receipt.seq)


class TurnCore:
    """A turn from the moment its block is entered until it has its ending."""

    def __init__(self, session: SessionCore, prompt: Prompt, options: TurnOptions) -> None:
        if options.work is not None and prompt is not None:
            raise ValueError("work is gone on with, not asked for: give None as the prompt")
        self.session = session
        self.key = session.key
        self.runtime = session.runtime()
        self._prompt = prompt
        self._options = options
        self._buffers: dict[int, StreamBuffer] = {}
        self.claim = Claim("", 0)
        self._attempt: Claim | None = None
        self._refused_at = 0
        self._ending: e.TurnEnding | None = None
        self._parting: DropCallback | None = None
        self._outcome: Receipt | Over | None = None
        self.repeated = False
        self.over = True
        self.status: str = "running"
        self.reason: str | None = None
        self.cause: str | None = None
        self.stop_asked: e.StopAsked | None = None
        self._told_to_stop = False
        self.on_stop: Callable[[], None] | None = None
        self.seals: dict[str, Op[None]] = {}

    # -- the block -----------------------------------------------------------------------------

    def enter(self, also: Sequence[Message] = ()) -> Flow[None]:
        """Take the lease and make the prompt durable, and with it what `also` was said.

        If interrupted: a turn that was begun all the same is ended as interrupted first. If the
        store fails, it is so as soon as the store can write again.
        """
        options = self._options
        key = options.key
        turn_id = keyed_id("turn", self.session.id, key) if key else self.runtime.ids("turn")
        prompt = None
        if self._prompt is not None:
            prompt = self.session.prompt(self._prompt, turn_id, key)
        start = TurnStart(
            turn_id=turn_id,
            holder=self.runtime.database.holder,
            prompt=prompt,
            key=key,
            continues=options.continues,
            retry_of=options.retry_of,
            if_busy=options.if_busy,
            starts=options.starts,
            limits=options.limits,
            resume=options.resume,
            work=options.work,
        )
        further = tuple(self._recorded(message, turn_id=turn_id) for message in also)
        for body in further:
            checks.check_content(body)
        try:
            begun = yield from self._begin(start, further)
            self._begun(begun, start)
        except GeneratorExit:
            self.runtime.post(self._undo_begin(interrupted(turn_id, "abandoned", "closed")))
            raise
        except StoreError:
            # A commit that failed may be stored all the same (a failed sync, a lost server): a turn
            # that no caller was given must not keep the session busy.
            undo = self._undo_begin(interrupted(turn_id, "abandoned", "outcome_unknown"))
            self.runtime.writer.retry_until_written(undo)
            raise
        except KillickError:
            raise  # refused: nothing was begun
        except BaseException as error:
            # What a signal handler raises may be of any kind, a timeout of the caller's for one.
            ended = msgspec.structs.replace(ending(turn_id, error), status="interrupted")
            yield from self._end_what_began(self._undo_begin(ended))
            raise

    def _end_what_began(self, undo: Callable[[EngineState], object]) -> Flow[None]:
        """End a turn that no caller was given; if the store fails, as soon as it can write."""
        try:
            yield from write(undo)
        except GeneratorExit:
            raise  # long afterwards: this object may stand for another turn by now
        except BaseException as error:
            if store_failed(error):
                self.runtime.writer.retry_until_written(undo)
            self._is_over()
            if not isinstance(error, StoreError):
                raise
        else:
            self._is_over()

    def _undo_begin(self, ended: e.TurnEnding) -> Callable[[EngineState], object]:
        at = self.runtime.clock()

        def undo(engine: EngineState) -> None:
            # Behind the beginning in the writer's queue: only here is it known what came of it.
            if self._attempt is not None and self._attempt.turn_id == ended.turn_id:
                ops.interrupt_turn(engine, self.key, self._attempt, ended, at)

        return undo

    def _begin(self, start: TurnStart, also: tuple[e.Body, ...]) -> Flow[TurnEntered]:
        wait = self._options.wait_seconds
        deadline = None if wait is None else time.monotonic() + wait
        stopped = None
        while True:
            since = self.runtime.watcher.generation
            at = self.runtime.clock()
            try:
                return (yield from write(partial(self._start, start, also, at)))
            except SessionBusy as busy:
                self.session.saw(self._refused_at)
                if start.if_busy not in ("wait", "interrupt"):
                    raise
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                running = busy.turn_id
            if start.if_busy == "interrupt" and running != stopped:
                stopped = running
                yield from self.session.stop(running, "interrupted by the next turn")
            yield from self._until_free(since, deadline)

    def _start(
        self, start: TurnStart, also: tuple[e.Body, ...], at_us: int, engine: EngineState
    ) -> TurnEntered:
        self._attempt = None
        self.key = self.session.key  # the session may have begun in this transaction
        try:
            begun = ops.start_turn(engine, self.key, start, at_us)
        except SessionBusy:
            self._refused_at = engine.state(self.key).row.head
            raise
        if not begun.repeated and begun.queued is None:
            if also:
                last = ops.append(engine, self.key, begun.claim, also, at_us)[-1]
                begun = msgspec.structs.replace(begun, head=last.seq)
            self._attempt = begun.claim
        return begun

    def _until_free(self, since: int, deadline: float | None) -> Flow[None]:
        """Wait until the running turn has ended, its holder has died, or time is over."""
        with self.runtime.watcher.following(self.key):
            while deadline is None or time.monotonic() < deadline:
                if (yield from read(self._is_free)):
                    return
                yield Pause(since, _LOOK_AGAIN_SECONDS)
                since = self.runtime.watcher.generation

    def _is_free(self, reader: Reader) -> bool:
        row = reader.session(self.key)
        return row is None or is_dead(reader, row) or row.turn_seq is None

    def _begun(self, begun: TurnEntered, start: TurnStart) -> None:
        self.session.saw(begun.head)
        if begun.queued is not None:
            assert begun.busy is not None
            assert start.prompt is not None
            turn_id, holder = begun.busy
            raise PromptQueued(
                f"session {self.session.id!r} is busy with turn {turn_id!r} in {holder}; the "
                f"prompt is kept as {start.prompt.id!r} and the next turn takes it",
                turn_id=turn_id,
                holder=holder,
                prompt_id=start.prompt.id,
            )
        self.claim = begun.claim
        self.repeated = begun.repeated
        if begun.repeated:
            if begun.ended is not None:
                self._note_ending(begun.ended)
            return
        # The same object may be entered again: that is another turn, and nothing of the last one's.
        self.over, self._ending, self._told_to_stop = False, None, False
        self.status, self.reason, self.cause = "running", None, None
        self.stop_asked, self._outcome = None, None
        self.runtime.turn_began(self)

    def leave(self, error: BaseException | None, cause: Cause | None = None) -> Flow[None]:
        """Give the turn its one ending; a stop that was asked for has given its cause.

        If interrupted: the ending is written all the same; only the wait for it is given up.
        """
        if cause is not None:
            check_cause(cause)
        if self.over or not self.runtime.is_ours():
            return
        body = self._ending_of(error, cause)
        try:
            outcome = yield from write(self._end_write(body))
        except KillickError as failure:
            if store_failed(failure):
                # The store cannot write now: it owes the ending, and the session is free with it.
                self.runtime.writer.retry_until_written(self._end_write(body))
            self._ended()
            if error is None:
                raise
            attach(error, failure)
            return
        except GeneratorExit:
            raise  # as above
        except BaseException as cut:
            # Until the ending is with the writer the turn runs: closing the store, or
            # dropping the turn, ends it then.
            owed = store_failed(cut)
            if owed:
                self.runtime.writer.retry_until_written(self._end_write(body))
            if owed or self._ending is not None:
                # It may fail yet. Then it ends when the block is dropped.
                self._is_over(self._ending, self._outcome if cut.__cause__ is None else None)
            raise
        self._ended(body, outcome)
        if isinstance(outcome, Over):
            if error is not None:
                attach(error, outcome)
            elif cause is None:
                raise outcome  # the caller takes the turn for completed, and it is not

    def _ending_of(self, error: BaseException | None, cause: Cause | None) -> e.TurnEnding:
        if error is not None:
            stops = interruption(error) is not None
        else:
            # A caller that was refused something because of a stop has not done all of the turn.
            stops = cause is not None or self._told_to_stop
        if stops and self.stop_asked is not None:
            error, cause = self.turn_stopped(), None
        return ending(self.claim.turn_id, error, cause)

    def _end_write(self, body: e.TurnEnding) -> Callable[[EngineState], Receipt | Over]:
        buffers = list(self._buffers.values())
        at = self.runtime.clock()

        def end(engine: EngineState) -> Receipt | Over:
            self._ending = body
            self._outcome = ops.end_turn(engine, self.key, self.claim, body, buffers, at)
            return self._outcome

        return end

    def _ended(
        self, body: e.TurnEnding | None = None, outcome: Receipt | Over | None = None
    ) -> None:
        """Note the ending: the one that was wanted, another process's, or an unknown one."""
        self._is_over(body, outcome)
        parting, self._parting = self._parting, None
        if parting is not None:
            self.runtime.writer.forget(parting)

    def _is_over(
        self, body: e.TurnEnding | None = None, outcome: Receipt | Over | None = None
    ) -> None:
        self.over = True
        self.runtime.turn_ended(self.claim.turn_id)
        if isinstance(outcome, TurnEnded):
            self.status, self.reason = outcome.status or "interrupted", outcome.reason
            self.cause = outcome.cause
        elif isinstance(outcome, Receipt) and body is not None:
            self._note_ending(body)
            self.session.saw(outcome.seq)

    def _note_ending(self, body: e.TurnEnding) -> None:
        self.status, self.reason, self.cause = body.status, body.reason, body.cause

    def close_write(self, reason: str) -> Callable[[EngineState], object]:
        """End the turn as interrupted, for a store that is closed."""
        self.over = True
        body = interrupted(self.claim.turn_id, "terminated", reason)
        self._note_ending(body)
        return self._end_write(body)

    def held_by(self, holder: object) -> None:
        """Let the turn last no longer than `holder` does, unless it has a holder already."""
        if self._parting is None or self._parting() is None:
            self._parting = self.runtime.writer.run_when_dropped(holder, self._end_abandoned)

    def _end_abandoned(self, engine: EngineState) -> None:
        """End a turn whose block was dropped, behind all that was handed over for it."""
        if self._attempt is not None:
            self.claim = self._attempt  # a caller that was interrupted in beginning it may not know
        elif self.over:
            return  # it was never begun
        body = interrupted(self.claim.turn_id, "abandoned")
        self._is_over(body, self._end_write(body)(engine))

    def stop(self, asked: e.StopAsked) -> None:
        """Deliver a stop: the next call on this turn raises; a waiting task is cancelled."""
        if self.stop_asked is None and not self.over:
            self.stop_asked = asked
            if self.on_stop is not None:
                self.on_stop()

    def turn_stopped(self) -> TurnStopped:
        """Return the error that tells the holder of the stop."""
        asked = self.stop_asked
        assert asked is not None
        text = f"the turn was asked to stop: {asked.reason}"
        return TurnStopped(text, reason=asked.reason, cause=asked.cause or "stopped")

    # -- inside the block ----------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise what stands in the way of one more write in this turn."""
        if not self.runtime.is_ours():
            raise ForeignHandle(
                "this turn was inherited through fork() and belongs to the parent process; start "
                "a turn of your own"
            )
        if self.stop_asked is not None and not self.over:
            self._told_to_stop = True
            raise self.turn_stopped()
        self.check_begun()
        if self.over:
            if self.repeated:
                raise TurnEnded(f"turn {self.claim.turn_id!r} was begun before with the same key")
            raise TurnEnded(f"turn {self.claim.turn_id!r} has ended; start a new turn")

    def check_begun(self) -> None:
        """Refuse a turn whose block was never entered."""
        if not self.claim.turn_id:
            raise UsageError(
                "this turn has not begun; use it as a block: `with session.turn(...) as turn:`, "
                "or `async with session.turn(...) as turn:` with an AsyncStore; or call "
                "turn.begin() first, and turn.end() at last"
            )

    def append(self, *bodies: e.Body) -> Write[Receipt]:
        """Fenced entries, all or none; the receipt is that of the last."""
        append = self._append(bodies)
        return Write(append, append.done)

    def begin_call(self, *bodies: e.Body) -> Flow[Receipt]:
        """Append the beginning of a model call. Raises LimitReached, which is recorded then."""
        append, hit_id = self._append(bodies), self.runtime.ids("ent")
        key, claim, at = self.key, self.claim, append._at_us
        begun = yield from write(
            lambda engine: ops.begin_call(engine, key, claim, bodies, at, hit_id)
        )
        if isinstance(begun, LimitReached):
            raise begun
        append.done(begun)
        return begun

    def _append(self, bodies: tuple[e.Body, ...]) -> _Append:
        self.check_open()
        for body in bodies:
            checks.check_content(body)
        return _Append(self.session, self.claim, bodies, self.runtime.clock())

    def record(self, message: Message, provider: str | None = None) -> Write[Receipt]:
        if provider is not None:
            checks.check_id(provider, "provider")
        return self.append(self._recorded(message, provider))

    def record_all(self, messages: Sequence[Message]) -> Write[list[Receipt]]:
        given = checks.as_parts(messages, "what is recorded is a list of messages")
        append = self._append(tuple(map(self._recorded, given)))
        return Write(append.all, append.all_done)

    def _recorded(
        self, message: Message, provider: str | None = None, turn_id: str = ""
    ) -> e.MessageRecorded:
        check_is(message, Message, "what is recorded")
        return e.MessageRecorded(
            id=message.id or self.runtime.ids("msg"),
            turn_id=turn_id or self.claim.turn_id,
            role=message.role,
            parts=checks.as_parts(message.parts, "the parts of a message are a list"),
            model_call_id=message.model_call_id,
            provider=provider,
        )

    def steering(self) -> Flow[list[Message]]:
        """Take what was said to this turn since it was last asked."""
        self.check_open()
        if not (yield from read(self._is_steered)):
            return []
        at = self.runtime.clock()
        taken = yield from write(lambda engine: ops.take_steers(engine, self.key, self.claim, at))
        for _, receipt in taken:
            self.session.saw(receipt.seq)
        return [message for message, _ in taken]

    def _is_steered(self, reader: Reader) -> bool:
        row = reader.session(self.key)
        if row is None or row.queue_seq is None:
            return False
        prompts = waiting(reader.entries(self.key, after=row.queue_seq - 1))
        return any(prompt.turn_id == self.claim.turn_id for prompt in prompts.values())

    def ask_approval(self, call_id: str, arguments: str) -> Flow[e.ApprovalAsked]:
        """Record that a call waits for a person, bound to its exact arguments."""
        self.check_open()
        checks.check_id(call_id, "tool call id")
        checks.check_text(arguments, "a tool call's arguments")
        approval_id, at = self.runtime.ids("ent"), self.runtime.clock()
        asked, receipt = yield from write(
            lambda engine: ops.ask_approval(
                engine, self.key, self.claim, approval_id, call_id, arguments, at
            )
        )
        self.session.saw(receipt.seq)
        return asked

    def put_blob(self, data: bytes) -> Flow[str]:
        """Keep bytes of an image or a file that this turn is about to name."""
        checks.check_blob(data)
        runtime, name = self.runtime, digest(data)
        holder = runtime.database.holder
        yield from write(lambda engine: ops.put_blob(engine, runtime.tenant, name, data, holder))
        return name

    # -- its streams ---------------------------------------------------------------------------

    def open_buffer(self, seq: int) -> StreamBuffer:
        buffer = StreamBuffer(
            key=self.key,
            seq=seq,
            claim=self.claim,
            wake=self.runtime.writer,
            limit=self.runtime.buffer_bytes,
            flush_bytes=self.runtime.flush_bytes,
        )
        self._buffers[seq] = buffer
        return buffer

    def close_buffer(self, buffer: StreamBuffer) -> None:
        self._buffers.pop(buffer.seq, None)


def spoken_amid(what: str) -> UsageError:
    return UsageError(f"a handler spoke into {what} amid a piece of it: these words are not taken")


def store_failed(error: BaseException) -> bool:
    """Return whether the store could not write; an interruption has that for its cause."""
    return isinstance(error, StoreError) or isinstance(error.__cause__, StoreError)
