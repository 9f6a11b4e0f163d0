"""The real Codex and the real Claude Code, followed while they work, and killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from killick import Store
from tests.lab.agents import CLAUDE_CODE, CODEX, Agent
from tests.lab.cells import run
from tests.lab.going_on import killick, stored
from tests.lab.results import faults, on_disk
from tests.lab.test_cells import installed
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)


@contextmanager
def attached(store: Path, home: Path) -> Iterator[None]:
    home.mkdir()
    unset = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "killick.cli", "--store", str(store), "attach"],
        env=environment | {"HOME": str(home)},
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 130


@pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE], ids=["codex", "claude-code"])
def test_an_agent_that_is_killed_among_its_tools_is_there_at_once(
    agent: Agent, tmp_path: Path
) -> None:
    installed(agent)
    place, path = tmp_path / "home", tmp_path / "killick.db"
    with Store(path) as store, attached(path, place):

        def status() -> list[str]:
            return [info.status or "" for info in store.sessions()]

        def results() -> int:
            infos = store.sessions()
            messages = [m for info in infos for m in store.session(info.id).messages()]
            return sum(message.role == "tool" for message in messages)

        killed = []

        def is_there() -> None:
            """The turn runs here, with what its agent has written."""
            until(lambda: status() == ["running"] and results() == 2)
            killed.append(time.monotonic())

        cell = run(agent, "kill_tools", place, is_there)
        until(lambda: status() == ["interrupted"])
        seconds = time.monotonic() - killed[0]
        (session_id,) = [info.id for info in store.sessions()]
        ours, ended = stored(path, session_id, cell)
        assert (faults(cell, ours, on_disk=on_disk(cell)), ended) == ([], "interrupted")
        again = killick(path, "import", str(cell.sessions), "--json").json()["sessions"]
        assert [each["action"] for each in again] == ["unchanged"]
    assert seconds < 10, seconds  # a second, on a machine that does nothing else
    print(f"{agent.name}: interrupted here {seconds:.2f} s after the kill")


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
