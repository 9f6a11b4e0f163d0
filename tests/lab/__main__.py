"""Run the laboratory: every agent, every event, then each session on in every agent.

`python -m tests.lab` installs the agents, runs all cells, and writes docs/agents.md. Names choose
the agents that are run: their rows are renewed and the others stay, each with its day and version,
so that the whole can be run in pieces. `--events` chooses some of them, `--in` the agents to go
on in; `--follow` measures how soon an agent that is followed and killed is over here, `--at-once`
the same of ten that work at once.
"""

import argparse
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory

from killick.exchange.formats import ReadOptions
from killick.exchange.importer import READERS, find
from killick.exchange.records import Report, Source
from tests.lab.agents import AGENTS, Agent, install
from tests.lab.cells import EVENTS, Cell, Event, run
from tests.lab.following import follow_all, follow_and_kill
from tests.lab.going_on import bring_in, go_on, killick, own_resume, stored
from tests.lab.page import MATRIX, NONE, RIGHT, Row, load, merged, version, write
from tests.lab.results import Kept, faults, kept, on_disk

_AT_ONCE = 3
"""How many agents go on with one session at a time: most of it is waiting."""

_TOGETHER = 10
_IDLE_MAX = 0.01
"""The share of a core that following may take when nothing happens."""


def main(arguments: list[str]) -> int:
    """Run it all; the exit code says whether every cell is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("agents", nargs="*", default=list(AGENTS))
    parser.add_argument("--in", nargs="*", default=list(AGENTS), dest="others", metavar="AGENT")
    parser.add_argument("--events", nargs="*", default=EVENTS, choices=EVENTS, metavar="EVENT")
    parser.add_argument("--follow", action="store_true", help="only follow each, and kill it")
    parser.add_argument("--at-once", action="store_true", help="only follow ten, and kill each")
    parser.add_argument("--dry", action="store_true", help="write no page")
    chosen = parser.parse_args(arguments)
    # A shell has its background commands ignore Ctrl+C, and the agents would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agents = [AGENTS[name] for name in chosen.agents]
    others = [AGENTS[name] for name in chosen.others]
    for agent in {agent.name: agent for agent in [*agents, *others]}.values():
        install(agent)
    rows = list[Row]()
    if chosen.follow:
        return _follow(agents)
    if chosen.at_once:
        return _follow_at_once(agents)
    for agent in agents:
        for event in chosen.events:
            with TemporaryDirectory(prefix="killick-lab-") as place:
                row = _cell(agent, event, Path(place), others if event in MATRIX else [])
            rows.append(row)
            print(f"{agent.name} {event}: {row.status}; {row.ours}; {row.wrong or RIGHT}")
            for name, result in row.continued.items():
                print(f"    in {name}: {result}")
            sys.stdout.flush()
            if not chosen.dry:
                write(merged(load(), rows))
    right = sum(row.is_right for row in rows)
    print(f"{right} of {len(rows)} cells are right")
    return 0 if right == len(rows) else 1


def _follow(agents: list[Agent]) -> int:
    """Renew what is known of following; the rows of the cells must be there."""
    rows = load()
    for agent in agents:
        with TemporaryDirectory(prefix="killick-lab-") as place:
            found = follow_and_kill(agent, Path(place))
        told = f"{found.status} after {found.seconds:.2f} s"
        told += f". **Wrong:** {'; '.join(found.wrong)}" if found.wrong else ""
        print(f"{agent.name}: {told}", flush=True)
        for row in rows:
            if (row.agent, row.event) == (agent.name, "kill_tools"):
                row.followed, row.followed_on = told, _today()
    write(rows)
    return 1 if any("Wrong" in row.followed for row in rows) else 0


def _follow_at_once(agents: list[Agent]) -> int:
    """Renew what is known of ten that are followed at once: these, and the first ones again."""
    ten = list(islice(cycle(agents), _TOGETHER))
    with TemporaryDirectory(prefix="killick-lab-") as place:
        found = follow_all(ten, Path(place))
    for name, told in found.told.items():
        print(f"{name}: {told}")
    if found.idle > _IDLE_MAX:
        found.wrong.append(f"it took {found.idle:.1%} of a core while they all waited")
    print(f"{found.idle:.2%} of a core while they waited", *found.wrong, sep="\n")
    rows = load()
    for row in rows:
        if row.event == "kill_tools":
            names = [name for name in found.told if name.partition("-")[2] == row.agent]
            wrong = [what for what in found.wrong if what.partition(":")[0] in names]
            told = "; ".join(found.told[name] for name in names)
            row.idle, row.followed_on = found.idle, _today()
            row.at_once = told + (f". **Wrong:** {'; '.join(wrong)}" if wrong else "")
    write(rows)
    return 1 if found.wrong else 0


def _cell(agent: Agent, event: Event, place: Path, others: list[Agent]) -> Row:
    row = Row(agent.name, event, version(agent.name), _today())
    try:
        cell = run(agent, event, place / "own")
        disk = on_disk(cell)
        row.disk = disk.row(cell)
        if not disk.prompts:
            row.ours = "nothing: the agent has left nothing"
            return row
        store = place / "killick.db"
        session_id = bring_in(store, cell.sessions)
        ours, row.status = stored(store, session_id, cell)
        row.ours = ours.row(cell)
        row.wrong += faults(cell, ours, on_disk=disk)
        row.cannot_know = disk.cannot_know
        wanted = "failed" if disk.failure else "completed" if disk.is_ended else "interrupted"
        if row.status != wanted:
            row.wrong.append(f"its turn is {row.status}, not {wanted}")
        with ThreadPoolExecutor(_AT_ONCE) as at_once:
            told = at_once.map(
                lambda other: _continued(cell, disk, store, session_id, other, place), others
            )
            row.continued = dict(zip((other.name for other in others), told, strict=True))
        request = own_resume(cell, _native_id(cell))
        row.itself = NONE if request is None else kept(cell, request.said()).row(cell)
    except TimeoutExpired as error:
        row.wrong.append(f"it has not ended after {error.timeout:.0f} s")
    except Exception as error:  # noqa: BLE001  (the next cell has none of it)
        row.wrong.append(f"{type(error).__name__}: {str(error)[:200]}")
        if not isinstance(error, ValueError | TimeoutError):
            traceback.print_exc()
    return row


def _continued(
    cell: Cell, disk: Kept, store: Path, session_id: str, other: Agent, place: Path
) -> str:
    """Go on in another agent with a copy of the store; say what is wrong in its next request."""
    own = place / f"in-{other.name}.db"
    own.write_bytes(store.read_bytes())
    try:
        request, told = go_on(own, session_id, other, place / f"in-{other.name}")
        if request is None:
            return "no request came"
        wrong = faults(cell, kept(cell, request.said()), on_disk=disk)
        back = killick(own, "import", told["path"], "--json").json()["sessions"]
        mine = [each for each in back if each["session_id"] == session_id]
        if [each["action"] for each in mine] != ["grown"]:
            wrong.append(f"it came back as {[each['action'] for each in back]}")
        return "; ".join(wrong) or RIGHT
    except (ValueError, KeyError, TimeoutExpired) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _native_id(cell: Cell) -> str:
    """Return the id that the agent itself gave the session."""
    for file in find([cell.sessions], Report()):
        for source in READERS[file.format].read(file.path, ReadOptions(0, settled=True)):
            if isinstance(source, Source):
                return source.native_id
    raise ValueError("it has left no session")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
