"""Figures of tests on other people's recordings, kept for docs/evidence.md by `make corpus`."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torture import report

_LENGTH = 12


def keep(name: str, corpus: Path, counts: Mapping[str, int]) -> None:
    """Write what was counted into the file that KILLICK_CORPUS_FIGURES names, if it does."""
    given = os.environ.get("KILLICK_CORPUS_FIGURES")
    if not given:
        return
    file = Path(given)
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    date, commit = report.when_and_where()
    sources = {source: _commit(corpus / source) for source in report.CORPORA[name]}
    known[name] = {"date": date, "commit": commit, "sources": sources, "counts": dict(counts)}
    file.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n", encoding="utf-8")


def _commit(tree: Path) -> str:
    """Return the commit of a clone; of a tree without its history, what its file COMMIT says.

    A figure of a tree that cannot be named cannot be made again: it raises.
    """
    if (tree / ".git").exists():
        asked = ["git", "-C", str(tree), "rev-parse", "HEAD"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return done.stdout.strip()[:_LENGTH]
    said = tree / "COMMIT"
    commit = said.read_text(encoding="utf-8").strip()[:_LENGTH] if said.exists() else ""
    if not commit:
        raise ValueError(f"{tree.name} is no clone: write its commit into {tree.name}/COMMIT")
    return commit
