"""A model's answer as it comes, and a tool as it runs: written once for both faces.

Handing a delta over never waits. What it was given is durable within the window, and completely
when the block is left, in whatever way it is left.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from killick.errors import HandleClosed, InvalidEntry, KillickError, TurnStopped
from killick.journal import checks
from killick.journal.assembly import ObjectScanner, is_whole_object, join_extra
from killick.journal.codec import check_value, encode, to_bytes
from killick.model import entries as e
from killick.model.causes import Cause, check_cause
from killick.model.limits import PARTS_MAX
from killick.model.messages import Extra, Json, Opaque, Part, Role, State, ToolCall
from killick.session.core.turn import TurnCore, spoken_amid
from killick.session.drive.exit_guard import attach, describe
from killick.session.drive.steps import Flow, write
from killick.session.runtime import Process
from killick.stores import engine as ops
from killick.stores.buffers import StreamBuffer
from killick.stores.engine.state import EngineState, Op, Receipt
from killick.stores.engine.turn_ops import Over

ToolType = Literal["function", "custom", "mcp", "hosted"]


class ModelCall:
    """One request to a model; its system prompt and tools become blobs."""

    __slots__ = (
        "attempt",
        "model",
        "provider",
        "request",
        "retry_of",
        "role",
        "settings",
        "system",
        "tools",
    )

    def __init__(
        self,
        *,
        provider: str | None,
        model: str | None,
        settings: dict[str, Any] | None,
        system: str | None,
        tools: Json,
        attempt: int,
        retry_of: str | None,
        role: Role,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        self.request = request
        self.provider = provider
        self.model = model
        self.settings = settings or {}
        self.system = system
        self.tools = tools
        self.attempt = attempt
        self.retry_of = retry_of
        self.role = role


class _Call:
    """A tool call whose arguments are still coming."""

    __slots__ = ("extra", "length", "name", "number", "pieces", "scanner", "sealed", "tool_type")

    def __init__(self, number: int, name: str, tool_type: ToolType) -> None:
        self.number = number
        self.name = name
        self.tool_type = tool_type
        self.extra: Extra | None = None
        self.length = 0
        self.pieces: list[str] = []
        self.scanner = ObjectScanner()
        self.sealed = False


class StreamCore:
    """One model call and the message it answers with."""

    def __init__(self, turn: TurnCore, call: ModelCall) -> None:
        self.turn = turn
        self._call = call
        self.id = turn.runtime.ids("msg")
        self.model_call_id = turn.runtime.ids("call")
        self.ended = e.ModelCallEnded(id=self.model_call_id, turn_id="")  # known when it begins
        self._entered = False
        self._buffer: StreamBuffer | None = None
        self._mutex = threading.RLock()
        self._count = 0
        self._open: Literal["text", "reasoning"] | None = None
        self._length = 0
        self._calls: dict[str, _Call] = {}
        self._first_at_us: int | None = None
        self._cut: str | None = None
        self.error: str | None = None
        self.state: State = "streaming"
        self.kept: list[e.Delta] | None = None
        """What was handed over, if a recorder asked for it."""
        self.tool_calls: list[ToolCall] = []
        self._listeners: list[Callable[[ToolCall], object]] = []

    # -- the block -----------------------------------------------------------------------------

    def enter(self) -> Flow[None]:
        """Record that the model is asked.

        If interrupted: the call is recorded as begun or it is not; the turn's end closes it.
        """
        turn, call = self.turn, self._call
        turn.check_open()
        if self._entered:
            raise HandleClosed("a stream is entered once; its turn has another for the next answer")
        self._entered = True
        prompt, offered, redacted = call.system, call.tools, 0
        if turn.runtime.redactor is not None:
            prompt, offered, redacted = turn.runtime.redactor.request(prompt, offered)
        system = None if prompt is None else (yield from turn.put_blob(to_bytes(prompt)))
        tools = None if offered is None else (yield from turn.put_blob(encode(offered)))
        started = e.ModelCallStarted(
            id=self.model_call_id,
            turn_id=turn.claim.turn_id,
            attempt=call.attempt,
            retry_of=call.retry_of,
            provider=call.provider,
            model=call.model,
            settings=call.settings,
            system=system,
            tools=tools,
            redacted=redacted,
        )
        if call.request is not None:
            from killick.views.sent import with_request

            started = with_request(started, call.request, turn.session.made)
        receipt = yield from turn.begin_call(
            started,
            e.MessageStarted(
                id=self.id,
                turn_id=turn.claim.turn_id,
                role=call.role,
                model_call_id=self.model_call_id,
            ),
        )
        self._buffer = turn.open_buffer(receipt.seq)

    def leave(self, error: BaseException | None, cause: Cause | None = None) -> Flow[None]:
        """Fold what came into the message: complete, or partial if cut off or by an exception.

        A `cause` without an exception says why the answer broke off.

        If interrupted: the message is written all the same; only the wait for it is given up.
        """
        if cause is not None:
            check_cause(cause)
        buffer = self._buffer
        if buffer is None or not self.turn.runtime.is_ours():
            return
        if error is None and cause is not None:
            self._cut = self._cut or cause
        self._buffer = None
        self.error = self._cut if error is None else describe(error)
        try:
            outcome = yield from write(self._end_write(buffer, self.error))
        except KillickError as failure:
            # The turn has the buffer still, so its ending keeps the text.
            self.error = self.error or describe(failure)
            if error is None:
                raise
            attach(error, failure)
            return
        self.turn.close_buffer(buffer)
        if isinstance(outcome, Over):
            self.state, self.error = "partial", self.error or describe(outcome)
            if error is None:
                raise outcome
            attach(error, outcome)
            return
        self.state = "complete" if self.error is None else "partial"
        self.turn.session.saw(outcome.seq)
        if self.error is None:
            # A complete message makes all its calls whole, whatever their arguments are.
            for call_id, call in self._calls.items():
                if not call.sealed:
                    self._tell(call_id, call)

    def _end_write(
        self, buffer: StreamBuffer, why: str | None
    ) -> Callable[[EngineState], Receipt | Over]:
        turn = self.turn
        state: Literal["complete", "partial"] = "complete" if why is None else "partial"
        after = msgspec.structs.replace(
            self.ended, turn_id=turn.claim.turn_id, error=why, first_at_us=self._first_at_us
        )
        at = turn.runtime.clock()
        return lambda engine: ops.end_message(
            engine, turn.key, turn.claim, self.id, state, buffer, after, at
        )

    # -- deltas --------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        checks.check_text(text, "a piece of text")
        if text:
            self._grow("text", text)

    def reasoning(self, text: str, signature: str | None, encrypted: str | None) -> None:
        checks.check_text(text, "reasoning")
        for name, given in (("signature", signature), ("encrypted", encrypted)):
            if given is not None:
                checks.check_text(given, f"the {name} of reasoning")
        if text or signature or encrypted:
            self._grow("reasoning", text, signature, encrypted)

    def _grow(
        self,
        kind: Literal["text", "reasoning"],
        text: str,
        signature: str | None = None,
        encrypted: str | None = None,
    ) -> None:
        buffer = self._writable()
        with self._mutex:
            fresh = self._open != kind
            number = self._new_number() if fresh else self._count - 1
            offset = 0 if fresh else self._length
            delta = e.Delta(number, offset, kind, text, None, signature, encrypted)
            size = buffer.admit(delta)
            self._count = number + 1
            self._length = offset + len(text)
            # A signature closes its part: what is thought next is another thought.
            self._open = None if signature or encrypted else kind
            self._hand_over(buffer, delta, size)

    def tool_call(
        self, call_id: str, name: str | None, arguments: str, tool_type: ToolType, *, done: bool
    ) -> None:
        checks.check_text(arguments, "a tool call's arguments")
        buffer = self._writable()
        with self._mutex:
            call = self._calls.get(call_id)
            head = None
            if call is None:
                head = self._new_call(call_id, name, tool_type)
                call = _Call(self._new_number(), head.name, tool_type)
            elif call.sealed and arguments.strip():
                raise InvalidEntry(f"the arguments of tool call {call_id!r} were whole already")
            if head is not None or arguments:
                delta = e.Delta(call.number, call.length, "arguments", arguments, head)
                size = buffer.admit(delta)
                if head is not None:
                    self._calls[call_id] = call
                    self._count, self._open = call.number + 1, None
                call.length += len(arguments)
                self._hand_over(buffer, delta, size)
            call.pieces.append(arguments)
            call.scanner.feed(arguments)
            sealing = not call.sealed and (done or self._is_whole(call))
            if sealing:
                call.sealed = True
                self._seal(buffer, call_id)
        if sealing:
            self._tell(call_id, call)

    def _hand_over(self, buffer: StreamBuffer, delta: e.Delta, size: int) -> None:
        if self._first_at_us is None:
            self._first_at_us = self.turn.runtime.clock()
        buffer.add(delta, size)
        if self.kept is not None:
            self.kept.append(delta)

    def extra(self, fields: Extra, call_id: str | None) -> None:
        check_value(fields, Extra, "further fields of a part")
        buffer = self._writable()
        with self._mutex:
            call = None if call_id is None else self._calls.get(call_id)
            if call is not None:
                delta = e.Delta(call.number, call.length, "arguments", "", extra=fields)
                call.extra = join_extra(call.extra, fields)
            elif call_id is None and self._open is not None:
                delta = e.Delta(self._count - 1, self._length, self._open, "", extra=fields)
            else:
                raise InvalidEntry("there is no open part or call that these fields belong to")
            self._hand_over(buffer, delta, buffer.admit(delta))

    def end_part(self) -> None:
        self._writable()
        with self._mutex:
            self._open = None

    def part(self, part: Part) -> None:
        check_value(part, Part, "part")
        if isinstance(part, Opaque):
            checks.check_opaque(part)
        buffer = self._writable()
        with self._mutex:
            number = self._new_number()
            delta = e.Delta(number, 0, "part", "", part)
            size = buffer.admit(delta)
            self._count, self._open = number + 1, None
            self._hand_over(buffer, delta, size)

    def _new_call(self, call_id: str, name: str | None, tool_type: ToolType) -> ToolCall:
        checks.check_id(call_id, "tool call id")
        if not name:
            raise InvalidEntry(f"the first piece of tool call {call_id!r} needs the tool's name")
        head = ToolCall(call_id, name, "", tool_type)
        check_value(head, Part, "tool call")
        return head

    def _new_number(self) -> int:
        if self._count >= PARTS_MAX:
            raise InvalidEntry(f"the message has {PARTS_MAX} parts already; begin another message")
        return self._count

    def _is_whole(self, call: _Call) -> bool:
        scanner = call.scanner
        return scanner.closed and not scanner.broken and is_whole_object("".join(call.pieces))

    def finish(
        self, reason: str | None, usage: e.Usage | None, provider_ids: dict[str, str] | None
    ) -> None:
        """Check what the provider reported at the end; it is recorded when the block is left."""
        self._inside()
        ended = e.ModelCallEnded(
            id=self.model_call_id,
            turn_id=self.turn.claim.turn_id,
            finish_reason=reason or self.ended.finish_reason,
            usage=usage or self.ended.usage,
            provider_ids={**self.ended.provider_ids, **(provider_ids or {})},
        )
        checks.check_usage(usage)
        check_value(ended, e.ModelCallEnded, "end of a model call")
        self.ended = ended

    def cut_off(self, why: str) -> None:
        """The answer broke off without an exception: the message will be partial."""
        self._inside()
        checks.check_text(why, "a reason")
        self._cut = why or "cut off"

    def on_call(self, tell: Callable[[ToolCall], object]) -> None:
        """Be told of each call as it becomes whole, and at once of those that are."""
        with self._mutex:
            known = list(self.tool_calls)
            self._listeners.append(tell)
        for call in known:
            tell(call)

    def _tell(self, call_id: str, call: _Call) -> None:
        whole = ToolCall(call_id, call.name, "".join(call.pieces), call.tool_type, call.extra)
        with self._mutex:
            self.tool_calls.append(whole)
            listeners = list(self._listeners)
        for tell in listeners:
            tell(whole)

    def _seal(self, buffer: StreamBuffer, call_id: str) -> None:
        """Make the call durable at once, without waiting: the start of its tool comes after."""
        turn = self.turn
        name = self._calls[call_id].name
        body = e.ToolCalled(
            turn_id=turn.claim.turn_id, message_id=self.id, call_id=call_id, name=name
        )
        at = turn.runtime.clock()
        op: Op[None] = Op(
            lambda engine: ops.seal_call(engine, turn.key, turn.claim, body, buffer, at)
        )
        turn.seals[call_id] = op
        turn.runtime.writer.submit(op)

    def _writable(self) -> StreamBuffer:
        buffer, turn = self._buffer or self._inside(), self.turn
        if self._mutex._is_owned():  # type: ignore[attr-defined]  # by this thread: a handler
            raise spoken_amid("the stream")
        if turn.stop_asked is None and not turn.over and turn.runtime.process is Process.current:
            return buffer  # as check_open says; without a call, for this runs for every token
        try:
            turn.check_open()
        except TurnStopped as stopped:
            self._cut = self._cut or describe(stopped)  # what comes now is not in the message
            raise
        return buffer

    def _inside(self) -> StreamBuffer:
        """Raise HandleClosed outside of the block, where nothing would be recorded."""
        if self._buffer is None:
            raise HandleClosed("the stream is closed; what it is given belongs inside its block")
        return self._buffer


class Deltas:
    """Takes an answer as it streams: plain calls on both faces, none waits."""

    _core: StreamCore

    @property
    def id(self) -> str:
        """The message's id."""
        return self._core.id

    @property
    def model_call_id(self) -> str:
        return self._core.model_call_id

    def text(self, text: str) -> None:
        """Add a piece of the answer."""
        self._core.text(text)

    def reasoning(
        self, text: str = "", *, signature: str | None = None, encrypted: str | None = None
    ) -> None:
        """Add a piece of reasoning; its signature or encrypted content closes the part."""
        self._core.reasoning(text, signature, encrypted)

    def tool_call(
        self,
        call_id: str,
        *,
        name: str | None = None,
        arguments: str = "",
        tool_type: ToolType = "function",
        done: bool = False,
    ) -> None:
        """Begin a tool call, or add to its arguments: after the first piece the id is enough.

        As soon as the arguments are a whole JSON object, or `done` says so, its tool may start.
        """
        self._core.tool_call(call_id, name, arguments, tool_type, done=done)

    def part(self, part: Part) -> None:
        """Add a whole part: an image, a file, or a provider's opaque data."""
        self._core.part(part)

    def extra(self, fields: Extra, *, call_id: str | None = None) -> None:
        """Keep further fields of the provider's with the open text or reasoning, or with a call.

        They stand under the shape that they came in, `{"anthropic": {"caller": …}}`, and go back
        in that shape where it takes them.
        """
        self._core.extra(fields, call_id)

    def end_part(self) -> None:
        """End the open part: text or reasoning that follows begins one of its own."""
        self._core.end_part()

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls that are whole so far, in the order in which they became it."""
        return list(self._core.tool_calls)

    def on_call(self, tell: Callable[[ToolCall], object]) -> None:
        """Have a function called with each tool call as soon as it is whole.

        It runs where the last piece is handed over, so it must not wait. Calls that are whole
        already are told at once.
        """
        self._core.on_call(tell)

    def cut_off(self, why: str) -> None:
        """Say that the answer broke off although no exception did: the message will be partial."""
        self._core.cut_off(why)

    def finish(
        self,
        *,
        finish_reason: str | None = None,
        usage: e.Usage | None = None,
        provider_ids: dict[str, str] | None = None,
    ) -> None:
        """Keep what the provider reported at the end; recorded when the block is left."""
        self._core.finish(finish_reason, usage, provider_ids)
