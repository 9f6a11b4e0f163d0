"""Damaged sources of every format, and what must still be true of what comes in from them."""

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from killick import Store
from killick.exchange.importer import UNEXPECTED, import_paths
from killick.exchange.records import Problem, Report
from killick.model.entries import Body
from killick.stores.memory import MemoryDisk
from tests.exchange import (
    made,
    test_claude_code,
    test_cline,
    test_codex,
    test_deerflow,
    test_goose,
    test_hermes,
    test_message_lists,
)
from tests.exchange.checks import check_sound, converse
from tests.exchange.mutations import mutated
from tests.exchange.sources import NOW, jsonl

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MARKED = {"text", "thinking", "content", "output"}


class Damaged(NamedTuple):
    """What to import, and which texts were not touched, with the line of each, or None."""

    path: Path
    intact: list[tuple[int | None, str]]
    unreadable: set[int]


Case = Callable[[Path, Random], Damaged]


# -- what a record says ----------------------------------------------------------------------------


def marks(value: Any, key: str = "") -> Iterator[str]:
    """The words of a record."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from marks(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from marks(inner, key)
    elif isinstance(value, str) and key in _MARKED and len(value) > 3:
        yield value


def _strings(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _strings(inner)
        case str():
            yield value
        case bytes():
            try:
                yield from _strings(json.loads(value))
            except (ValueError, RecursionError):
                yield value.decode("utf-8", "replace")
        case _:
            pass


def words_of(body: Body) -> Iterator[str]:
    return _strings(msgspec.to_builtins(body, builtin_types=(bytes,)))


def everything_in(store: Store) -> str:
    return "\n".join(
        words
        for session_id in store.session_ids()
        for entry in store.session(session_id).entries()
        for words in words_of(entry.body)
    )


# -- lines -----------------------------------------------------------------------------------------


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def damaged_lines(path: Path, data: bytes, random: Random, skip: Callable[[Any], bool]) -> Damaged:
    known = {line for line in data.split(b"\n") if line}
    data = mutated(data, random.randrange(1 << 60))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    intact, unreadable = list[tuple[int | None, str]](), set[int]()
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line in known and not skip(record := json.loads(line)):
            intact += [(number, mark) for mark in marks(record)]
        elif line.strip() and not _is_object(line.lstrip(b" \t\r\0")):
            unreadable.add(number)
    return Damaged(path, intact, unreadable)


def _nothing(_: Any) -> bool:
    return False


def _lines(name: str, make: Callable[[], bytes], skip: Callable[[Any], bool] = _nothing) -> Case:
    return lambda folder, random: damaged_lines(folder / name, make(), random, skip)


def _beside(record: Any) -> bool:
    """Lines of a rollout that say something of the session, or again."""
    return record["type"] in ("session_meta", "compacted", "event_msg", "turn_context")


def _codex_zst(folder: Path, random: Random) -> Damaged:
    """Damaged before it was compressed, or afterwards."""
    name = f"{test_codex.NAME}.zst"
    found = damaged_lines(folder / name, test_codex.everything().data(), random, _beside)
    data = zstd.compress(found.path.read_bytes())
    if random.random() < 0.5:
        at = random.randrange(len(data))
        data = random.choice([
            data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :],
            data[:at] + random.randbytes(9) + data[at:], data + zstd.compress(b"\0" * 9_000_000),
        ])  # fmt: skip
        found = Damaged(found.path, [], set())
    found.path.write_bytes(data)
    return found


def _own() -> bytes:
    from killick.exchange import export_session

    with Store(MemoryDisk().open()) as store:
        return b"".join(export_session(store, converse(store)))


def _deerflow_files(folder: Path, random: Random) -> Damaged:
    runs = test_deerflow.files(folder, test_deerflow.everything(), misfile=random.random() < 0.5)
    path = random.choice(sorted(runs.iterdir()))
    return damaged_lines(path, path.read_bytes(), random, _nothing)


# -- documents -------------------------------------------------------------------------------------


def damaged_document(path: Path, value: Any, rows: list[Any], random: Random) -> Damaged:
    """A document that is set over many lines; a row whose lines all stand is intact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1)
    data = mutated(text.encode(), random.randrange(1 << 60))
    path.write_bytes(data)
    intact = list[tuple[int | None, str]]()
    for row in rows:
        depth = 2 if isinstance(value, dict) else 1
        lines = json.dumps(row, indent=1).splitlines()
        block = "\n".join([lines[0], *(" " * depth + line for line in lines[1:])])
        if text.count(block) == 1 and data.count(block.encode()) == 1:
            intact += [(None, mark) for mark in marks(row)]
    return Damaged(path, intact, set())


def _messages(folder: Path, random: Random) -> Damaged:
    talk: Any = random.choice([test_message_lists.CHAT, test_message_lists.MESSAGES])
    rows = talk["messages"] if isinstance(talk, dict) else talk
    return damaged_document(folder / "chat.json", talk, rows, random)


def _goose_export(folder: Path, random: Random) -> Damaged:
    value = test_goose.ABOUT | {"conversation": test_goose.CONVERSATION}
    # An export is read whole or not at all: nothing is expected of a damaged one.
    return damaged_document(folder / "export.json", value, [], random)


def _cline(folder: Path, random: Random) -> Damaged:
    talk = test_cline.everything().messages
    folder = folder / test_cline.ID
    test_cline.write(folder, talk, about=test_cline.manifest(), sidecar=test_cline.compaction(talk))
    about = random.choice(["x.json", ".json", ".compaction.json", ".messages.json"])
    path = folder / f"{test_cline.ID}.messages.json"
    if about in (".json", ".compaction.json"):
        beside = folder / f"{test_cline.ID}{about}"
        beside.write_bytes(mutated(beside.read_bytes(), random.randrange(1 << 60)))
        return Damaged(path, [(None, mark) for row in talk for mark in marks(row)], set())
    return damaged_document(path, json.loads(path.read_text()), talk, random)


def _cline_task(folder: Path, random: Random) -> Damaged:
    path = test_cline.write_task(folder, random.choice([None, [2, 3]]))
    name = random.choice(["api_conversation_history.json", "ui_messages.json"])
    talk = test_cline.task_messages()
    talk[-1]["content"] = [{"type": "text", "text": "The docs"}]
    api = path / "api_conversation_history.json"
    if name == "ui_messages.json":
        beside = path / name
        value = json.dumps(json.loads(beside.read_text()), indent=1).encode()
        beside.write_bytes(mutated(value, random.randrange(1 << 60)))
        api.write_text(json.dumps(talk))
        found = Damaged(api, [(None, mark) for row in talk for mark in marks(row)], set())
    else:
        found = damaged_document(api, talk, talk, random)
    # The line before a result says whose it is; it is not kept where the call is there.
    intact = [(line, mark.rpartition("Result:\n")[2]) for line, mark in found.intact]
    return found._replace(intact=intact)


# -- databases -------------------------------------------------------------------------------------

_STRANGE: list[Any] = [
    None, "", "{", "[]", "null", '"x"', "[{}]", b"\xff\xfe\0", 17, -1, 1.5, "\u2028", "../../x",
    "\0json:[", '{"a":' * 200 + "1" + "}" * 200, "1e400", "alien", "a" * 5000,
]  # fmt: skip


def damaged_rows(path: Path, random: Random, tables: dict[str, list[str]], rows: str) -> Damaged:
    """Values of any kind in any column, rows that are gone or there again, ids of others."""
    touched = set[int]()
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA synchronous=OFF")
        before = {
            row[0]: json.dumps(row[1:], default=str)
            for row in made.execute(f"SELECT rowid, * FROM {rows}")
        }
        for _ in range(random.choice([1, 1, 2, 5])):
            table = random.choice(list(tables))
            column = random.choice(tables[table])
            (own,) = random.choice(made.execute(f"SELECT rowid FROM {table}").fetchall())
            value = random.choice(_STRANGE)
            if random.random() < 0.3:
                (value,) = random.choice(made.execute(f"SELECT {column} FROM {table}").fetchall())
            try:
                made.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, own))
            except sqlite3.IntegrityError:
                made.execute(f"DELETE FROM {table} WHERE rowid = ?", (own,))
            touched |= {own} if table == rows else set(before)
            if not made.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
                break
        made.commit()
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for log in path.parent.glob(f"{path.name}-*"):
        log.unlink()
    texts = [
        (own, mark)
        for own, row in before.items()
        if own not in touched
        for cell in json.loads(row)
        for mark in _cell_marks(cell)
    ]
    if random.random() < 0.1:  # pages, too
        data = bytearray(path.read_bytes())
        for _ in range(random.randrange(1, 5)):
            at = random.randrange(100, len(data) - 64)
            data[at : at + 64] = random.randbytes(64)
        path.write_bytes(data[: random.choice([len(data), len(data) * 2 // 3])])
        texts = []
    return Damaged(path, texts, set())


def _cell_marks(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        with suppress(ValueError):
            yield from marks(json.loads(cell.removeprefix("\0json:")))


def _goose_db(folder: Path, random: Random) -> Damaged:
    path = test_goose.database(folder / "sessions.db", random.randrange(7, 10))
    return damaged_rows(
        path,
        random,
        {"messages": ["role", "content_json", "created_timestamp", "metadata_json", "message_id",
                      "session_id"],
         "sessions": ["name", "working_dir", "created_at", "updated_at", "model_config_json"]},
        "messages",
    )  # fmt: skip


def _hermes_db(folder: Path, random: Random) -> Damaged:
    path = test_hermes.everything(folder / "state.db")
    return damaged_rows(
        path,
        random,
        {"messages": ["role", "content", "tool_calls", "timestamp", "active", "compacted",
                      "_compressed_summary", "tool_call_id", "reasoning_content", "session_id",
                      "message_uid", "absorbed_message_uids", "codex_reasoning_items"],
         "sessions": ["parent_session_id", "end_reason", "model_config", "title", "started_at",
                      "id", "system_prompt_hash", "ended_at"]},
        "messages",
    )  # fmt: skip


def _deerflow_db(folder: Path, random: Random) -> Damaged:
    path = test_deerflow.database(folder / "deerflow.db", test_deerflow.everything())
    return damaged_rows(
        path,
        random,
        {"run_events": ["run_id", "event_type", "content", "event_metadata", "seq", "created_at",
                        "category", "thread_id"],
         "runs": ["status", "error", "metadata_json", "run_id"],
         "threads_meta": ["display_name", "created_at"]},
        "run_events",
    )  # fmt: skip


# -- newer agents ----------------------------------------------------------------------------------


def _made_lines(name: str, skip: Callable[[Any], bool] = _nothing) -> Case:
    file, records = made.LINES[name]
    return lambda folder, random: damaged_lines(folder / file, jsonl(*records), random, skip)


def _rewritten(record: Any) -> bool:
    """Lines of Gemini CLI that another may replace."""
    return "$set" in record or record.get("type") == "gemini" or "projectHash" in record


def _unsaid(record: Any) -> bool:
    """Events of Copilot CLI whose words are the system prompt, or those that were sent around."""
    return bool(record["type"] == "system.message")


def _in_progress(record: Any) -> bool:
    """Events of `codex exec` that the one behind them repeats."""
    return record["type"] in ("item.started", "turn.started")


def _gemini_document(folder: Path, random: Random) -> Damaged:
    value = made.gemini_document()
    found = damaged_document(folder / "session-1.json", value, value["messages"], random)
    return Damaged(found.path, [], set())


def _cline_ui(folder: Path, random: Random) -> Damaged:
    rows = made.ui_rows()
    path = folder / "1767225600000" / "ui_messages.json"
    found = damaged_document(path, rows, rows, random)
    return Damaged(found.path, [], set())


def _opencode_db(folder: Path, random: Random) -> Damaged:
    path = folder / "opencode.db"
    path.unlink(missing_ok=True)
    made.opencode_database(path)
    return damaged_rows(
        path,
        random,
        {"part": ["data", "message_id", "session_id", "id"],
         "message": ["data", "time_created", "session_id"],
         "session": ["title", "directory", "time_created", "time_updated", "revert"]},
        "part",
    )  # fmt: skip


def _opencode_storage(folder: Path, random: Random) -> Damaged:
    root = made.opencode_storage(folder)
    path = random.choice(sorted(path for path in root.rglob("*.json") if path.is_file()))
    path.write_bytes(mutated(path.read_bytes(), random.randrange(1 << 60)))
    others = [one for one in (root / "part").rglob("*.json") if one != path]
    part_of = path.parent.name if path.parts[-3] == "part" else path.stem
    texts: list[tuple[int | None, str]] = [
        (None, mark)
        for one in others
        if path.parts[-3] == "part" and one.parent.name != part_of
        for mark in marks(json.loads(one.read_text()))
    ]
    return Damaged(root, texts, set())


def _opencode_export(folder: Path, random: Random) -> Damaged:
    # An export is read whole or not at all: nothing is expected of a damaged one.
    return damaged_document(folder / "export.json", made.opencode_export(), [], random)


def _crush_db(folder: Path, random: Random) -> Damaged:
    path = folder / "crush.db"
    path.unlink(missing_ok=True)
    made.crush_database(path)
    return damaged_rows(
        path,
        random,
        {"messages": ["role", "parts", "model", "created_at", "session_id", "id"],
         "sessions": ["title", "created_at", "updated_at", "summary_message_id", "cost"]},
        "messages",
    )  # fmt: skip


def _markdown(name: str, text: str) -> Case:
    """Prose: whatever stands in it is somebody's words."""

    def damaged(folder: Path, random: Random) -> Damaged:
        path = folder / name
        path.write_bytes(mutated(text.encode(), random.randrange(1 << 60)))
        return Damaged(path, [], set())

    return damaged


NEW: dict[str, Case] = {
    "qwen": _made_lines("qwen"),
    "pi": _made_lines("pi"),
    "copilot": _made_lines("copilot", _unsaid),
    "gemini-lines": _made_lines("gemini-lines", _rewritten),
    "gemini": _gemini_document,
    "codex-exec": _made_lines("codex-exec", _in_progress),
    "simple": _made_lines("simple"),
    "opencode": _opencode_db,
    "opencode-storage": _opencode_storage,
    "opencode-export": _opencode_export,
    "crush": _crush_db,
    "cline-ui": _cline_ui,
    "aider": _markdown(".aider.chat.history.md", made.AIDER),
    "specstory": _markdown("2026-01-01.md", made.SPECSTORY),
}
"""The formats of issue 24: the campaign `sources` damages five thousand of each."""

CASES: dict[str, Case] = {
    "killick": _lines("session.jsonl", _own, lambda record: "body" not in record),
    "claude-code": _lines(
        f"{test_claude_code.SESSION}.jsonl", lambda: test_claude_code.everything().data()
    ),
    "codex": _lines(test_codex.NAME, lambda: test_codex.everything("paginated").data(), _beside),
    "codex-zst": _codex_zst,
    "goose": _goose_db,
    "goose-lines": _lines("20240101_120000.jsonl", test_goose.legacy),
    "goose-export": _goose_export,
    "cline": _cline,
    "cline-task": _cline_task,
    "hermes": _hermes_db,
    "hermes-lines": _lines("x.jsonl", test_hermes.transcript),
    "hermes-export": _lines("export.jsonl", test_hermes.export),
    "deerflow": _deerflow_db,
    "deerflow-files": _deerflow_files,
    "messages": _messages,
    **NEW,
}


# -- what must be true -----------------------------------------------------------------------------


def check(case: str, folder: Path, seed: int) -> Report:
    """No crash; what is whole came in, what is not is named, and again changes nothing."""
    for name, _, files in os.walk(folder):
        for file in files:
            (Path(name) / file).unlink()
    found = CASES[case](folder, Random(f"{case}/{seed}"))
    before = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    with Store(MemoryDisk().open()) as store:
        report = import_paths(store, [found.path], clock=lambda: NOW)
        assert [one for one in report.problems if UNEXPECTED in one.reason] == []
        check_sound(store)
        _check_accounted(store, found, report)
        again = import_paths(store, [found.path], clock=lambda: NOW)
        left = {one.session_id for one in report.sessions if one.action == "left"}
        changed = [
            one
            for one in again.sessions
            if one.action != ("left" if one.session_id in left else "unchanged")
        ]
        assert changed == []
        assert _of_the_source(again) == _of_the_source(report)
    assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before
    return report


def _of_the_source(report: Report) -> list[Problem]:
    """Leave out that a chain of links began here: it begins once."""
    return [one for one in report.problems if "has a new chain" not in one.reason]


def _check_accounted(store: Store, found: Damaged, report: Report) -> None:
    if not report.sessions:
        assert report.skipped or not found.intact
        return
    named = {one.location.line for one in report.problems}
    # A file in which no line tells its agent may look like a damaged list of messages.
    assert found.unreadable <= named or None in named, (found.unreadable, report.problems)
    there = everything_in(store)
    for line, mark in found.intact:
        assert mark in there or (line in named and line is not None), (line, mark, report.problems)
