"""Unpack the sessions that public repositories hold, out of their git directories.

`python -m tests.exchange.repositories MIRRORS FOLDER` reads `MIRRORS/owner+name/repo`, and writes
the files below `FOLDER/owner+name`, for `KILLICK_CORPUS`. None of it is ever committed here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORIES: dict[str, tuple[str, str]] = {
    "entireio/cli": ("entire/checkpoints/v1", r"full\.jsonl$"),  # a copy at each commit
    "simonw/claude-code-transcripts": ("HEAD", r"\.jsonl?$"),
    "daaain/claude-code-log": ("HEAD", r"\.jsonl$"),
    "handgemacht-ai/claude-code-log": ("HEAD", r"^test/test_data/.*\.jsonl$"),
    "arcreflex/agent-transcripts": ("HEAD", r"fixtures/.*\.jsonl$"),
    "swiftdiaries/agent-transcripts": ("HEAD", r"testdata/.*\.jsonl$"),
    "jimmc414/cctrace": ("HEAD", r"\.jsonl$"),
    "wesm/agentsview": ("HEAD", r"testdata/.*\.jsonl?$"),
    "Piebald-AI/splitrail": ("HEAD", r"source_data/"),
    "Sinity/polylogue": ("HEAD", r"^tests/(data|fixtures)/.*\.jsonl?$"),
    "badlogic/pi-mono": ("HEAD", r"fixtures/.*\.jsonl$"),
    "specstoryai/getspecstory": ("HEAD", r"\.specstory/history/.*\.md$|testdata/.*\.jsonl?$"),
    "SWE-agent/SWE-agent": ("HEAD", r"\.traj$"),
    "OpenHands/OpenHands": ("HEAD", r"(trajectory|events?)[^/]*\.json$"),
}
"""The branch that has the sessions, and their paths."""

_SESSION_ID = re.compile(rb'"sessionId":\s*"([^"]+)"')


def unpack(mirrors: Path, folder: Path) -> dict[str, tuple[int, int]]:
    """Write the files of all repositories that are there; return how many, and how many lack."""
    found = dict[str, tuple[int, int]]()
    for name, (branch, paths) in REPOSITORIES.items():
        own = name.replace("/", "+")
        git = mirrors / own / "repo"
        if git.is_dir():
            found[name] = _unpack(git, branch, re.compile(paths), folder / own)
    return found


def _unpack(git: Path, branch: str, paths: re.Pattern[str], folder: Path) -> tuple[int, int]:
    tree = _git(git, "ls-tree", "-r", "-z", branch).split(b"\0")
    missing = 0
    for row in filter(None, tree):
        about, _, path = row.partition(b"\t")
        name = path.decode("utf-8", "replace")
        if not paths.search(name) or ".." in Path(name).parts or about.split()[1] != b"blob":
            continue
        try:
            data = _git(git, "cat-file", "blob", about.split()[2].decode())
        except subprocess.CalledProcessError:
            missing += 1  # the largest files are listed in a mirror and not in it
            continue
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    _keep_longest(folder)
    return sum(file.is_file() for file in folder.rglob("*")), missing


def _keep_longest(folder: Path) -> None:
    """Remove the copies of a session but for the longest."""
    longest = dict[str, Path]()
    for file in sorted(folder.rglob("full.jsonl")):
        name = _SESSION_ID.search(file.read_bytes()[:100_000])
        if name is None:
            continue
        other = longest.setdefault(name[1].decode(), file)
        if other is not file:
            shorter, longer = sorted((other, file), key=lambda one: one.stat().st_size)
            longest[name[1].decode()] = longer
            shorter.unlink()


def _git(git: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    done = subprocess.run(
        ["git", "--git-dir", str(git), *arguments], capture_output=True, check=True,
        env=environment,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    for repository, (count, lacking) in unpack(Path(sys.argv[1]), Path(sys.argv[2])).items():
        print(f"{repository}: {count} files, {lacking} that the mirror lacks")
