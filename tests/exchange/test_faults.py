"""Faults that real sessions of real agents showed: each was told wrongly once."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from killick import Session, Store
from killick.exchange import import_paths
from killick.exchange.formats.claude_code import claude_code
from killick.exchange.importer import EMPTY, ORPHAN, look_at
from killick.exchange.records import Report
from killick.stores.memory import MemoryDisk
from tests.exchange import test_codex
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, bring, jsonl, said
from tests.exchange.test_claude_code import SESSION, File, result, sources, text, use

RECENT = "2026-11-18T00:00:00Z"


def only(store: Store, report: Report) -> Session:
    (outcome,) = report.sessions
    return store.session(outcome.session_id)


def states(session: Session) -> dict[str, str]:
    return {tool.call_id: tool.state for one in session.transcript() for tool in one.tools}


# -- tools -----------------------------------------------------------------------------------------


def test_a_result_before_its_call_is_the_calls_result(store: Store, tmp_path: Path) -> None:
    """Claude Code since 2.1.9x starts tools while it streams."""
    file = File()
    file.user("Look.")
    file.answer("msg_1", text("I look."), use("t1", command="ls"))
    file.user(result("t2", "two"))
    file.user(result("t1", "one"))
    file.answer("msg_1", use("t2", command="pwd"))
    file.answer("msg_2", text("Done."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    session = only(store, report)
    assert report.problems == []
    assert states(session) == {"t1": "finished", "t2": "finished"}
    context = json.dumps(session.context("anthropic").messages)
    assert "did not run" not in context
    assert "unknown" not in context
    assert [role for role, _ in said(session)] == ["user", "assistant", "tool", "tool", "assistant"]
    check_sound(store)


def test_a_result_that_comes_before_the_answer_of_its_call(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look.")
    file.answer("msg_1", text("I look."))
    file.user("And quickly.", isMeta=True)
    file.user(result("t2", "two"))
    file.answer("msg_2", use("t2", command="pwd"))
    file.answer("msg_3", text("Done."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    assert report.problems == []
    assert "did not run" not in json.dumps(only(store, report).context("anthropic").messages)


def test_a_call_without_a_result_is_unknown_in_a_turn_that_went_on(
    store: Store, tmp_path: Path
) -> None:
    file = File()
    file.user("Look.")
    file.answer("msg_1", use("t1", command="rm x"), use("t2"))
    file.user(result("t2", "two"))
    file.answer("msg_2", text("Done."), stop="end_turn")
    session = only(store, bring(store, *sources(tmp_path, file.data())))
    assert [turn.starts for turn in session.turns()] == ["unseen"]
    context = json.dumps(session.context("anthropic").messages)
    assert "unknown" in context
    assert "did not run" not in context
    assert states(session)["t1"] == "unknown"


def test_a_repair_that_may_mislead_is_in_the_exit_code(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look.")
    file.user(result("never", "made"))
    file.answer("msg_1", text("Done."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    assert [one.kind for one in report.problems] == ["repaired"]
    assert report.exit_code == 3
    twice = bring(store, *sources(tmp_path, jsonl(*file.lines[:1], *file.lines[:1])))
    assert [(one.kind, one.harmless) for one in twice.problems] == [("repaired", True)]
    assert twice.exit_code == 0


# -- sessions that go on ---------------------------------------------------------------------------


def went_on() -> File:
    """As versions 2.0.7x to 2.1.4x write: no stop reason, and much beside the conversation."""
    file = File()
    for number in range(4):
        file.bare(type="file-history-snapshot", messageId=f"m{number}", snapshot={})
        file.user("<command-name>/cost</command-name>")
        file.user(f"Prompt {number}.")
        file.answer(f"msg_{number}a", text("I look."), use(f"t{number}", command="ls"))
        file.user(result(f"t{number}", "files"))
        file.add("progress", data={"type": "hook_progress"})
        file.answer(f"msg_{number}b", text("One moment."))
        file.answer(f"msg_{number}c", text(f"Answer {number}."))
        file.add("system", subtype="stop_hook_summary", hookCount=1)
        if number % 2:
            file.add("system", subtype="turn_duration", durationMs=7)
    return file


def test_a_session_that_goes_on_grows(store: Store, other: Store, tmp_path: Path) -> None:
    """At whatever line it was met before, it is one session, and says the same."""
    lines = went_on().data().splitlines(keepends=True)
    at_once = only(other, bring(other, *sources(tmp_path, b"".join(lines))))
    actions = set()
    for end in range(1, len(lines) + 1):
        if b"I look." in lines[end - 1]:
            continue  # in the middle of an answer: then it is two messages here
        report = bring(store, *sources(tmp_path, b"".join(lines[:end])))
        actions |= {one.action for one in report.sessions}
        check_sound(store)
    assert actions <= {"new", "grown", "unchanged", "left"}
    (session_id,) = store.session_ids()
    session = store.session(session_id)
    assert said(session) == said(at_once)
    for name in ("anthropic", "openai-chat"):
        assert session.context(name).messages == at_once.context(name).messages
    again = bring(store, *sources(tmp_path, b"".join(lines)))
    assert [one.action for one in again.sessions] == ["unchanged"]


def blocks(session: Session) -> list[str]:
    """What a model is told, whatever messages it lies in; a thought alone in one is not told."""
    told = [block for one in session.context("anthropic").messages for block in one["content"]]
    return sorted(json.dumps(block) for block in told if block["type"] != "thinking")


@pytest.mark.parametrize("through", [2, 3, 4, 5])
def test_an_answer_that_came_in_before_it_was_whole_goes_on(
    store: Store, other: Store, tmp_path: Path, through: int
) -> None:
    """Claude Code writes a line for each block of an answer."""
    file = File()
    file.user("Look.")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    file.answer(
        "msg_1", thought, text("I look."), use("t1", command="ls"), use("t2", command="pwd")
    )
    file.user(result("t1", "one"))
    file.user(result("t2", "two"))
    file.answer("msg_2", text("Done."), stop="end_turn")
    lines = file.data().splitlines(keepends=True)
    bring(store, *sources(tmp_path, b"".join(lines[:through])))
    report = bring(store, *sources(tmp_path, b"".join(lines)))
    assert [one.action for one in report.sessions] == ["grown"]
    session = only(store, report)
    assert session.turns()[-1].continues == session.turns()[0].id
    assert states(session) == {"t1": "finished", "t2": "finished"}
    whole = only(other, bring(other, *sources(tmp_path, file.data())))
    assert blocks(session) == blocks(whole)
    check_sound(store)
    again = bring(store, *sources(tmp_path, b"".join(lines)))
    assert [one.action for one in again.sessions] == ["unchanged"]


def test_a_turn_that_came_in_interrupted_is_continued(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look.")
    file.answer("msg_1", use("t1", command="ls"), use("t2", command="pwd"))
    file.user(result("t1", "one"))
    first = only(store, bring(store, *sources(tmp_path, file.data())))
    assert [turn.status for turn in first.turns()] == ["interrupted"]
    file.user(result("t2", "two"))
    file.answer("msg_2", text("Done."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    assert [one.action for one in report.sessions] == ["grown"]
    session = only(store, report)
    begun, continued = session.turns()
    assert (begun.status, continued.status) == ("interrupted", "completed")
    assert continued.continues == begun.id
    assert "unknown" not in states(session).values()
    shown = [one.kind for one in session.transcript()]
    assert set(shown) == {"message"}, shown
    context = json.dumps(session.context("anthropic").messages)
    assert "interrupted" not in context
    check_sound(store)
    again = bring(store, *sources(tmp_path, file.data()))
    assert [one.action for one in again.sessions] == ["unchanged"]


def test_a_turn_whose_ending_alone_came_later_is_completed(store: Store, tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
    lines = [
        event("task_started", turn_id="1"),
        item("user", "Pay."),
        ("response_item", call),
        item("assistant", "I try."),
        event("task_complete", turn_id="1"),
    ]
    for end, action in ((4, "new"), (5, "grown"), (5, "unchanged")):
        path = rollout(tmp_path, *lines[:end])
        report = bring(store, test_codex.source(tmp_path, path.read_bytes()))
        assert [one.action for one in report.sessions] == [action]
    session = only(store, report)
    assert [turn.status for turn in session.turns()] == ["interrupted", "completed"]
    assert "The turn above" not in str(session.context("openai-responses").messages)
    assert states(session) == {"c1": "unknown"}
    check_sound(store)


def test_a_fork_says_why(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look.")
    file.answer("msg_1", text("Done."), stop="end_turn")
    session = only(store, bring(store, *sources(tmp_path, file.data())))
    with session.turn("Here."):
        pass
    file.user("There.")
    file.answer("msg_2", text("Yes."), stop="end_turn")
    (outcome,) = bring(store, *sources(tmp_path, file.data())).sessions
    assert (outcome.action, outcome.fork_of) == ("forked", session.id)
    assert outcome.why
    imported = store.session(outcome.session_id).entries()[-1].body
    assert imported.report["fork"]["of"] == session.id  # type: ignore[union-attr]


# -- what a person typed ---------------------------------------------------------------------------


def test_what_was_typed_meanwhile_is_in_the_conversation(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look.")
    file.answer("msg_1", use("t1", command="ls"))
    file.bare(type="queue-operation", operation="enqueue", sessionId=SESSION, content="Use git.")
    file.bare(type="queue-operation", operation="enqueue", sessionId=SESSION, content="Thanks.")
    file.user(result("t1", "one"))
    file.bare(type="queue-operation", operation="remove", sessionId=SESSION, content="Use git.")
    file.add("attachment", attachment={"type": "queued_command", "prompt": "Use git."})
    file.answer("msg_2", text("I use it."), stop="end_turn")
    file.bare(type="queue-operation", operation="dequeue", sessionId=SESSION)
    file.user("Thanks.")
    file.answer("msg_3", text("Gladly."), stop="end_turn")
    session = only(store, bring(store, *sources(tmp_path, file.data())))
    assert said(session) == [
        ("user", "Look."), ("assistant", ""), ("tool", "one"), ("user", "Use git."),
        ("assistant", "I use it."), ("user", "Thanks."), ("assistant", "Gladly."),
    ]  # fmt: skip


def rollout(folder: Path, *lines: tuple[str, dict[str, Any]]) -> Path:
    path = folder / test_codex.NAME
    meta = {"id": "01a1ed3e-0e0f-78f0-abea-3cbf4fd720fb", "cwd": "/w", "timestamp": RECENT}
    records = [{"timestamp": RECENT, "type": "session_meta", "payload": meta}]
    records += [{"timestamp": RECENT, "type": kind, "payload": body} for kind, body in lines]
    path.write_bytes(jsonl(*records))
    return path


def test_a_summary_of_another_session_is_no_title(store: Store, tmp_path: Path) -> None:
    """Claude Code writes them at the top of the file that it begins next."""
    file = File()
    file.bare(type="summary", summary="Mine", leafUuid="u3")
    file.bare(type="summary", summary="Another's", leafUuid="elsewhere")
    file.user("Look.")
    file.answer("msg_1", text("Done."), stop="end_turn")
    mine = only(store, bring(store, *sources(tmp_path, file.data())))
    assert mine.title == "Mine"
    file.lines = [line for line in file.lines if line.get("summary") != "Mine"]
    with Store(MemoryDisk().open()) as other:
        assert only(other, bring(other, *sources(tmp_path, file.data()))).title == "Look."


def item(role: str, words: str) -> tuple[str, dict[str, Any]]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words}]
    return "response_item", {"type": "message", "role": role, "content": content}


def event(kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": kind, **more}


@pytest.mark.parametrize("named", [True, False])
def test_what_codex_injects_is_no_prompt(store: Store, tmp_path: Path, *, named: bool) -> None:
    path = rollout(
        tmp_path,
        item(
            "user", "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>"
        ),
        item("user", "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
        event("task_started", turn_id="1"),
        item("user", "<button>Why is it blue?</button>"),
        *([event("user_message", message="<button>Why is it blue?</button>")] if named else []),
        item("assistant", "It is not."),
        event("task_complete", turn_id="1"),
    )
    report = import_paths(store, [path], clock=lambda: NOW)
    session = only(store, report)
    assert session.title == "<button>Why is it blue?</button>"
    assert [turn.status for turn in session.turns()] == ["completed"]
    shown = [one.text for one in session.transcript() if one.kind == "message"]
    assert shown == ["<button>Why is it blue?</button>", "It is not."]


INJECTED = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"


def test_what_codex_injects_between_turns_is_no_turn(store: Store, tmp_path: Path) -> None:
    def turn(number: int) -> list[tuple[str, dict[str, Any]]]:
        return [
            item("developer", "Be careful."),
            item("user", INJECTED),
            event("task_started", turn_id=str(number)),
            item("user", f"Prompt {number}."),
            item("assistant", f"Answer {number}."),
            event("task_complete", turn_id=str(number)),
        ]

    path = rollout(tmp_path, *turn(1), *turn(2), item("user", INJECTED))
    session = only(store, import_paths(store, [path], clock=lambda: NOW))
    assert [turn.status for turn in session.turns()] == ["completed", "completed"]
    told = str(session.context("openai-responses").messages)
    assert ("The turn above" in told, told.count("environment_context>")) == (False, 4)
    rollout(tmp_path, *turn(1), *turn(2), item("user", INJECTED), *turn(3)[2:])
    assert only(store, import_paths(store, [path], clock=lambda: NOW)).id == session.id
    assert [turn.status for turn in session.turns()] == ["completed"] * 3


def test_a_session_of_codex_without_a_prompt_is_left_out(store: Store, tmp_path: Path) -> None:
    path = rollout(tmp_path, item("developer", "Be careful."), item("user", INJECTED))
    report = import_paths(store, [path], clock=lambda: NOW)
    assert [(one.action, one.why) for one in report.sessions] == [("left", EMPTY)]


def test_a_failed_task_of_codex_has_failed(store: Store, tmp_path: Path) -> None:
    path = rollout(
        tmp_path,
        event("task_started", turn_id="1"),
        item("user", "Hi."),
        event("task_complete", turn_id="1", error={"message": "stream disconnected"}),
    )
    (turn,) = only(store, import_paths(store, [path], clock=lambda: NOW)).turns()
    assert (turn.status, turn.detail) == ("failed", "stream disconnected")


def test_native_calls_of_cline_have_their_results(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "1767225600000"
    folder.mkdir(parents=True)
    details = text("<environment_details>\n# Time\n</environment_details>")
    calls = [use("c1", "write_to_file", path="a.txt"), use("c2", "write_to_file", path="b.txt")]
    talk = [
        {"role": "user", "content": [text("<task>\nWrite.\n</task>"), details]},
        {"role": "assistant", "content": [text("I write."), *calls, use("c3", "execute_command")]},
        {"role": "user", "content": [
            text("[write_to_file for 'a.txt'] Result:\nSaved a."),
            text("[write_to_file for 'b.txt'] Result:\nThe tool execution failed: no."),
            text("[execute_command for 'ls'] Result:"), text("a.txt"), details]},
        {"role": "assistant", "content": [text("Done.")]},
    ]  # fmt: skip
    (folder / "api_conversation_history.json").write_text(json.dumps(talk))
    (folder / "ui_messages.json").write_text("[]")
    report = import_paths(store, [folder / "ui_messages.json"], clock=lambda: NOW)
    session = only(store, report)
    assert report.problems == []
    tools = [tool for one in session.transcript() for tool in one.tools]
    assert [(tool.call_id, tool.result.content if tool.result else "") for tool in tools] == [
        ("c1", "Saved a."), ("c2", "The tool execution failed: no."), ("c3", "a.txt"),
    ]  # fmt: skip
    assert [tool.result.is_error for tool in tools if tool.result] == [False, True, False]
    assert len(session.turns()) == 1


# -- which files -----------------------------------------------------------------------------------


def test_a_file_most_of_which_is_something_else_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    file = File()
    file.user("Hi.")
    path.write_bytes(jsonl(*file.lines, *({"event": number} for number in range(9))))
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert (report.sessions, report.exit_code) == ([], 3)
    (problem,) = report.skipped
    assert "looks like claude-code" in problem.reason
    assert store.session_ids() == []


def test_files_of_no_known_format_are_counted(store: Store, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "notes.jsonl").write_bytes(jsonl({"a": 1}, {"role": "?"}))
    (tmp_path / "README.md").write_text("# Words")
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert sorted(Path(name).name for name in report.unknown) == ["notes.jsonl", "package.json"]
    assert (report.problems, report.exit_code) == ([], 0)


def test_lines_of_messages_are_no_damaged_list(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(jsonl(*({"type": "message", "message": {"role": "user"}} for _ in range(3))))
    assert look_at(path).format is None


@pytest.mark.parametrize(
    "says",
    [
        {"text": "Fix it.", "tool_calls": []},
        {"text": "I look.", "tool_calls": [{"action_id": "call-1", "tool_name": "read_file"}]},
        {"content": {"role": "user", "content": "Fix it."}},
    ],
    ids=["text", "calls", "wrapped"],
)
def test_messages_of_another_program_are_no_list_of_messages(
    tmp_path: Path, says: dict[str, Any]
) -> None:
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps({"messages": [{"role": "user"} | says, {"role": "assistant"} | says]})
    )
    assert look_at(path).format is None


# -- dates, titles, parents, empty ones ------------------------------------------------------------


def test_a_session_is_as_old_as_what_it_says(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Fix the build.\nPlease.")
    file.answer("msg_1", text("Done."), stop="end_turn")
    session = only(store, bring(store, *sources(tmp_path, file.data())))
    info = session.info()
    assert info.title == "Fix the build."
    assert info.created_at == datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)
    assert info.updated_at == datetime(2026, 1, 1, 0, 0, 1, 123000, tzinfo=UTC)


def test_nothing_is_dated_1970(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    lines = [{"role": "user", "created": 0, "content": [text("Hi.")]}]
    path.write_bytes(jsonl({"working_dir": "/w", "description": ""}, *lines))
    session = only(store, import_paths(store, [path], clock=lambda: NOW))
    assert {entry.at.year > 2000 for entry in session.entries()} == {True}


def test_a_file_without_a_message_is_left_unless_asked_for(store: Store, tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    file = File()
    file.bare(type="summary", summary="A title", leafUuid="u2")
    file.bare(type="file-history-snapshot", messageId="m", snapshot={})
    path.write_bytes(file.data())
    (left,) = import_paths(store, [path], clock=lambda: NOW).sessions
    assert (left.action, store.session_ids()) == ("left", [])
    assert left.why
    (taken,) = import_paths(store, [path], clock=lambda: NOW, empty=True).sessions
    assert taken.action == "new"


def test_a_subagent_without_its_parent_says_so(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look around.", isSidechain=True, agentId="a1")
    file.answer("m", text("Nothing."), stop="end_turn", isSidechain=True, agentId="a1")
    path = tmp_path / "agent-a1.jsonl"
    path.write_bytes(file.data())
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    assert ORPHAN in (outcome.why or "")
    assert list(claude_code(path, settled=True))


# -- agents that are dead --------------------------------------------------------------------------


def unfinished(folder: Path) -> Path:
    """A session of this moment, in the middle of a turn."""
    file = File()
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    file.user("Look.", timestamp=now, cwd=str(folder))
    file.answer("msg_1", use("t1", command="ls"), timestamp=now, cwd=str(folder))
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(file.data())
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("has", ["the file open", "the folder"])
def test_a_killed_agent_left_a_whole_session(store: Store, tmp_path: Path, has: str) -> None:
    path = unfinished(tmp_path)
    program = (
        "import sys,time\nfile = open(sys.argv[1])\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    if has == "the folder":
        program = "import time\nprint('ready', flush=True)\ntime.sleep(60)"
    script = tmp_path / "claude"
    script.write_text(program)
    agent = subprocess.Popen(
        [sys.executable, str(script), str(path)], cwd=tmp_path, stdout=subprocess.PIPE
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline()
        (running,) = import_paths(store, [path]).sessions
        assert (running.action, running.settled_by) == ("left", "process")
        (taken,) = import_paths(store, [path], dry_run=True, as_is=True).sessions
        assert (taken.action, taken.settled_by) == ("new", "as-is")
    finally:
        os.kill(agent.pid, signal.SIGKILL)
        agent.communicate()
    (dead,) = import_paths(store, [path]).sessions
    assert (dead.action, dead.settled_by) == ("new", "process")
    (turn,) = store.session(dead.session_id).turns()
    assert (turn.status, turn.cause) == ("interrupted", "crashed")
