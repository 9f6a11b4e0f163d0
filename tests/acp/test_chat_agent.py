"""The chat agent for editors: `killick acp` alone, with the protocol's own client before it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest

from killick import Store
from killick.agent.choice import VARIABLE
from tests.acp.editor import Editor, editing, endings, in_a_loop, told, tools
from tests.agent.scripting import begun, calling, refused, said
from tests.recorders.server import Scripted, serving
from tests.waiting import until

PROMPT = "What is kelp?"


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@asynccontextmanager
async def talking(
    store: Path, server: Scripted, *options: str
) -> AsyncIterator[tuple[Editor, Any, Any]]:
    folder = store.parent / "project"
    folder.mkdir(exist_ok=True)
    env = {**os.environ, VARIABLE: f"{server.url}/v1#m"}
    async with editing(store, [], *options, cwd=folder, env=env) as running:
        yield running


async def begin(connection: Any, store: Path) -> str:
    made = await connection.new_session(cwd=str(store.parent / "project"), mcp_servers=[])
    return str(made.session_id)


async def ask(connection: Any, session: str, text: str = PROMPT) -> str:
    answer = await connection.prompt(session_id=session, prompt=[acp.text_block(text)])
    return str(answer.stop_reason)


def words(editor: Editor, kind: str = "agent_message_chunk") -> str:
    chunks = [update for update in editor.updates if update["sessionUpdate"] == kind]
    return "".join(chunk["content"]["text"] for chunk in chunks)


def results(editor: Editor) -> list[tuple[str, str]]:
    return [
        (update["status"], update["content"][0]["content"]["text"])
        for update in editor.updates
        if update["sessionUpdate"] == "tool_call_update" and "content" in update
    ]


@in_a_loop
async def test_a_session_is_listed_loaded_and_gone_on_with(store: Path, server: Scripted) -> None:
    server.scripts += [said("Large ", "brown algae."), said("Urchins.")]
    folder = str(store.parent / "project")
    async with talking(store, server) as (editor, connection, _):
        session = await begin(connection, store)
        assert await ask(connection, session) == "end_turn"
        assert words(editor) == "Large brown algae."
        listed = (await connection.list_sessions(cwd=folder)).sessions
        assert [(one.session_id, one.title) for one in listed] == [(session, PROMPT)]
        assert (await connection.list_sessions(cwd="/elsewhere")).sessions == []
    async with talking(store, server) as (editor, connection, _):
        await connection.load_session(cwd=folder, session_id=session, mcp_servers=[])
        assert words(editor, "user_message_chunk") == PROMPT
        assert words(editor) == "Large brown algae."
        assert await ask(connection, session, "Who eats it?") == "end_turn"
        assert words(editor).endswith("Urchins.")
    texts = [message["content"] for message in server.requests[-1]["messages"]]
    assert texts[-3:] == [PROMPT, "Large brown algae.", "Who eats it?"]
    async with talking(store, server) as (editor, connection, _):
        server.scripts.append(said("Otters."))
        await connection.resume_session(cwd=folder, session_id=session)
        assert editor.updates == []
        assert await ask(connection, session, "And these?") == "end_turn"
        with pytest.raises(acp.RequestError):
            await connection.load_session(cwd=folder, session_id="nope", mcp_servers=[])
    assert endings(store) == [("completed", None)] * 3


@in_a_loop
async def test_what_needs_a_person_is_asked_at_the_editor(store: Path, server: Scripted) -> None:
    one = ("write_file", {"path": "kelp.txt", "content": "brown"})
    server.scripts += [calling(one), said("Written."), calling(one), said("Then not.")]
    async with talking(store, server) as (editor, connection, _):
        session = await begin(connection, store)
        assert await ask(connection, session) == "end_turn"
        assert (editor.asked[0]["kind"], editor.asked[0]["title"]) == (
            "edit",
            "write_file: kelp.txt",
        )
        assert (store.parent / "project" / "kelp.txt").read_text() == "brown"
        states = [u.get("status") for u in editor.updates if "toolCallId" in u]
        assert states == ["pending", "in_progress", "completed"]
        assert {u["toolCallId"] for u in editor.updates if "toolCallId" in u} == {
            editor.asked[0]["toolCallId"]
        }
        editor.allows = False
        assert await ask(connection, session, "Again.") == "end_turn"
        calls = [u for u in editor.updates if u["sessionUpdate"].startswith("tool_call")]
        refused = [u["status"] for u in calls if u["toolCallId"] == editor.asked[1]["toolCallId"]]
        assert refused == ["pending", "failed"]
    with Store(store) as opened:
        kinds = [entry.kind for entry in opened.session(session).entries()]
    assert kinds.count("approval_decided") == 2
    assert kinds.count("tool_started") == 1
    assert "user refused" in str(server.requests[-1]["messages"][-1])


@in_a_loop
async def test_a_call_that_is_always_allowed_is_asked_about_once(
    store: Path, server: Scripted
) -> None:
    one = ("write_file", {"path": "kelp.txt", "content": "brown"})
    other = ("write_file", {"path": "kelp.txt", "content": "green"})
    for call in (one, one, other):
        server.scripts += [calling(call), said("Written.")]
    async with talking(store, server) as (editor, connection, _):
        session = await begin(connection, store)
        editor.chooses = "allow_always"
        assert await ask(connection, session) == "end_turn"
        assert await ask(connection, session, "Again.") == "end_turn"
        assert len(editor.asked) == 1
        assert await ask(connection, session, "Green.") == "end_turn"
        assert len(editor.asked) == 2


@in_a_loop
async def test_a_cancelled_answer_is_kept_as_far_as_it_came(store: Path, server: Scripted) -> None:
    server.scripts += [begun("Large ", "brown")]
    async with talking(store, server) as (editor, connection, _):
        session = await begin(connection, store)
        asking = asyncio.create_task(ask(connection, session))
        await editor.until(lambda _: "brown" in words(editor))
        await connection.cancel(session_id=session)
        assert await asking == "cancelled"
    assert endings(store) == [("interrupted", "stopped")]
    assert told(store)[-1] == ("assistant", "partial", "Large brown")


@in_a_loop
async def test_a_stop_and_words_from_elsewhere_reach_it(store: Path, server: Scripted) -> None:
    look = ("run_command", {"command": "echo kelp"})
    server.scripts += [calling(look), begun("So it ")]
    async with talking(store, server) as (editor, connection, _):
        session = await begin(connection, store)
        editor.answers.clear()
        asking = asyncio.create_task(ask(connection, session))
        await asyncio.to_thread(until, lambda: bool(editor.asked))
        steering = asyncio.create_task(ask(connection, session, "In a word."))
        with Store(store) as opened:
            shared = opened.session(session)
            await asyncio.to_thread(until, lambda: shared.queued() != [])
            editor.answers.set()
            await editor.until(lambda _: "So it " in words(editor))
            assert "In a word." in str(server.requests[-1]["messages"][-1])
            shared.stop(reason="enough")
        assert [await asking, await steering] == ["cancelled", "cancelled"]
    assert endings(store) == [("interrupted", "stopped")]


@in_a_loop
async def test_kill_9_with_two_of_three_tools_done_loses_nothing(
    store: Path, server: Scripted
) -> None:
    three = [("run_command", {"command": c}) for c in ("echo one", "echo two", "sleep 600")]
    server.scripts += [calling(*three), said("I check the third.")]
    folder = str(store.parent / "project")
    async with talking(store, server, "--allow", "run_command") as (editor, connection, process):
        session = await begin(connection, store)
        asking = asyncio.create_task(ask(connection, session))
        await editor.until(lambda _: editor.finished() == 2)
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)
    async with talking(store, server) as (editor, connection, _):
        await connection.load_session(cwd=folder, session_id=session, mcp_servers=[])
        replayed = [u["status"] for u in editor.updates if u["sessionUpdate"] == "tool_call"]
        assert replayed == ["completed", "completed", "failed"]
        assert await ask(connection, session, "Go on.") == "end_turn"
    states = {call: state for call, (state, _) in tools(store).items()}
    assert states == {"call_0": "finished", "call_1": "finished", "call_2": "unknown"}
    assert endings(store) == [("interrupted", "crashed"), ("completed", None)]
    assert "not known" in str(server.requests[-1]["messages"])


@in_a_loop
async def test_an_editor_that_goes_ends_the_turn(store: Path, server: Scripted) -> None:
    server.scripts += [begun("Large ", "brown")]
    async with talking(store, server) as (editor, connection, process):
        session = await begin(connection, store)
        asking = asyncio.create_task(ask(connection, session))
        await editor.until(lambda _: "brown" in words(editor))
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert endings(store) == [("interrupted", "client_gone")]
    assert told(store)[-1] == ("assistant", "partial", "Large brown")


@in_a_loop
async def test_a_model_that_fails_is_told_and_recorded(store: Path, server: Scripted) -> None:
    server.scripts += [refused(400, "no such model")]
    async with talking(store, server) as (_, connection, _):
        session = await begin(connection, store)
        with pytest.raises(acp.RequestError):
            await ask(connection, session)
        server.scripts.append(said("Algae."))
        assert await ask(connection, session) == "end_turn"
    assert [status for status, _ in endings(store)] == ["failed", "completed"]
