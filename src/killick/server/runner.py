"""The turns that run in this server, each in a task of its own: no request can end or slow one."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from killick.agent.approvals import decide_allowed
from killick.errors import (
    ExtraMissing,
    KillickError,
    TurnStopped,
    UsageError,
    needs_extra,
)
from killick.model.messages import Prompt
from killick.server.log import Log, cause
from killick.server.responses import Refused, sentence
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncTurn

RunTurn = Callable[[AsyncSession, AsyncTurn], Awaitable[None]]
"""Answers the prompt of a turn that has begun, inside of it."""

After = Callable[[AsyncSession], Awaitable[object]]
"""What is done beside a session once a turn of it was completed."""

SHUTDOWN: Final = "the server was shut down"

T = TypeVar("T")


class Runner(NamedTuple):
    """Answers prompts with a model of this name; where there is none, `lacks` says what to set.

    `after` is called with a session when a turn of it was completed; `compact` puts a summary in
    place of what was said, and tells whether there was anything.
    """

    run: RunTurn | None
    model: str | None
    after: After | None = None
    compact: Callable[[AsyncSession], Awaitable[bool]] | None = None
    lacks: str | None = None


class StartedTurn(NamedTuple):
    """A turn that is there, begun here now or before under the same key."""

    turn_id: str
    repeated: bool
    status: str
    reason: str | None
    cause: str | None


class Turns:
    """Begins turns, runs them, and goes on with what was queued meanwhile."""

    def __init__(self, store: AsyncStore, runner: Runner, log: Log) -> None:
        self._store = store
        self._runner = runner
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._running: dict[str, AsyncSession] = {}
        self._draining = False
        self.outcomes: dict[str, int] = {"completed": 0, "failed": 0, "interrupted": 0}

    @property
    def is_idle(self) -> bool:
        """Return whether no turn runs here, or is about to."""
        return not self._tasks

    @property
    def sessions(self) -> Collection[str]:
        """The sessions of which a turn runs here."""
        return {session.id for session in self._running.values()}

    async def begin(self, session_id: str, prompt: Prompt, settings: dict[str, Any]) -> StartedTurn:
        """Return when the prompt is durable; the turn then runs whether or not the caller waits.

        Raises what entering a turn raises. If interrupted: it is begun, or it will be; the same
        key tells.
        """
        if self._draining:
            raise _shutting_down()
        run = self._runner.run
        if run is None:
            raise Refused(503, "no_model", self._runner.lacks or "No model answers here.")
        entered: asyncio.Future[StartedTurn] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._run(run, session_id, prompt, settings, entered))
        if settings.get("if_busy") in ("wait", "interrupt"):
            self._waiting.add(task)
            entered.add_done_callback(lambda _: self._waiting.discard(task))
        return await asyncio.shield(entered)

    async def _run(
        self,
        run: RunTurn,
        session_id: str,
        prompt: Prompt,
        settings: dict[str, Any],
        entered: "asyncio.Future[StartedTurn]",
    ) -> None:
        status: str = "refused"
        try:
            session = await self._store.session(session_id)
            turn = session.turn(prompt, **settings)
            async with turn:
                begun = StartedTurn(turn.id, turn.repeated, turn.status, turn.reason, turn.cause)
                _tell(entered, begun)
                if turn.repeated:
                    return
                self._running[turn.id] = session
                self._log.info("turn_began", session=session_id, turn=turn.id)
                try:
                    await run(session, turn)
                finally:
                    self._running.pop(turn.id, None)
            status = turn.status
        except BaseException as error:
            if not entered.done():
                # Cancelled while it waited for a busy session: the request was not, and is told.
                entered.set_exception(error if isinstance(error, Exception) else _shutting_down())
                entered.exception()  # retrieved here: the request may be gone
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
            if self._runner.after is not None:
                await self._do_after(session, self._runner.after)

    async def _go_on(self, session: AsyncSession) -> None:
        """Take up what was queued while the turn ran. A turn that was stopped holds the queue."""
        try:
            if await session.queued():
                await self.begin(session.id, None, {})
        except (KillickError, Refused):
            return  # another process has begun a turn, and that one takes the prompts

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
                await session.stop(turn_id, SHUTDOWN, "shut_down")
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


@asynccontextmanager
async def agent_runner(
    *, model: str | None, root: Path, allowed: tuple[str, ...] = ()
) -> AsyncIterator[Runner]:
    """The chat agent. Raises UsageError, in one line, if the model that is named is none.

    Where none is named and none is found, sessions can still be read; a prompt is refused with
    what to set.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            # Takes a while, and brings pydantic-ai along.
            with needs_extra("chat", "an agent"):
                from killick.agent import agent_for

            agent = await stack.enter_async_context(agent_for(model, root=root, allowed=allowed))
            runner = Runner(agent.answer, agent.name, after=agent.title, compact=agent.compact)
        except (ExtraMissing, UsageError) as unavailable:
            runner = _no_runner(unavailable, model)
        yield runner


def _no_runner(why: KillickError, named: str | None) -> Runner:
    if named or os.environ.get("KILLICK_MODEL"):
        raise why
    return Runner(None, None, lacks=sentence(str(why)))


class Recovery:
    """Closes turns whose processes died, so that the feed tells of them though none opens them."""

    def __init__(self, store: AsyncStore, log: Log) -> None:
        self._store = store
        self._log = log

    async def run(self, seconds: float) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  (logged, and tried again)
                self._log.warning("look_failed", **cause(error))
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Close the turns whose holders are dead. If interrupted: each is closed or it is not."""
        for closed in await self._store.close_dead_turns():
            self._log.info("turn_recovered", session=closed.session_id, turn=closed.turn_id)


class StandingAllowances:
    """Answers questions, of any process, to which a person has said "always" in that session."""

    def __init__(self, store: AsyncStore, log: Log) -> None:
        self._store = store
        self._log = log

    async def run(self, seconds: float) -> None:
        """Follow what waits, until it is cancelled. If interrupted: a question waits on."""
        while True:
            try:
                async for line in self._store.follow(waiting=True):
                    if line.kind == "approval_asked":
                        await self._decide(line.session_id)
            except Exception as error:  # noqa: BLE001  (logged, and tried again)
                self._log.warning("allowances_failed", **cause(error))
            await asyncio.sleep(seconds)

    async def _decide(self, session_id: str) -> None:
        try:
            await decide_allowed(await self._store.session(session_id))
        except KillickError as error:  # deleted or decided meanwhile, or damaged: no other waits
            self._log.warning("allowance_failed", session=session_id, **cause(error))
