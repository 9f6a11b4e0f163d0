"""A run as a table and as JSON, and the document that is made of the last full one."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec

from torture.findings import Finding, load
from torture.running import Total

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "evidence.json"
PAGE = ROOT / "docs" / "evidence.md"
MUTANTS = ROOT / "docs" / "mutants.json"
CORPUS = ROOT / "docs" / "corpus.json"
CORPORA = {"streams": ("vercel-ai", "pydantic-ai"), "templates": ("llama.cpp",)}
"""What `make corpus` tries, and the folders in KILLICK_CORPUS that it needs."""


_LONG = "make torture-long"


class Machine(msgspec.Struct, frozen=True):
    cores: int
    system: str
    python: str
    sqlite: str


class Run(msgspec.Struct, frozen=True):
    """One run of all campaigns."""

    command: str
    commit: str
    date: str
    workers: int
    seconds: float
    machine: Machine
    totals: list[Total]


class Tried(msgspec.Struct, frozen=True):
    """What was counted when other people's recordings were tried, and of which commits."""

    date: str
    commit: str
    sources: dict[str, str]
    counts: dict[str, int]


class PackageFigures(msgspec.Struct, frozen=True):
    """What became of the mutants of one package."""

    name: str
    caught: int
    survived: int
    equivalent: int


class Figures(msgspec.Struct, frozen=True):
    """One run of `make mutate`."""

    seed: int
    drawn: int
    date: str
    commit: str
    packages: list[PackageFigures]
    survivors: list[str]

    @property
    def caught(self) -> int:
        return sum(one.caught for one in self.packages)

    @property
    def tried(self) -> int:
        return sum(one.caught + one.survived for one in self.packages)

    @property
    def share(self) -> float:
        """How many were caught, of those that were tried."""
        return self.caught / self.tried if self.tried else 0.0


def when_and_where() -> tuple[str, str]:
    """Return today's date and the commit."""
    return datetime.now(UTC).date().isoformat(), _commit()


def made(
    totals: Sequence[Total], size: str, workers: int, seconds: float, share: float = 1.0
) -> Run:
    command = _LONG if size == "long" else "make torture"
    date, commit = when_and_where()
    return Run(
        command=command if share >= 1 else f"{command}, {share:.0%} of it",
        commit=commit,
        date=date,
        workers=workers,
        seconds=seconds,
        machine=Machine(
            os.cpu_count() or 0,
            platform.system(),
            platform.python_version(),
            apsw.sqlite_lib_version(),
        ),
        totals=[total for total in totals if total.wanted],
    )


def as_json(run: Run) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run)) + b"\n"


def read_json(data: bytes) -> Run:
    return msgspec.json.decode(data, type=Run)


def write_document(run: Run) -> None:
    """Renew the evidence: the run as data, and the page that is made of it.

    What a failure raised is left out: it names paths of one machine, and its seed shows it again.
    """
    bare = msgspec.structs.replace(run, totals=[_without_errors(one) for one in run.totals])
    DATA.write_bytes(as_json(bare))
    PAGE.write_text(document(run, load()), encoding="utf-8")


def renewed(run: Run, before: Run) -> Run:
    """Return an earlier run with the campaigns of this one in their places, marked as run alone."""
    alone = f"{run.date}, commit `{run.commit}`"
    if run.command.startswith(_LONG):
        alone += f", with `--long` ({run.seconds / 60:.0f} minutes)"
    new = {one.name: msgspec.structs.replace(one, alone=alone) for one in run.totals}
    kept = [new.pop(one.name, one) for one in before.totals]
    return msgspec.structs.replace(before, totals=[*kept, *new.values()])


def write_mutants(figures: Figures) -> None:
    """Keep the figures of a run of `make mutate`, and renew the page."""
    MUTANTS.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    PAGE.write_text(document(read_json(DATA.read_bytes()), load()), encoding="utf-8")


def _without_errors(total: Total) -> Total:
    failures = [msgspec.structs.replace(one, error="") for one in total.failures]
    return msgspec.structs.replace(total, failures=failures)


def document(run: Run, findings: Sequence[Finding]) -> str:
    """The page: nothing in it is typed by hand but the words around the figures."""
    machine = run.machine
    lines = [
        "# What was tried, and what was lost",
        "",
        "`python -m torture --write-docs` makes this page from `evidence.json` beside it and from",
        "`torture/findings.toml`. Each row is a campaign that tries to lose something. A case is",
        "one attempt; a failure is one in which something did not hold. The same seed does the",
        "same again: `python -m torture --campaign NAME --seed N`. [What is",
        "promised](guarantees.md) names the campaign that shows it.",
        "",
        "## The run",
        "",
        f"`{run.command}` on {run.date}, commit `{run.commit}`: {run.workers} processes on",
        f"{machine.cores} cores, {machine.system}, Python {machine.python}, SQLite",
        f"{machine.sqlite}; {run.seconds / 60:.0f} minutes by the clock.",
        "",
        table(run),
        "",
        *_alone(run),
        *_failures(run),
        "## What each campaign does",
        "",
        "| campaign | tries | holds when |",
        "|---|---|---|",
        *(f"| `{one.name}` | {one.tries} | {one.holds} |" for one in run.totals),
        "",
        *_corpus(),
        *_mutants(),
        "## What the campaigns found",
        "",
        "Each was mended before the run above. It stays as a test, as a seed that CI runs again,",
        "or as a piece of the museum: a copy of the package with the bug in it, to be found by CI.",
        "",
    ]
    for one in findings:
        lines += [
            f"- **{one.name}** (`{one.campaign}`, {one.since}). {one.what}",
            f"  {_kept(one)}",
        ]
    return "\n".join(lines) + "\n"


def _mutants() -> list[str]:
    """The section on bugs that were planted by rule, from the last run that was kept."""
    if not MUTANTS.exists():
        return []
    figures = msgspec.json.decode(MUTANTS.read_bytes(), type=Figures)
    return [
        "## Bugs planted by rule",
        "",
        "`make mutate` changes one place of a function at a time (a comparison, a condition, a",
        "constant, two arguments, a statement or a `raise` left out) and asks the tests that run",
        "its line, forty at most. A mutant is caught when one of them fails. Those that change",
        "nothing a test could see are listed with the reason in `mutate/equivalent.toml`.",
        "",
        f"Seed {figures.seed}, on {figures.date}, commit `{figures.commit}`: of {figures.drawn}"
        f" drawn, {figures.tried} were tried and {figures.caught} caught ({figures.share:.1%}).",
        "",
        *mutant_table(figures),
        "",
    ]


def _corpus() -> list[str]:
    """The section on what others recorded, from the last run of `make corpus` that was kept."""
    if not CORPUS.exists():
        return []
    tried = msgspec.json.decode(CORPUS.read_bytes(), type=dict[str, Tried])
    lines = [
        "## What others recorded",
        "",
        "`KILLICK_CORPUS=FOLDER make corpus` tries what is in a folder with clones of other",
        "repositories: `vercel-ai` ([vercel/ai](https://github.com/vercel/ai)), `pydantic-ai`",
        "([pydantic/pydantic-ai](https://github.com/pydantic/pydantic-ai)) and `llama.cpp`",
        "([ggml-org/llama.cpp](https://github.com/ggml-org/llama.cpp)). Nothing of them is in this",
        "repository. A violation fails it, and then no figure is kept.",
        "",
    ]
    streams, templates = tried.get("streams"), tried.get("templates")
    if streams is not None:
        lines += [
            "Streams that real providers sent, from the test suites of the first two, each cut",
            "behind every event and recorded: the text is that of the SDK's own accumulator (plain",
            "appending, where the SDK has none or gives up), and the next request is valid in four",
            f"formats. {_of(streams)}",
            "",
            *_counts(streams),
            "",
        ]
    if templates is not None:
        lines += [
            "Chat templates of llama.cpp (`models/templates`), filled with a conversation that",
            "calls a tool, and with the same one interrupted in the tool: each that takes the",
            f"first takes the second, with the profile `llama.cpp` or `mistral`. {_of(templates)}",
            "",
            *_counts(templates),
            "",
        ]
    return lines


def _of(tried: Tried) -> str:
    sources = ", ".join(f"{name} `{commit}`" for name, commit in tried.sources.items())
    return f"On {tried.date}, commit `{tried.commit}`; {sources}:"


def _counts(tried: Tried) -> list[str]:
    rows = [("counted", "number"), *((name, f"{n:,}") for name, n in tried.counts.items())]
    return _aligned(rows)


def mutant_table(figures: Figures) -> list[str]:
    rows = [("package", "tried", "caught", "survived", "equivalent")]
    everything = PackageFigures(
        "all",
        figures.caught,
        figures.tried - figures.caught,
        sum(one.equivalent for one in figures.packages),
    )
    rows += [
        (
            one.name,
            f"{one.caught + one.survived}",
            f"{one.caught}",
            f"{one.survived}",
            f"{one.equivalent}",
        )
        for one in (*figures.packages, everything)
    ]
    return _aligned(rows)


def _alone(run: Run) -> list[str]:
    """Say which rows are not of the run, and of which one they are."""
    rows = [f"- `{one.name}`: {one.alone}" for one in run.totals if one.alone]
    if not rows:
        return []
    told = "Run again without the others, by `python -m torture --campaign NAME --write-docs`:"
    return [told, "", *rows, ""]


def _failures(run: Run) -> list[str]:
    failures = [failure for total in run.totals for failure in total.failures]
    if not failures:
        return []
    return ["Failures:", "", *(f"- `{one.command}`: {one.what}" for one in failures), ""]


def _kept(one: Finding) -> str:
    names = [f"`{test}`" for test in one.tests]
    names += [f"seed {seed}" for seed in one.seeds]
    names += [f"`tests/museum/pieces/{one.museum}.toml`"] if one.museum else []
    return f"Kept as {', '.join(names)}."


def table(run: Run) -> str:
    """For a person; a Markdown table is read as well on a terminal."""
    rows = [("campaign", "cases", "seeds", "failures", "processor seconds")]
    for total in run.totals:
        seeds = f"{total.first_seed} to {total.last_seed}"
        rows.append(
            (
                total.name,
                f"{total.cases:,}",
                seeds,
                f"{len(total.failures)}",
                f"{total.cpu_seconds:,.0f}",
            )
        )
    cases = sum(total.cases for total in run.totals)
    failures = sum(len(total.failures) for total in run.totals)
    used = sum(total.cpu_seconds for total in run.totals)
    rows.append(("all", f"{cases:,}", "", f"{failures}", f"{used:,.0f}"))
    return "\n".join(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    rule = ["-" * width for width in widths[:1]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    lines.insert(1, _line(rule, widths))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
    return "| " + " | ".join(padded) + " |"


def _commit() -> str:
    changed = _git("status", "--porcelain", "src", "torture", "tests")
    return _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
