"""What an agent does, in every way that can be cut off. Each is one coroutine, for both loops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import trio

from killick import (
    AsyncSession,
    AsyncStore,
    Message,
    PromptQueued,
    Text,
    ToolCall,
    TurnEnded,
    TurnStopped,
)
from killick.recorders import record
from tests.interrupt.ledger import Ledger
from tests.interrupt.points import Points

LARGE = "x" * 1_100_000
"""Over the limit above which a body gets a transaction of its own."""


class Run:
    """One run of one scenario: where it works, what it was told, and who else is there."""

    def __init__(
        self, make: Callable[[], AsyncStore], store: AsyncStore, other: AsyncStore, points: Points
    ) -> None:
        self.make = make
        self.store = store
        self.other = other
        self.points = points
        self.ledger = Ledger()
        self.opened: list[AsyncStore] = []
        self.session: AsyncSession
        self.second: AsyncSession
        self.held = anyio.Event()
        self.waiting = anyio.Event()
        self.release = anyio.Event()

    async def prepare(self) -> None:
        self.session = await self.store.create_session()
        self.second = await self.store.create_session()

    async def hold(self, key: str | None = None) -> None:
        """Another opening of the store runs a turn of the session, until it is released."""
        session = await self.other.session(self.session.id)
        try:
            async with session.turn("held", key=key) as turn:
                self.ledger.theirs.add(turn.id)
                self.held.set()
                await self.release.wait()
        except (TurnStopped, TurnEnded):
            return


Scenario = Callable[[Run], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, tuple[Scenario, int, str | None]] = {}
"""The scenario, how many points it has at least, and whether another holds the session."""


def scenario(points: int, held: str | None = None) -> Callable[[Scenario], Scenario]:
    def add(function: Scenario) -> Scenario:
        SCENARIOS[function.__name__] = (function, points, held)
        return function

    return add


async def _short_turn(run: Run, session: AsyncSession, **settings: Any) -> None:
    async with session.turn("prompt", **settings) as turn:
        run.ledger.begin(session, turn)
        await turn.record(Message("assistant", [Text("short")], id=f"m-{turn.id}"))
        run.ledger.record(session, f"m-{turn.id}")
        run.ledger.leave(turn)


@scenario(points=12)
async def whole_turn(run: Run) -> None:
    ledger, session = run.ledger, run.session
    async with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        async with turn.stream(model="m", system="be brief", tools=[{"name": "shell"}]) as reply:
            reply.reasoning("what to do?", signature="signed")
            ledger.say(reply, "Let me ")
            await anyio.lowlevel.checkpoint()
            ledger.say(reply, "look.")
            reply.tool_call("call_1", name="shell", arguments='{"command"')
            await anyio.lowlevel.checkpoint()
            reply.tool_call("call_1", arguments=': "make"}')
            ledger.end(reply)
        ledger.left(reply)
        async with turn.tool("call_1") as call:
            ledger.output(turn, call, "call_1", "compiling…")
            await anyio.lowlevel.checkpoint()
            ledger.output(turn, call, "call_1", " done")
            await call.finish("built")
            ledger.answer(turn, "call_1", "built")
        await turn.record(Message("assistant", [Text("It builds.")], id="last"))
        ledger.record(session, "last")
        ledger.leave(turn)


@scenario(points=11)
async def tools_inside_a_stream(run: Run) -> None:
    ledger, session = run.ledger, run.session
    async with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        async with turn.stream() as reply:
            for name in ("a", "b"):
                ledger.say(reply, f"calling {name} ")
                reply.tool_call(name, name="shell", arguments="{}")
                async with turn.tool(name) as call:
                    ledger.output(turn, call, name, "out")
                    await anyio.lowlevel.checkpoint()
                    await call.finish(f"result of {name}")
                    ledger.answer(turn, name, f"result of {name}")
            ledger.say(reply, "both ran")
            await anyio.lowlevel.checkpoint()
            ledger.end(reply)
        ledger.left(reply)
        ledger.leave(turn)


async def _one_tool(run: Run, turn: Any, name: str) -> None:
    async with turn.tool(name) as call:
        run.ledger.output(turn, call, name, f"{name} runs")
        await anyio.lowlevel.checkpoint()
        await call.finish(f"{name} ran")
        run.ledger.answer(turn, name, f"{name} ran")


async def _three_calls(run: Run, turn: Any) -> None:
    calls = [ToolCall(name, "shell", "{}") for name in ("a", "b", "c")]
    await turn.record(Message("assistant", calls, id="calls"))
    run.ledger.record(run.session, "calls")


@scenario(points=13)
async def parallel_tools(run: Run) -> None:
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        await _three_calls(run, turn)
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(_started, run, _one_tool(run, turn, name))
        run.ledger.leave(turn)


@scenario(points=13)
async def parallel_tools_in_the_loops_own_group(run: Run) -> None:
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        await _three_calls(run, turn)
        jobs = [_one_tool(run, turn, name) for name in ("a", "b", "c")]
        if trio.lowlevel.in_trio_run():
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(_started, run, job)
        else:
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(_started(run, job))
        run.ledger.leave(turn)


async def _started(run: Run, job: Coroutine[Any, Any, None]) -> None:
    await run.points.watch(job)


@scenario(points=8)
async def nested_turns(run: Run) -> None:
    async with run.session.turn("outer") as turn:
        run.ledger.begin(run.session, turn)
        async with turn.stream() as reply:
            run.ledger.say(reply, "asking another")
            await _short_turn(run, run.second)
            run.ledger.say(reply, ", who answered")
            await anyio.lowlevel.checkpoint()
            run.ledger.end(reply)
        run.ledger.left(reply)
        run.ledger.leave(turn)


@scenario(points=5, held="")
async def wait_for_the_holder(run: Run) -> None:
    run.waiting.set()
    await _short_turn(run, run.session, if_busy="wait")


@scenario(points=5, held="")
async def interrupt_the_holder(run: Run) -> None:
    run.ledger.may_stop_theirs = True
    run.waiting.set()
    await _short_turn(run, run.session, if_busy="interrupt")


@scenario(points=3, held="")
async def take_over(run: Run) -> None:
    run.ledger.may_stop_theirs = True
    await _short_turn(run, run.session, if_busy="take_over")


@scenario(points=4)
async def keyed_turn(run: Run) -> None:
    await _short_turn(run, run.session, key="job")
    async with run.session.turn("prompt", key="job") as turn:
        assert turn.repeated


@scenario(points=1, held="job")
async def keyed_turn_that_another_runs(run: Run) -> None:
    async with run.session.turn("held", key="job") as turn:
        assert turn.repeated
        await anyio.lowlevel.checkpoint()


@scenario(points=2, held="")
async def queue(run: Run) -> None:
    await run.session.queue("first")
    run.ledger.keep(run.session, "prompt_queued")
    try:
        async with run.session.turn("second", if_busy="queue"):
            raise AssertionError("the session was free")
    except PromptQueued:
        run.ledger.keep(run.session, "prompt_queued")


@scenario(points=4)
async def take_what_was_queued(run: Run) -> None:
    await run.session.queue("first", key="q")
    run.ledger.keep(run.session, "prompt_queued")
    await _short_turn(run, run.session)


@scenario(points=5)  # one more, if the follower is asked again before 2 ms are over
async def follow(run: Run) -> None:
    await _short_turn(run, run.session)
    seen = 0
    following = run.session.follow()
    async for _ in following:
        seen += 1
        if seen == run.session.head:
            break
    with anyio.move_on_after(0.002):
        await anext(following)
    await following.aclose()


@scenario(points=10)
async def about_a_session(run: Run) -> None:
    session = await run.store.create_session(title="one")
    run.ledger.keep(session, "session_created")
    steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("renamed", lambda: session.rename("two")),
        ("note", lambda: session.note("n", {"a": 1})),
        ("archived", lambda: session.archive()),
        ("archived", lambda: session.archive(archived=False)),
    ]
    for kind, step in steps:
        await step()
        run.ledger.keep(session, kind)
    run.ledger.deleting.add(session.id)
    await run.store.delete_session(session.id)
    await run.store.restore_session(session.id)
    await run.store.blob(await run.store.put_blob(b"bytes"))
    await run.store.collect_blobs()


@scenario(points=6)
async def reading(run: Run) -> None:
    session = await run.store.session(run.session.id)
    await session.messages()
    await session.messages(last=1)
    await session.entries()
    await session.turns()
    await run.store.sessions()
    await run.store.counts()


class Boom(Exception):
    """A failure of the agent's own."""


@scenario(points=10)
async def entering_and_leaving(run: Run) -> None:
    async with run.session.turn() as turn:
        run.ledger.begin(run.session, turn)
        async with turn.stream() as reply:
            run.ledger.end(reply)
        run.ledger.left(reply)
        run.ledger.leave(turn)
    try:
        async with run.session.turn("to fail") as turn:
            run.ledger.begin(run.session, turn)
            run.ledger.failing.add(turn.id)
            async with turn.stream() as reply:
                run.ledger.say(reply, "half")
                reply.tool_call("a", name="shell", arguments="{}")
                async with turn.tool("a"):
                    raise Boom
    except Boom:
        pass


@scenario(points=6)
async def go_on_after_a_cancelled_stream(run: Run) -> None:
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        with anyio.CancelScope() as scope:
            async with turn.stream() as reply:
                run.ledger.say(reply, "half an answer")
                scope.cancel()
                await anyio.sleep_forever()
        await turn.record(Message("assistant", [Text("again")], id="again"))
        run.ledger.record(run.session, "again")
        run.ledger.leave(turn)


@scenario(points=6)  # one more where the stop is noticed a moment later
async def stop_oneself(run: Run) -> None:
    try:
        async with run.session.turn("prompt") as turn:
            run.ledger.begin(run.session, turn)
            async with turn.stream() as reply:
                run.ledger.say(reply, "half an answer")
                await run.session.stop(turn.id, "enough")
                run.ledger.keep(run.session, "stop_asked")
                await anyio.sleep_forever()
                raise AssertionError("it was not stopped")
    except TurnStopped:
        await anyio.lowlevel.checkpoint()


@scenario(points=7)
async def large_bodies(run: Run) -> None:
    async with run.session.turn(LARGE) as turn:
        run.ledger.begin(run.session, turn)
        async with turn.stream() as reply:
            run.ledger.say(reply, "big")
            reply.tool_call("a", name="shell", arguments="{}")
            run.ledger.end(reply)
        run.ledger.left(reply)
        async with turn.tool("a") as call:
            await call.finish(LARGE)
            run.ledger.answer(turn, "a", LARGE)
        await turn.record(Message("assistant", [Text(LARGE)], id="large"))
        run.ledger.record(run.session, "large")
        run.ledger.leave(turn)


@scenario(points=7)
async def approval_and_late(run: Run) -> None:
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        await _three_calls(run, turn)
        asked = await turn.ask_approval("a", "{}")
        run.ledger.keep(run.session, "approval_asked")
        await run.session.decide_approval(asked, approved=True)
        run.ledger.keep(run.session, "approval_decided")
        await run.session.finish_tool(turn.id, "a", "from elsewhere")
        run.ledger.answer(turn, "a", "from elsewhere")
        run.ledger.leave(turn)
    await run.session.finish_tool(turn.id, "b", "late")
    run.ledger.answer(turn, "b", "late")


@scenario(points=5)
async def open_and_close(run: Run) -> None:
    store = run.make()
    async with store:
        session = await store.create_session()
        run.ledger.keep(session, "session_created")
        await _short_turn(run, session)


@scenario(points=3)
async def open_by_the_first_call(run: Run) -> None:
    store = run.make()
    run.opened.append(store)  # it has no block, so whoever holds it closes it
    session = await store.create_session()
    run.ledger.keep(session, "session_created")
    await store.close()


async def _chunks() -> AsyncIterator[dict[str, Any]]:
    """What a provider's stream gives, with a wait before each."""
    arguments = {"name": "shell", "arguments": "{}"}
    call = {"index": 0, "id": "call_1", "function": arguments}
    for delta in ({"content": "Let me "}, {"content": "look."}, {"tool_calls": [call]}, {}):
        await anyio.lowlevel.checkpoint()
        finish = None if delta else "tool_calls"
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


async def _read(run: Run, reply: Any) -> None:
    while True:
        chunk = await anext(reply, None)
        if chunk is None:
            return
        choice = chunk["choices"][0]
        text = choice["delta"].get("content", "")
        run.ledger.said[reply.id] = run.ledger.said.get(reply.id, "") + text
        if choice["finish_reason"]:
            run.ledger.end(reply)


@scenario(points=8)
async def recorded_stream(run: Run) -> None:
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        async with record(turn, "openai-chat", _chunks(), request={"model": "m"}) as reply:
            await _read(run, reply)
        run.ledger.left(reply)
        run.ledger.leave(turn)


@scenario(points=9)
async def tools_beside_a_recorded_stream(run: Run) -> None:
    async def shell() -> str:
        await anyio.lowlevel.checkpoint()
        return "ran"

    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        async with (
            record(turn, "openai-chat", _chunks()) as reply,
            turn.run_tools(reply, {"shell": shell}) as running,
        ):
            await _read(run, reply)
            run.ledger.left(reply)
        run.ledger.answer(turn, "call_1", str(running.results["call_1"].content))
        run.ledger.leave(turn)


@scenario(points=5)
async def tools_of_every_kind_side_by_side(run: Run) -> None:
    """A result is acknowledged when it is in `results`, also if the block is then interrupted."""

    async def waits() -> str:
        await anyio.lowlevel.checkpoint()
        return "waited"

    async def prints() -> AsyncIterator[str]:
        yield "printed"
        await anyio.lowlevel.checkpoint()
        yield " more"

    def blocks() -> str:
        return "blocked"

    tools = {"waits": waits, "prints": prints, "blocks": blocks}
    async with run.session.turn("prompt") as turn:
        run.ledger.begin(run.session, turn)
        async with turn.stream() as reply:
            for name in tools:
                reply.tool_call(name, name=name, arguments="{}")
            run.ledger.end(reply)
        run.ledger.left(reply)
        running = turn.run_tools(reply, tools)
        try:
            async with running:
                await anyio.lowlevel.checkpoint()
        finally:
            for call_id, result in running.results.items():
                run.ledger.answer(turn, call_id, str(result.content))
        run.ledger.leave(turn)
