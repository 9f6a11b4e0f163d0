"""The pieces of the museum: bugs that others had, as small changes of our own code.

Each file in `pieces` names the report it comes from, what it breaks, the change and what must catch
it. A change is text that occurs once in a file, and the text in its place: no line numbers, so that
it survives whatever else changes in that file. Nothing here touches the package: a piece is hung in
a copy of it.
"""

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "killick"
PIECES = sorted((Path(__file__).parent / "pieces").glob("*.toml"))
SECONDS = 55

_LEAN = ["-p", "no:cacheprovider", "-p", "pytest_timeout"]
"""Only the plugins that are needed: the others take longer than the test."""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    old: str
    new: str


class CaughtBy(msgspec.Struct, forbid_unknown_fields=True):
    campaign: str | None = None
    test: str | None = None


class Piece(msgspec.Struct, forbid_unknown_fields=True):
    """One bug."""

    report: str
    breaks: str
    caught_by: CaughtBy
    change: list[Change]


class DoesNotApply(Exception):
    """The text that a piece changes is not there any more, or there twice: renew the piece."""


def load(path: Path) -> Piece:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Piece)


def copy_and_compile(folder: Path, source: Path = SOURCE) -> None:
    """The package with its bytecode, for pieces to be hung in copies of it: that is quicker."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, folder / source.name, ignore=ignore)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, invalidation_mode=unchecked)


def hang(piece: Piece, compiled: Path, folder: Path) -> None:
    """A copy of the package in the folder, with the bug in it."""
    shutil.copytree(compiled / "killick", folder / "killick")
    for change in piece.change:
        file = folder / "killick" / change.file
        for bytecode in file.parent.glob(f"__pycache__/{file.stem}.*"):
            bytecode.unlink()
        text = file.read_text(encoding="utf-8")
        if text.count(change.old) != 1:
            raise DoesNotApply(f"{change.file}: found {text.count(change.old)} times")
        file.write_text(text.replace(change.old, change.new), encoding="utf-8")


def command(piece: Piece) -> list[str]:
    """What must fail: the slice of a campaign that CI runs, or a test."""
    if piece.caught_by.campaign is not None:
        name = piece.caught_by.campaign
        return ["-m", "torture", "--campaign", name, "--slice", "--until-failure"]
    assert piece.caught_by.test is not None
    return ["-m", "pytest", "-x", "-q", *_LEAN, piece.caught_by.test]


def visit(piece: Piece, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what must catch the piece, against the copy."""
    return subprocess.run(
        [sys.executable, *command(piece)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
