"""Interrupts each agent in each way, and writes docs/peers.md from what its next turn is sent.

    python -m peers [SUBJECT … | finish]

Each runs in the environment of its framework. What was measured is kept in docs/peers.json, so that
one framework can be measured again alone.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from peers import finish
from peers.agents import Agents, agents
from peers.subjects import SUBJECTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "peers.md"
MEASURED = ROOT / "docs" / "peers.json"
NOTHING = "–"  # noqa: RUF001
SCENARIOS = ("par", "seq", "str", "noid", "sub", "fail", "wait")
CELLS = [(scenario, how) for scenario in SCENARIOS for how in ("cancel", "kill", "timeout")]
WITHOUT_RESULTS = ("sub", "wait")
_FINISH = "finish"
_AT_ONCE = 4
_DROPS_IDLESS = ("strands", "strands_killick")
"""Subjects whose framework drops a call without an id, and asks the model again without end."""


class Seen(NamedTuple):
    """What the model of the next turn is told about the one that was interrupted."""

    prompt: bool
    results: int | None
    rest: str
    partial: bool | None
    marked: bool
    valid: bool

    @property
    def whole(self) -> bool:
        """Nothing lost, nothing false, nothing that a provider refuses."""
        told = self.rest == "told" or self.partial is True
        return self.prompt and self.results in (None, 2) and told and self.marked and self.valid


def cells(name: str) -> list[tuple[str, str]]:
    if name in _DROPS_IDLESS:
        return [cell for cell in CELLS if cell[0] != "noid"]
    return CELLS


def python(name: str) -> str:
    return str(ROOT / SUBJECTS[name].environment / "bin" / "python")


def look(messages: list[dict[str, Any]], scenario: str, error: str | None) -> Seen:
    """Judge a request by what is in it."""
    whole = json.dumps(messages)
    calls = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
    answers = [
        (one["tool_call_id"], str(one["content"])) for one in messages if one["role"] == "tool"
    ]
    real = [("result-1",), ("result-2",)]
    if scenario == "fail":  # that it failed is the truth about the second, in its or others' words
        real[1] = ("boom", "An error occurred")
    others = [text for _, text in answers if not any(word in text for one in real for word in one)]
    rest, partial = NOTHING, None
    if scenario == "str":
        partial = "word8" in whole
    elif scenario == "fail" and error_ended(messages):
        rest = "told"  # the failing tool was the last
    else:
        rest = "told" if others else "orphan" if len(calls) > len(answers) else "lost"
    known = sum(any(word in text for _, text in answers for word in one) for one in real)
    return Seen(
        prompt="PROMPT-1" in whole,
        results=None if scenario in WITHOUT_RESULTS else known,
        rest=rest,
        partial=partial,
        marked=any(word in whole.lower() for word in ("interrupt", "failed", "approv")),
        valid=error is None and sorted(map(str, calls)) == sorted(str(one) for one, _ in answers),
    )


def error_ended(messages: list[dict[str, Any]]) -> bool:
    """Tell whether the failing tool ended the run: then there was no third call."""
    return sum(len(one.get("tool_calls") or ()) for one in messages) == 2


def row(name: str, scenario: str, how: str, seen: Seen) -> str:
    mark = {True: "yes", False: "**no**", None: NOTHING}
    results = NOTHING if seen.results is None else f"{seen.results} of 2"
    if seen.results not in (None, 2):
        results = f"**{results}**"
    rest = f"**{seen.rest}**" if seen.rest in ("lost", "orphan") else seen.rest
    columns = [
        SUBJECTS[name].label,
        scenario,
        how,
        mark[seen.prompt],
        results,
        rest,
        mark[seen.partial],
        mark[seen.marked],
        mark[seen.valid],
    ]
    return f"| {' | '.join(columns)} |"


def measure(name: str, run: str) -> dict[str, Any]:
    """Interrupt one agent in every way."""
    seen: list[list[Any]] = []
    with agents(python(name), name) as made, ThreadPoolExecutor(_AT_ONCE) as pool:
        places = cells(name)
        for (scenario, how), found in zip(
            places, pool.map(lambda place: _cell(made, *place), places), strict=True
        ):
            if found is not None:
                seen.append([scenario, how, *found])
                whole = "WHOLE" if found.whole else ""
                print(row(name, scenario, how, found), whole, flush=True)
    versions = _versions(python(name), SUBJECTS[name].packages)
    return {"run": run, "versions": versions, "cells": seen}


def _cell(made: Agents, scenario: str, how: str) -> Seen | None:
    with tempfile.TemporaryDirectory() as folder:
        if not made.interrupt(scenario, how, Path(folder)):
            return None
        told = made.ask_again(scenario, Path(folder))
    return look(told["messages"], scenario, told["error"])


def _versions(python_: str, packages: Sequence[str]) -> dict[str, str]:
    program = (
        "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    )
    command = [python_, "-c", program, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def main(names: list[str]) -> None:
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    run = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    for name in names or [*SUBJECTS, _FINISH]:
        if name == _FINISH:
            python_ = finish.python(ROOT)
            versions = _versions(python_, finish.PACKAGES)
            measured[name] = {"run": run, **finish.measure(python_, versions)}
        else:
            measured[name] = measure(name, run)
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in measured.items()]
        MEASURED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        PAGE.write_text(page(measured), encoding="utf-8")
    print(f"written to {PAGE}")


def runs_of(begun: dict[str, str]) -> str:
    """Say that all was measured in one run, or what was measured when."""
    [newest, *older] = sorted(set(begun.values()), reverse=True)
    if not older:
        return f"All of it is one run, begun on {newest} UTC"
    told = [f"{', '.join(name for name in begun if begun[name] == one)}: {one}" for one in older]
    others = "; ".join(told)
    return f"It is one run, begun on {newest} UTC, but for what another measured ({others})"


def page(measured: dict[str, Any]) -> str:
    known = [name for name in SUBJECTS if name in measured]
    told = {
        name: [(*cell[:2], Seen(*cell[2:])) for cell in measured[name]["cells"]] for name in known
    }
    whole = {name: sum(seen.whole for *_, seen in told[name]) for name in known}
    summary = [f"| {SUBJECTS[name].label} | {whole[name]} of {len(told[name])} |" for name in known]
    rows = [row(name, *cell) for name in known for cell in told[name]]
    used = {
        package: number for name in known for package, number in measured[name]["versions"].items()
    }
    template = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return template.format(
        run=runs_of({name: str(entry.get("run")) for name, entry in measured.items()}),
        versions=", ".join(f"{package} {number}" for package, number in sorted(used.items())),
        summary="\n".join(summary),
        rows="\n".join(rows),
        runs=finish.section(measured[_FINISH]) if _FINISH in measured else "",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
