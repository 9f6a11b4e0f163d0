"""This version and the one before it on one store at once, each from its own wheel.

The predecessor is the code before the newest migration: its wheel is built from the history, and
runs in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from killick import Store, StoreBusy
from killick.stores.postgres import migrate as postgres_migrate
from killick.stores.sqlite import migrate as sqlite_migrate
from tests.postgres_fixtures import shared
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
MIGRATIONS = [f"src/killick/stores/{kind}/migrations" for kind in ("sqlite", "postgres")]
TURNS = 15


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def predecessor() -> str:
    """The newest commit whose migrations are not these."""
    if shutil.which("git") is None or not git("rev-parse", "HEAD"):
        pytest.skip("there is no git history here, so no predecessor can be built")
    if git("status", "--porcelain", "--", *MIGRATIONS):
        return "HEAD"
    newest = git("log", "-1", "--format=%H", "--", *MIGRATIONS)
    before = git("rev-parse", "--verify", "--quiet", f"{newest}^")
    if not newest or not before:
        pytest.skip("the git history ends before the newest migration")
    return before


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the predecessor's wheel installed, and nothing else."""
    commit, folder = predecessor(), tmp_path_factory.mktemp("predecessor")
    sources, target = folder / "sources", folder / "target"
    sources.mkdir()
    with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x"], cwd=sources, stdin=archive.stdout, check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=sources, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, capture_output=True)
    return target


class Version:
    """One version of the code at work on a store, in a process of its own."""

    def __init__(self, url: str, name: str, code: Path, folder: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("beside.py"), url, name],
            env={**os.environ, "PYTHONPATH": str(code)},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        first = self.answer()
        self.refused = first.get("refused")
        if self.refused is None:
            assert Path(first["file"]).is_relative_to(code), "it runs other code than it should"

    def ask(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def do(self, *words: object) -> Any:
        self.ask(*words)
        return self.answer()

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "work.db")
        return
    server = shared("18").server
    server.execute("DROP SCHEMA IF EXISTS beside CASCADE")
    yield server.url("beside")
    server.execute("DROP SCHEMA IF EXISTS beside CASCADE")


def admits_predecessor(url: str, installed: Path) -> bool:
    kind, module = ("postgres", postgres_migrate) if "://" in url else ("sqlite", sqlite_migrate)
    known = list((installed / "killick/stores" / kind / "migrations").glob("*.sql"))
    return bool(len(known) >= module.OLDEST)


def test_both_write_to_one_store_and_nothing_is_lost(
    installed: Path, url: str, tmp_path: Path
) -> None:
    """The older one makes the store and works; this one migrates it; then both do turns at once,
    in sessions of their own and in one that they share."""
    said: dict[str, list[str]] = {"shared": []}
    with closing(Version(url, "older", installed, tmp_path)) as older:
        said["shared"] += older.do("talk", "shared", 2)
        if not admits_predecessor(url, installed):
            pytest.skip("this version admits no older one; the other test shows that it says so")
        older.ask("talk", "of-older", TURNS)  # it works on while its store is migrated
        with closing(Version(url, "newer", ROOT / "src", tmp_path)) as newer:
            said["of-newer"] = newer.do("talk", "of-newer", TURNS)
            said["of-older"] = older.answer()
            for version in (older, newer):
                version.ask("talk", "shared", TURNS)
            said["shared"] += [*older.answer(), *newer.answer()]
            assert older.do("reopen") is None, "it can be opened by the older one again"
            said["of-older"] += older.do("talk", "of-older", 1)
            for name, texts in said.items():
                for version in (older, newer):
                    assert sorted(version.do("read", name)) == sorted(texts), (version.name, name)
    with Store(url) as store:
        assert all(store.verify_session(name).findings == [] for name in said)
        assert all(store.examine_session(name) == [] for name in said)
        assert [one for one in store.check_file() if one.kind != "server"] == []


def test_an_older_one_is_refused_where_the_format_says_so(
    installed: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is not migrated while the older one has it open; a server tells it so at work."""
    module = postgres_migrate if "://" in url else sqlite_migrate
    monkeypatch.setattr(module, "OLDEST", len(module.migrations()))
    older = Version(url, "older", installed, tmp_path)
    said = older.do("talk", "shared", 2)
    if "://" not in url:
        with pytest.raises(StoreBusy, match=rf"pid {older.pid}\D.*an older version"):
            Store(url)
        said += older.do("talk", "shared", 2)
        older.close()
    with Store(url) as store:
        messages = store.session("shared").messages()
        assert sorted(one.text for one in messages) == sorted(said)
        if "://" in url:
            until(lambda: "StoreNewer" in str(older.do("read", "shared")), seconds=60)
            assert older.do("talk", "shared", 1)["refused"] == "StoreNewer"
            older.close()
    with closing(Version(url, "late", installed, tmp_path)) as late:
        assert late.refused == "StoreNewer"
