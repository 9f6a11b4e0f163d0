"""`turn.run_tools`: calls are started as they become whole, recorded apart, and stop cleanly."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from killick import (
    AsyncStore,
    HandleClosed,
    Session,
    Store,
    Text,
    ToolNotApproved,
    ToolResult,
    TurnStopped,
)
from killick.model import entries as e
from killick.recorders import record
from tests.recorders.saying import plain_events

CALLS = [("call_1", "one"), ("call_2", "two")]


def kinds(session: Session) -> list[str]:
    return [entry.kind for entry in session.entries()]


def test_a_tool_starts_while_the_reply_still_streams(store: Store) -> None:
    """The reply's end waits for the tool: it can only come if the tool was started before."""
    session = store.create_session()
    ran = threading.Event()

    def one(place: str) -> str:
        ran.set()
        return f"one at {place}"

    def events() -> Iterator[Any]:
        *most, last = plain_events("openai-chat", ["Look."], CALLS[:1])
        yield from most
        assert ran.wait(10)
        yield last

    with session.turn("Hi.") as turn:
        reply = record(turn, "openai-chat", events())
        with turn.run_tools(reply, {"one": one}) as running:
            for _ in reply:
                pass
    assert running.results["call_1"].content == "one at here"
    found = kinds(session)
    assert found.index("tool_started") < found.index("message_ended")
    assert session.messages()[-1].role == "tool"


def test_all_at_once_or_one_after_another(store: Store) -> None:
    together = threading.Barrier(2)
    trace: list[str] = []

    def meet(place: str) -> str:
        together.wait(10)
        return place

    def traced(name: str) -> Any:
        def tool(place: str) -> str:
            trace.append(f"{name} begins")
            trace.append(f"{name} ends")
            return place

        return tool

    for in_order, tools in (
        (False, {"one": meet, "two": meet}),
        (True, {"one": traced("one"), "two": traced("two")}),
    ):
        session = store.create_session()
        with session.turn("Hi.") as turn:
            reply = record(turn, "anthropic", iter(plain_events("anthropic", ["x"], CALLS)))
            with turn.run_tools(reply, tools, in_order=in_order) as running:
                list(reply)
        assert len(running.results) == 2
    assert trace == ["one begins", "one ends", "two begins", "two ends"]


def test_what_a_generator_yields_is_output_and_what_it_returns_the_result(store: Store) -> None:
    def talks(place: str) -> Iterator[str]:
        yield "compiling\n"
        yield "linking\n"

    def returns(place: str) -> Any:
        yield "working\n"
        return {"built": place}

    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, "openai-chat", iter(plain_events("openai-chat", ["x"], CALLS)))
        with turn.run_tools(reply, {"one": talks, "two": returns}, in_order=True) as running:
            list(reply)
    assert running.results["call_1"].content == "compiling\nlinking\n"
    assert running.results["call_2"].structured == {"built": "here"}
    finished = [entry.body for entry in session.entries() if isinstance(entry.body, e.ToolFinished)]
    assert [body.output for body in finished] == [None, "working\n"]
    assert finished[0].result.content == "compiling\nlinking\n"


def test_errors_are_told_to_the_model(store: Store) -> None:
    """A tool that raises, one that nobody has, and arguments that are no JSON."""

    def breaks(place: str) -> str:
        raise ZeroDivisionError("no")

    session = store.create_session()
    with session.turn("Hi.") as turn:
        with turn.stream() as reply:
            reply.tool_call("a", name="breaks", arguments='{"place": "x"}')
            reply.tool_call("b", name="missing", arguments="{}")
            reply.tool_call("c", name="breaks", arguments="{place: x}")
            reply.tool_call("d", name="breaks", arguments='{"where": "x"}')
        with turn.run_tools(reply, {"breaks": breaks}, in_order=True) as running:
            pass
    told = {name: (one.is_error, one.content) for name, one in running.results.items()}
    assert told["a"] == (True, "ZeroDivisionError: no")
    assert told["b"][0]
    assert "missing" in str(told["b"][1])
    assert "JSON" in str(told["c"][1])
    assert "where" in str(told["d"][1])


def test_an_exception_in_the_block_starts_no_more_tools_and_waits_for_none(store: Store) -> None:
    session = store.create_session()
    release, started = threading.Event(), threading.Event()

    def hangs(place: str) -> str:
        started.set()
        assert release.wait(10)
        return "late"

    with pytest.raises(ZeroDivisionError), session.turn("Hi.") as turn:  # noqa: PT012
        with turn.stream() as reply:
            reply.tool_call("a", name="hangs", arguments='{"place": "x"}')
            reply.tool_call("b", name="hangs", arguments='{"place": "x"}')
        with turn.run_tools(reply, {"hangs": hangs}, in_order=True):
            assert started.wait(10)
            raise ZeroDivisionError
    assert kinds(session).count("tool_started") == 1
    release.set()
    for followed in session.follow():
        if followed.kind == "late_result":
            break
    assert kinds(session).count("tool_started") == 1


def test_a_stop_ends_the_wait_for_tools(store: Store) -> None:
    session = store.create_session()
    release = threading.Event()

    def hangs(place: str) -> str:
        session.stop(reason="enough")
        assert release.wait(10)
        return "late"

    with pytest.raises(TurnStopped), session.turn("Hi.") as turn:  # noqa: PT012
        with turn.stream() as reply:
            reply.tool_call("a", name="hangs", arguments='{"place": "x"}')
        with turn.run_tools(reply, {"hangs": hangs}):
            pass
    assert session.turns()[0].reason == "enough"
    release.set()
    for followed in session.follow():
        if followed.kind == "late_result":
            break


def test_the_asynchronous_face(tmp_path: Path) -> None:
    async def both() -> None:
        met = asyncio.Barrier(2)

        async def one(place: str) -> str:
            await met.wait()
            return place

        async def two(place: str) -> AsyncIterator[str]:
            yield "a"
            await met.wait()
            yield "b"

        def plain(place: str) -> str:
            return f"plain {threading.current_thread() is threading.main_thread()}"

        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            async with session.turn("Hi.") as turn:
                async with turn.stream() as reply:
                    for name in ("one", "two", "plain"):
                        reply.tool_call(name, name=name, arguments='{"place": "x"}')
                tools = {"one": one, "two": two, "plain": plain}
                async with turn.run_tools(reply, tools) as running:
                    pass
            found = {name: result.content for name, result in running.results.items()}
            assert found == {"one": "x", "two": "ab", "plain": "plain False"}
            assert [message.role for message in await session.messages()].count("tool") == 3

    asyncio.run(both())


def test_an_exception_in_an_asynchronous_block_comes_out_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async def hangs(place: str) -> str:
            await asyncio.Event().wait()
            return place

        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with session.turn("Hi.") as turn:
                    async with turn.stream() as reply:
                        reply.tool_call("a", name="hangs", arguments='{"place": "x"}')
                    async with turn.run_tools(reply, {"hangs": hangs}):
                        while "tool_started" not in [one.kind for one in await session.entries()]:
                            pass
                        raise ZeroDivisionError
            assert (await session.turns())[0].status == "failed"
            assert "tool_result" not in [one.kind for one in await session.entries()]

    asyncio.run(main())


def test_a_block_that_was_left_starts_nothing_more_in_a_turn_that_goes_on(store: Store) -> None:
    """Neither a call that waited for its turn, nor one that is made afterwards."""
    session = store.create_session()
    release, started, ran = threading.Event(), threading.Event(), threading.Event()

    def hangs(place: str) -> str:
        started.set()
        assert release.wait(10)
        ran.set()
        return "done"

    with session.turn("Hi.") as turn, turn.stream() as reply:
        try:
            with turn.run_tools(reply, {"hangs": hangs}, in_order=True) as running:
                reply.tool_call("a", name="hangs", arguments='{"place": "x"}')
                reply.tool_call("b", name="hangs", arguments='{"place": "x"}')
                assert started.wait(10)
                raise ZeroDivisionError
        except ZeroDivisionError:
            reply.tool_call("c", name="hangs", arguments='{"place": "x"}')
        release.set()
        for thread in threading.enumerate():
            if thread.name.startswith("killick-tool"):
                thread.join()
    assert ran.is_set()
    assert running.results.keys() == {"a"}
    assert kinds(session).count("tool_started") == 1


def test_an_asynchronous_tool_does_not_run_and_the_model_is_told_so(store: Store) -> None:
    async def waits() -> str:
        return "never"

    async def prints() -> AsyncIterator[str]:
        yield "never"

    session = store.create_session()
    with session.turn("Hi.") as turn:
        with turn.stream() as reply:
            for name in ("waits", "prints"):
                reply.tool_call(name, name=name, arguments="{}")
        with turn.run_tools(reply, {"waits": waits, "prints": prints}) as running:
            pass
    assert len(running.results) == 2
    for name, result in running.results.items():
        assert result.is_error
        assert f"the tool '{name}' is asynchronous, and did not run" in str(result.content)


def test_a_call_that_becomes_whole_after_the_block_is_not_passed_over(store: Store) -> None:
    """One without arguments is whole when its message is; nobody would ever run it."""
    session = store.create_session()
    with (
        pytest.raises(HandleClosed, match="was not run; leave the reply's block first"),
        session.turn("Hi.") as turn,
        turn.stream() as reply,
        turn.run_tools(reply, {"date": lambda: "today"}),
    ):
        reply.tool_call("a", name="date")
    assert session.turns()[-1].status == "failed"
    assert session.messages()[-1].state == "complete"


@pytest.mark.parametrize("face", ["synchronous", "asynchronous"])
def test_a_plain_generator_prints_and_a_single_part_is_a_result(tmp_path: Path, face: str) -> None:
    def prints() -> Iterator[str]:
        yield "a"
        yield "b"

    def shows() -> Text:
        return Text("seen")

    tools = {"prints": prints, "shows": shows}

    def ask(reply: Any) -> None:
        for name in tools:
            reply.tool_call(name, name=name, arguments="{}")

    async def asynchronous() -> dict[str, Any]:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            async with session.turn("Hi.") as turn:
                async with turn.stream() as reply:
                    ask(reply)
                async with turn.run_tools(reply, tools) as running:
                    pass
        return dict(running.results)

    def synchronous() -> dict[str, Any]:
        with Store(tmp_path / "work.db") as store, store.create_session().turn("Hi.") as turn:
            with turn.stream() as reply:
                ask(reply)
            with turn.run_tools(reply, tools) as running:
                pass
        return dict(running.results)

    results = synchronous() if face == "synchronous" else asyncio.run(asynchronous())
    assert {name: result.content for name, result in results.items()} == {
        "prints": "ab",
        "shows": (Text("seen"),),
    }


def _two_that_wait(turn: Any) -> Any:
    with turn.stream() as reply:
        for name in ("a", "b"):
            reply.tool_call(name, name="rm", arguments="{}")
    for name in ("a", "b"):
        turn.ask_approval(name, "{}")
    return reply


def test_all_that_could_not_be_recorded_is_raised(store: Store) -> None:
    """Two calls wait for a person, and neither may be started: both are said."""
    session = store.create_session()
    with session.turn("go") as turn:
        reply = _two_that_wait(turn)
        with pytest.raises(ExceptionGroup) as raised, turn.run_tools(reply, {"rm": str}):
            pass
    assert [type(one) for one in raised.value.exceptions] == [ToolNotApproved] * 2
    assert "tool_started" not in kinds(session)


def test_all_that_could_not_be_recorded_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            async with session.turn("go") as turn:
                async with turn.stream() as reply:
                    for name in ("a", "b"):
                        reply.tool_call(name, name="rm", arguments="{}")
                for name in ("a", "b"):
                    await turn.ask_approval(name, "{}")
                with pytest.raises(ExceptionGroup) as raised:
                    async with turn.run_tools(reply, {"rm": str}):
                        pass
            assert [type(one) for one in raised.value.exceptions] == [ToolNotApproved] * 2

    asyncio.run(main())


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_tool_that_ends_with_a_cancellation_of_its_own_has_failed(
    tmp_path: Path, library: str
) -> None:
    """What it waited for was cancelled, and not the tool: its siblings go on."""

    async def a_cancellation() -> BaseException:
        if library == "asyncio":
            return asyncio.CancelledError("the client is gone")
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                elsewhere = cancelled
                raise
        return elsewhere

    async def main() -> None:
        failed = anyio.Event()

        async def waits() -> None:
            cancelled = await a_cancellation()
            failed.set()
            raise cancelled

        async def waits_in_a_group() -> None:
            raise BaseExceptionGroup("of tasks", [await a_cancellation()])

        async def sibling() -> str:
            await failed.wait()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            return "done"

        tools = {"waits": waits, "waits_in_a_group": waits_in_a_group, "sibling": sibling}
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            async with session.turn("go") as turn:
                async with turn.stream() as reply:
                    for name in tools:
                        reply.tool_call(name, name=name, arguments="{}")
                async with turn.run_tools(reply, tools) as running:
                    pass
            [info] = await session.turns()
            kept = [m.parts[0] for m in await session.messages() if m.role == "tool"]
        assert info.status == "completed"
        assert {one.call_id: one.is_error for one in kept if isinstance(one, ToolResult)} == {
            "waits": True,
            "waits_in_a_group": True,
            "sibling": False,
        }
        assert "ancelled" in str(running.results["waits"].content)

    if library == "asyncio":
        asyncio.run(main())
    else:
        trio.run(main)


def test_a_future_that_two_tools_share_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        shared: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def waits() -> str:
            return await shared

        async def cancels() -> str:
            shared.cancel()
            return "cancelled it"

        tools = {"waits": waits, "cancels": cancels}
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            async with session.turn("go") as turn:
                async with turn.stream() as reply:
                    for name in tools:
                        reply.tool_call(name, name=name, arguments="{}")
                async with turn.run_tools(reply, tools) as running:
                    pass
            assert [turn.status for turn in await session.turns()] == ["completed"]
        told = {name: one.is_error for name, one in running.results.items()}
        assert told == {"waits": True, "cancels": False}

    asyncio.run(main())


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_what_interrupts_a_tool_comes_out_of_the_block(tmp_path: Path, library: str) -> None:
    """A tool that ends the process does so where the block is left, not in a task of its own."""

    async def main() -> None:
        async def leaves() -> None:
            raise SystemExit(3)

        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            with pytest.raises(SystemExit):  # noqa: PT012
                async with session.turn("go") as turn:
                    async with turn.stream() as reply:
                        reply.tool_call("a", name="leaves", arguments="{}")
                    async with turn.run_tools(reply, {"leaves": leaves}):
                        pass
            [info] = await session.turns()
            assert (info.status, info.cause) == ("interrupted", "terminated")
            assert "tool_result" not in [entry.kind for entry in await session.entries()]

    if library == "asyncio":
        asyncio.run(main())
    else:
        trio.run(main)


def test_a_stop_ends_the_wait_in_a_turn_that_was_begun_by_a_call(tmp_path: Path) -> None:
    """No block of the turn's is there to be cancelled."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()

            async def hangs() -> None:
                await session.stop(reason="enough")
                await asyncio.Event().wait()

            turn = await session.turn("go").begin()
            async with turn.stream() as reply:
                reply.tool_call("a", name="hangs", arguments="{}")
            with pytest.raises(TurnStopped) as stopped:
                async with turn.run_tools(reply, {"hangs": hangs}):
                    pass
            await turn.end(stopped.value)
            assert [turn.reason for turn in await session.turns()] == ["enough"]

    asyncio.run(asyncio.wait_for(main(), 20))
