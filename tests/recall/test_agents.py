"""Real agents recall what another agent did: the model asks, and is sent quoted history.

They are found by `KILLICK_LAB`, a folder with an agent in each (see tests/lab/agents.py).
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from killick.recall import CALLS, QUOTED
from tests.lab.agents import AGENTS, Agent, Home
from tests.lab.cells import ENDED, started
from tests.lab.model import Model
from tests.lab.script import Answer, Call, Text
from tests.recall.sample import HERE, Sample, make_sample

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SECONDS: Final = 120


@pytest.fixture(params=["claude-code", "codex", "opencode"])
def agent(request: pytest.FixtureRequest) -> Agent:
    agent = AGENTS[request.param]
    if not agent.is_installed():
        pytest.skip(f"{agent.name} is not installed; KILLICK_LAB names the folder of the agents")
    return agent


def call(agent: Agent, tool: str, arguments: Mapping[str, Any]) -> Call:
    """A call as the model of this agent makes it: each names the tools of a server its own way."""
    match agent.name:
        case "claude-code":
            return Call(f"mcp__killick__{tool}", arguments)
        case "codex":
            return Call(tool, arguments, namespace="mcp__killick")
        case _:
            return Call(f"killick_{tool}", arguments)


def with_recall(agent: Agent, home: Home, command: list[str]) -> tuple[Agent, list[str]]:
    """The agent with the server in its settings, and its arguments for a prompt."""
    *before, prompt = agent.begin(home.url, "What did the others do?")
    program, *arguments = command
    match agent.name:
        case "claude-code":
            server = {"command": program, "args": arguments}
            home.write("mcp.json", json.dumps({"mcpServers": {"killick": server}}))
            file = str(home.path / "mcp.json")
            variables = {**agent.environment(home.url), "MCP_CONNECTION_NONBLOCKING": "0"}
            changed = replace(agent, environment=lambda _url: variables)
            return changed, [*before, "--mcp-config", file, "--strict-mcp-config", "--", prompt]
        case "codex":
            given = f'{{command="{program}",args={json.dumps(arguments)},required=true,'
            setting = f"mcp_servers.killick={given}startup_timeout_sec=60}}"
            return agent, [*before, "-c", setting, prompt]
        case _:

            def set_up(home: Home) -> None:
                agent.set_up(home)
                file = home.path / ".config/opencode/opencode.json"
                config = json.loads(file.read_text("utf-8"))
                config["mcp"] = {"killick": {"type": "local", "command": command, "enabled": True}}
                file.write_text(json.dumps(config), "utf-8")

            return replace(agent, set_up=set_up), [*before, prompt]


def test_an_agent_recalls_what_another_did(agent: Agent, tmp_path: Path) -> None:
    sample = make_sample(tmp_path / "s.db")
    command = [sys.executable, "-m", "killick.cli", "mcp",
               "--store", str(sample.store), "--project", HERE]  # fmt: skip
    script = [
        Answer(call(agent, name, arguments)) for name, arguments in _asked(sample).items()
    ] + [Answer(Text(ENDED))]
    with Model(script, tools_only=True) as model:
        home = Home(tmp_path / "home", model.url)
        changed, arguments = with_recall(agent, home, command)
        with started(changed, home, arguments) as process:
            assert process.wait(SECONDS) == 0
        requests = [request for request in model.requests if not request.aside]
    results = [said.text for said in requests[-1].said() if said.kind == "result"]
    assert len(results) == len(CALLS)
    for text in results:
        assert QUOTED in text
        assert sample.cut in text
        assert sample.other not in text
    assert "> Count the ducks, not the heron." in results[0]
    assert "mallards" in results[1]
    assert "outcome unknown: check what it did before repeating it" in results[2]
    assert "count.txt (Edit; calls: 1)" in results[3]


def _asked(sample: Sample) -> dict[str, dict[str, Any]]:
    return {
        "search_sessions": {"words": "heron"},
        "show_session": {"session": sample.cut},
        "last_interrupted_turn": {},
        "hand_over": {},
    }
