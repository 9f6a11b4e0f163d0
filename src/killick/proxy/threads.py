"""Stored sessions as requests are compared with them, and one request on its way into one."""

import asyncio
import time
from collections.abc import Iterable

import msgspec

from killick.errors import CallNotFound, ConflictError, InvalidEntry, KillickError, TurnNotFound
from killick.model.messages import Message, Part, Text, ToolCall, ToolResult
from killick.proxy.request import Brought, RequestUnit, unit_of, units_of
from killick.proxy.wire import AgentSource
from killick.recorders.model_call import Plan
from killick.recorders.record_pushed import PushedRecording
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncTurn, AsyncWriteBatch

Batch = AsyncWriteBatch[AsyncSession]


class ThreadCall(msgspec.Struct):
    """A tool call that waits for its result."""

    turn_id: str
    name: str


class Thread:
    """One stored session as a request is compared with it."""

    def __init__(self, session: AsyncSession, *, is_marked: bool = True) -> None:
        self.session = session
        self.is_marked = is_marked
        """Whether an import knows that it was recorded; else the next request's commit says so."""
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

    def let_go(
        self,
        batch: Batch,
        error: BaseException | None = None,
        *,
        abandoned: bool = False,
    ) -> None:
        """Let go of the running turn; the batch ends it: completed, failed, or as abandoned."""
        turn, self.turn = self.turn, None
        if turn is not None:
            ended = batch.end(turn, error, "abandoned" if abandoned else None)
            ended.unless(ConflictError)  # another process may have ended it

    def leave(self, batch: Batch) -> None:
        """Let go of a turn that a new prompt leaves behind, or none comes for."""
        if self.failed is not None and self.failed.error is not None:
            self.let_go(batch, AnswerBroken(self.failed.error))
        else:
            self.let_go(batch, abandoned=True)


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

    def __init__(
        self, store: AsyncStore, family: Family, thread: Thread, turn: AsyncTurn, plan: Plan
    ) -> None:
        self._store = store
        self.family = family
        self.thread = thread
        self.turn = turn
        self.recording = PushedRecording(turn, plan)
        self.beside = thread is family.beside
        self._begun: asyncio.Task[None] | None = None
        self._over = False
        self.ready = False
        """Whether the model call has begun."""

    def begin(self) -> None:
        """Begin the model call beside the request, which does not wait for it."""
        self._begun = asyncio.ensure_future(self.recording.begin())

    @property
    def has_begun(self) -> bool:
        """Return True once the model call is recorded, or could not be."""
        return self._begun is not None and self._begun.done()

    async def until_ready(self) -> None:
        """Wait until the model call has begun. Raises KillickError."""
        if not self.ready:
            assert self._begun is not None
            await asyncio.shield(self._begun)
            self.ready = True

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
        thread, recording, batch = self.thread, self.recording, self._store.batch()
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
                thread.let_go(batch)
        else:
            thread.failed = recording
            if any(isinstance(part, Text | ToolCall) for part in answer.parts):
                thread.units.append(unit_of("assistant", answer.parts))
        if self.beside and thread.turn is self.turn:
            failed = None if recording.complete else AnswerBroken(recording.error or "no answer")
            thread.let_go(batch, failed)
        await batch.write()


class AnswerBroken(KillickError):
    """The model gave no whole answer."""


# -- what is written of a request ------------------------------------------------------------------


def parts_of(pieces: Iterable[Brought]) -> tuple[Part, ...]:
    return tuple(part for piece in pieces for part in piece.parts)


def messages_of(pieces: Iterable[Brought]) -> list[Message]:
    return [
        Message("system" if piece.unit.role == "system" else "user", piece.parts)
        for piece in pieces
    ]


def add_said(batch: Batch, turn: AsyncTurn, pieces: Iterable[Brought]) -> None:
    """Record what was said beside the prompt of a turn."""
    if messages := messages_of(pieces):
        batch.record_all(turn, messages)


def add_result(
    batch: Batch, thread: Thread, call_id: str, call: ThreadCall, piece: Brought
) -> None:
    (result,) = piece.parts
    assert isinstance(result, ToolResult)
    finished = batch.finish_tool(
        thread.session,
        call.turn_id,
        call_id,
        result.content,
        is_error=result.is_error,
        structured=result.structured,
    )
    # It has a result, or was cut off in its arguments: the first is the result.
    finished.unless(CallNotFound, TurnNotFound, ConflictError, InvalidEntry)
