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
from functools import partial
from pathlib import Path

from killick import Store
from tests.lab.agents import Agent, Home
from tests.lab.cells import SAID, Cell, run
from tests.lab.going_on import killick, stored
from tests.lab.results import faults, on_disk
from tests.waiting import until

_ELSEWHERE = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "QWEN_HOME", "HERMES_HOME")
_WORK_SECONDS = 300
_SETTLED_SECONDS = 5
_IDLE_SECONDS = 30


@contextmanager
def attached(store: Path, home: Path, *paths: str) -> Iterator[int]:
    """Run `killick attach` for a person with this home, and yield its pid; Ctrl+C ends it."""
    home.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    process = subprocess.Popen(
        [sys.executable, "-m", "killick.cli", "--store", str(store), "attach", *paths],
        env=environment | {"HOME": str(home)},
    )
    try:
        yield process.pid
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

        killed, early = list[float](), list[str]()

        def is_there() -> None:
            disk = on_disk(_as_it_stands(agent, place))
            until(lambda: bool(statuses()) and has(disk.results))
            if "running" not in statuses() and not disk.is_ended:
                early.append(f"its turn was {statuses()[0]} before it was killed")
            killed.append(time.monotonic())

        cell = run(agent, "kill_tools", place, is_there)
        until(lambda: "running" not in statuses())
        seconds = time.monotonic() - killed[0]
        (session_id,) = [info.id for info in store.sessions()]
        ours, status = stored(path, session_id, cell)
        wrong = early + faults(cell, ours, on_disk=on_disk(cell))
        again = killick(path, "import", str(cell.sessions), "--json").json()["sessions"]
        if [each["action"] for each in again] != ["unchanged"]:
            wrong.append(f"an import then says {[each['action'] for each in again]}")
    return Followed(cell, seconds, status, wrong)


@dataclass
class AtOnce:
    """Agents that were followed at once: how each was there when it was killed in its turn."""

    told: dict[str, str]
    """By the number and name of each: how its turn ended here, and how soon after the kill."""
    wrong: list[str]
    idle: float = 0
    """The share of a core that it took while all of them waited for their tools."""


def follow_all(agents: list[Agent], folder: Path) -> AtOnce:
    """Follow agents that work at once; kill one after the other while the rest works on."""
    path, homes = folder / "killick.db", folder / "homes"
    places = {homes / f"{number}-{agent.name}": agent for number, agent in enumerate(agents)}
    at_work, kills = threading.Semaphore(0), {place: threading.Event() for place in places}
    found, killed = AtOnce({}, []), dict[Path, float]()

    def wait(place: Path) -> None:
        at_work.release()
        kills[place].wait(_WORK_SECONDS)
        killed[place] = time.monotonic()

    homes.mkdir(parents=True)
    with (
        Store(path) as store,
        attached(path, folder / "nobody", str(homes)) as pid,
        ThreadPoolExecutor(len(agents)) as at_once,
    ):

        def running() -> int:
            return sum(info.status == "running" for info in store.sessions(limit=100))

        cells = {
            place: at_once.submit(run, agent, "kill_tools", place, partial(wait, place))
            for place, agent in places.items()
        }
        try:
            for _ in places:
                assert at_work.acquire(timeout=_WORK_SECONDS), "not all came to their tools"
            until(lambda: len(list(store.sessions(limit=100))) == len(agents))
            found.idle = _share_of_a_core(pid)
            had = [
                on_disk(_as_it_stands(agent, place)).calls > 0 for place, agent in places.items()
            ]
            if running() < sum(had):
                found.wrong.append(f"{sum(had)} work, and {running()} turns run here")
            for place, agent in places.items():
                before, has_turn = running(), on_disk(_as_it_stands(agent, place)).calls > 0
                kills[place].set()
                if has_turn:
                    with _named(place.name):
                        until(lambda count=before: running() < count)  # type: ignore[misc]
                    found.told[place.name] = f"{time.monotonic() - killed[place]:.2f} s"
                else:
                    found.told[place.name] = "its file tells of no call"
                cells[place].result()
        finally:
            for kill in kills.values():
                kill.set()
        until(lambda: running() == 0)
        for place, cell in cells.items():
            _compare(path, place, cell.result(), found)
    return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say whose turn still ran when the time was over."""
    try:
        yield
    except AssertionError as error:
        raise TimeoutError(f"{name} was killed, and its turn still runs here: {error}") from error


def _share_of_a_core(pid: int) -> float:
    """Return how much processor a process takes from now on, once it has come to rest."""
    time.sleep(_SETTLED_SECONDS)
    before = _processor_seconds(pid)
    time.sleep(_IDLE_SECONDS)
    return (_processor_seconds(pid) - before) / _IDLE_SECONDS


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _compare(path: Path, place: Path, cell: Cell, found: AtOnce) -> None:
    """Hold what is here of an agent against its disk; an import must find nothing new."""
    again = killick(path, "import", str(cell.sessions), "--json").json()["sessions"]
    if [each["action"] for each in again] != ["unchanged"]:
        found.wrong.append(f"{place.name}: an import then says {[e['action'] for e in again]}")
        return
    disk = on_disk(cell)
    ours, status = stored(path, again[0]["session_id"], cell)
    found.wrong += [f"{place.name}: {what}" for what in faults(cell, ours, on_disk=disk)]
    if status != ("completed" if disk.is_ended else "interrupted"):
        found.wrong.append(f"{place.name}: its turn is {status}")
    found.told[place.name] = f"{status}, {found.told[place.name]}"


def _as_it_stands(agent: Agent, place: Path) -> Cell:
    done = {"call_one": "mallards", "call_two": "teals"}
    return Cell(agent, "kill_tools", Home(place, ""), results=done)
