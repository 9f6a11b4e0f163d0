"""The cells: one agent, one thing that happens to its turn, and what was said and done."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.lab.agents import Agent, Home
from tests.lab.model import Model
from tests.lab.script import Answer, Fail, Gate, Text
from tests.lab.wires import bare

Event = Literal["whole", "kill_tools", "kill_text", "failure", "ctrl_c"]
EVENTS: Final[tuple[Event, ...]] = ("whole", "kill_tools", "kill_text", "failure", "ctrl_c")
PROMPT: Final = "Please count the ducks on the pond."
SAID: Final = "I will look at the pond."
ENDED: Final = "There are seven ducks."
HALF: Final = "There are at least four of them, and"
_SECONDS: Final = 180
REFUSED: Final = "the pond is closed"
_SETTLED_SECONDS: Final = 1.5
_SAMPLE_SECONDS: Final = 0.1
_PRESSED_MAX: Final = 4
_PRESSED_SECONDS: Final = 60
"""A second Ctrl+C cuts off what an agent still saves: a busy machine needs as long."""


@dataclass
class Cell:
    """One run of an agent in a home of its own; what its model said, and what its tools gave."""

    agent: Agent
    event: Event
    home: Home
    prompts: list[str] = field(default_factory=lambda: [PROMPT])
    words: list[str] = field(default_factory=list)
    """Whole answers of the model."""
    partial: str | None = None
    results: dict[str, str] = field(default_factory=dict)
    """Call by call, in order, what stands in the result of each tool that finished."""
    unfinished: list[str] = field(default_factory=list)
    """Calls whose tool had begun and was not done."""
    output: str = ""
    code: int | None = None

    @property
    def sessions(self) -> Path:
        return self.home.path / self.agent.sessions


@contextmanager
def started(
    agent: Agent, home: Home, arguments: list[str], folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the agent in a group of its own; end the group, whatever happens."""
    home.work.mkdir(parents=True, exist_ok=True)
    agent.set_up(home)
    log = (home.path / "agent.log").open("ab")
    process = subprocess.Popen(
        [str(agent.executable()), *arguments],
        cwd=folder or home.work,
        env=agent.variables(home),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_group(process)
        end_left_behind(home.path)
        log.close()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 the agent and all that it started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_left_behind(place: Path) -> None:
    """End the tools that outlive their agent: each works in a folder of this cell."""
    for each in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if each.readlink().is_relative_to(place):
                os.kill(int(each.parent.name), signal.SIGKILL)
        except OSError:
            continue


def _script(agent: Agent, event: Event, home: Home) -> list[Answer]:
    work = home.work
    one = agent.call("printf m%s allards; touch one", "call_one")
    two = agent.call("printf t%s eals; touch two", "call_two")
    three = agent.call(f"touch three; sleep 300; touch {work}/over", "call_three")
    match event:
        case "whole":
            return [Answer(Text(SAID), one, two), Answer(Text(ENDED))]
        case "kill_tools":
            # Some agents ask again while a tool still runs: their turn must not end meanwhile.
            return [Answer(Text(SAID), one, two, three), Answer(Gate("killed"), Text(ENDED))]
        case "kill_text" | "ctrl_c":
            return [Answer(Text(HALF), Gate("half"), Text(" more.")), Answer(Text(ENDED))]
        case "failure":
            return [Answer(Fail(400, REFUSED))] * 20


def run(
    agent: Agent, event: Event, place: Path, before_end: Callable[[], None] = lambda: None
) -> Cell:
    """Run one cell: a new home, one prompt, and the event. Raises TimeoutError.

    `before_end` is called when all has happened, before the agent is killed.
    """
    home = Home(place, "")
    script: list[Answer] = []
    with Model(lambda _request: script.pop(0) if script else Answer(Text(ENDED)),
               tools_only=True) as model:  # fmt: skip
        home = Home(place, model.url)
        script += _script(agent, event, home)
        cell = Cell(agent, event, home)
        with started(agent, home, agent.begin(model.url, PROMPT)) as process:
            _happen(cell, model, process)
            before_end()
        cell.code = process.returncode
        told = {bare(s.id) for one in model.requests for s in one.said() if s.kind == "result"}
        # A tool that goes on in the background has its result: that it does.
        cell.unfinished = [call_id for call_id in cell.unfinished if call_id not in told]
    cell.output = (place / "agent.log").read_text("utf-8", "replace")
    return cell


def _happen(cell: Cell, model: Model, process: subprocess.Popen[bytes]) -> None:
    done = {"call_one": "mallards", "call_two": "teals"}
    match cell.event:
        case "whole":
            process.wait(_SECONDS)
            cell.words, cell.results = [SAID, ENDED], done
        case "failure":
            process.wait(_SECONDS)
        case "kill_tools":
            _wait_files(cell.home.work, ["one", "two", "three"], process)
            _wait_rest(cell.sessions, process)
            cell.words, cell.results, cell.unfinished = [SAID], done, ["call_three"]
        case "kill_text":
            model.wait("half", _SECONDS)
            _wait_rest(cell.sessions, process)
            cell.partial = HALF
        case "ctrl_c":
            model.wait("half", _SECONDS)
            _wait_rest(cell.sessions, process)
            cell.partial = HALF
            _press_ctrl_c(process)


def _press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """Press it as a person does: once more when nothing happens. Raises TimeoutExpired."""
    for pressed in range(1, _PRESSED_MAX + 1):
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_PRESSED_SECONDS)
        except subprocess.TimeoutExpired:
            if pressed == _PRESSED_MAX:
                raise
        else:
            return


def _wait_files(folder: Path, names: list[str], process: subprocess.Popen[bytes]) -> None:
    """Wait until the tools have made their files. Raises TimeoutError."""
    limit = time.monotonic() + _SECONDS
    while not all((folder / name).exists() for name in names):
        if time.monotonic() > limit or process.poll() is not None:
            raise TimeoutError(f"the tools did not come so far: {sorted(folder.iterdir())}")
        time.sleep(0.05)


def _wait_rest(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the agent has neither written nor wanted to run for a while: it tells nobody.

    On a busy machine it may wait for a processor before it writes what its tools gave.
    """
    limit = time.monotonic() + _SECONDS
    last, quiet = None, 0.0
    while quiet < _SETTLED_SECONDS and time.monotonic() < limit:
        now = sorted((str(f), f.stat().st_size) for f in folder.rglob("*") if f.is_file())
        if now != last:
            last, quiet = now, 0.0
        elif not _is_runnable(process.pid):
            quiet += _SAMPLE_SECONDS
        time.sleep(_SAMPLE_SECONDS)


def _is_runnable(group: int) -> bool:
    """Tell whether a thread of the group runs, or waits for a processor or a disk (Linux)."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (each / "stat").read_text("utf-8").rpartition(")")[2].split()
            if int(fields[2]) == group:
                for thread in (each / "task").iterdir():
                    stat = (thread / "stat").read_text("utf-8").rpartition(")")[2]
                    if stat.split()[0] in "RD":
                        return True
    return False
