"""The rows of docs/agents.md, kept in docs/agents.json: a run of some agents renews only theirs."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.lab.agents import AGENTS, ROOT, VERSIONS
from tests.lab.cells import EVENTS, Event

NONE = "\u2013"
RIGHT = "right"
PAGE = ROOT / "docs" / "agents.md"
ROWS = ROOT / "docs" / "agents.json"
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
    """One cell's results, of one day."""

    agent: str
    event: Event
    version: str
    day: str
    itself: str = NONE
    disk: str = NONE
    ours: str = NONE
    status: str = NONE
    cannot_know: str = ""
    """What its files do not tell, so that nobody can know it."""
    wrong: list[str] = field(default_factory=list)
    continued: dict[str, str] = field(default_factory=dict)
    followed: str = ""
    """What became of it here while it was followed, and how soon."""
    at_once: str = ""
    """The same, while ten were followed at once."""
    idle: float | None = None
    """The share of a core that following all ten took, while they waited for their tools."""
    followed_on: str = ""

    @property
    def is_right(self) -> bool:
        return not self.wrong and all(told == RIGHT for told in self.continued.values())


def version(name: str) -> str:
    """Return the version of an agent that is pinned."""
    return VERSIONS[name].split(" ")[0].replace("==", "@").rpartition("@")[2]


def load(path: Path = ROWS) -> list[Row]:
    """Return the rows of earlier runs, those of pinned versions alone."""
    if not path.exists():
        return []
    rows = [Row(**row) for row in json.loads(path.read_text("utf-8"))]
    return [row for row in rows if row.agent in AGENTS and row.version == version(row.agent)]


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """Return all rows in the order of the agents, the new ones in place of the old.

    What is known of following is measured apart, and stays.
    """
    found = {(row.agent, row.event): row for row in old}
    for row in new:
        had = found.get((row.agent, row.event))
        if had is not None and not row.followed_on:
            row.followed, row.at_once = had.followed, had.at_once
            row.idle, row.followed_on = had.idle, had.followed_on
        found[row.agent, row.event] = row
    return [found[name, event] for name in AGENTS for event in EVENTS if (name, event) in found]


def write(rows: list[Row], page: Path = PAGE, path: Path = ROWS) -> None:
    """Write the rows, and the page between its marks."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", "utf-8")
    replace_between(
        page, BEGIN, END, [*_sum(rows), *_events(rows), *_followed(rows), *_matrix(rows)]
    )


def replace_between(page: Path, begin: str, end: str, lines: list[str]) -> None:
    """Put lines between two marks of a page."""
    text = page.read_text("utf-8")
    before, _, rest = text.partition(begin)
    page.write_text("\n".join([before + begin, "", *lines, end]) + rest.partition(end)[2], "utf-8")


def _sum(rows: list[Row]) -> list[str]:
    went_on = [told for row in rows for told in row.continued.values()]
    agents, right = {row.agent for row in rows}, sum(not row.wrong for row in rows)
    unknown = [row for row in rows if row.cannot_know]
    lines = [
        f"{right} of {len(rows)} cells of {len(agents)} agents are right, and "
        f"{went_on.count(RIGHT)} of {len(went_on)} sessions that went on in an agent.",
        "",
    ]
    if unknown:
        lines += ["What an agent's own files do not tell, Killick cannot know:", ""]
        lines += [f"- {row.agent}, {TITLES[row.event]}: {row.cannot_know}." for row in unknown]
        lines.append("")
    return lines


def _events(rows: list[Row]) -> list[str]:
    lines = list[str]()
    for event in EVENTS:
        lines += [f"### {TITLES[event][0].upper()}{TITLES[event][1:]}", ""]
        lines += [
            "| agent | run on | its own next request has | on its disk | Killick has | turn |"
        ]
        lines += ["|---|---|---|---|---|---|"]
        for row in rows:
            if row.event == event:
                wrong = f". **Wrong:** {'; '.join(row.wrong)}" if row.wrong else ""
                cells = [f"{row.agent} {row.version}", row.day, row.itself, row.disk]
                lines.append(f"| {' | '.join([*cells, row.ours + wrong, row.status])} |")
        lines.append("")
    return lines


def _followed(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row.followed or row.at_once]
    if not found:
        return []
    lines = ["### Followed live by `killick attach`, and killed among its tools", ""]
    lines += ["| agent | run on | here after kill -9 | killed one by one while ten were followed |"]
    lines += ["|---|---|---|---|"]
    for row in found:
        head = [f"{row.agent} {row.version}", row.followed_on or row.day]
        cells = [*head, row.followed or NONE, row.at_once or NONE]
        lines.append(f"| {' | '.join(cells)} |")
    idle = [row.idle for row in found if row.idle is not None]
    if idle:
        lines += ["", f"While all ten waited, `killick attach` took {max(idle):.2%} of a core."]
    return [*lines, ""]


def _matrix(rows: list[Row]) -> list[str]:
    names = [name for name in AGENTS if any(name in row.continued for row in rows)]
    lines = list[str]()
    for event in MATRIX:
        of_event = [row for row in rows if row.event == event and row.continued]
        if not of_event:
            continue
        lines += [f"### Continued elsewhere: {TITLES[event]}", ""]
        lines.append(f"| from, in | run on | {' | '.join(names)} |")
        lines.append("|---|---|" + "---|" * len(names))
        for row in of_event:
            cells = (row.continued.get(name, NONE) for name in names)
            lines.append(f"| {row.agent} | {row.day} | {' | '.join(cells)} |")
        lines.append("")
    return lines
