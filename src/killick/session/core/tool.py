"""A tool as it runs, written once for both faces."""

import threading

from killick.errors import (
    ForeignHandle,
    HandleClosed,
    KillickError,
    ToolNotFinished,
    UsageError,
)
from killick.journal import checks
from killick.model import entries as e
from killick.model.causes import Cause, check_cause
from killick.model.effects import Effect, check_effect
from killick.model.messages import Json
from killick.session.core.session import Content, tool_result
from killick.session.core.turn import TurnCore, spoken_amid, store_failed
from killick.session.drive.exit_guard import attach, describe_failed_tool, says_nothing
from killick.session.drive.steps import Flow, write
from killick.stores import engine as ops
from killick.stores.buffers import StreamBuffer
from killick.stores.engine.state import EngineState, Receipt
from killick.stores.engine.tool_ops import Giver, ToolBegun


class ToolCore:
    """One run of a tool that the model called."""

    def __init__(
        self,
        turn: TurnCore,
        call_id: str,
        of: str | None = None,
        effect: Effect = "once",
        key: str | None = None,
    ) -> None:
        check_effect(effect)
        if key is not None:
            checks.check_id(key, "key")
        self.turn = turn
        self.call_id = call_id
        self._effect: Effect = effect
        self._given_key = key
        self._begun: ToolBegun | None = None
        self._of = of if of != turn.claim.turn_id else None
        self._entered = False
        self._message_id: str | None = None  # providers repeat ids: the call that was started
        self.finished: Receipt | None = None
        self._pending = False  # a result was given that the store could not write yet
        self._buffer: StreamBuffer | None = None
        self._length = 0
        self._mutex = threading.RLock()

    def enter(self) -> Flow[None]:
        """Mark the call as started, durably, before the tool runs.

        If interrupted: the start may be recorded; then the outcome is unknown, and says so.
        """
        turn = self.turn
        turn.check_open()
        checks.check_id(self.call_id, "tool call id")
        seal = turn.seals.pop(self.call_id, None)
        at = turn.runtime.clock()
        try:
            self._begun = begun = yield from write(
                lambda engine: ops.start_tool(
                    engine,
                    turn.key,
                    turn.claim,
                    self.call_id,
                    at,
                    self._of,
                    self._effect,
                    self._given_key,
                )
            )
        except LookupError:
            if seal is not None and seal.error is not None:
                raise seal.error from None  # the call was made, and could not be made durable
            raise
        turn.session.saw(begun.receipt.seq)
        self._message_id = begun.message_id
        self._entered = True
        if self._of is None:
            self._buffer = turn.open_buffer(begun.receipt.seq)

    @property
    def key(self) -> str:
        """The key for the outside, the same for each start. Raises UsageError before the first."""
        if self._begun is None:
            raise UsageError(
                "a call has its key once it is started; enter its block, or call begin(), first"
            )
        return self._begun.key

    def output(self, text: str) -> None:
        buffer = self._buffer
        if buffer is None:
            raise HandleClosed(
                "the tool has finished; its output belongs before finish()"
                if self._of is None
                else "this call is of an earlier turn; give all that it prints to finish()"
            )
        self.turn.check_open()
        checks.check_text(text, "a tool's output")
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # by this thread: a handler
            raise spoken_amid("the tool's output")
        if text:
            with self._mutex:
                delta = e.Delta(0, self._length, "output", text)
                size = buffer.admit(delta)
                self._length += len(text)
                buffer.add(delta, size)

    def finish(self, content: Content | None, *, is_error: bool, structured: Json) -> Flow[Receipt]:
        """Record the result, durable on return; after Stop it is kept as late.

        Raises what the store raises; the result is then written as soon as the store can, while
        this process lives. If interrupted: the result is written all the same; only the wait for
        it is given up.
        """
        turn = self.turn
        if not turn.runtime.is_ours():
            raise ForeignHandle("this tool was inherited through fork(); the parent finishes it")
        result = None
        if content is not None or is_error or structured is not None:
            result = tool_result(
                self.call_id,
                "" if content is None else content,
                is_error=is_error,
                structured=structured,
            )
        at, buffer = turn.runtime.clock(), self._buffer

        def apply(engine: EngineState) -> Receipt:
            of, begun = self._of or turn.claim.turn_id, self._begun
            giver = None
            if begun is not None:
                giver = Giver(begun.message_id, begun.receipt.seq, begun.number)
            return ops.finish_tool(engine, turn.key, of, self.call_id, result, buffer, at, giver)

        try:
            receipt = yield from write(apply)
        except BaseException as error:
            if store_failed(error):
                # What the tool did is known here alone: the store keeps it, as it keeps an ending.
                turn.runtime.writer.retry_until_written(apply)
                self._pending = True
            raise
        self.finished = receipt
        self._close()
        turn.session.saw(receipt.seq)
        return receipt

    def leave(self, error: BaseException | None, cause: Cause | None = None) -> Flow[None]:
        """Record what an exception that leaves the block means for the call.

        A `cause` stands in its place: with any but `failed` the call is left without a result.

        An error of ours says nothing about the tool, so it is no result: the outcome is the one
        that `finish` was given, or unknown.
        """
        if cause is not None:
            check_cause(cause)
        if self.finished is not None or not self._entered or not self.turn.runtime.is_ours():
            return
        self._entered = False
        try:
            if self._pending:
                self._close()
                return
            failed = error is not None and not says_nothing(error) and cause is None
            if failed or cause == "failed":
                words = cause or "" if error is None else describe_failed_tool(error)
                yield from self.finish(words, is_error=True, structured=None)
                return
            yield from self._leave_unfinished()
        except KillickError as failure:
            if error is None:
                raise
            attach(error, failure)
            return
        if error is None and cause is None:
            raise ToolNotFinished(
                f"the block of tool call {self.call_id!r} was left without finish(); what the tool "
                "did is recorded as unknown"
            )

    def _leave_unfinished(self) -> Flow[None]:
        turn, buffer = self.turn, self._buffer
        if buffer is None:
            return
        if not turn.over:
            at = turn.runtime.clock()
            yield from write(
                lambda engine: ops.leave_tool(
                    engine, turn.key, turn.claim, self.call_id, buffer, at, self._message_id
                )
            )
        self._close()

    def _close(self) -> None:
        if self._buffer is not None:
            self.turn.close_buffer(self._buffer)
            self._buffer = None
