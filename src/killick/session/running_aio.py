"""Running the tools that a model calls, for the asynchronous face."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from killick.errors import TurnEnded, TurnStopped
from killick.model.parts import ToolCall, ToolResult
from killick.session.running import (
    Calling,
    Outcome,
    Tools,
    bind,
    failure,
    outcome,
    raise_failures,
    too_late,
)

if TYPE_CHECKING:
    from killick.session.blocks_aio import AsyncTool, AsyncTurn


class AsyncToolRun:
    """Tools that run beside a reply. Use it as a block; leaving it waits for all of them.

    Each runs in a task of its own, a plain function on a thread. When an exception leaves the
    block, the tasks are cancelled, and their outcome is unknown; threads cannot be, and what they
    return then is not kept.
    """

    def __init__(self, turn: "AsyncTurn", reply: Calling, tools: Tools, *, in_order: bool) -> None:
        self._turn = turn
        self._reply = reply
        self._tools = tools
        self._in_order = in_order
        self._manager: AbstractAsyncContextManager[TaskGroup] | None = None
        self._group: TaskGroup | None = None
        self._waited = False
        self._last: anyio.Event | None = None
        self._failures: list[Exception] = []
        self.results: dict[str, ToolResult] = {}
        """The results so far, by the ids of their calls."""

    async def __aenter__(self) -> Self:
        self._manager = anyio.create_task_group()
        self._group = await self._manager.__aenter__()
        self._reply.on_call(self._start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._manager is not None
        try:
            await self._manager.__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            # No task raises: it is the exception that leaves the block, in a wrapping of its own.
            if error is None:
                raise
        finally:
            self._group = None
        self._waited = error is None
        if error is None:
            raise_failures(self._failures)

    def _start(self, call: ToolCall) -> None:
        if self._waited:
            raise too_late(call)
        if self._group is None:
            return
        before, done = self._last, anyio.Event()
        self._last = done
        self._group.start_soon(self._run, call, before if self._in_order else None, done)

    async def _run(self, call: ToolCall, before: anyio.Event | None, done: anyio.Event) -> None:
        try:
            if before is not None:
                await before.wait()
            async with self._turn.tool(call.id) as tool:
                await self._perform(call, tool)
        except (TurnStopped, TurnEnded):
            pass  # the turn's own block says so
        except Exception as error:  # noqa: BLE001  (raised where the block is left)
            self._failures.append(error)
        finally:
            done.set()

    async def _perform(self, call: ToolCall, tool: "AsyncTool") -> None:
        printed: list[str] = []
        try:
            found = await self._call(call, tool, printed)
        except (TurnStopped, TurnEnded):
            raise
        except Exception as error:  # noqa: BLE001  (the model is told, and can do better)
            found = failure(error)
        await tool.finish(found.content, is_error=found.is_error, structured=found.structured)
        self.results[call.id] = found.result(call.id, printed)

    async def _call(self, call: ToolCall, tool: "AsyncTool", printed: list[str]) -> Outcome:
        function = self._tools.get(call.name)
        bound = bind(call, self._tools)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            value: Any = bound()
        else:
            value = await anyio.to_thread.run_sync(bound, abandon_on_cancel=True)
        if inspect.isasyncgen(value):
            async for piece in value:
                tool.output(str(piece))
                printed.append(str(piece))
            return Outcome(None)
        if inspect.isgenerator(value):
            return outcome(await _print_all(value, tool, printed))
        return outcome(await value if inspect.isawaitable(value) else value)


async def _print_all(pieces: Iterator[Any], tool: "AsyncTool", printed: list[str]) -> Any:
    """What a plain generator yields, step by step on a thread; what it returns is the result."""

    def step() -> tuple[bool, Any]:
        try:
            return False, next(pieces)
        except StopIteration as done:
            return True, done.value

    while True:
        over, value = await anyio.to_thread.run_sync(step, abandon_on_cancel=True)
        if over:
            return value
        tool.output(str(value))
        printed.append(str(value))
