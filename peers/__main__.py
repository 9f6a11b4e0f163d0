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
from pathlib import Path
from typing import Any, NamedTuple

from peers import finish
from peers.subjects import SUBJECTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "peers.md"
MEASURED = ROOT / "docs" / "peers.json"
NOTHING = "–"  # noqa: RUF001
CELLS = [
    *(
        (scenario, how)
        for scenario in ("par", "seq", "str")
        for how in ("cancel", "kill", "timeout")
    ),
    *(("noid", how) for how in ("cancel", "kill")),
    *(("sub", how) for how in ("cancel", "kill")),
    *(("fail", "kill"), ("wait", "kill")),
]
WITHOUT_RESULTS = ("sub", "wait")
_FINISH = "finish"
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


def interrupt(name: str, scenario: str, how: str, folder: Path) -> bool:
    """Run an agent until it is in the middle; False if its framework refuses to go there."""
    command = [python(name), "-m", "peers.child", name, scenario, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stderr is not None
        line = child.stdout.readline()
        if line.startswith("REFUSED"):
            print(name, scenario, line.strip(), flush=True)
            return False
        if line != "MIDDLE\n":
            raise SystemExit(f"{name} {scenario}: {child.stderr.read()[-2000:]}")
        if how == "kill":
            child.kill()
        else:
            child.stdin.write(f"{how}\n")
            child.stdin.flush()
        child.wait(60)
    return True


def ask_again(name: str, scenario: str, folder: Path) -> Seen:
    command = [python(name), "-m", "peers.child", name, "ask", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{name} {scenario}: {done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return look(told["messages"], scenario, told["error"])


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


def measure(name: str) -> dict[str, Any]:
    """Interrupt one agent in every way."""
    seen: list[list[Any]] = []
    for scenario, how in cells(name):
        with tempfile.TemporaryDirectory() as folder:
            if not interrupt(name, scenario, how, Path(folder)):
                continue
            found = ask_again(name, scenario, Path(folder))
        seen.append([scenario, how, *found])
        print(row(name, scenario, how, found), "WHOLE" if found.whole else "", flush=True)
    return {"versions": _versions(python(name), SUBJECTS[name].packages), "cells": seen}


def _versions(python_: str, packages: Sequence[str]) -> dict[str, str]:
    program = (
        "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    )
    command = [python_, "-c", program, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def main(names: list[str]) -> None:
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name in names or [*SUBJECTS, _FINISH]:
        if name == _FINISH:
            python_ = finish.python(ROOT)
            measured[name] = finish.measure(python_, _versions(python_, finish.PACKAGES))
        else:
            measured[name] = measure(name)
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in measured.items()]
        MEASURED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        PAGE.write_text(page(measured), encoding="utf-8")
    print(f"written to {PAGE}")


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
        versions=", ".join(f"{package} {number}" for package, number in sorted(used.items())),
        summary="\n".join(summary),
        rows="\n".join(rows),
        runs=finish.section(measured[_FINISH]) if _FINISH in measured else "",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
