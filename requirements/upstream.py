"""Fetch the frameworks' own tests, of the versions that the adapters are tested with.

    python requirements/upstream.py FOLDER

The source distribution of a version has its tests, or else the repository at the version's tag.
What cannot be had is named, and the tests that read it are skipped.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

LOCKS = Path(__file__).with_name("adapters")
DISTRIBUTIONS = {
    "openai-agents": "openai_agents",
    "langgraph": "langgraph",
    "strands-agents": "strands",
}
REPOSITORIES = {
    "google-adk": ("google_adk", "https://github.com/google/adk-python"),
    "pydantic-ai-harness": ("pydantic_ai", "https://github.com/pydantic/pydantic-ai-harness"),
}
"""Packages whose source distribution has no tests."""


def pinned(package: str, lock: str) -> str:
    """Return the version of a package in a lock."""
    text = (LOCKS / f"{lock}.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(package)}==(\S+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{lock}.txt pins no {package}")
    return found[1]


def unpack(package: str, version: str, folder: Path) -> None:
    """Fetch a source distribution, and unpack it."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--dest", name, f"{package}=={version}"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        [archive] = Path(name).glob("*.tar.gz")
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")


def clone(url: str, version: str, folder: Path) -> None:
    """Fetch a repository at the tag of a version."""
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", f"v{version}", url]
    target = folder / url.rsplit("/", 1)[-1]
    subprocess.run([*command, str(target)], check=True, capture_output=True, text=True, timeout=300)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(package, lock, None) for package, lock in DISTRIBUTIONS.items()]
    for package, lock, url in [*wanted, *((name, *place) for name, place in REPOSITORIES.items())]:
        version = pinned(package, lock)
        try:
            if url is None:
                unpack(package, version, folder)
            else:
                clone(url, version, folder)
        except (subprocess.SubprocessError, OSError) as error:
            why = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1]
            print(f"{package} {version}: its tests were not fetched: {why}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
