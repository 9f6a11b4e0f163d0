"""Follow a real agent while it works, kill it among its tools, and see what is here, how soon."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from killick import Store
from tests.lab.agents import Agent, Home
from tests.lab.cells import SAID, Cell, run
from tests.lab.going_on import killick, stored
from tests.lab.results import faults, on_disk
from tests.waiting import until

_ELSEWHERE = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "QWEN_HOME", "HERMES_HOME")


@contextmanager
def attached(store: Path, home: Path, *paths: str) -> Iterator[None]:
    """Run `killick attach` for a person with this home; Ctrl+C ends it."""
    home.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    process = subprocess.Popen(
        [sys.executable, "-m", "killick.cli", "--store", str(store), "attach", *paths],
        env=environment | {"HOME": str(home)},
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 130


@dataclass
class Followed:
    """An agent that was followed and killed: how long until it was over here, and what is wrong."""

    cell: Cell
    seconds: float
    status: str
    wrong: list[str]


def follow_and_kill(agent: Agent, folder: Path) -> Followed:
    """Kill the agent once its turn runs here with all that its disk has of it."""
    place, path = folder / "home", folder / "killick.db"
    with Store(path) as store, attached(path, place):

        def statuses() -> list[str]:
            return [info.status or "" for info in store.sessions()]

        def has(results: int) -> bool:
            """It is here: a step that is still written streams, with what there is of it."""
            messages = [m for info in store.sessions() for m in store.session(info.id).messages()]
            streams = [m.text for m in messages if m.state == "streaming"]
            return SAID in streams or sum(m.role == "tool" for m in messages) == results

        killed = list[float]()

        def is_there() -> None:
            written = on_disk(_as_it_stands(agent, place)).results
            until(lambda: bool(statuses()) and has(written))
            killed.append(time.monotonic())

        cell = run(agent, "kill_tools", place, is_there)
        until(lambda: "running" not in statuses())
        seconds = time.monotonic() - killed[0]
        (session_id,) = [info.id for info in store.sessions()]
        ours, status = stored(path, session_id, cell)
        wrong = faults(cell, ours, on_disk=on_disk(cell))
        again = killick(path, "import", str(cell.sessions), "--json").json()["sessions"]
        if [each["action"] for each in again] != ["unchanged"]:
            wrong.append(f"an import then says {[each['action'] for each in again]}")
    return Followed(cell, seconds, status, wrong)


def follow_all(agents: list[Agent], folder: Path) -> tuple[list[str], float]:
    """Follow agents that work at once, and kill them at once.

    Returns the endings here, and how long it took until none was running.
    """
    path, homes = folder / "killick.db", folder / "homes"
    homes.mkdir(parents=True)
    kill = threading.Event()
    with (
        Store(path) as store,
        attached(path, folder / "nobody", str(homes)),
        ThreadPoolExecutor(len(agents)) as at_once,
    ):

        def statuses() -> list[str]:
            return [info.status or "" for info in store.sessions(limit=100)]

        def all_are_there() -> None:
            kill.wait(400)

        cells = [
            at_once.submit(run, agent, "kill_tools", homes / str(number), all_are_there)
            for number, agent in enumerate(agents)
        ]
        try:
            until(lambda: len(statuses()) == len(agents), seconds=300)
        finally:
            kill.set()
        killed = time.monotonic()
        for cell in cells:
            cell.result()
        until(lambda: "running" not in statuses())
        return sorted(statuses()), time.monotonic() - killed


def _as_it_stands(agent: Agent, place: Path) -> Cell:
    done = {"call_one": "mallards", "call_two": "teals"}
    return Cell(agent, "kill_tools", Home(place, ""), results=done)
