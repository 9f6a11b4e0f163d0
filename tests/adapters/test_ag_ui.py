"""A turn as AG-UI events: the same live, resumed and after the end; for the real client too."""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from killick import AsyncSession, AsyncStore, Entry
from killick.adapters.ag_ui import RunEvent, run_events, snapshot
from killick.errors import TurnNotFound
from killick.model import entries as e

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / ".adaptersvenv" / "ag_ui"


async def play(session: AsyncSession, *, how: str = "complete", key: str | None = None) -> str:
    """Record a turn with all kinds of parts; returns its id."""
    turn = session.turn("Why does the build fail?", key=key)
    with contextlib.suppress(ValueError, asyncio.CancelledError):
        async with turn:
            async with turn.stream() as reply:
                for piece in ("The log", " says…"):
                    reply.reasoning(piece)
                    await asyncio.sleep(0)
                reply.text("Let me ")
                reply.text("look.")
                reply.tool_call("call_0", name="shell", arguments='{"command": ')
                reply.tool_call("call_0", arguments='"make"}')
            async with turn.tool("call_0") as call:
                call.output("compiling…\n")
                await call.finish("make: *** [all] Error 2", is_error=True)
            async with turn.stream() as reply:
                reply.tool_call("call_0", name="shell", arguments="{}")
                reply.text("And again.")
                if how == "cancelled":
                    raise asyncio.CancelledError
            if how == "failed":
                raise ValueError("no disk")
            if how == "waiting":
                await turn.ask_approval("call_0", "{}")
                await turn.end(cause="terminated")
            else:
                async with turn.tool("call_0") as call:
                    await call.finish("done")
    return turn.id


def kinds(events: list[RunEvent]) -> list[str]:
    return [one.event["type"] for one in events]


def joined(events: list[RunEvent]) -> list[Any]:
    """Events with their texts put together: how a text is cut is nobody's promise."""
    made: list[Any] = []
    for one in events:
        event = dict(one.event)
        if "delta" in event and made and made[-1]["type"] == event["type"]:
            made[-1]["delta"] += event["delta"]
        else:
            made.append(event)
    return made


async def all_of(session: AsyncSession, turn_id: str, after: str | None = None) -> list[RunEvent]:
    return [event async for event in run_events(session, turn_id, after=after)]


def test_a_turn_is_a_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            events = await all_of(session, await play(session))
            assert [event["type"] for event in joined(events)] == [
                *("RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START"),
                *("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END"),
                *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
                *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
                *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
                *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
                *("TOOL_CALL_RESULT", "RUN_FINISHED"),
            ]
            ids = [one.event["toolCallId"] for one in events if "toolCallName" in one.event]
            assert len(set(ids)) == 2, "a provider used one id twice"
            results = [one.event for one in events if one.event["type"] == "TOOL_CALL_RESULT"]
            assert [result["toolCallId"] for result in results] == ids
            assert events[-1].event["outcome"] == {"type": "success"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("how", "last"),
    [
        ("cancelled", ("RUN_FINISHED", "cancelled")),
        ("failed", ("RUN_ERROR", None)),
        ("waiting", ("RUN_FINISHED", "interrupt")),
    ],
)
def test_endings_are_told_as_what_they_are(
    tmp_path: Path, how: str, last: tuple[str, str | None]
) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            turn_id = await play(session, how=how)
            event = (await all_of(session, turn_id))[-1].event
            assert (event["type"], event.get("outcome", {}).get("type")) == last
            for asked in await session.approvals():
                await session.decide_approval(asked, approved=False)
            assert (await all_of(session, turn_id))[-1].event == event, "a decision came later"

    asyncio.run(main())


def test_it_is_the_same_live_and_resumed_behind_every_event(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            live = asyncio.create_task(_live(session))
            turn_id = await play(session)
            followed = await live
            whole = await all_of(session, turn_id)
            assert joined(followed) == joined(whole)
            for events in (whole, followed):
                for number, event in enumerate(events):
                    rest = await all_of(session, turn_id, event.id)
                    assert joined([*events[: number + 1], *rest]) == joined(whole), event

    asyncio.run(main())


async def _live(session: AsyncSession) -> list[RunEvent]:
    async with asyncio.timeout(30):
        async for one in session.follow():
            if isinstance(one, Entry) and isinstance(one.body, e.TurnStarted):
                return await all_of(session, one.body.turn_id)
    raise AssertionError("no turn began")


def test_a_turn_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            with pytest.raises(TurnNotFound):
                await all_of(session, "turn_x")

    asyncio.run(main())


# -- the real client -----------------------------------------------------------------------------

PROGRAM = """
import { HttpAgent } from "@ag-ui/client";
const agent = new HttpAgent({ url: process.argv[2], threadId: "s" });
agent.addMessage({ id: "u1", role: "user", content: "Why does the build fail?" });
const seen = [];
await agent.runAgent({ runId: "run-1" }, { onEvent: ({ event }) => { seen.push(event.type); } });
console.log(JSON.stringify({ messages: agent.messages, seen }));
"""


def by_id(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Messages by their ids, without the names that the client adds."""
    names = ("role", "content", "toolCalls", "toolCallId")
    return {one["id"]: {name: one.get(name) for name in names} for one in messages}


async def route(request: Request) -> StreamingResponse:
    """A route of one's own: the run's id is the turn's key, so that a repeated run is one turn."""
    given = await request.json()
    session = await request.app.state.store.open_session(given["threadId"])
    turn_id = await play(session, key=given["runId"])

    async def body() -> AsyncIterator[bytes]:
        async for event in run_events(session, turn_id, run_id=given["runId"]):
            yield event.encode()

    return StreamingResponse(body(), media_type="text/event-stream")


def test_the_real_client_takes_it(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENT / "node_modules" / "@ag-ui" / "client").is_dir():
        pytest.skip("node with @ag-ui/client is not here: make adapters")
    program = CLIENT / "run.mjs"
    program.write_text(PROGRAM, encoding="utf-8")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            app = Starlette(routes=[Route("/run", route, methods=["POST"])])
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
            async with AsyncStore(tmp_path / "w.db") as store:
                app.state.store = store
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                url = f"http://127.0.0.1:{listening.getsockname()[1]}/run"
                done = await asyncio.to_thread(
                    subprocess.run,
                    [node, str(program), url],
                    capture_output=True,
                    text=True,
                    timeout=40,
                )
                server.should_exit = True
                await serving
                assert done.returncode == 0, done.stderr[-3000:]
                told = json.loads(done.stdout)
                assert told["seen"][-1] == "RUN_FINISHED"
                said = [message.get("content") for message in told["messages"]]
                assert "Let me look." in said
                assert "make: *** [all] Error 2" in said
                session = await store.session("s")
                shown = snapshot(await session.messages())["messages"]
                assert by_id(told["messages"][1:]) == by_id(shown[1:]), "as if it had been there"

    asyncio.run(main())
