"""Run the laboratory: every agent, every event, then each session on in every agent.

`python -m tests.lab` installs the agents, runs all cells, and writes docs/agents.md.
Names of agents choose some; `--no-matrix` leaves the continuing out.
"""

import argparse
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory

from killick.exchange.formats import ReadOptions
from killick.exchange.importer import READERS, find
from killick.exchange.records import Report, Source
from tests.lab.agents import AGENTS, ROOT, VERSIONS, Agent, install
from tests.lab.cells import EVENTS, Cell, Event, run
from tests.lab.going_on import bring_in, go_on, killick, own_resume, stored
from tests.lab.results import Kept, faults, kept, on_disk

_NONE = "\u2013"
PAGE = ROOT / "docs" / "agents.md"
BEGIN, END = "<!-- make lab: begin -->", "<!-- make lab: end -->"
MATRIX: tuple[Event, ...] = ("whole", "kill_tools")
TITLES: dict[Event, str] = {
    "whole": "a whole turn, two tools",
    "kill_tools": "kill -9, two of three tools done",
    "kill_text": "kill -9 in the text",
    "failure": "the model refuses",
    "ctrl_c": "Ctrl+C in the text",
}


@dataclass
class Row:
    """One cell's results."""

    agent: str
    event: Event
    itself: str = _NONE
    disk: str = _NONE
    ours: str = _NONE
    status: str = _NONE
    wrong: list[str] = field(default_factory=list)
    continued: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Run it all; the exit code says whether every cell is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("agents", nargs="*", default=list(AGENTS))
    parser.add_argument("--no-matrix", action="store_true")
    parser.add_argument("--matrix", nargs="*", default=list(MATRIX), help="events to go on after")
    parser.add_argument("--dry", action="store_true", help="write no page")
    chosen = parser.parse_args(arguments)
    agents = [AGENTS[name] for name in chosen.agents]
    for agent in agents:
        install(agent)
    rows = list[Row]()
    for agent in agents:
        for event in EVENTS:
            with TemporaryDirectory(prefix="killick-lab-") as place:
                row = _cell(agent, event, Path(place), _others(chosen, event))
            rows.append(row)
            print(f"{agent.name} {event}: {row.status}; {row.ours}; {row.wrong or 'right'}")
            for name, result in row.continued.items():
                print(f"    in {name}: {result}")
            sys.stdout.flush()
    if not chosen.dry:
        _write(rows, agents)
    wrong = [row for row in rows if row.wrong or any(v != "right" for v in row.continued.values())]
    print(f"{len(rows) - len(wrong)} of {len(rows)} cells are right")
    return 1 if wrong else 0


def _others(chosen: argparse.Namespace, event: Event) -> list[Agent]:
    """Return the agents in which a cell's session goes on."""
    if chosen.no_matrix or event not in chosen.matrix:
        return []
    return [AGENTS[name] for name in chosen.agents]


def _cell(agent: Agent, event: Event, place: Path, others: list[Agent]) -> Row:
    row = Row(agent.name, event)
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
        wanted = "completed" if event == "whole" else "failed" if disk.failure else "interrupted"
        if row.status != wanted:
            row.wrong.append(f"its turn is {row.status}, not {wanted}")
        for other in others:
            row.continued[other.name] = _continued(cell, disk, store, session_id, other, place)
        request = own_resume(cell, _native_id(cell))
        row.itself = _NONE if request is None else kept(cell, request.said()).row(cell)
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
        return "; ".join(wrong) or "right"
    except (ValueError, KeyError) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _native_id(cell: Cell) -> str:
    """Return the id that the agent itself gave the session."""
    for file in find([cell.sessions], Report()):
        for source in READERS[file.format].read(file.path, ReadOptions(0, settled=True)):
            if isinstance(source, Source):
                return source.native_id
    raise ValueError("it has left no session")


# -- the page --------------------------------------------------------------------------------------


def _write(rows: list[Row], agents: list[Agent]) -> None:
    lines = [BEGIN, "", *_events(rows), *_matrix(rows, agents), END]
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + "\n".join(lines) + rest.partition(END)[2], "utf-8")


def _version(name: str) -> str:
    return VERSIONS[name].split(" ")[0].replace("==", "@").rpartition("@")[2]


def _events(rows: list[Row]) -> list[str]:
    lines = list[str]()
    for event in EVENTS:
        lines += [f"### {TITLES[event][0].upper()}{TITLES[event][1:]}", ""]
        lines += ["| agent | its own next request has | on its disk | Killick has | turn |"]
        lines += ["|---|---|---|---|---|"]
        for row in rows:
            if row.event == event:
                ours = (
                    row.ours if not row.wrong else f"{row.ours}. **Wrong:** {'; '.join(row.wrong)}"
                )
                name = f"{row.agent} {_version(row.agent)}"
                lines.append(f"| {name} | {row.itself} | {row.disk} | {ours} | {row.status} |")
        lines.append("")
    return lines


def _matrix(rows: list[Row], agents: list[Agent]) -> list[str]:
    lines = list[str]()
    for event in MATRIX:
        if not any(row.continued for row in rows if row.event == event):
            continue
        lines += [f"### Continued elsewhere: {TITLES[event]}", ""]
        lines.append(f"| from, in | {' | '.join(agent.name for agent in agents)} |")
        lines.append("|---|" + "---|" * len(agents))
        for row in rows:
            if row.event == event:
                cells = (row.continued.get(agent.name, _NONE) for agent in agents)
                lines.append(f"| {row.agent} | {' | '.join(cells)} |")
        lines.append("")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
