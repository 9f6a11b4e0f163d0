"""DeerFlow: its table of events, and its files."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from killick import Opaque, Reasoning, Store, ToolCall, Usage
from killick.exchange.formats.deerflow import deerflow_database, deerflow_files
from killick.exchange.importer import detect, import_paths
from killick.model import entries as e
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, bring, jsonl, kinds, said

THREAD = "8d5f4a1e-0000-4000-8000-000000000001"


class Thread:
    """Writes events as the agent does."""

    def __init__(self, thread: str = THREAD) -> None:
        self.thread = thread
        self.events: list[dict[str, Any]] = []
        self.runs: dict[str, dict[str, Any]] = {}

    def add(
        self, run: str, kind: str, content: Any, category: str = "message", **meta: Any
    ) -> None:
        seq = len(self.events) + 1
        self.runs.setdefault(run, {"status": "success"})
        self.events.append({
            "thread_id": self.thread, "run_id": run, "event_type": kind, "category": category,
            "content": content, "metadata": meta, "seq": seq,
            "created_at": f"2026-08-22T09:00:{seq % 60:02d}+00:00",
        })  # fmt: skip

    def human(self, run: str, words: str, **more: Any) -> None:
        content = {"content": words, "additional_kwargs": {"run_id": run} | more, "type": "human",
                   "response_metadata": {}, "name": None, "id": f"h{len(self.events)}"}  # fmt: skip
        self.add(run, "llm.human.input", content, caller="lead_agent")

    def ai(
        self, run: str, content: Any, *calls: Any, kind: str = "llm.ai.response", **meta: Any
    ) -> None:
        message = {
            "content": content, "additional_kwargs": {}, "type": "ai", "name": None,
            "response_metadata": {"finish_reason": "stop", "model_name": "gpt-x"},
            "id": f"lc_run--{len(self.events)}", "tool_calls": list(calls),
            "invalid_tool_calls": [],
            "usage_metadata": {"input_tokens": 100, "output_tokens": 12, "total_tokens": 112,
                               "input_token_details": {"cache_read": 60}},
        }  # fmt: skip
        self.add(run, kind, message | meta.pop("message", {}), caller="lead_agent", **meta)

    def tool(self, run: str, call_id: str, content: Any, **more: Any) -> None:
        message = {"content": content, "additional_kwargs": {}, "type": "tool", "name": "bash",
                   "id": f"t{len(self.events)}", "tool_call_id": call_id, "artifact": None,
                   "status": "success"}  # fmt: skip
        self.add(run, "llm.tool.result", message | more)


def call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "bash", "args": arguments, "id": call_id, "type": "tool_call"}


def everything() -> Thread:
    """Each kind of event, and each trap."""
    t = Thread()
    t.add("r1", "run.start", {"chain": "lead"}, "trace", caller="lead_agent")
    t.human("r1", "List the files.")
    t.add("r1", "context:memory", {"content_sha256": "0"}, "context")
    t.ai("r1", "I look.", call("call_1", cmd="ls"),
         message={"additional_kwargs": {"reasoning_content": "A listing."}})  # fmt: skip
    t.tool("r1", "call_1", "a.txt")
    t.ai("r1", "middleware speaks", message={"id": "mw"})
    t.events[-1]["metadata"]["caller"] = "middleware:title"
    t.add("r1", "subagent.step", {"task_id": "s", "text": "a step below"}, "subagent")
    t.ai("r1", [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "One file."},
                {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}}],
         call("call_2"),
         message={"invalid_tool_calls": [{"id": "bad", "args": "{broken"}]})  # fmt: skip
    t.tool("r1", "call_2", [{"type": "text", "text": "no such file"}], status="error",
           artifact={"code": 2})  # fmt: skip
    t.ai("r1", "That is all.")
    t.add("r1", "run.end", {"messages": []}, "outputs", status="success")
    t.add("r1", "run.delivery", {"presented": 0, "paths": [], "by_tool": {}}, "outputs")
    t.human("r2", "Delete it.")
    t.ai("r2", "Deleting.", call("call_3", cmd="rm"))
    t.runs["r2"] |= {"status": "interrupted"}
    t.human("r3", "Count to ten.")
    t.ai("r3", "One, two", kind="llm.ai.partial")
    t.runs["r3"] |= {
        "status": "error",
        "error": "Run lease expired",
        "stop_reason": "orphan_recovered",
    }
    t.human("r4", "Hidden words.", hide_from_ui=True)
    t.ai("r4", "First try.")
    t.human("r4b", "Tell a joke.")
    t.ai("r4b", "A bad joke.")
    t.human("r5", "Tell a joke.")
    t.ai("r5", "A good joke.", kind="ai_message")
    t.runs["r5"] |= {"metadata_json": {"regenerate_from_run_id": "r4b"}}
    t.human("r6", "Take it back.")
    t.ai("r6", "Taken.")
    t.runs["r6"] |= {"status": "error", "error": "Rolled back by user"}
    t.human("r7", "The last one.")
    t.add("r7", "llm.error", "overloaded", "trace")
    t.add("r7", "workspace_changes", "two files", "workspace", workspace_changes={"version": 1})
    t.ai("r7", "The very last.")
    return t


def database(path: Path, thread: Thread, *, runs: bool = True) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
            "CREATE TABLE run_events(id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL,"
            " run_id TEXT NOT NULL, user_id TEXT, event_type TEXT NOT NULL, category TEXT NOT NULL,"
            " content TEXT DEFAULT '', event_metadata JSON, seq INTEGER NOT NULL, created_at TEXT,"
            " UNIQUE(thread_id, seq));"
            "CREATE TABLE threads_meta(thread_id TEXT PRIMARY KEY, assistant_id TEXT, user_id TEXT,"
            " display_name TEXT, status TEXT, metadata_json JSON, created_at TEXT);"
        )
        for event in thread.events:
            content, metadata = event["content"], dict(event["metadata"])
            if not isinstance(content, str):
                content, metadata = json.dumps(content), metadata | {"content_is_json": True}
            made.execute(
                "INSERT INTO run_events(thread_id, run_id, event_type, category, content,"
                " event_metadata, seq, created_at) VALUES(?,?,?,?,?,?,?,?)",
                (event["thread_id"], event["run_id"], event["event_type"], event["category"],
                 content, json.dumps(metadata), event["seq"], event["created_at"]),
            )  # fmt: skip
        made.execute(
            "INSERT INTO threads_meta VALUES(?, 'lead', 'u1', 'Files and jokes', 'idle', '{}', ?)",
            (thread.thread, "2026-08-22 08:59:59"),
        )
        if runs:
            made.execute(
                "CREATE TABLE runs(run_id TEXT PRIMARY KEY, thread_id TEXT, status TEXT,"
                " error TEXT, stop_reason TEXT, model_name TEXT, metadata_json JSON)"
            )
            for own, run in thread.runs.items():
                made.execute(
                    "INSERT INTO runs VALUES(?,?,?,?,?,?,?)",
                    (own, thread.thread, run["status"], run.get("error"), run.get("stop_reason"),
                     "gpt-x", json.dumps(run.get("metadata_json", {}))),
                )  # fmt: skip
        made.commit()
    return path


def files(root: Path, thread: Thread, *, misfile: bool = False) -> Path:
    """One file for each run; a batch goes into the file of its first event's run."""
    folder = root / "threads" / thread.thread / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for event in thread.events:
        run = "r1" if misfile and event["run_id"] in ("r4b", "r5") else event["run_id"]
        with (folder / f"{run}.jsonl").open("ab") as file:
            file.write(jsonl(event))
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deerflow.db"


def test_each_kind_of_event(store: Store, path: Path) -> None:
    assert detect(database(path, everything())) == "deerflow"
    report = bring(store, deerflow_database(path, settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    messages = session.messages()
    assert messages[1].parts == (
        Reasoning("A listing."), messages[1].parts[1], ToolCall("call_1", "bash", '{"cmd":"ls"}'),
    )  # fmt: skip
    assert messages[3].parts[0] == Reasoning("Hm.", signature="c2ln")
    assert [part.id for part in messages[3].parts if isinstance(part, ToolCall)] == ["call_2"]
    assert isinstance(messages[3].parts[-1], Opaque)
    results = [one.body.result for one in session.entries() if isinstance(one.body, e.ToolFinished)]
    assert [(one.call_id, one.is_error, one.structured) for one in results] == [
        ("call_1", False, None), ("call_2", True, {"code": 2}),
    ]  # fmt: skip
    calls = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallEnded)]
    assert calls[0].usage == Usage(input=100, output=12, cached=60)
    assert (session.title, session.info().models) == ("Files and jokes", ("gpt-x",))
    assert "middleware speaks" not in str(session.transcript())
    assert "Hidden words." not in str(session.transcript())
    notes = {one.body.name for one in session.entries() if isinstance(one.body, e.Note)}
    assert {"deerflow.subagent.step", "deerflow.run.delivery", "deerflow.llm.error"} <= notes
    check_sound(store)


def test_a_run_ends_as_the_table_says(store: Store, path: Path) -> None:
    report = bring(store, deerflow_database(database(path, everything()), settled=True))
    session = store.session(report.sessions[0].session_id)
    ended = [one.body for one in session.entries() if isinstance(one.body, e.TurnEnding)]
    assert [(one.status, one.reason) for one in ended] == [
        ("completed", None), ("interrupted", "interrupted"), ("failed", "orphan_recovered"),
        ("completed", None), ("completed", None), ("completed", None), ("interrupted", "rollback"),
        ("completed", None),
    ]  # fmt: skip
    partial = next(one for one in session.messages() if one.text == "One, two")
    assert partial.state == "partial"


def test_what_was_said_again_or_rolled_back_is_out_of_view(store: Store, path: Path) -> None:
    report = bring(store, deerflow_database(database(path, everything()), settled=True))
    session = store.session(report.sessions[0].session_id)
    words = [words for _, words in said(session)]
    assert "A bad joke." not in words
    assert "A good joke." in words
    assert "Taken." not in words
    assert kinds(session).count("rewind") == 2
    assert "A bad joke." in str([one.body for one in session.entries()])


def test_a_run_that_goes_on_is_left_for_the_next_import(store: Store, path: Path) -> None:
    thread = everything()
    thread.runs["r7"]["status"] = "running"
    first = bring(store, deerflow_database(database(path, thread), settled=False)).sessions[0]
    assert "left for the next import" in (first.why or "")
    thread.runs["r7"]["status"] = "success"
    outcome = bring(store, deerflow_database(database(path, thread), settled=False)).sessions[0]
    assert (outcome.action, outcome.session_id) == ("grown", first.session_id)
    again = bring(store, deerflow_database(path, settled=True)).sessions[0]
    assert again.action == "unchanged"
    check_sound(store)


def test_files_and_database_hold_the_same(store: Store, other: Store, tmp_path: Path) -> None:
    thread = everything()
    for run in thread.runs.values():
        run.clear()
        run["status"] = None
    folder = files(tmp_path, thread)
    assert detect(folder / "r1.jsonl") == "deerflow"
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert report.problems == []
    assert len(report.sessions) == 1
    db = bring(
        other, deerflow_database(database(tmp_path / "x.db", thread, runs=False), settled=True)
    )
    theirs, ours = (
        other.session(db.sessions[0].session_id),
        store.session(db.sessions[0].session_id),
    )
    assert said(ours) == said(theirs)
    check_sound(store)


def test_an_event_in_the_file_of_another_run_is_of_its_own(store: Store, tmp_path: Path) -> None:
    report = bring(store, deerflow_files(files(tmp_path, everything(), misfile=True), settled=True))
    assert {one.kind for one in report.problems} == {"repaired"}
    assert len(report.problems) == 4
    assert all(one.location.file.endswith("r1.jsonl") for one in report.problems)
    session = store.session(report.sessions[0].session_id)
    assert len(session.turns()) == 8
    words = [words for _, words in said(session)]
    assert words[words.index("First try.") + 1 :][:2] == ["Tell a joke.", "A bad joke."]


def test_the_event_behind_a_torn_line_is_not_lost(store: Store, tmp_path: Path) -> None:
    folder = files(tmp_path, everything())
    path = folder / "r1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[2][:40], *lines[3:]]))
    report = bring(store, deerflow_files(folder, settled=True))
    assert [(one.kind, one.location.line) for one in report.problems] == [("skipped", 4)]
    assert "I look." in str(said(store.session(report.sessions[0].session_id)))
    check_sound(store)


def test_files_grow_and_diverge(store: Store, tmp_path: Path) -> None:
    thread = everything()
    first = bring(store, deerflow_files(files(tmp_path, thread), settled=True)).sessions[0]
    thread.human("r8", "One more.")
    thread.ai("r8", "Indeed.")
    outcome = bring(store, deerflow_files(files(tmp_path, thread), settled=True)).sessions[0]
    assert (outcome.action, outcome.session_id) == ("grown", first.session_id)
    thread.events[-1]["content"]["content"] = "Rewritten."
    outcome = bring(store, deerflow_files(files(tmp_path, thread), settled=True)).sessions[0]
    assert (outcome.action, outcome.fork_of) == ("forked", first.session_id)


def test_one_file_with_several_threads(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    other = Thread("t2")
    other.human("x1", "Another thread.")
    path.write_bytes(jsonl(*everything().events, *other.events))
    report = import_paths(store, [path], clock=lambda: NOW)
    assert len(report.sessions) == 2
    assert {store.session(one.session_id).title for one in report.sessions} == {
        "List the files.", "Another thread.",
    }  # fmt: skip


def test_an_event_that_cannot_be_read_takes_no_other_along(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(database(path, everything()))) as made:
        made.execute("UPDATE run_events SET content = '[{' WHERE id = 4")
        made.execute("UPDATE run_events SET event_metadata = X'FF' WHERE id = 10")
        made.commit()
    report = bring(store, deerflow_database(path, settled=True))
    assert [one.location.line for one in report.skipped] == [4, 10]
    assert "The very last." in str(said(store.session(report.sessions[0].session_id)))
    check_sound(store)


def test_a_database_in_use_is_read_with_its_log_and_not_changed(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(database(path, everything()))) as agent:
        agent.execute("PRAGMA wal_autocheckpoint=0")
        agent.execute("UPDATE threads_meta SET display_name = 'In the log'")
        agent.commit()
        before = path.read_bytes()
        report = bring(store, deerflow_database(path, settled=True))
        assert path.read_bytes() == before
    assert store.session(report.sessions[0].session_id).title == "In the log"
