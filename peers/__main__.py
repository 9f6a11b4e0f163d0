"""Interrupts each agent in each way, and writes docs/peers.md from what its next turn is sent."""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from peers.subjects import SUBJECTS

PAGE = Path(__file__).parents[1] / "docs" / "peers.md"
NOTHING = "–"  # noqa: RUF001
SCENARIOS = ("par", "seq", "str")


class Seen(NamedTuple):
    """What the model of the next turn is told about the one that was interrupted."""

    prompt: bool
    results: int
    rest: str
    partial: bool | None
    marked: bool
    valid: bool

    @property
    def whole(self) -> bool:
        """Nothing lost, nothing false, nothing that a provider refuses."""
        told = self.rest == "told" or self.partial is True
        return self.prompt and self.results == 2 and told and self.marked and self.valid


def interrupt(name: str, scenario: str, how: str, folder: Path) -> None:
    command = [sys.executable, "-m", "peers.child", name, scenario, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stderr is not None
        if child.stdout.readline() != "MIDDLE\n":
            raise SystemExit(f"{name} {scenario}: {child.stderr.read()[-2000:]}")
        if how == "kill":
            child.kill()
        else:
            child.stdin.write("cancel\n")
            child.stdin.flush()
        child.wait(60)


def ask_again(name: str, scenario: str, folder: Path) -> Seen:
    command = [sys.executable, "-m", "peers.child", name, "ask", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{name} {scenario}: {done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return look(told["messages"], scenario, told["error"])


def look(messages: list[dict[str, Any]], scenario: str, error: str | None) -> Seen:
    """Judge a request by what is in it."""
    text = json.dumps(messages)
    calls = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
    results = {
        one["tool_call_id"]: str(one["content"]) for one in messages if one["role"] == "tool"
    }
    answers = [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    if scenario == "str":
        rest, partial = NOTHING, "word8" in text
    else:
        partial = None
        rest = "told" if "c3" in results else "orphan" if "c3" in calls else "lost"
    return Seen(
        prompt="PROMPT-1" in text,
        results=sum(f"result-{number}" in results.get(f"c{number}", "") for number in (1, 2)),
        rest=rest,
        partial=partial,
        marked="interrupt" in text.lower(),
        valid=error is None and sorted(calls) == sorted(answers),
    )


def row(name: str, scenario: str, how: str, seen: Seen) -> str:
    mark = {True: "yes", False: "**no**", None: NOTHING}
    results = f"{seen.results} of 2" if seen.results == 2 else f"**{seen.results} of 2**"
    rest = f"**{seen.rest}**" if seen.rest in ("lost", "orphan") else seen.rest
    cells = [
        SUBJECTS[name][0],
        scenario,
        how,
        mark[seen.prompt],
        results,
        rest,
        mark[seen.partial],
        mark[seen.marked],
        mark[seen.valid],
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    rows: list[str] = []
    whole: dict[str, int] = {}
    for name in SUBJECTS:
        for scenario in SCENARIOS:
            for how in ("cancel", "kill"):
                with tempfile.TemporaryDirectory() as folder:
                    interrupt(name, scenario, how, Path(folder))
                    seen = ask_again(name, scenario, Path(folder))
                rows.append(row(name, scenario, how, seen))
                whole[name] = whole.get(name, 0) + seen.whole
                print(rows[-1], flush=True)
    PAGE.write_text(page(rows, whole), encoding="utf-8")
    print(f"written to {PAGE}")


def page(rows: list[str], whole: dict[str, int]) -> str:
    packages = sorted({package for _, package, _ in SUBJECTS.values()})
    cells = len(SCENARIOS) * 2
    summary = [f"| {SUBJECTS[name][0]} | {count} of {cells} |" for name, count in whole.items()]
    template = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    return template.format(
        versions=", ".join(f"{package} {version(package)}" for package in packages),
        summary="\n".join(summary),
        rows="\n".join(rows),
    )


if __name__ == "__main__":
    main()
