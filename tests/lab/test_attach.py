"""The real Codex and the real Claude Code, followed while they work, and killed."""

from pathlib import Path

import pytest

from killick import Store
from tests.lab.agents import CLAUDE_CODE, CODEX, Agent
from tests.lab.cells import run
from tests.lab.following import attached, follow_and_kill
from tests.lab.going_on import stored
from tests.lab.results import faults, on_disk
from tests.lab.test_cells import installed
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE], ids=["codex", "claude-code"])
def test_an_agent_that_is_killed_among_its_tools_is_there_at_once(
    agent: Agent, tmp_path: Path
) -> None:
    found = follow_and_kill(installed(agent), tmp_path)
    assert (found.wrong, found.status) == ([], "interrupted")
    assert found.seconds < 10, found.seconds  # a second, on a machine that does nothing else


@pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE], ids=["codex", "claude-code"])
def test_a_whole_turn_is_followed_to_its_end(agent: Agent, tmp_path: Path) -> None:
    installed(agent)
    place, path = tmp_path / "home", tmp_path / "killick.db"
    with Store(path) as store, attached(path, place):
        cell = run(agent, "whole", place)
        until(lambda: [info.status for info in store.sessions()] == ["completed"])
        (session_id,) = [info.id for info in store.sessions()]
        ours, ended = stored(path, session_id, cell)
        assert (faults(cell, ours, on_disk=on_disk(cell)), ended) == ([], "completed")
