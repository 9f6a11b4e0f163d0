"""Cline's sessions, and its older task folders."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from killick import Image, Opaque, Reasoning, Store, ToolCall, Usage
from killick.exchange.formats.cline import cline_session, cline_task
from killick.exchange.importer import detect, import_paths
from killick.model import entries as e
from tests.exchange.checks import PNG, check_sound
from tests.exchange.sources import NOW, bring, kinds, said

ID = "1784094124598_rruoq"
TASK = "1700000000000"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "editor", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "name": "editor", "content": content}
    return block | more


PICTURE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mediaType": "image/png"}


class Talk:
    """Writes messages as the agent does."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def add(self, role: str, *content: Any, **more: Any) -> str:
        own = f"msg_{len(self.messages)}"
        ts = 1783376870000 + len(self.messages) * 1000
        one = {"id": own, "role": role, "content": list(content), "ts": ts}
        self.messages.append(one | more)
        return own

    def answer(self, *content: Any, **more: Any) -> str:
        info = {"id": "m-1", "provider": "cline", "family": "claude"}
        metrics = {"inputTokens": 7, "outputTokens": 3, "cacheReadTokens": 2, "cost": 0.06}
        return self.add("assistant", *content, modelInfo=info, metrics=metrics, **more)


def everything() -> Talk:
    """Each kind of block, and each trap."""
    talk = Talk()
    attached = {"type": "file", "path": "/w/a.ts", "content": "let attached = 1"}
    talk.add("user", text('<user_input mode="act">Fix the parser.</user_input>'), attached, PICTURE)
    talk.answer({"type": "thinking", "thinking": "I think first.", "signature": "c2ln"},
                text("I look at it."), use("toolu_1", a=1), use("toolu_2", a=2))  # fmt: skip
    talk.add("user", result("toolu_1", "first found"))
    talk.add("user", result("toolu_2", [text("second found"), PICTURE], is_error=True))
    talk.answer({"type": "redacted_thinking", "data": "AAAA"}, text("The parser is fixed."),
                metadata={"modelToolActivities": [1]})  # fmt: skip
    talk.add("user", text("Rules were injected."), metadata={"displayRole": "system"})
    talk.add("user", text("Now run the tests."), metadata={"userRunSpan": 1})
    talk.answer(text("They run green."), {"type": "media", "media": {"x": "a medium"}})
    talk.add("user", text("Delete the folder."))
    talk.answer(use("toolu_3", path="/w"))
    return talk


def manifest(**more: Any) -> dict[str, Any]:
    about: dict[str, Any] = {
        "version": 1, "session_id": ID, "source": "cli", "pid": 1, "exit_code": 0,
        "started_at": "2026-07-15T05:42:04.609Z", "ended_at": "2026-07-15T06:42:04.609Z",
        "status": "cancelled", "interactive": True, "provider": "cline", "model": "m-1",
        "cwd": "/w", "workspace_root": "/w", "prompt": "Fix the parser.",
        "metadata": {"title": "Parser", "totalCost": 0.1}, "messages_path": "x.messages.json",
    }  # fmt: skip
    return about | more


def compaction(messages: list[dict[str, Any]], count: int = 5) -> dict[str, Any]:
    summary = {"id": "sum", "role": "user", "content": [text("The parser was mended.")], "ts": 1}
    return {
        "version": 1, "updated_at": "2026-07-17T02:04:41.983Z", "source_message_count": count,
        "source_prefix_hash": "sha256:0", "source_last_message_key": f"id:msg_{count - 1}",
        "messages": [summary, messages[count - 1] | {"id": "other", "ts": 5}],
    }  # fmt: skip


def write(
    folder: Path,
    messages: list[Any],
    *,
    about: dict[str, Any] | None = None,
    sidecar: dict[str, Any] | None = None,
    name: str = ID,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"version": 1, "updated_at": "…", "agent": "lead", "sessionId": ID,
                "origin": {"source": "cli"}, "messages": messages,
                "system_prompt": "You are careful."}  # fmt: skip
    path = folder / f"{name}.messages.json"
    path.write_text(json.dumps(document, indent=2))
    if about is not None:
        (folder / f"{name}.json").write_text(json.dumps(about))
    if sidecar is not None:
        (folder / f"{name}.compaction.json").write_text(json.dumps(sidecar))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / ID


def whole(folder: Path) -> Path:
    messages = everything().messages
    return write(folder, messages, about=manifest(), sidecar=compaction(messages))


def test_each_kind_of_block(store: Store, folder: Path) -> None:
    report = bring(store, cline_session(whole(folder), settled=True))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    messages = {one.id: one for one in session.messages()}
    first = messages["msg_0"].parts
    assert (type(first[1]), type(first[2])) == (Opaque, Image)
    assert messages["msg_1"].parts[0] == Reasoning("I think first.", signature="c2ln")
    assert messages["msg_1"].parts[2] == ToolCall("toolu_1", "editor", '{"a":1}')
    results = [one.body.result for one in session.entries() if isinstance(one.body, e.ToolFinished)]
    assert [(one.call_id, one.is_error) for one in results] == [
        ("toolu_1", False), ("toolu_2", True),
    ]  # fmt: skip
    calls = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallEnded)]
    assert calls[0].usage == Usage(input=7, output=3, cached=2, cost=0.06)
    info = session.info()
    assert (info.title, info.models, info.project and info.project.root) == (
        "Parser",
        ("m-1",),
        "/w",
    )
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("completed", None), ("interrupted", "cancelled"),
    ]  # fmt: skip
    assert not any("injected" in one.text for one in session.transcript())
    check_sound(store)


def test_a_compaction_that_fits_is_taken_over(store: Store, folder: Path) -> None:
    report = bring(store, cline_session(whole(folder), settled=True))
    session = store.session(report.sessions[0].session_id)
    context = json.dumps(session.context("anthropic").messages)
    assert "The parser was mended." in context
    assert "first found" not in context
    assert "The parser is fixed." in context  # the one that the compaction has kept
    assert "They run green." in context
    assert "first found" in str(session.transcript())


def test_a_compaction_of_other_messages_is_left_out(store: Store, folder: Path) -> None:
    messages = everything().messages
    sidecar = compaction(messages) | {"source_last_message_key": "id:gone"}
    report = bring(store, cline_session(write(folder, messages, sidecar=sidecar), settled=True))
    assert [one.kind for one in report.problems] == ["repaired"]
    assert "compaction" not in kinds(store.session(report.sessions[0].session_id))


def test_a_turn_that_goes_on_after_its_end_becomes_a_fork(store: Store, folder: Path) -> None:
    talk = everything()
    first = bring(store, cline_session(whole(folder), settled=True)).sessions[0]
    assert (
        bring(store, cline_session(whole(folder), settled=True)).sessions[0].action == "unchanged"
    )
    talk.add("user", result("toolu_3", "deleted after all"))
    talk.answer(text("It is gone."))
    talk.add("user", text("Thanks."))
    talk.answer(text("Welcome."))
    # A turn that was called interrupted has gone on: what was imported cannot be taken back.
    path = write(folder, talk.messages, about=manifest(status="completed"),
                 sidecar=compaction(talk.messages, 8))  # fmt: skip
    outcome = bring(store, cline_session(path, settled=True)).sessions[0]
    assert (outcome.action, outcome.fork_of) == ("forked", first.session_id)
    check_sound(store)


def test_a_session_grows_with_its_compactions(store: Store, folder: Path) -> None:
    """The file holds the newest one only; those before it stay in the journal."""
    talk = Talk()
    actions = []
    for number in range(3):
        talk.add("user", text(f"Question {number}."))
        talk.answer(text(f"Answer {number}."))
        count = len(talk.messages) - 1
        path = write(folder, talk.messages, sidecar=compaction(talk.messages, count))
        outcome = bring(store, cline_session(path, settled=False)).sessions[0]
        actions.append(outcome.action)
    assert actions == ["new", "grown", "grown"]
    session = store.session(outcome.session_id)
    assert kinds(session).count("compaction") == 3
    context = json.dumps(session.context("anthropic").messages)
    assert "Answer 0" not in context
    assert "Answer 2" in context
    check_sound(store)


def test_a_subagent_is_a_session_of_its_own(store: Store, folder: Path) -> None:
    whole(folder)
    talk = Talk()
    talk.add("user", text("Look into it."))
    talk.answer(text("I have looked."))
    write(folder, talk.messages, name="agent_7")
    report = import_paths(store, [folder], clock=lambda: NOW)
    assert report.problems == []
    found = [store.session(one).info() for one in store.session_ids()]
    infos = {one.type: one for one in found}
    assert set(infos) == {"user", "subagent"}
    parent = infos["subagent"].about.parent
    assert parent is not None
    assert parent.session_id == infos["user"].id


def test_the_files_beside_it_are_no_sessions_of_their_own(store: Store, folder: Path) -> None:
    whole(folder)
    for name in (f"{ID}.json", f"{ID}.compaction.json", f"{ID}.messages.json"):
        assert detect(folder / name) == "cline"
        report = import_paths(store, [folder / name], clock=lambda: NOW)
        assert len(report.sessions) == 1
    assert len(store.session_ids()) == 1


def test_a_turn_under_way_is_left_for_the_next_import(store: Store, folder: Path) -> None:
    messages = everything().messages
    running = manifest(status="running", ended_at=None)
    path = write(folder, messages[:2], about=running)
    outcome = bring(store, cline_session(path, settled=False)).sessions[0]
    assert "left for the next import" in (outcome.why or "")
    path = write(folder, messages[:5], about=running)
    outcome = bring(store, cline_session(path, settled=False)).sessions[0]
    assert outcome.action == "grown"
    check_sound(store)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_what_killed_it_is_the_reason(store: Store, folder: Path, status: str) -> None:
    about = manifest(status=status, metadata={"terminal_marker": "failed_external_process_exit"})
    path = write(folder, everything().messages, about=about)
    session = store.session(bring(store, cline_session(path, settled=True)).sessions[0].session_id)
    reason = "failed_external_process_exit" if status == "failed" else "cancelled"
    ended = "failed" if status == "failed" else "interrupted"
    assert (session.turns()[-1].status, session.turns()[-1].reason) == (ended, reason)


def test_a_file_cut_off_in_writing_comes_in_as_far_as_it_is_whole(
    store: Store, folder: Path
) -> None:
    path = whole(folder)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"They run green.")])
    assert detect(path) == "cline"
    report = bring(store, cline_session(path, settled=True))
    assert [one.location.line for one in report.skipped] == [None, 8]
    words = [words for _, words in said(store.session(report.sessions[0].session_id))]
    assert words[-1] == "Now run the tests."
    check_sound(store)


# -- tasks -----------------------------------------------------------------------------------------


def task_messages() -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [text("<task>\nFix the lexer.\n</task>"),
                                     text("<environment_details>…</environment_details>")]},
        {"role": "assistant", "content": [text("I read."), use("t1", "read_file", path="a")]},
        {"role": "user", "content": [result("t1", "the old file")]},
        {"role": "assistant", "content": [text("I see."), use("t2", "read_file", path="b")]},
        {"role": "user", "content": [result("t2", "the other file")]},
        {"role": "assistant", "content": [text("The lexer is mended.")]},
        {"role": "user", "content": "[read_file for 'c'] Result:\nas text"},
        {"role": "assistant", "content": "It is done."},
        {"role": "user", "content": [text("<feedback>\nAnd the docs?\n</feedback>")]},
        {"role": "assistant", "content": [text("The docs\n\n[Response interrupted by user]")]},
    ]  # fmt: skip


def ui_messages(deleted: Any = None) -> list[dict[str, Any]]:
    def request(index: int, **more: Any) -> dict[str, Any]:
        words = json.dumps({"request": "…", "tokensIn": 5, "tokensOut": 2, "cost": 0.01} | more)
        return {"ts": 1700000000000 + index * 1000, "type": "say", "say": "api_req_started",
                "text": words, "conversationHistoryIndex": index}  # fmt: skip

    rows = [
        {"ts": 1700000000000, "type": "say", "say": "task", "text": "Fix the lexer.", "images": []},
        request(0), request(2), request(4),
        {"ts": 1700000005000, "type": "ask", "ask": "completion_result", "partial": False},
        request(8, cancelReason="user_cancelled"),
    ]  # fmt: skip
    if deleted is not None:
        rows[-1]["conversationHistoryDeletedRange"] = deleted
    return rows


def write_task(root: Path, deleted: Any = None, messages: Any = None) -> Path:
    folder = root / "tasks" / TASK
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "api_conversation_history.json").write_text(json.dumps(messages or task_messages()))
    (folder / "ui_messages.json").write_text(json.dumps(ui_messages(deleted)))
    usage = [{"ts": 1, "model_id": "m-2", "model_provider_id": "p-2", "mode": "act"}]
    (folder / "task_metadata.json").write_text(json.dumps({"model_usage": usage}))
    item = {"id": TASK, "ulid": "U", "ts": 1700000000000, "task": "Fix the lexer.",
            "cwdOnTaskInitialization": "/w", "totalCost": 0.01}  # fmt: skip
    (root / "state").mkdir(exist_ok=True)
    (root / "state" / "taskHistory.json").write_text(json.dumps([{"id": "1"}, item]))
    return folder


def test_a_task(store: Store, tmp_path: Path) -> None:
    write_task(tmp_path)
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert report.problems == []
    assert [one.source for one in report.sessions] == ["cline"]
    session = store.session(report.sessions[0].session_id)
    assert session.title == "Fix the lexer."
    info = session.info()
    assert (info.models, info.project and info.project.root) == (("m-2",), "/w")
    assert info.created_at.isoformat() == "2023-11-14T22:13:20+00:00"
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("interrupted", "user_cancelled"),
    ]  # fmt: skip
    last = session.messages()[-1]
    assert (last.state, last.text) == ("partial", "The docs")
    calls = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallEnded)]
    assert calls[0].usage == Usage(input=5, output=2, cost=0.01)
    check_sound(store)


def test_a_deleted_range_is_not_sent_and_stays(store: Store, tmp_path: Path) -> None:
    path = write_task(tmp_path)
    first = bring(store, cline_task(path, settled=True)).sessions[0]
    write_task(tmp_path, [2, 3])
    outcome = bring(store, cline_task(path, settled=True)).sessions[0]
    session = store.session(outcome.session_id)
    assert (outcome.session_id, outcome.fork_of) == (first.session_id, None)
    context = json.dumps(session.context("anthropic").messages)
    assert "the old file" not in context
    assert "I see." not in context
    assert "I read." in context
    assert "the old file" in str(session.transcript())
    assert bring(store, cline_task(path, settled=True)).sessions[0].entries == 0
    check_sound(store)


@pytest.mark.parametrize("deleted", [[5, 2], [0, 99], "x", [1], [2, 10**12], [True, None]])
def test_a_range_that_is_none_does_no_harm(store: Store, tmp_path: Path, deleted: Any) -> None:
    report = bring(store, cline_task(write_task(tmp_path, deleted), settled=True))
    assert report.problems == []
    assert len(said(store.session(report.sessions[0].session_id))) >= 8
    check_sound(store)


def test_a_task_grows(store: Store, tmp_path: Path) -> None:
    actions = []
    for end in (6, 8, 9, 10):
        path = write_task(tmp_path, messages=task_messages()[:end])
        actions.append(bring(store, cline_task(path, settled=False)).sessions[0].action)
    assert actions == ["new", "unchanged", "grown", "grown"]
    check_sound(store)


def test_the_list_alone_is_a_list_of_messages(tmp_path: Path) -> None:
    path = write_task(tmp_path) / "api_conversation_history.json"
    assert detect(path) == "cline"
    (path.parent / "ui_messages.json").unlink()
    assert detect(path) == "messages"
