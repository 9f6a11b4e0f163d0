"""hermes-agent: its database, its exports, and its older transcripts."""

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from killick import Reasoning, Store, ToolCall
from killick.exchange.formats.hermes import hermes_database, hermes_file
from killick.exchange.importer import detect, import_paths
from killick.exchange.records import Source
from killick.model import entries as e
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, bring, jsonl, kinds, said

FIRST, SECOND, SUB = "20260822_090000_a1b2c3", "20260822_093000_d4e5f6", "20260822_091000_f00f00"

OLD = ("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name",
       "timestamp", "token_count", "finish_reason", "reasoning")  # fmt: skip
NEW = (*OLD, "effect_disposition", "reasoning_content", "reasoning_details",
       "codex_reasoning_items", "platform_message_id", "observed", "_compressed_summary", "active",
       "compacted", "display_kind", "display_metadata", "display_order", "message_uid",
       "absorbed_message_uids")  # fmt: skip

SESSION = ("id", "source", "model", "model_config", "system_prompt", "system_prompt_hash",
           "parent_session_id", "started_at", "ended_at", "end_reason", "input_tokens",
           "output_tokens", "cwd", "title", "title_source", "last_activity_at", "archived",
           "billing_provider")  # fmt: skip

LS = [{"id": "call_1", "type": "function",
       "function": {"name": "terminal", "arguments": '{"cmd":"ls"}'}}]  # fmt: skip


class Home:
    """Writes rows as the agent does."""

    def __init__(self, path: Path, columns: tuple[str, ...] = NEW) -> None:
        self.path = path
        self.columns = columns
        path.unlink(missing_ok=True)
        self.database = sqlite3.connect(path)
        made = ", ".join(f"{name} BLOB" for name in columns[1:])
        about = ", ".join(f"{name} BLOB" for name in SESSION[1:])
        self.database.executescript(
            f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
            f"CREATE TABLE schema_version(version INTEGER NOT NULL);"
            f"CREATE TABLE system_prompts(hash TEXT PRIMARY KEY, prompt TEXT NOT NULL);"
            f"CREATE TABLE sessions(id TEXT PRIMARY KEY, {about});"
            f"CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, {made});"
            f"INSERT INTO system_prompts VALUES('h1', 'You are Hermes.');"
        )

    def session(self, own: str, at: float, **more: Any) -> None:
        row = {"id": own, "source": "cli", "model": "gpt-x", "started_at": at, "cwd": "/w",
               "system_prompt_hash": "h1", "archived": 0} | more  # fmt: skip
        self._insert("sessions", {name: row[name] for name in SESSION if name in row})

    def say(self, session: str, role: str, content: Any, at: float, **more: Any) -> None:
        if not isinstance(content, str | None | bytes):
            content = "\0json:" + json.dumps(content)
        row = {"session_id": session, "role": role, "content": content, "timestamp": at,
               "active": 1, "compacted": 0, "_compressed_summary": 0} | more  # fmt: skip
        row = {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in row.items()}
        self._insert("messages", {name: row[name] for name in row if name in self.columns})

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(row))
        self.database.execute(
            f"INSERT INTO {table}({', '.join(row)}) VALUES({marks})", list(row.values())
        )

    def run(self, statement: str, *values: object) -> None:
        self.database.execute(statement, values)

    def close(self) -> Path:
        self.database.commit()
        self.database.close()
        return self.path


T = 1787389200.0


def talk(home: Home, session: str = FIRST) -> None:
    home.say(session, "session_meta", "{}", T)
    home.say(session, "user", "List the files.", T + 1)
    home.say(session, "assistant", "I look.", T + 2, tool_calls=LS, finish_reason="tool_calls",
             reasoning_content="A listing.", token_count=12,
             codex_reasoning_items=[{"encrypted_content": "sealed"}])  # fmt: skip
    home.say(session, "tool", "a.txt", T + 3, tool_call_id="call_1", tool_name="terminal",
             effect_disposition="none")  # fmt: skip
    home.say(session, "assistant", "One file.", T + 4, finish_reason="stop")
    home.say(session, "user", [{"type": "text", "text": "And this?"}], T + 5)
    home.say(session, "assistant", "That one, too.", T + 6, finish_reason="stop")


def everything(path: Path, columns: tuple[str, ...] = NEW) -> Path:
    """Each kind of row, and each trap."""
    home = Home(path, columns)
    home.session(FIRST, T, ended_at=T + 1800, end_reason="compression", title="list files",
                 title_source="llm", billing_provider="openai")  # fmt: skip
    home.session(SUB, T + 600, parent_session_id=FIRST, model_config='{"_delegate_from":"x"}')
    home.session(SECOND, T + 1800, parent_session_id=FIRST, title="list files #2",
                 title_source="llm", ended_at=T + 4000, end_reason="cli_close")  # fmt: skip
    talk(home)
    home.say(SUB, "user", "Look deeper.", T + 601)
    home.say(SUB, "assistant", "Nothing there.", T + 602)
    summary = "[CONTEXT COMPACTION] They listed files."
    if "_compressed_summary" in columns:
        home.say(SECOND, "user", summary, T + 1800, _compressed_summary=1)
    # The tail that the compression has kept, written once more.
    home.say(SECOND, "assistant", "That one, too.", T + 6, finish_reason="stop")
    home.say(SECOND, "user", "Delete it.", T + 1801)
    home.say(SECOND, "assistant", "Operation interrupted: waiting for model response (3.2s)",
             T + 1802)  # fmt: skip
    if "active" in columns:
        home.say(SECOND, "user", "A question undone.", T + 1803, active=0)
        home.say(SECOND, "assistant", "An answer undone.", T + 1804, active=0)
    home.say(SECOND, "user", "Go on.", T + 1805)
    home.say(SECOND, "assistant", "A blank was filled.", T + 1806, active=0)
    home.say(SECOND, "assistant", "I go on.", T + 1807, platform_message_id="p1",
             display_metadata={"reactions": []})  # fmt: skip
    return home.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.mark.parametrize("columns", [OLD, NEW], ids=["old", "new"])
def test_every_version_is_read_by_the_columns_it_has(
    store: Store, path: Path, columns: tuple[str, ...]
) -> None:
    assert detect(everything(path, columns)) == "hermes"
    report = bring(store, hermes_database(path, settled=True))
    assert report.problems == []
    assert len(report.sessions) == 2
    words = [words for _, words in said(store.session(report.sessions[0].session_id))]
    assert words[:2] == ["List the files.", "I look."]
    assert words[-1] == "I go on."
    check_sound(store)


def test_a_chain_of_compressions_is_one_session(store: Store, path: Path) -> None:
    report = bring(store, hermes_database(everything(path), settled=True))
    session = store.session(report.sessions[0].session_id)
    words = [words for _, words in said(session)]
    assert words.count("That one, too.") == 1
    assert session.title == "list files #2"
    assert "CONTEXT COMPACTION" not in str(words)
    context = json.dumps(session.context("openai-chat").messages)
    assert "They listed files." in context
    assert "That one, too." in context
    assert "One file." not in context
    assert "One file." in str(session.transcript())
    assert session.info().about.extra["chain"] == [FIRST, SECOND]


def test_each_kind_of_row(store: Store, path: Path) -> None:
    report = bring(store, hermes_database(everything(path), settled=True))
    session = store.session(report.sessions[0].session_id)
    answer = session.messages()[1]
    assert answer.parts[0] == Reasoning("A listing.")
    assert answer.parts[1] == Reasoning("", encrypted="sealed")
    assert answer.parts[3] == ToolCall("call_1", "terminal", '{"cmd":"ls"}')
    finished = [one.body for one in session.entries() if isinstance(one.body, e.ToolFinished)]
    assert [one.result.content for one in finished] == ["a.txt"]
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("completed", None), ("interrupted", "user"), ("completed", None),
        ("completed", None),
    ]  # fmt: skip
    assert session.info().models == ("gpt-x",)
    assert "You are Hermes." in (session.context("openai-responses").system or "")
    notes = [one.body.name for one in session.entries() if isinstance(one.body, e.Note)]
    assert {"hermes.session_meta", "hermes.row"} <= set(notes)


def test_live_compacted_and_rewound_rows(store: Store, path: Path) -> None:
    report = bring(store, hermes_database(everything(path), settled=True))
    session = store.session(report.sessions[0].session_id)
    words = str(said(session))
    assert "undone" not in words  # taken back together, out of every view
    assert "rewind" in kinds(session)
    assert "undone" in str([one.body for one in session.entries()])
    shown = str(session.transcript())
    assert "A blank was filled." not in shown  # alone: hidden
    assert "I go on." in shown


def test_a_subagent_belongs_to_its_conversation(store: Store, path: Path) -> None:
    report = bring(store, hermes_database(everything(path), settled=True))
    infos = [store.session(one.session_id).info() for one in report.sessions]
    assert [one.type for one in infos] == ["user", "subagent"]
    parent = infos[1].about.parent
    assert parent is not None
    assert parent.session_id == infos[0].id


def in_place(path: Path, step: int) -> Path:
    """A conversation that is compacted where it stands, rewound, and goes on."""
    home = Home(path)
    home.session(FIRST, T)
    talk(home)
    if step >= 1:  # the rows are archived, then the summary and the kept tail are inserted
        home.run("UPDATE messages SET active = 0, compacted = 1")
        home.say(FIRST, "user", "[CONTEXT COMPACTION] Files.", T + 7, _compressed_summary=1)
        home.say(FIRST, "assistant", "That one, too.", T + 6, finish_reason="stop")
        home.say(FIRST, "user", "More.", T + 8)
        home.say(FIRST, "assistant", "There is more.", T + 9)
    if step >= 2:
        home.run("UPDATE messages SET active = 0 WHERE timestamp >= ?", T + 8)
        home.say(FIRST, "user", "Less.", T + 10)
        home.say(FIRST, "assistant", "There is less.", T + 11)
    return home.close()


def test_a_session_grows_through_compactions_and_rewinds(store: Store, path: Path) -> None:
    actions = []
    for step in range(3):
        outcome = bring(store, hermes_database(in_place(path, step), settled=True)).sessions[0]
        again = bring(store, hermes_database(path, settled=True)).sessions[0]
        assert again.action == "unchanged"
        actions.append(outcome.action)
        check_sound(store)
    assert actions == ["new", "grown", "grown"]
    session = store.session(outcome.session_id)
    assert [words for _, words in said(session)][-3:] == [
        "That one, too.", "Less.", "There is less.",
    ]  # fmt: skip
    context = json.dumps(session.context("openai-chat").messages)
    assert "One file." not in context
    assert "There is more." not in context
    with Store(path.parent / "fresh.db") as fresh:
        bring(fresh, hermes_database(path, settled=True))
        assert said(fresh.session(session.id)) == said(session)


def test_a_changed_source_becomes_a_fork(store: Store, path: Path) -> None:
    first = bring(store, hermes_database(in_place(path, 0), settled=True)).sessions[0]
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("UPDATE messages SET content = 'Rewritten.' WHERE id = 5")
        agent.commit()
    outcome = bring(store, hermes_database(path, settled=True)).sessions[0]
    assert (outcome.action, outcome.fork_of) == ("forked", first.session_id)


def test_what_repair_has_merged_is_taken_once(store: Store, path: Path) -> None:
    home = Home(path)
    home.session(FIRST, T)
    home.say(FIRST, "user", "first\n\nsecond", T + 1, message_uid="u1",
             absorbed_message_uids=["u2"])  # fmt: skip
    home.say(FIRST, "user", "second", T + 2, message_uid="u2")
    home.say(FIRST, "assistant", "Both.", T + 3)
    report = bring(store, hermes_database(home.close(), settled=True))
    assert [(one.kind, one.location.line) for one in report.problems] == [("repaired", 2)]
    words = [words for _, words in said(store.session(report.sessions[0].session_id))]
    assert words == ["first\n\nsecond", "Both."]


def test_a_circle_of_parents_ends(store: Store, path: Path) -> None:
    home = Home(path)
    home.session(FIRST, T, parent_session_id=SECOND, end_reason="compression")
    home.session(SECOND, T + 1, parent_session_id=FIRST, end_reason="compression")
    home.session(SUB, T + 2, parent_session_id=SUB, end_reason="compression",
                 model_config='{"_delegate_from":"x"}')  # fmt: skip
    talk(home)
    report = bring(store, hermes_database(home.close(), settled=True))
    assert report.problems == []
    assert len(report.sessions) == 2
    check_sound(store)


def test_a_row_that_cannot_be_read_takes_no_other_along(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(everything(path))) as made:
        made.execute("UPDATE messages SET tool_calls = '[{' WHERE id = 3")
        made.execute("UPDATE messages SET role = 'alien' WHERE id = 5")
        made.execute("UPDATE messages SET content = X'000046FF' WHERE id = 6")
        made.commit()
    report = bring(store, hermes_database(path, settled=True))
    assert [one.location.line for one in report.skipped] == [3, 5]
    assert "I go on." in str(said(store.session(report.sessions[0].session_id)))
    check_sound(store)


def test_a_database_in_use_is_read_with_its_log_and_not_changed(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(everything(path))) as agent:
        agent.execute("PRAGMA wal_autocheckpoint=0")
        agent.execute("UPDATE messages SET content = 'In the log.' WHERE content = 'I go on.'")
        agent.commit()
        before = {one.name: one.read_bytes() for one in path.parent.glob("state.db*")}
        report = bring(store, hermes_database(path, settled=True))
        after = {one.name: one.read_bytes() for one in path.parent.glob("state.db*")}
        assert after.keys() == before.keys()
        assert after["state.db"] == before["state.db"]
        assert after["state.db-wal"] == before["state.db-wal"]
    assert said(store.session(report.sessions[0].session_id))[-1] == ("assistant", "In the log.")


def test_a_database_at_rest_gets_no_files_beside_it(store: Store, path: Path) -> None:
    everything(path)
    before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    bring(store, hermes_database(path, settled=True))
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == before


def test_an_agent_that_begins_to_write_is_noticed(store: Store, path: Path) -> None:
    sources = hermes_database(everything(path), settled=True)
    source = next(sources)
    assert isinstance(source, Source)
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("INSERT INTO sessions(id, source) VALUES('x', 'cli')")
        agent.commit()
        report = bring(store, source)
        assert isinstance(sources, Generator)
        sources.close()
        assert "import it again" in report.skipped[0].reason
        report = bring(store, hermes_database(path, settled=True))
    assert report.problems == []
    assert said(store.session(report.sessions[1].session_id))[-1] == ("assistant", "I go on.")


# -- files -----------------------------------------------------------------------------------------


def export() -> bytes:
    """Sessions, one on each line, with the rows that are live."""
    messages = [
        {"id": 1, "role": "user", "content": "List the files.", "timestamp": T + 1, "active": 1},
        {"id": 2, "role": "assistant", "content": "I look.", "tool_calls": LS, "timestamp": T + 2},
        {"id": 3, "role": "tool", "content": "a.txt", "tool_call_id": "call_1", "timestamp": T + 3},
        {"id": 4, "role": "assistant", "content": [{"type": "text", "text": "One file."}],
         "timestamp": T + 4, "finish_reason": "stop"},
    ]  # fmt: skip
    about = {"source": "cli", "model": "gpt-x", "system_prompt": "You are Hermes.", "cwd": "/w",
             "timings": {}}  # fmt: skip
    return jsonl(
        about | {"id": FIRST, "started_at": T, "title": "Files", "messages": messages},
        about | {"id": SECOND, "started_at": T + 9, "messages": [
            {"id": 9, "role": "user", "content": "Another talk.", "timestamp": T + 9}]},
    )  # fmt: skip


def transcript() -> bytes:
    return jsonl(
        {"role": "session_meta", "tools": [{"name": "terminal"}], "model": "gpt-x",
         "platform": "slack", "timestamp": "2026-04-18T19:26:00.214787"},
        {"role": "user", "content": "List the files.", "timestamp": "2026-04-18T19:26:01"},
        {"role": "assistant", "content": "I look.", "reasoning": "A listing.", "tool_calls": LS,
         "finish_reason": "tool_calls", "timestamp": "2026-04-18T19:26:02"},
        {"role": "tool", "content": "a.txt", "tool_call_id": "call_1",
         "timestamp": "2026-04-18T19:26:03"},
        {"role": "assistant", "content": "One file.", "timestamp": "2026-04-18T19:26:04"},
        {"role": "user", "content": "Delete it.", "timestamp": "2026-04-18T19:26:05"},
        {"role": "assistant", "content": "Operation interrupted.",
         "timestamp": "2026-04-18T19:26:06"},
        {"role": "user", "content": "Never mind.", "timestamp": "2026-04-18T19:26:07"},
        {"role": "assistant", "content": "All right.", "timestamp": "2026-04-18T19:26:08"},
    )  # fmt: skip


def test_an_export(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_bytes(export())
    assert detect(path) == "hermes"
    report = bring(store, hermes_file(path, settled=True))
    assert report.problems == []
    first, second = (store.session(one.session_id) for one in report.sessions)
    assert [words for _, words in said(first)] == [
        "List the files.",
        "I look.",
        "a.txt",
        "One file.",
    ]
    assert (first.title, second.title) == ("Files", "Another talk.")
    check_sound(store)


def test_a_transcript(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "20260418_192600_a1b2c3d4.jsonl"
    path.write_bytes(transcript())
    assert detect(path) == "hermes"
    report = bring(store, hermes_file(path, settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("interrupted", "user"), ("completed", None),
    ]  # fmt: skip
    assert session.info().models == ("gpt-x",)
    assert session.messages()[1].parts[0] == Reasoning("A listing.")
    check_sound(store)


def test_a_transcript_grows(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    lines = transcript().splitlines(keepends=True)
    actions = []
    for end in (5, 9):
        path.write_bytes(b"".join(lines[:end]))
        actions.append(import_paths(store, [path], clock=lambda: NOW).sessions[0].action)
    assert actions == ["new", "grown"]


def test_a_file_whose_lines_cannot_be_read_is_reported(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    lines = export().splitlines(keepends=True)
    path.write_bytes(lines[0][:90] + b"\n" + lines[1])
    report = bring(store, hermes_file(path, settled=True))
    assert [one.location.line for one in report.skipped] == [1]
    assert [store.session(i).title for i in store.session_ids()] == ["Another talk."]


def test_a_request_that_the_model_refused(store: Store, tmp_path: Path) -> None:
    """hermes tells it beside the database alone; the turn has failed, unless an answer came."""
    home = Home(tmp_path / "state.db")
    home.session(FIRST, T)
    prompts = ("List the files.", "Try again.", "And now?", "Once more.")
    for number, prompt in enumerate(prompts):
        home.say(FIRST, "user", prompt, T + 10 * number)
        if prompt == "And now?":
            home.say(FIRST, "assistant", "README", T + 10 * number + 1)
    (tmp_path / "sessions").mkdir()
    for number, prompt in enumerate(prompts[:3]):
        error = None if prompt == "Try again." else {"message": f"400 {number}"}
        dump = {"request": {"body": {"messages": [{"role": "user", "content": prompt}]}},
                "error": error}  # fmt: skip
        name = f"request_dump_{FIRST}_2026_{number}.json"
        (tmp_path / "sessions" / name).write_text(json.dumps(dump))
    (tmp_path / "sessions" / f"request_dump_{FIRST}_2027_0.json").write_text('{"request": [')
    (outcome,) = import_paths(store, [home.close()], clock=lambda: NOW).sessions
    turns = store.session(outcome.session_id).turns()
    told = ["failed", "interrupted", "completed", "interrupted"]
    assert [turn.status for turn in turns] == told
    assert turns[0].cause == "failed"
