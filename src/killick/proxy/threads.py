"""Stored sessions as requests are compared with them, and one request on its way into one."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from killick.errors import CallNotFound, ConflictError, InvalidEntry, KillickError, TurnNotFound
from killick.model.messages import Message, Part, Text, ToolCall, ToolResult
from killick.proxy.request import Brought, RequestUnit, unit_of, units_of
from killick.proxy.wire import AgentSource
from killick.recorders.model_call import Plan
from killick.recorders.record_pushed import PushedRecording
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTurn
from killick.session.drive.drive_async import settle
from killick.session.drive.steps import Flow, Write, together


class ThreadCall(msgspec.Struct):
    """A tool call that waits for its result."""

    turn_id: str
    name: str


class Thread:
    """One stored session as a request is compared with it."""

    def __init__(
        self, session: AsyncSession, beginning: Callable[[], Flow[Any]] | None = None
    ) -> None:
        self.session = session
        self.beginning = beginning
        """Begins the session, or marks it for imports, in the commit of the next request."""
        self.units: list[RequestUnit] = []
        self.waiting: dict[str, ThreadCall] = {}
        self.answers: tuple[str, ...] = ()
        """The newest two texts, which a summary may be made of."""
        self.turn: AsyncTurn | None = None
        self.last_turn: str | None = None
        self.open_calls = 0
        """Model calls that are being answered now."""
        self.failed: PushedRecording | None = None
        """The newest call, if no whole answer came of it."""
        self.offers_tools = False
        self.touched = time.monotonic()

    @property
    def delivered(self) -> bool:
        """Tell whether the newest prompt has a whole answer."""
        return bool(self.units) and self.units[-1].role == "assistant" and self.failed is None

    async def load(self) -> None:
        """Read what the store has of it."""
        messages = await self.session.messages()
        self.units = [unit for _, unit in units_of(messages)]
        self.waiting = {}
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall) and message.turn_id is not None:
                    self.waiting[part.id] = ThreadCall(message.turn_id, part.name)
                elif isinstance(part, ToolResult):
                    self.waiting.pop(part.call_id, None)
        self.answers = tuple(m.text for m in messages[-4:] if m.role == "assistant")[-2:]
        turns = await self.session.turns()
        self.last_turn = turns[-1].id if turns else None

    def ending(
        self, error: BaseException | None = None, *, abandoned: bool = False
    ) -> list[Flow[None]]:
        """Let go of the running turn; return what ends it: completed, failed, or as abandoned."""
        turn, self.turn = self.turn, None
        if turn is None:
            return []
        # Another process may have ended it.
        return [unless(turn._core.leave(error, "abandoned" if abandoned else None), ConflictError)]

    def leaving(self) -> list[Flow[None]]:
        """Let go of a turn that a new prompt leaves behind, or none comes for; return its end."""
        if self.failed is not None and self.failed.error is not None:
            return self.ending(AnswerBroken(self.failed.error))
        return self.ending(abandoned=True)

    async def write(self, flows: Iterable[Flow[Any] | Write[Any]]) -> None:
        """Write all of it in one commit. If interrupted: written or not, and known to the turns."""
        core = self.session._core
        keys = [core.key] if core.key else []
        if flows := list(flows):
            await settle(core.runtime(), together(flows, keys))


class Family:
    """The sessions that one key leads to: a conversation, its forks, its subagents."""

    def __init__(self, source: AgentSource | None, name: str | None) -> None:
        self.source = source
        self.name = name
        self.lock = asyncio.Lock()
        self.threads: list[Thread] = []
        self.beside: Thread | None = None
        self.loaded = False

    @property
    def main(self) -> Thread | None:
        return self.threads[0] if self.threads else None

    @property
    def busy(self) -> bool:
        return self.lock.locked() or any(
            thread.turn is not None or thread.open_calls for thread in self._all()
        )

    def _all(self) -> Iterable[Thread]:
        return [*self.threads, *([self.beside] if self.beside else [])]


class Exchange:
    """One request that is recorded, from its prompt to the end of its answer."""

    def __init__(self, family: Family, thread: Thread, turn: AsyncTurn, plan: Plan) -> None:
        self.family = family
        self.thread = thread
        self.turn = turn
        self.recording = PushedRecording(turn, plan)
        self.beside = thread is family.beside
        self._begun: asyncio.Task[None] | None = None
        self._ready = self._over = False

    def begin(self) -> None:
        """Begin the model call beside the request, which does not wait for it."""
        self._begun = asyncio.ensure_future(self.recording.begin())

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def has_begun(self) -> bool:
        """Return True once the model call is recorded, or could not be."""
        return self._begun is not None and self._begun.done()

    async def until_ready(self) -> None:
        """Wait until the model call has begun. Raises KillickError."""
        if not self._ready:
            assert self._begun is not None
            await asyncio.shield(self._begun)
            self._ready = True

    @property
    def ended(self) -> bool:
        return self.recording.ended

    async def finish(self, error: BaseException | None = None, why: str | None = None) -> None:
        """Make the message durable, and the turn's ending if the answer calls no tool.

        If interrupted: what came is written all the same.
        """
        if self._over:
            return
        self._over = True
        thread, recording = self.thread, self.recording
        try:
            await self.until_ready()
            await recording.end(error, why)
            await self._finished()
        finally:
            thread.open_calls -= 1
            thread.touched = time.monotonic()

    async def _finished(self) -> None:
        thread, recording = self.thread, self.recording
        answer = recording.answer
        if recording.complete:
            thread.failed = None
            unit = unit_of("assistant", answer.parts)
            thread.units.append(unit)
            thread.answers = (*thread.answers, answer.text)[-2:]
            for call in answer.tool_calls:
                if call.tool_type in ("function", "custom"):
                    thread.waiting[call.id] = ThreadCall(self.turn.id, call.name)
            calls = [c for c in answer.tool_calls if c.tool_type in ("function", "custom")]
            goes_on = bool(calls) or recording.finish_reason == "pause_turn"
            if not goes_on and thread.turn is self.turn and thread.open_calls <= 1:
                await thread.write(thread.ending())
        else:
            thread.failed = recording
            if any(isinstance(part, Text | ToolCall) for part in answer.parts):
                thread.units.append(unit_of("assistant", answer.parts))
        if self.beside and thread.turn is self.turn:
            failed = None if recording.complete else AnswerBroken(recording.error or "no answer")
            await thread.write(thread.ending(failed))


class AnswerBroken(KillickError):
    """The model gave no whole answer."""


# -- what is written of a request ------------------------------------------------------------------


def unless(flow: Flow[Any], *refusals: type[KillickError]) -> Flow[None]:
    """Carry a flow out; nothing is wrong where one of these refuses it."""
    with contextlib.suppress(*refusals):
        yield from flow


def parts_of(pieces: Iterable[Brought]) -> tuple[Part, ...]:
    return tuple(part for piece in pieces for part in piece.parts)


def messages_of(pieces: Iterable[Brought]) -> list[Message]:
    return [
        Message("system" if piece.unit.role == "system" else "user", piece.parts)
        for piece in pieces
    ]


def said(turn: AsyncTurn, pieces: Iterable[Brought]) -> list[Write[Any]]:
    messages = messages_of(pieces)
    return [turn._core.record_all(messages)] if messages else []


def result_of(thread: Thread, call_id: str, call: ThreadCall, piece: Brought) -> Flow[None]:
    (result,) = piece.parts
    assert isinstance(result, ToolResult)
    flow = thread.session._core.finish_tool(
        call.turn_id,
        call_id,
        result.content,
        is_error=result.is_error,
        structured=result.structured,
    )
    # It has a result, or was cut off in its arguments: the first is the result.
    return unless(flow, CallNotFound, TurnNotFound, ConflictError, InvalidEntry)
