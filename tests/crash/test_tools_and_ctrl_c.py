"""Ctrl+C while a plain function runs as a tool: the process ends, and the outcome is unknown."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import trio

from killick import AsyncStore, Store
from tests.crash.processes import Channel, Nursery

pytestmark = pytest.mark.crash

BLOCKS_SECONDS = 120.0
BOUNDED = 20.0
"""Leaving takes part of a second; a process that waits for the function takes far longer."""


def _tools(parent: Channel) -> dict[str, Callable[[], object]]:
    def blocks() -> str:
        parent.send("running")
        threading.Event().wait(BLOCKS_SECONDS)
        return "never"

    def prints() -> Iterator[str]:
        yield "so far"
        blocks()

    return {"blocks": blocks, "prints": prints}


async def _run_awaiting(parent: Channel, path: str, name: str) -> None:
    async with AsyncStore(path) as store:
        session = await store.create_session(id="s")
        async with session.turn("go") as turn:
            async with turn.stream() as reply:
                reply.tool_call("a", name=name, arguments="{}")
            async with turn.run_tools(reply, _tools(parent)):
                pass


def run_in_asyncio(parent: Channel, path: str, name: str) -> None:
    try:
        asyncio.run(_run_awaiting(parent, path, name))
    except KeyboardInterrupt:
        parent.send("left")


def run_in_trio(parent: Channel, path: str, name: str) -> None:
    try:
        trio.run(_run_awaiting, parent, path, name)
    except KeyboardInterrupt:
        parent.send("left")


def run_synchronously(parent: Channel, path: str, name: str) -> None:
    try:
        with Store(path) as store, store.create_session(id="s").turn("go") as turn:
            with turn.stream() as reply:
                reply.tool_call("a", name=name, arguments="{}")
            with turn.run_tools(reply, _tools(parent)):
                pass
    except KeyboardInterrupt:
        parent.send("left")


@pytest.mark.parametrize("name", ["blocks", "prints"])
@pytest.mark.parametrize("run", [run_in_asyncio, run_in_trio, run_synchronously])
def test_ctrl_c_does_not_wait_for_a_function_that_blocks(
    nursery: Nursery, path: str, run: Callable[..., None], name: str
) -> None:
    child = nursery.start(run, path, name)
    child.expect("running")
    child.signal(signal.SIGINT)
    child.expect("left", BOUNDED)
    assert child.wait(BOUNDED) == 0
    with Store(path) as store:
        session = store.session("s")
        [turn] = session.turns()
        assert (turn.status, turn.cause) == ("interrupted", "cancelled")
        assert [message.role for message in session.messages()] == ["user", "assistant"]
        [repair] = session.context("anthropic").repairs
        assert "unknown" in str(repair)
        told = str(session.context("anthropic").messages[-1])
        assert ("so far" in told) == (name == "prints")
