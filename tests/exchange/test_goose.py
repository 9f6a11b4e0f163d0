"""goose: its database in every version, its JSON lines, and its exports."""

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from killick import Image, Opaque, Reasoning, Store, ToolCall
from killick.exchange.formats.goose import goose_database, goose_file
from killick.exchange.importer import detect, import_paths
from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from tests.exchange.checks import PNG, check_sound
from tests.exchange.sources import bring, jsonl, mutate, said, twisted

ID = "20260403_1"
BOTH = {"userVisible": True, "agentVisible": True}


def request(call_id: str, name: str = "developer__shell", **arguments: Any) -> dict[str, Any]:
    value = {"name": name, "arguments": arguments}
    return {"type": "toolRequest", "id": call_id, "toolCall": {"status": "success", "value": value}}


def response(call_id: str, value: Any, status: str = "success") -> dict[str, Any]:
    key = "value" if status == "success" else "error"
    return {"type": "toolResponse", "id": call_id, "toolResult": {"status": status, key: value}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def message(own: str, role: str, *content: Any, person: bool = True, model: bool = True) -> Any:
    metadata = {"userVisible": person, "agentVisible": model}
    return {"id": own, "role": role, "created": 1775200000, "content": list(content),
            "metadata": metadata}  # fmt: skip


PICTURE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
CONFIRM = {"actionType": "toolConfirmation", "id": "c1", "toolName": "x", "arguments": {}}

CONVERSATION: list[Any] = [
    message("m1", "user", text("List the files."), PICTURE),
    message("m2", "assistant", {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}),
    message("m2", "assistant", {"type": "redactedThinking", "data": "AAAA"}, request("c1", a=1)),
    message("m3", "user", response("c1", {"content": [text("a.txt")], "isError": False,
                                          "structuredContent": {"files": 1}})),
    message("m4", "assistant", {"type": "actionRequired", "data": CONFIRM}),
    message("m5", "assistant", request("c2"), request("c3"),
            {"type": "toolRequest", "id": "c9", "toolCall": {"status": "error", "error": "bad"}}),
    message("m6", "user", response("c2", [text("legacy"), PICTURE])),
    message("m7", "user", response("c3", "-32603: boom", "error")),
    message("m8", "assistant", {"type": "reasoning", "text": "So."}, text("There is one file.")),
    message("m9", "assistant", {"type": "systemNotification",
                                "notificationType": "inlineMessage", "msg": "Compacting"}),
    message("s1", "user", text("Summary: one file."), person=False),
    message("m10", "user", text("Delete it.")),
    message("m11", "assistant", request("c4")),
    message("m12", "user"),
    message("m13", "user", text("Never mind.")),
    message("m14", "assistant", text("All right.")),
]  # fmt: skip

ADDED: dict[int, list[str]] = {
    2: ["ALTER TABLE sessions ADD COLUMN user_recipe_values_json TEXT"],
    3: ["ALTER TABLE messages ADD COLUMN metadata_json TEXT"],
    4: [
        "ALTER TABLE sessions ADD COLUMN name TEXT DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN user_set_name BOOLEAN DEFAULT FALSE",
    ],
    5: ["ALTER TABLE sessions ADD COLUMN session_type TEXT NOT NULL DEFAULT 'user'"],
    6: [
        "ALTER TABLE sessions ADD COLUMN provider_name TEXT",
        "ALTER TABLE sessions ADD COLUMN model_config_json TEXT",
    ],
    7: ["ALTER TABLE messages ADD COLUMN message_id TEXT"],
    8: ["ALTER TABLE sessions ADD COLUMN goose_mode TEXT NOT NULL DEFAULT 'auto'"],
    9: [],
}
"""What each version of the schema has added."""


def database(path: Path, version: int = 9, conversation: list[Any] = CONVERSATION) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
            "CREATE TABLE schema_version(version INTEGER PRIMARY KEY, applied_at TIMESTAMP);"
            "CREATE TABLE sessions(id TEXT PRIMARY KEY, description TEXT NOT NULL DEFAULT '',"
            " working_dir TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
            " updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, extension_data TEXT DEFAULT '{}',"
            " total_tokens INTEGER, schedule_id TEXT, recipe_json TEXT);"
            "CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,"
            " role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,"
            " timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER);"
        )
        for number in range(2, version + 1):
            for statement in ADDED[number]:
                made.execute(statement)
        about: dict[str, Any] = {
            "id": ID, "description": "demo", "working_dir": "/w", "total_tokens": 500,
            "created_at": "2026-04-03 07:06:40", "updated_at": "2026-04-03 07:10:00",
        }  # fmt: skip
        if version >= 4:
            about |= {"name": "My demo", "user_set_name": True}
        if version >= 5:
            about |= {"session_type": "sub_agent"}
        if version >= 6:
            about |= {"provider_name": "anthropic", "model_config_json": '{"model_name": "m-1"}'}
        _insert(made, "sessions", about)
        for number, one in enumerate(conversation):
            _insert(made, "messages", _row(one, version, number))
        made.commit()
    return path


def _row(one: Any, version: int, number: int) -> dict[str, Any]:
    row = {"session_id": ID, "role": one["role"], "content_json": json.dumps(one["content"])}
    scale = 1000 if number == 4 else 1  # some rows have milliseconds
    row["created_timestamp"] = (one["created"] + number) * scale
    if version >= 3:
        row["metadata_json"] = json.dumps(one["metadata"])
    if version >= 7:
        row["message_id"] = one["id"]
    return row


def _insert(made: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    made.execute(f"INSERT INTO {table}({names}) VALUES({marks})", list(row.values()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_the_database(store: Store, path: Path, version: int) -> None:
    assert detect(database(path, version)) == "goose"
    report = bring(store, goose_database(path, settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    words = [words for _, words in said(session)]
    assert words[0] == "List the files."
    assert words[-2:] == ["Never mind.", "All right."]
    assert session.title == ("My demo" if version >= 4 else "demo")
    info = session.info()
    assert info.project is not None
    assert (info.type, info.project.root) == ("subagent" if version >= 5 else "user", "/w")
    assert info.models == (("m-1",) if version >= 6 else ())
    assert info.created_at.isoformat() == "2026-04-03T07:06:40+00:00"
    check_sound(store)


def test_each_kind_of_content(store: Store, path: Path) -> None:
    report = bring(store, goose_database(database(path), settled=True))
    session = store.session(report.sessions[0].session_id)
    messages = {one.id: one for one in session.messages()}
    assert isinstance(messages["m1"].parts[1], Image)
    assert messages["m2"].parts == (Reasoning("Hm.", signature="c2ln"),)
    assert messages["m2#2"].parts[1] == ToolCall("c1", "developer__shell", '{"a":1}')
    assert isinstance(messages["m4"].parts[0], Opaque)
    results = {
        one.body.result.call_id: one.body.result
        for one in session.entries()
        if isinstance(one.body, e.ToolFinished)
    }
    assert (results["c1"].content, results["c1"].structured) == ("a.txt", {"files": 1})
    assert isinstance(results["c2"].content[1], Image)
    assert (results["c3"].content, results["c3"].is_error) == ("-32603: boom", True)
    assert messages["m8"].parts[0] == Reasoning("So.")
    statuses = [(turn.status, turn.reason) for turn in session.turns()]
    assert statuses[-2:] == [("interrupted", "unfinished"), ("completed", None)]
    tools = {tool.call_id: tool.state for one in session.transcript() for tool in one.tools}
    assert tools["c4"] == "unknown"


def test_both_visibilities_are_kept(store: Store, path: Path) -> None:
    report = bring(store, goose_database(database(path), settled=True))
    session = store.session(report.sessions[0].session_id)
    assert "Summary" not in str(session.transcript())
    assert "Summary" in json.dumps(session.context("anthropic").messages)


def test_what_is_hidden_there_later_is_hidden_here_later(store: Store, path: Path) -> None:
    """goose compacts by hiding what was said long before; that is no other conversation."""
    first = bring(store, goose_database(database(path), settled=True)).sessions[0]
    hidden = [one | {"metadata": BOTH | {"agentVisible": False}} for one in CONVERSATION[:9]]
    more = [message("m15", "user", text("Go on.")), message("m16", "assistant", text("I do."))]
    database(path, conversation=[*hidden, *CONVERSATION[9:], *more])
    outcome = bring(store, goose_database(path, settled=True)).sessions[0]
    assert (outcome.action, outcome.session_id) == ("grown", first.session_id)
    session = store.session(outcome.session_id)
    context = json.dumps(session.context("anthropic").messages)
    assert "List the files." not in context
    assert "I do." in context
    assert "List the files." in str(session.transcript())
    again = bring(store, goose_database(path, settled=True)).sessions[0]
    assert again.action == "unchanged"
    assert store.session(first.session_id).head == session.head
    check_sound(store)


def test_a_database_in_use_is_read_with_its_log_and_not_changed(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(database(path))) as agent:
        agent.execute("PRAGMA wal_autocheckpoint=0")
        late = message("m15", "user", text("In the log."))
        _insert(agent, "messages", _row(late, 9, 20))
        agent.commit()
        before = path.read_bytes()
        report = bring(store, goose_database(path, settled=True))
        assert path.read_bytes() == before
        _insert(agent, "messages", _row(late | {"id": "m16"}, 9, 21))
        agent.commit()
    words = said(store.session(report.sessions[0].session_id))
    assert words[-1] == ("user", "In the log.")


def test_a_message_that_cannot_be_read_takes_no_other_along(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(database(path))) as made:
        made.execute("UPDATE messages SET content_json = '[{' WHERE id = 2")
        made.execute("UPDATE messages SET role = 'alien' WHERE id = 9")
        made.execute("UPDATE messages SET metadata_json = X'FF' WHERE id = 16")
        made.commit()
    report = bring(store, goose_database(path, settled=True))
    assert [one.location.line for one in report.skipped] == [2, 9, 16]
    assert report.exit_code == 3
    assert said(store.session(report.sessions[0].session_id))[-1] == ("user", "Never mind.")
    check_sound(store)


ABOUT: dict[str, Any] = {
    "id": ID, "working_dir": "/w", "name": "Fix bug", "user_set_name": True,
    "session_type": "user", "created_at": "2024-01-01T00:00:00Z",
    "updated_at": "2024-01-01T00:00:00Z", "extension_data": {"todo.v0": {"content": "x"}},
    "provider_name": "anthropic", "model_config": {"model_name": "m-1"}, "goose_mode": "auto",
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_an_exported_session(store: Store, tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(ABOUT | {"conversation": CONVERSATION}, indent=indent))
    assert detect(path) == "goose"
    report = bring(store, goose_file(path, settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    assert (session.title, session.info().models) == ("Fix bug", ("m-1",))
    assert said(session)[-1] == ("assistant", "All right.")
    check_sound(store)


def legacy() -> bytes:
    about = {"description": "test", "working_dir": "/w", "created_at": "2024-01-01T12:00:00Z",
             "message_count": 2, "total_tokens": 10}  # fmt: skip
    bare = [{key: one[key] for key in one if key != "metadata"} for one in CONVERSATION]
    return jsonl(about, *bare)


def test_json_lines_from_before_the_database(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "20240101_120000.jsonl"
    path.write_bytes(legacy())
    assert detect(path) == "goose"
    report = bring(store, goose_file(path, settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    assert session.title == "test"
    assert said(session)[-1] == ("assistant", "All right.")
    check_sound(store)


@pytest.mark.parametrize("block", range(16))
def test_damaged_lines_come_in_as_far_as_they_are_whole(tmp_path: Path, block: int) -> None:
    seeds = range(block * 10, block * 10 + 10)
    mutate(legacy(), tmp_path, "x.jsonl", seeds, lambda path: [goose_file(path, settled=True)])


@pytest.mark.parametrize("block", range(8))
def test_strange_rows_come_in_as_what_they_are(path: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        random = Random(seed)
        database(path, conversation=[])
        with closing(sqlite3.connect(path)) as made:
            for number, one in enumerate(CONVERSATION):
                row = _row(one, 9, number)
                if random.random() < 0.3:
                    row["content_json"] = json.dumps(twisted(one["content"], random))
                if random.random() < 0.1:
                    row["metadata_json"] = random.choice(["{", "[]", "null", '{"userVisible": 1}'])
                _insert(made, "messages", row)
            made.commit()
        with Store(MemoryDisk().open()) as store:
            bring(store, goose_database(path, settled=True))
            check_sound(store)
            again = bring(store, goose_database(path, settled=True))
            assert [one.action for one in again.sessions] == ["unchanged"]


def test_a_damaged_database_is_reported(store: Store, path: Path, tmp_path: Path) -> None:
    data = database(path).read_bytes()
    other = tmp_path / "cut.db"
    for seed in range(30):
        random = Random(seed)
        at = random.randrange(100, len(data) - 200)
        damaged = data[:at] + random.randbytes(100) + data[at + 100 :]
        other.write_bytes(damaged[: random.choice([len(data), at])])
        report = import_paths(store, [other])
        assert report.sessions or report.skipped
        check_sound(store)
