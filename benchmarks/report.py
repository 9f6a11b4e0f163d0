"""The table, on the screen and in the document."""

import argparse
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw
import msgspec

from benchmarks.results import Result
from killick.stores.sqlite.connection import file_system

DOCUMENT: Final = Path(__file__).parent.parent / "docs" / "performance.md"
OUT: Final = Path(__file__).parent / "out"
"""Results of a run belong to the machine it ran on; git ignores them."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All that one run found, and where it ran."""

    commit: str
    date: str
    blocks: int
    machine: str
    results: list[Result]


def machine(folder: Path) -> str:
    mounts = Path("/proc/self/mountinfo")
    kind = file_system(folder, mounts.read_text()) if mounts.exists() else None
    load = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"file system {kind or 'unknown'}, load {load:.1f}"
    )


def commit_and_date() -> tuple[str, str]:
    """Of the newest commit, marked when the package has changed since."""
    root = Path(__file__).parent.parent
    commit, date = _git(root, "log", "-1", "--format=%h %cs").split() or ("unknown", "unknown")
    changed = _git(root, "status", "--porcelain", "--", "src")
    return commit + (" and changes not committed" if changed else ""), date


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=OUT, help=f"default: {OUT.parent.name}/out"
    )


def keep(folder: Path, name: str, found: object) -> None:
    """All figures of a run, for a program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))


def table(results: Sequence[Result]) -> str:
    rows = [("what", "figure (95 % interval)", "goal", "holds", "absolute")]
    for one in results:
        verdict = "" if one.holds is None else "yes" if one.holds else "NO"
        rows.append((one.what, one.figure, one.goal, verdict, one.absolute))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table in Markdown, the first of them its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def write_document(run: Run, document: Path = DOCUMENT) -> None:
    """Put the table between the markers; the rest of the document is left alone."""
    about = f"Commit {run.commit}, {run.date}; {run.machine}; {run.blocks} paired blocks."
    replace_between(document, "benchmarks", f"{about}\n\n{table(run.results)}")


def replace_between(document: Path, name: str, text: str) -> None:
    """Put a text between the markers of this name in a document."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = document.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{document.name} has no place for the table: {begin} … {end}")
    document.write_text("\n".join([before + begin, text, end + after]), encoding="utf-8")
