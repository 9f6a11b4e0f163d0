"""Real ACP agents behind `killick acp`, with the protocol's own client in front.

They are found by `KILLICK_LAB`, a folder with an agent in each (see tests/lab/agents.py).
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import acp
import pytest

from tests.acp.editor import editing, endings, in_a_loop, told, tools
from tests.lab.agents import CLAUDE_CODE, GEMINI, OPENCODE, QWEN, Agent, Home
from tests.lab.cells import ENDED, PROMPT, SAID, end_left_behind
from tests.lab.model import Model
from tests.lab.script import Answer, Text
from tests.waiting import processes, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SECONDS: Final = 120


@dataclass(frozen=True)
class AcpAgent:
    """An agent, and how it is started for an editor."""

    agent: Agent
    arguments: tuple[str, ...] = ()
    tells_output: bool = True
    """Gemini CLI tells an editor that a command is done, and not what it printed."""


CLAUDE_CODE_ACP: Final = replace(
    CLAUDE_CODE, name="claude-code-acp", program="node_modules/.bin/claude-code-acp"
)
AGENTS: Final = {
    "opencode": AcpAgent(OPENCODE, ("acp",)),
    "qwen": AcpAgent(QWEN, ("--acp", "--yolo", "--auth-type", "openai")),
    "gemini": AcpAgent(GEMINI, ("--acp",), tells_output=False),
    "claude-code-acp": AcpAgent(CLAUDE_CODE_ACP),
}


@pytest.fixture(params=list(AGENTS))
def agent(request: pytest.FixtureRequest) -> AcpAgent:
    agent = AGENTS[request.param]
    if not agent.agent.is_installed():
        pytest.skip(f"{agent.agent.name} is not installed; KILLICK_LAB names their folder")
    return agent


@contextmanager
def at_home(agent: AcpAgent, folder: Path, script: list[Answer]) -> Iterator[dict[str, Any]]:
    """Give the agent a home and a model; what `editing` needs to start it there."""
    with Model(
        lambda _: script.pop(0) if script else Answer(Text(ENDED)), tools_only=True
    ) as model:
        home = Home(folder / "home", model.url)
        home.work.mkdir(parents=True)
        agent.agent.set_up(home)
        command = [str(agent.agent.executable()), *agent.arguments]
        try:
            yield {
                "store": folder / "s.db",
                "command": command,
                "cwd": home.work,
                "env": agent.agent.variables(home),
            }
        finally:
            end_left_behind(home.path)


async def begin(connection: Any, work: Path) -> asyncio.Task[Any]:
    new = await connection.new_session(cwd=str(work), mcp_servers=[])
    prompt = connection.prompt(session_id=new.session_id, prompt=[acp.text_block(PROMPT)])
    return asyncio.create_task(prompt)


@in_a_loop
async def test_a_turn_of_a_real_agent(agent: AcpAgent, tmp_path: Path) -> None:
    calls = [agent.agent.call("echo mallards", "one"), agent.agent.call("echo teals", "two")]
    with at_home(agent, tmp_path, [Answer(Text(SAID), *calls), Answer(Text(ENDED))]) as how:
        async with editing(**how) as (_, connection, _p):
            asking = await begin(connection, how["cwd"])
            assert (await asyncio.wait_for(asking, SECONDS)).stop_reason == "end_turn"
    store = tmp_path / "s.db"
    messages = told(store)
    assert messages[0] == ("user", "complete", PROMPT)
    assert messages[1] == ("assistant", "complete", SAID)
    assert messages[-1] == ("assistant", "complete", ENDED)
    assert endings(store) == [("completed", None)]
    results = list(tools(store).values())
    assert [state for state, _ in results] == ["finished", "finished"]
    if agent.tells_output:
        assert "mallards" in results[0][1]
        assert "teals" in results[1][1]


@pytest.mark.crash
@pytest.mark.parametrize("what", ["agent", "proxy", "both"])
def test_killed_with_three_tools_and_two_done(agent: AcpAgent, tmp_path: Path, what: str) -> None:
    calls = [
        agent.agent.call("echo mallards; touch one", "one"),
        agent.agent.call("echo teals; touch two", "two"),
        agent.agent.call("touch three; sleep 300", "three"),
    ]

    async def kill(how: dict[str, Any]) -> None:
        async with editing(**how) as (editor, connection, process):
            asking = await begin(connection, how["cwd"])
            await editor.until(lambda _: editor.finished() == 2)
            await asyncio.to_thread(until, (how["cwd"] / "three").exists, SECONDS)
            killed = descendants(process.pid) if what != "proxy" else []
            for pid in [*([process.pid] if what != "agent" else []), *killed]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with pytest.raises((acp.RequestError, ConnectionError)):
                await asyncio.wait_for(asking, SECONDS)

    with at_home(agent, tmp_path, [Answer(Text(SAID), *calls)]) as how:
        asyncio.run(kill(how))
    store = tmp_path / "s.db"
    results = list(tools(store).values())
    assert [state for state, _ in results] == ["finished", "finished", "unknown"]
    if agent.tells_output:
        assert sorted(("mallards" in text) - ("teals" in text) for _, text in results) == [-1, 0, 1]
    assert endings(store) == [("interrupted", "crashed")]
    assert told(store)[0] == ("user", "complete", PROMPT)


@in_a_loop
async def test_a_session_that_is_loaded_goes_on_in_the_same_session(
    agent: AcpAgent, tmp_path: Path
) -> None:
    """The agent replays what it kept; none of it is recorded a second time."""
    store = tmp_path / "s.db"
    with at_home(agent, tmp_path, [Answer(Text(SAID)), Answer(Text(ENDED))]) as how:
        async with editing(**how) as (_, connection, _p):
            new = await connection.new_session(cwd=str(how["cwd"]), mcp_servers=[])
            first = connection.prompt(session_id=new.session_id, prompt=[acp.text_block(PROMPT)])
            await asyncio.wait_for(first, SECONDS)
        before = told(store)
        async with editing(**how) as (editor, connection, _p):
            load = connection.load_session(
                cwd=str(how["cwd"]), session_id=new.session_id, mcp_servers=[]
            )
            await asyncio.wait_for(load, SECONDS)
            # Qwen keeps no answer of a prompt that was its last; Gemini has lost all of it.
            await editor.until(lambda updates: PROMPT in said(updates))
            assert told(store) == before
            more = connection.prompt(session_id=new.session_id, prompt=[acp.text_block("Go on.")])
            await asyncio.wait_for(more, SECONDS)
    assert told(store) == [
        *before,
        ("user", "complete", "Go on."),
        ("assistant", "complete", ENDED),
    ]


def said(updates: list[dict[str, Any]]) -> str:
    """The words of the replay so far."""
    spoken = [each for each in updates if each["sessionUpdate"].endswith("_message_chunk")]
    return "".join(each["content"]["text"] for each in spoken)


def descendants(pid: int) -> list[int]:
    parents = processes()
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]
