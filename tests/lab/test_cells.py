"""One cell of Codex and one of Claude Code, and a way through both and back: the real programs.

`make lab` runs every agent and every event. These need npm, and install once into
`KILLICK_LAB` or `.lab`; where npm or its registry is missing they are skipped.
"""

import subprocess
from pathlib import Path

import pytest

from tests.lab.agents import CLAUDE_CODE, CODEX, Agent, install, missing_tool
from tests.lab.cells import run
from tests.lab.going_on import ANSWER, NEXT, bring_in, go_on, killick, stored
from tests.lab.results import faults, kept, on_disk

pytestmark = pytest.mark.timeout(240)


def installed(agent: Agent) -> Agent:
    missing = missing_tool(agent.name)
    if missing is not None:
        pytest.skip(f"{missing} is not here, so {agent.name} cannot be installed")
    try:
        install(agent)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{agent.name} cannot be installed here: {error}")
    return agent


@pytest.mark.parametrize(
    ("first", "second"), [(CODEX, CLAUDE_CODE), (CLAUDE_CODE, CODEX)], ids=["codex", "claude-code"]
)
def test_an_agent_killed_among_its_tools_goes_on_in_the_other_and_comes_back(
    first: Agent, second: Agent, tmp_path: Path
) -> None:
    installed(first), installed(second)
    cell = run(first, "kill_tools", tmp_path / "first")
    store = tmp_path / "killick.db"
    session_id = bring_in(store, cell.sessions)
    ours, status = stored(store, session_id, cell)
    assert (faults(cell, ours, on_disk=on_disk(cell)), status) == ([], "interrupted")

    request, told = go_on(store, session_id, second, tmp_path / "second")
    assert request is not None
    assert faults(cell, kept(cell, request.said())) == []
    assert bring_in(store, Path(told["path"])) == session_id

    request, told = go_on(store, session_id, first, tmp_path / "third", "Any geese?")
    assert request is not None
    cell.prompts.append(NEXT)
    cell.words.append(ANSWER)
    assert faults(cell, kept(cell, request.said())) == []
    assert bring_in(store, Path(told["path"])) == session_id
    shown = killick(store, "sessions", "--all", "--json").json()
    assert [each["id"] for each in shown] == [session_id]
