"""The turns that run in this server, each in a task of its own: no request can end or slow one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from killick.errors import KillickError, TurnStopped
from killick.model.messages import Prompt
from killick.server.failing import Refused
from killick.server.logs import Log, cause
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.blocks_aio import AsyncTurn
from killick.session.options import TurnSettings

Runner = Callable[[AsyncSession, AsyncTurn], Awaitable[None]]
"""Answers the prompt of a turn that has begun, inside of it."""

After = Callable[[AsyncSession], Awaitable[object]]
"""What is done beside a session once a turn of it was completed."""

SHUTDOWN: Final = "the server was shut down"

T = TypeVar("T")


class Answering(NamedTuple):
    """Who answers prompts here, and what it is called; where nobody does, `lacks` says what to set.

    `after` is called with a session when a turn of it was completed; `compact` puts a summary in
    place of what was said, and tells whether there was anything.
    """

    runner: Runner | None
    model: str | None
    after: After | None = None
    compact: Callable[[AsyncSession], Awaitable[bool]] | None = None
    lacks: str | None = None


class Begun(NamedTuple):
    """A turn that is there, begun here now or before under the same key."""

    turn_id: str
    repeated: bool
    status: str
    reason: str | None


class Turns:
    """Begins turns, runs them, and goes on with what was queued meanwhile."""

    def __init__(self, store: AsyncStore, answering: Answering, log: Log) -> None:
        self._store = store
        self._answering = answering
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._running: dict[str, AsyncSession] = {}
        self._draining = False
        self.outcomes: dict[str, int] = {"completed": 0, "failed": 0, "interrupted": 0}

    @property
    def sessions(self) -> Collection[str]:
        """The sessions of which a turn runs here."""
        return {session.id for session in self._running.values()}

    async def begin(self, session_id: str, prompt: Prompt, settings: TurnSettings) -> Begun:
        """Return when the prompt is durable; the turn then runs whether or not anybody waits.

        Raises what entering a turn raises. If interrupted: it is begun, or it will be; the same
        key tells.
        """
        if self._draining:
            raise _shutting_down()
        runner = self._answering.runner
        if runner is None:
            raise Refused(503, "no_model", self._answering.lacks or "No model answers here.")
        entered: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._run(runner, session_id, prompt, settings, entered))
        if settings.get("if_busy") in ("wait", "interrupt"):
            self._waiting.add(task)
            entered.add_done_callback(lambda _: self._waiting.discard(task))
        return await asyncio.shield(entered)

    async def _run(
        self,
        runner: Runner,
        session_id: str,
        prompt: Prompt,
        settings: TurnSettings,
        entered: "asyncio.Future[Begun]",
    ) -> None:
        status: str = "refused"
        try:
            session = await self._store.session(session_id)
            turn = session.turn(prompt, **settings)
            async with turn:
                begun = Begun(turn.id, turn.repeated, turn.status, turn.reason)
                _tell(entered, begun)
                if turn.repeated:
                    return
                self._running[turn.id] = session
                self._log.info("turn_began", session=session_id, turn=turn.id)
                try:
                    await runner(session, turn)
                finally:
                    self._running.pop(turn.id, None)
            status = turn.status
        except BaseException as error:
            if not entered.done():
                # Cancelled while it waited for a busy session: the request was not, and is told.
                entered.set_exception(error if isinstance(error, Exception) else _shutting_down())
                entered.exception()  # whoever asked may be gone: then nobody need hear of it
                if isinstance(error, Exception):
                    return
                raise
            status = turn.status
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, TurnStopped):
                self._log.warning(
                    "turn_broke", session=session_id, turn=turn.id, **cause(error)
                )  # fmt: skip
        finally:
            if status in self.outcomes:
                self.outcomes[status] += 1
                self._log.info("turn_ended", session=session_id, turn=turn.id, status=status)
        if status == "completed" and not self._draining:
            await self._go_on(session)
            if self._answering.after is not None:
                await self._do_after(session, self._answering.after)

    async def _go_on(self, session: AsyncSession) -> None:
        """Take up what was queued while the turn ran. A turn that was stopped holds the queue."""
        try:
            if await session.queued():
                await self.begin(session.id, None, {})
        except (KillickError, Refused):
            return  # somebody else has begun a turn, and that one takes the prompts

    async def _do_after(self, session: AsyncSession, after: After) -> None:
        try:
            await after(session)
        except Exception as error:  # noqa: BLE001  (beside the conversation; it is not lost)
            self._log.warning("after_failed", session=session.id, **cause(error))

    def _spawn(self, coroutine: "Coroutine[Any, Any, None]") -> "asyncio.Task[None]":
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, seconds: float) -> None:
        """Begin nothing more; let what runs finish in this time, then stop it.

        If interrupted: what still runs is ended when the store is closed.
        """
        self._draining = True
        for task in self._waiting:
            task.cancel()  # nothing was recorded, and nothing is to begin any more
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for turn_id, session in list(self._running.items()):
            try:
                await session.stop(turn_id, SHUTDOWN)
            except KillickError as error:
                self._log.warning("stop_failed", session=session.id, turn=turn_id, **cause(error))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=1.5)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)


def _shutting_down() -> Refused:
    return Refused(
        503, "shutting_down", "This server is shutting down; ask again.",
        headers={"Retry-After": "1"},
    )  # fmt: skip


def _tell(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)
