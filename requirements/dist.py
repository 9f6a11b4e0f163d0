"""Build the wheel and the sdist twice, and try the wheel on every Python that is there.

    make dist                    # what is built lies in dist/ afterwards
    make dist ARGS="--quick"     # one Python, the suite in memory only
    python3.14 requirements/dist.py --wheel killick.whl    # this Python alone, on any machine

Each Python gets a fresh environment with the wheel and what a store of one's own is tested with. It
runs the command, the demonstration, and the conformance suite on SQLite and in memory. The wheel
that the sdist gives must be the same, and hold no model. Where uv is installed, `uvx --from .` runs
the demonstration from the clone.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

SUITE = """
import pytest
from killick.stores.memory import MemoryDisk
from killick.stores.sqlite import SqliteDatabase
from killick.testing.conformance import CHECKS, World
from killick.testing.conformance.world import FACES


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_conformance(kind, check, face, tmp_path):
    opens = MemoryDisk().open if kind == "memory" else lambda: SqliteDatabase(tmp_path / "s.db")
    World(face, opens).run(check)
"""


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    if arguments[:1] == ["--wheel"]:
        version = ".".join(map(str, sys.version_info[:2]))
        with tempfile.TemporaryDirectory() as folder:
            wheel = Path(arguments[1]).resolve()
            attempt(version, sys.executable, wheel, Path(folder) / version, quick=quick)
        return
    with tempfile.TemporaryDirectory() as folder:
        first, second = (build(Path(folder) / name) for name in ("first", "second"))
        if (digests := hashes(first)) != hashes(second):
            sys.exit(f"two builds differ: {digests} and {hashes(second)}")
        for name, digest in digests.items():
            print(f"{digest}  {name}")
        check(first, Path(folder) / "unpacked")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(first, ROOT / "dist")
        wheel = next((ROOT / "dist").glob("*.whl"))
        pythons = list(interpreters())
        for version, python in pythons[:1] if quick else pythons:
            attempt(version, python, wheel, Path(folder) / version, quick=quick)
    run_with_uv()
    missing = sorted(set(PYTHONS) - {version for version, _ in pythons})
    print("not here, so not tried:", ", ".join(missing) or "none")


def build(folder: Path) -> Path:
    """Build from what is committed, so that files lying about are not in it."""
    source = folder / "source"
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    source.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder / "dist"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folder / "dist"


def check(built: Path, folder: Path) -> None:
    """Exit unless the sdist gives the same wheel, and no model is in it."""
    folder.mkdir()
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", folder, "--strip-components=1"], check=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    if hashes(folder / "dist")[wheel.name] != hashes(built)[wheel.name]:
        sys.exit("the sdist gives another wheel than the clone")
    models = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".gguf")]
    if models:
        sys.exit(f"the wheel holds a model: {models}")
    print(f"the sdist gives the same wheel: {wheel.stat().st_size:,} bytes, no model in it")


def run_with_uv() -> None:
    """Run the demonstration as a person with uv and nothing else would."""
    uvx = shutil.which("uvx")
    if uvx is None:
        print("uv is not here, so uvx was not tried")
        return
    command = [uvx, "--from", str(ROOT), "killick", "demo"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr[-4000:])
    print("uvx --from . killick demo:", done.stdout.strip().splitlines()[-1].strip())


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(folder.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def interpreters() -> Iterator[tuple[str, str]]:
    """Find each Python by its name, on the path or among those of pyenv."""
    for version in PYTHONS:
        versions = Path.home() / ".pyenv" / "versions"
        names = [f"python{version}", *map(str, versions.glob(f"{version}.*/bin/python"))]
        for name in names:
            probe = [name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            try:
                done = subprocess.run(probe, capture_output=True, text=True)
            except OSError:
                continue
            if done.returncode == 0 and done.stdout.strip() == version:
                yield version, name
                break


def attempt(version: str, python: str, wheel: Path, folder: Path, *, quick: bool) -> None:
    """Install the wheel into a fresh environment and use it there."""
    print(f"Python {version}: installing", flush=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    binaries = folder / "bin"
    extras = f"{wheel}[test,trio]"
    subprocess.run(
        [binaries / "python", "-m", "pip", "install", "--quiet", extras, "pytest-timeout"],
        check=True,
    )
    kinds = ["memory"] if quick else ["memory", "sqlite"]
    (folder / "test_wheel.py").write_text(f"KINDS = {kinds}\n{SUITE}", "utf-8")
    home = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    for command in (
        ["killick", "--version"],
        ["killick", "demo"],
        [
            "python",
            "-m",
            "pytest",
            "-q",
            "--timeout=120",
            "-p",
            "no:cacheprovider",
            "test_wheel.py",
        ],
    ):
        done = subprocess.run(
            [binaries / command[0], *command[1:]],
            cwd=folder,
            env=home,
            capture_output=True,
            text=True,
        )
        last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
        print(f"Python {version}: {' '.join(command[:2])}:", *last, flush=True)
        if done.returncode:
            sys.exit(done.stdout[-4000:] + done.stderr[-4000:])


if __name__ == "__main__":
    main(sys.argv[1:])
