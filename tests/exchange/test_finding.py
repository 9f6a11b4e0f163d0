"""Which files are looked at, and which are left alone."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from killick import Store
from killick.exchange import import_paths
from killick.exchange.importer import OPEN, detect
from tests.exchange import made, test_claude_code, test_codex, test_hermes
from tests.exchange.sources import NOW, jsonl


def test_a_store_that_is_open_here_is_not_opened_by_others(tmp_path: Path) -> None:
    """Closing a file that SQLite has open in the same process drops its locks on it."""
    opened: set[str] | None = set()

    def watch(event: str, args: tuple[object, ...]) -> None:
        if opened is not None and event in ("open", "sqlite3.connect"):
            opened.add(str(args[0]))

    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        (tmp_path / test_codex.NAME).write_bytes(test_codex.everything().data())
        sys.addaudithook(watch)  # for the rest of the process; it looks away afterwards
        with session.turn("Wait."):
            report = import_paths(store, [tmp_path], clock=lambda: NOW)
            named = import_paths(store, [tmp_path / "work.db"], clock=lambda: NOW)
        seen = opened or set()
        opened = None
    assert str(tmp_path / test_codex.NAME) in seen
    assert not any("work.db" in name for name in seen)
    assert (report.problems, len(report.sessions)) == ([], 1)
    assert ["a store of Killick" in one.reason for one in named.skipped] == [True]


def test_other_databases_are_no_sessions(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as made:
        made.execute("CREATE TABLE sessions(id, started_at, source)")
        made.execute("CREATE TABLE messages(id, text)")
        made.commit()
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    (tmp_path / "package.json").write_text('{"name": "x", "messages": {}}')
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing.json")
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert (report.sessions, report.problems) == ([], [])


OTHERS = {
    "fine-tuning.jsonl": [{"messages": [{"role": "user", "content": "a"}]}] * 3,
    "batch.jsonl": [{"custom_id": "1", "body": {"messages": [{"role": "user", "content": "a"}]}}],
    "chat-log.jsonl": [{"role": "user", "content": "a", "timestamp": "2026-01-01T10:00:00"}] * 3,
    "service.jsonl": [{"type": "user", "level": "info", "message": "a", "timestamp": 1}] * 3,
    "clicks.jsonl": [{"type": "session.start", "data": {}}, {"type": "click", "data": {}}],
    "container.json": {"working_dir": "/app", "description": "web", "image": "x"},
    "jobs.jsonl": [{"working_dir": "/app", "name": "build"}, {"working_dir": "/", "name": "test"}],
    "slack.json": [{"type": "message", "user": "U1", "text": "hi", "ts": "1"}] * 2,
    "roles.json": [{"role": "admin", "content": "x"}, {"role": "editor", "content": "y"}],
    "history.md": "# aider chat started at the beginning\n\n#### hi\n",
    "guide.md": "It looks so:\n\n# aider chat started at 2026-01-01 10:00:00\n\n#### hi\n",
}
"""What other programs write, that looks a little like an agent's."""


@pytest.mark.parametrize("name", OTHERS)
def test_what_other_programs_write_is_no_session(tmp_path: Path, name: str) -> None:
    value = OTHERS[name]
    rows = value if isinstance(value, list) and name.endswith("l") else [value]
    text = value if isinstance(value, str) else "\n".join(map(json.dumps, rows))
    (tmp_path / name).write_text(text)
    assert detect(tmp_path / name) is None


def test_a_file_that_is_not_there_is_reported(store: Store, tmp_path: Path) -> None:
    path = test_hermes.everything(tmp_path / "state.db")
    report = import_paths(store, [path, tmp_path / "missing.json"], clock=lambda: NOW)
    assert len(report.sessions) == 2
    assert [one.location.file for one in report.skipped] == [str(tmp_path / "missing.json")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / test_codex.NAME).write_bytes(test_codex.everything().data())
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert (report.problems, len(report.sessions)) == ([], 1)
    named = import_paths(store, [tmp_path / "pipe.jsonl", Path(os.devnull)], clock=lambda: NOW)
    assert ["it is no file" in one.reason for one in named.skipped] == [True, True]


def test_each_source_is_read_once(store: Store, tmp_path: Path) -> None:
    path = test_hermes.everything(tmp_path / "state.db")
    report = import_paths(store, [tmp_path, path, path], clock=lambda: NOW)
    assert len(report.sessions) == 2


@pytest.mark.parametrize("name", ["codex", "claude-code", "an agent of claude-code", *made.LINES])
def test_a_copy_under_another_name_is_the_same_session(
    store: Store, tmp_path: Path, name: str
) -> None:
    file, data = test_codex.NAME, test_codex.everything().data()
    if name == "claude-code":
        file = f"{test_claude_code.SESSION}.jsonl"
        data = test_claude_code.everything().data()
    elif name == "an agent of claude-code":
        agent = test_claude_code.File()
        agent.user("Look.", isSidechain=True, agentId="a1")
        file, data = "agent-a1.jsonl", agent.data()
    elif name in made.LINES:
        file, lines = made.LINES[name]
        data = jsonl(*lines)
    (tmp_path / file).write_bytes(data)
    import_paths(store, [tmp_path], clock=lambda: NOW)
    before = store.session_ids()
    (tmp_path / "copy.jsonl").write_bytes(data)
    again = import_paths(store, [tmp_path / "copy.jsonl"], clock=lambda: NOW)
    assert {one.action for one in again.sessions} <= {"unchanged", "left"}
    assert store.session_ids() == before


def test_only_one_format_and_only_what_is_new(store: Store, tmp_path: Path) -> None:
    path = test_hermes.everything(tmp_path / "state.db")
    rollout = tmp_path / test_codex.NAME
    rollout.write_bytes(test_codex.everything().data())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(rollout, (1_750_000_000, 1_750_000_000))
    only = import_paths(store, [tmp_path], only="hermes", dry_run=True, clock=lambda: NOW)
    assert {one.source for one in only.sessions} == {"hermes"}
    since = 1_740_000_000_000_000
    new = import_paths(store, [tmp_path], since_us=since, dry_run=True, clock=lambda: NOW)
    assert {one.source for one in new.sessions} == {"codex"}
    assert store.session_ids() == []


def test_a_named_file_of_another_format_is_named(store: Store, tmp_path: Path) -> None:
    path = tmp_path / test_codex.NAME
    path.write_bytes(test_codex.everything().data())
    report = import_paths(store, [path], only="gemini", clock=lambda: NOW)
    assert [one.reason for one in report.skipped] == [
        "it is of codex, and only gemini was asked for"
    ]
    assert import_paths(store, [tmp_path], only="gemini", clock=lambda: NOW).problems == []


def test_a_copy_is_as_old_as_what_it_says(store: Store, tmp_path: Path) -> None:
    file = test_claude_code.File()  # it says things of an earlier year, and is written just now
    file.user("List the files.")
    call = test_claude_code.use("t1", command="ls")
    file.answer("m1", test_claude_code.text("Let me look."), call, stop="tool_use")
    (tmp_path / "a.jsonl").write_bytes(file.data() + b'{"type": "user", "mess')
    report = import_paths(store, [tmp_path])
    session = store.session(report.sessions[0].session_id)
    assert [turn.status for turn in session.turns()] == ["interrupted"]
    assert [(one.location.file, one.location.line) for one in report.skipped] == [
        (str(tmp_path / "a.jsonl"), 4)
    ]


@pytest.mark.linux
def test_a_file_that_a_process_holds_open_is_not_taken_for_a_copy(
    store: Store, tmp_path: Path
) -> None:
    file = test_claude_code.File()  # it says things of an earlier year, and is written just now
    file.user("List the files.")
    path = tmp_path / "a.jsonl"
    path.write_bytes(file.data())
    with path.open("ab") as held:
        agent = subprocess.Popen(["sleep", "600"], stdout=held)
    try:
        (outcome,) = import_paths(store, [path]).sessions
        assert (outcome.action, outcome.why, outcome.settled_by) == ("left", OPEN, "process")
    finally:
        agent.kill()
        agent.wait()
