"""An editor and a scripted agent, with `killick acp` between them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick import Store
from killick.cli.invocation import project_of
from killick.model import entries as e
from killick.proxy.acp_relay import AcpProxy, Passed, read_lines
from killick.recall import QUOTED
from killick.stores.memory import MemoryDisk
from tests.acp.editor import (
    SECONDS,
    Script,
    editing,
    endings,
    in_a_loop,
    told,
    tools,
)
from tests.waiting import is_over

PROMPT = "Count the ducks."
ONE = {"toolCallId": "one", "title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}
TWO = {"toolCallId": "two", "title": "wc", "kind": "execute", "rawInput": {"command": "wc"}}
THREE = {"toolCallId": "three", "title": "rm", "kind": "execute", "rawInput": {"command": "rm"}}


def done(call: dict[str, Any], text: str, status: str = "completed") -> list[Any]:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    return ["more", {"toolCallId": call["toolCallId"], "status": status, "content": content}]


def begun(call: dict[str, Any]) -> list[Any]:
    return ["tool", {**call, "status": "in_progress"}]


TWO_OF_THREE = [
    ["say", "I look."], begun(ONE), begun(TWO), begun(THREE),
    done(ONE, "mallards"), done(TWO, "teals"),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


async def ask(connection: Any, session: str, text: str = PROMPT) -> str:
    answer = await connection.prompt(session_id=session, prompt=[acp.text_block(text)])
    return str(answer.stop_reason)


def script(tmp_path: Path, *turns: list[list[Any]], load: bool = True) -> Script:
    return Script(tmp_path / "script.json", list(turns), load)


@in_a_loop
async def test_a_turn_is_recorded_as_it_was_shown(tmp_path: Path, store: Path) -> None:
    plan = script(
        tmp_path,
        [["think", "Hm."], ["say", "I "], ["say", "look."], begun(ONE), done(ONE, "mallards"),
         ["say", "There are two."]],
    )  # fmt: skip
    async with editing(store, plan.command(), cwd=tmp_path) as (_, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        assert await ask(connection, new.session_id) == "end_turn"
    assert told(store) == [
        ("user", "complete", PROMPT),
        ("assistant", "complete", "I look."),
        ("tool", "complete", "mallards"),
        ("assistant", "complete", "There are two."),
    ]
    assert endings(store) == [("completed", None)]
    assert tools(store) == {"one": ("finished", "mallards")}


@in_a_loop
async def test_each_thing_is_durable_before_it_is_passed_on(
    tmp_path: Path, store: Path, gate: Path
) -> None:
    """The agent finds the prompt in the store, the editor each result and the ending."""
    plan = script(
        tmp_path, [["look", str(store)], begun(ONE), ["gate", str(gate)], done(ONE, "mallards")]
    )
    seen: list[tuple[str, str]] = []

    def watch(update: dict[str, Any]) -> None:
        seen.append(tools(store)["one"])
        if update["sessionUpdate"] == "tool_call":
            gate.write_bytes(b"go on")

    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
        editor.watch = watch
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await ask(connection, new.session_id)
        assert endings(store) == [("completed", None)]
        await editor.until(lambda updates: len(updates) == 2)
    assert plan.log("stored") == [[PROMPT]]
    assert seen == [("running", ""), ("finished", "mallards")]


@in_a_loop
async def test_lines_pass_as_they_came(tmp_path: Path, store: Path) -> None:
    """All but the answer to `initialize`, which says what the store adds to the agent."""
    plan = script(tmp_path, TWO_OF_THREE)
    command = [sys.executable, "-m", "killick.cli", "acp", "--store", str(store), "--"]
    process = await asyncio.create_subprocess_exec(
        *command, *plan.command(), stdin=-1, stdout=-1, cwd=tmp_path
    )
    assert process.stdin is not None
    assert process.stdout is not None
    prompt = f'{{"sessionId": "ID", "prompt": [{{"text":"{PROMPT} \\ud800", "type": "text"}}]}}'
    sent = [
        ' {"jsonrpc": "2.0",  "id": "ü", "method":"initialize", "params": {"protocolVersion":1}} ',
        f'{{"id":2,"jsonrpc":"2.0","method":"session/new","params":{{"cwd":"{tmp_path}"}}}}',
        f'{{"params": {prompt}, "method": "session/prompt", "x": 1e3, "id": 3.5}}',
    ]
    got: list[str] = []
    for number, each in enumerate(sent):
        if number == 2:
            sent[2] = each.replace("ID", json.loads(got[-1])["result"]["sessionId"])
        process.stdin.write(sent[number].encode() + b"\n")
        while '"result"' not in (text := (await process.stdout.readline()).decode()):
            got.append(text.rstrip("\n"))
        got.append(text.rstrip("\n"))
    process.stdin.close()
    assert await process.wait() == 0
    assert plan.log("got") == sent
    assert got[1:] == plan.log("sent")[1:]
    assert json.loads(got[0])["result"]["agentCapabilities"]["sessionCapabilities"] == {"list": {}}


@pytest.mark.crash
@pytest.mark.parametrize("what", ["agent", "proxy", "both"])
def test_killed_with_three_tools_and_two_done(
    tmp_path: Path, store: Path, gate: Path, what: str
) -> None:
    plan = script(tmp_path, [*TWO_OF_THREE, ["gate", str(gate)]])

    async def kill() -> None:
        async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, process):
            new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            asking = asyncio.create_task(ask(connection, new.session_id))
            await editor.until(lambda _: editor.finished() == 2)
            agent = int(new.session_id[1:].partition("-")[0])
            if what in ("proxy", "both"):
                os.kill(process.pid, signal.SIGKILL)
            if what in ("agent", "both"):
                os.kill(agent, signal.SIGKILL)
            with pytest.raises((acp.RequestError, ConnectionError)):
                await asyncio.wait_for(asking, SECONDS)
            if what == "proxy":
                os.kill(agent, signal.SIGKILL)
            if what == "agent":
                assert await asyncio.wait_for(process.wait(), SECONDS) == 128 + signal.SIGKILL

    asyncio.run(kill())
    assert tools(store) == {
        "one": ("finished", "mallards"),
        "two": ("finished", "teals"),
        "three": ("unknown", ""),
    }
    assert endings(store) == [("interrupted", "crashed")]
    assert told(store)[0] == ("user", "complete", PROMPT)


@in_a_loop
async def test_a_call_whose_start_was_not_told_is_unknown(tmp_path: Path, store: Path) -> None:
    """Claude Code's agent says `pending` and then `completed`: no start does not mean not run."""
    plan = script(
        tmp_path,
        [["tool", {**ONE, "status": "pending", "rawInput": {}}],
         ["tool", {**ONE, "status": "pending"}], ["tool", {**TWO, "status": "pending"}],
         done(ONE, "mallards"), ["die"]],
    )  # fmt: skip
    async with editing(store, plan.command(), cwd=tmp_path) as (_, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        with pytest.raises((acp.RequestError, ConnectionError)):
            await ask(connection, new.session_id)
    assert tools(store) == {"one": ("finished", "mallards"), "two": ("unknown", "")}


@in_a_loop
async def test_a_replay_is_not_recorded_again(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "One."]], [["say", "Two."]])
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await ask(connection, new.session_id)
        await connection.load_session(cwd=str(tmp_path), session_id=new.session_id, mcp_servers=[])
        await editor.until(lambda updates: any("Long ago." in str(u) for u in updates))
        await ask(connection, new.session_id, "And now?")
    texts = [text for _, _, text in told(store)]
    assert texts == [PROMPT, "One.", "And now?", "Two."]


@in_a_loop
async def test_an_agent_that_cannot_load_goes_on_from_the_store(
    tmp_path: Path, store: Path, gate: Path
) -> None:
    first = script(tmp_path, [*TWO_OF_THREE, ["die"]], load=False)
    async with editing(store, first.command(), cwd=tmp_path) as (_, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        with pytest.raises((acp.RequestError, ConnectionError)):
            await ask(connection, new.session_id)
    second = script(tmp_path, [["say", "I go on."]], [["say", "And on."]], load=False)
    async with editing(store, second.command(), cwd=tmp_path) as (editor, connection, _p):
        (listed,) = (await connection.list_sessions(cwd=str(tmp_path))).sessions
        assert (listed.session_id, listed.title) == (new.session_id, PROMPT)
        await connection.load_session(cwd=str(tmp_path), session_id=new.session_id, mcp_servers=[])
        await editor.until(lambda updates: len(updates) == 5)
        assert [u["sessionUpdate"] for u in editor.updates] == [
            "user_message_chunk", "agent_message_chunk", *["tool_call"] * 3
        ]  # fmt: skip
        assert [u.get("status") for u in editor.updates[2:]] == ["completed", "completed", "failed"]
        assert await ask(connection, new.session_id, "Go on.") == "end_turn"
        await editor.until(lambda updates: "I go on." in str(updates[-1]))
        assert editor.updates[-1]["sessionId"] == new.session_id
        assert await ask(connection, new.session_id, "And?") == "end_turn"
    prompts = [
        json.loads(line)["params"] for line in second.log("got") if '"session/prompt"' in line
    ]
    # The log has the lines of both agents: the first prompt is that of the first.
    handed, plain = prompts[1]["prompt"], prompts[2]["prompt"]
    assert prompts[1]["sessionId"] != new.session_id
    assert handed[0]["text"].startswith(QUOTED)
    assert "outcome unknown" in handed[0]["text"]
    assert [block["text"] for block in handed[1:]] == ["Go on."]
    assert [block["text"] for block in plain] == ["And?"]
    assert [text for role, _, text in told(store) if role == "user"] == [PROMPT, "Go on.", "And?"]


@in_a_loop
async def test_a_session_can_be_resumed_without_a_replay(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "One."]], [["say", "Two."]], load=False)
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await ask(connection, new.session_id)
        await connection.resume_session(cwd=str(tmp_path), session_id=new.session_id)
        assert await ask(connection, new.session_id, "More.") == "end_turn"
        await editor.until(lambda updates: len(updates) == 2)
        with pytest.raises(acp.RequestError):
            await connection.load_session(cwd=str(tmp_path), session_id="none", mcp_servers=[])
    assert endings(store) == [("completed", None)] * 2


@pytest.mark.parametrize("allows", [True, False])
def test_the_persons_decision_is_recorded(tmp_path: Path, store: Path, allows: bool) -> None:
    rest = [begun(ONE), done(ONE, "mallards")] if allows else [done(ONE, "refused", "failed")]
    call = {key: value for key, value in ONE.items() if key != "kind"}
    plan = script(tmp_path, [["ask", call], *rest, ["say", "So."]])

    async def decide() -> None:
        async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
            editor.allows = allows
            new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            await ask(connection, new.session_id)

    asyncio.run(decide())
    with Store(store) as opened:
        (info,) = opened.sessions()
        entries = opened.session(info.id).entries()
    bodies = [entry.body for entry in entries]
    decided = [body.approved for body in bodies if isinstance(body, e.ApprovalDecided)]
    assert decided == [allows]
    assert tools(store)["one"][0] == ("finished" if allows else "denied")
    assert told(store)[-1] == ("assistant", "complete", "So.")


@in_a_loop
async def test_a_cancelled_prompt_is_stopped(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "Half"], ["cancelled"]])
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        asking = asyncio.create_task(ask(connection, new.session_id))
        await editor.until(lambda updates: len(updates) == 1)
        await connection.cancel(session_id=new.session_id)
        assert await asking == "cancelled"
    assert endings(store) == [("interrupted", "stopped")]
    assert told(store)[-1] == ("assistant", "partial", "Half")


@in_a_loop
async def test_a_stop_from_elsewhere_cancels_the_agent(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "Half"], ["cancelled"]])
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        asking = asyncio.create_task(ask(connection, new.session_id))
        await editor.until(lambda updates: len(updates) == 1)
        with Store(store) as opened:
            opened.session(opened.sessions()[0].id).stop(reason="enough")
        assert await asyncio.wait_for(asking, SECONDS) == "cancelled"
    assert endings(store) == [("interrupted", "stopped")]


@in_a_loop
async def test_a_failed_prompt_is_a_failed_turn(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "Half"], ["fail", "out of ducks"]])
    async with editing(store, plan.command(), cwd=tmp_path) as (_, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        with pytest.raises(acp.RequestError):
            await ask(connection, new.session_id)
    assert endings(store) == [("failed", "failed")]


@in_a_loop
async def test_a_result_that_comes_in_a_later_turn_is_late(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [begun(ONE), ["say", "Later."]], [done(ONE, "mallards")])
    async with editing(store, plan.command(), cwd=tmp_path) as (_, connection, _p):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await ask(connection, new.session_id)
        assert tools(store) == {"one": ("unknown", "")}
        await ask(connection, new.session_id, "And?")
    assert tools(store) == {"one": ("finished", "mallards")}


@in_a_loop
async def test_an_editor_that_goes_is_no_stop_of_its_own(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "Half"], ["cancelled"]])
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, process):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        asking = asyncio.create_task(ask(connection, new.session_id))
        await editor.until(lambda updates: len(updates) == 1)
        asking.cancel()
    assert process.returncode == 0
    assert endings(store) == [("interrupted", "client_gone")]


@in_a_loop
async def test_a_proxy_that_is_ended_ends_its_agent(tmp_path: Path, store: Path) -> None:
    plan = script(tmp_path, [["say", "Half"], ["cancelled"]])
    async with editing(store, plan.command(), cwd=tmp_path) as (editor, connection, process):
        new = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        asking = asyncio.create_task(ask(connection, new.session_id))
        await editor.until(lambda updates: len(updates) == 1)
        process.terminate()
        with pytest.raises((acp.RequestError, ConnectionError)):
            await asyncio.wait_for(asking, SECONDS)
        assert await asyncio.wait_for(process.wait(), SECONDS) == 128 + signal.SIGTERM
    assert is_over(int(new.session_id[1:].partition("-")[0]))
    assert endings(store) == [("interrupted", "terminated")]


def test_lines_come_whole_however_they_were_cut() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:
        stream.write(b"one\n\ntw")
        stream.flush()
        lines = read_lines(reading)
        assert [next(lines), next(lines)] == [b"one\n", b"\n"]
        stream.write(b"o\nthree")
    assert list(lines) == [b"two\n", b"three"]
    os.close(reading)


def test_an_import_of_the_same_conversation_is_left(tmp_path: Path) -> None:
    """The agent's own id names the session, whichever way it comes in."""
    from killick.exchange.importer import import_paths

    native = "0b9d3c5e-7a64-4f0e-9f0c-2f1f3f3c9a11"
    record = {
        "type": "user", "uuid": "u1", "parentUuid": None, "sessionId": native, "cwd": "/p",
        "version": "2.1.197", "timestamp": "2026-11-18T09:00:00.000Z",
        "message": {"role": "user", "content": PROMPT},
    }  # fmt: skip
    file = tmp_path / "projects" / "p" / f"{native}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(record) + "\n")
    with Store(tmp_path / "s.db") as opened:
        proxy = AcpProxy(opened, ["claude-code-acp"], project_of)
        proxy.from_editor(line(id=1, method="session/new", params={"cwd": "/"}))
        proxy.from_agent(line(id=1, result={"sessionId": native}))
        (before,) = opened.sessions()
        report = import_paths(opened, [file])
        assert [each.action for each in report.sessions] == ["left"]
        assert [info.id for info in opened.sessions()] == [before.id]


# -- without processes -------------------------------------------------------------------------


def line(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


@pytest.fixture(scope="module")
def proxy() -> Iterator[AcpProxy]:
    with Store(MemoryDisk().open()) as opened:
        yield AcpProxy(opened, ["agent"], project_of)


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
names = st.sampled_from(
    ["sessionId", "update", "sessionUpdate", "toolCallId", "content", "prompt", "cwd", "rawInput",
     "type", "text", "status", "toolCall", "options", "stopReason", "agentCapabilities", "title"]
)  # fmt: skip
values = st.recursive(
    scalars | st.sampled_from(["s", "tool_call", "tool_call_update", "completed", "in_progress"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
methods = st.sampled_from(
    ["initialize", "session/new", "session/load", "session/resume", "session/list",
     "session/prompt", "session/cancel", "session/update", "session/request_permission", "other"]
)  # fmt: skip
messages = st.fixed_dictionaries(
    {}, optional={"id": scalars, "method": methods | scalars, "params": values, "result": values}
)


@given(st.lists(st.tuples(st.booleans(), messages | values), max_size=8))
def test_whatever_passes_no_exception_stops_it(
    proxy: AcpProxy, sent: list[tuple[bool, Any]]
) -> None:
    proxy.from_editor(line(id=1, method="session/new", params={"cwd": "/"}))
    proxy.from_agent(line(id=1, result={"sessionId": "s"}))
    proxy.from_editor(line(id=2, method="session/prompt", params={"sessionId": "s", "prompt": []}))
    for is_editor, message in sent:
        raw = json.dumps(message).encode() + b"\n"
        passed = proxy.from_editor(raw) if is_editor else proxy.from_agent(raw)
        assert isinstance(passed, Passed)
        assert passed.to_agent or passed.to_editor
    proxy.leave("crashed", "over")


def test_a_prompt_that_cannot_be_recorded_is_refused_or_passed(tmp_path: Path) -> None:
    for when, to_agent in (("pass", 1), ("refuse", 0)):
        with Store(tmp_path / f"{when}.db") as opened:
            proxy = AcpProxy(opened, ["agent"], project_of, when)  # type: ignore[arg-type]
            proxy.from_editor(line(id=1, method="session/new", params={"cwd": "/"}))
            proxy.from_agent(line(id=1, result={"sessionId": "s"}))
            session = opened.session(opened.sessions()[0].id)
            with session.turn("Another holds it."):
                prompt = {"sessionId": "s", "prompt": [{"type": "text", "text": "x"}]}
                passed = proxy.from_editor(line(id=2, method="session/prompt", params=prompt))
            assert len(passed.to_agent) == to_agent
            assert len(passed.to_editor) == 1 - to_agent
