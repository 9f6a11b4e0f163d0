"""A run as a table and as JSON, and the document that is made of the last full one."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec

from torture.running import Total

ROOT = Path(__file__).parents[1]


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


def made(totals: Sequence[Total], size: str, workers: int, seconds: float) -> Run:
    return Run(
        command="make torture-long" if size == "long" else "make torture",
        commit=_git("rev-parse", "--short=12", "HEAD")
        + (_git("status", "--porcelain", "src") and "+"),
        date=datetime.now(UTC).date().isoformat(),
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
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    rule = ["-" * width for width in widths[:1]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    lines.insert(1, _line(rule, widths))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
    return "| " + " | ".join(padded) + " |"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
