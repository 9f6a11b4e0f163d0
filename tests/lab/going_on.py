"""Bring a cell's session in, and go on with it in an agent, as a person would: by the command."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.agents import Agent, Home
from tests.lab.cells import Cell, started
from tests.lab.model import Model, Request
from tests.lab.results import Kept, kept, of_context
from tests.lab.script import Answer, Text

NEXT = "And are there swans?"
ANSWER = "There is one swan."
_SECONDS = 300
"""An agent that does not answer is told from one on a busy machine."""


@dataclass
class Ran:
    """A command that was run."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def killick(store: Path, *arguments: str, path: str = "", folder: Path | None = None) -> Ran:
    """Run the command with a store of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "killick.cli", "--store", str(store), *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def bring_in(store: Path, sessions: Path) -> str:
    """Import a folder with one session, and return its id here. Raises ValueError."""
    done = killick(store, "import", str(sessions), "--json")
    found = done.json()["sessions"] if done.out else []
    if len(found) != 1 or found[0]["action"] == "left":
        raise ValueError(f"not one session: {done.out[:300]} {done.err[-300:]}")
    return str(found[0]["session_id"])


def stored(store: Path, session_id: str, cell: Cell) -> tuple[Kept, str]:
    """Return what a model would be told of a session, and how its last turn ended."""
    context = killick(store, "context", session_id, "--format", "openai-chat", "--json").json()
    shown = killick(store, "show", session_id, "--json").json()
    return kept(cell, of_context(context["messages"])), str(shown["status"])


def own_resume(cell: Cell, native_id: str) -> Request | None:
    """Go on in the agent itself, with its own session; return its request."""
    return _ask(cell.agent, cell.home.path, native_id)


def go_on(
    store: Path, session_id: str, agent: Agent, place: Path, prompt: str = NEXT
) -> tuple[Request | None, dict[str, Any]]:
    """Continue a session in an agent; return its next request, and what the command said."""
    home = Home(place, "http://127.0.0.1:9")
    home.work.mkdir(parents=True, exist_ok=True)
    agent.set_up(home)
    beside = str(agent.executable().parent)
    done = killick(
        store, "continue", session_id, "--in", agent.name, "--home", str(place), "--no-run",
        "--json", path=beside, folder=home.work,
    )  # fmt: skip
    if done.code:
        raise ValueError(done.err.strip())
    told = done.json()
    return _ask(agent, place, told["id"], prompt, told["command"]), told


def _ask(
    agent: Agent, place: Path, native_id: str, prompt: str = NEXT, command: list[str] | None = None
) -> Request | None:
    with Model([Answer(Text(ANSWER))], tools_only=True) as model:
        home = Home(place, model.url)
        folder = _folder(command)
        arguments = agent.go_on(model.url, native_id, prompt)
        with (
            started(agent, home, arguments, folder) as process,
            suppress(subprocess.TimeoutExpired),
        ):
            process.wait(_SECONDS)
        return model.requests[0] if model.requests else None


def _folder(command: list[str] | None) -> Path | None:
    """Return the folder that a command goes to."""
    if command and command[:2] == ["env", "-C"]:
        return Path(command[2])
    return None
