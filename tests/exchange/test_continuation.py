"""A session on its way to another agent and back, without that agent; tests/lab has the agents."""

import json
import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick import Message, Project, Store
from killick.exchange import export_session, import_paths
from killick.exchange.continuation import Continuing, continue_in
from killick.exchange.export import agents
from killick.exchange.export.agents import AGENTS, NotPlaced
from killick.exchange.native_ids import could_be, is_minted, mint
from killick.model.messages import Text, ToolCall, ToolResult
from tests.exchange.checks import VALIDATORS

UNKNOWN = "outcome of this tool call is unknown"
BROKEN = "[The turn above was interrupted"
PLAIN = ["codex", "claude-code", "qwen", "gemini", "copilot", "pi", "hermes"]
"""Those that need no program to be placed."""


def broken_off(store: Store, folder: Path) -> str:
    """A session whose turn was stopped with one of two tools done."""
    project = Project(str(folder), str(folder))
    session = store.create_session(title="Ducks", project=project)
    calls = [ToolCall("call_1", "shell", '{"command": "ls"}'), ToolCall("call_2", "rm", "{}")]
    with suppress(KeyboardInterrupt), session.turn("Count the ducks.") as turn:
        turn.record(Message("assistant", [Text("I will look."), *calls]))
        with turn.tool("call_1") as call:
            call.finish("seven ducks")
        with turn.tool("call_2"):
            raise KeyboardInterrupt
    return session.id


def put(store: Store, session_id: str, agent: str, home: Path) -> Continuing:
    return continue_in(store, session_id, agent, home=home, environment={})


def said(store: Store, session_id: str) -> str:
    """Every text of the messages that were stored."""
    messages = store.session(session_id).messages()
    results = [p.content for m in messages for p in m.parts if isinstance(p, ToolResult)]
    return json.dumps([*(message.text for message in messages), *map(str, results)])


def told(store: Store, session_id: str) -> str:
    context = store.session(session_id).context("anthropic")
    assert VALIDATORS["anthropic"](context.messages, context.system) == []
    return json.dumps(context.messages)


@pytest.mark.parametrize("agent", PLAIN)
def test_what_an_agent_is_given_is_what_a_model_would_be_told(agent: str, tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store, Store(tmp_path / "theirs.db") as theirs:
        session_id = broken_off(store, tmp_path)
        done = put(store, session_id, agent, tmp_path / "home")
        report = import_paths(theirs, [done.placed.path], as_is=True)
        assert [(s.action, str(p)) for s in report.sessions for p in report.problems] == []
        (outcome,) = report.sessions
        told(theirs, outcome.session_id)
        words = said(theirs, outcome.session_id)
    assert [words.count(text) for text in ("Count the ducks.", "seven ducks", UNKNOWN, BROKEN)] == [
        1, 1, 1, 1
    ]  # fmt: skip
    assert "I will look." in words
    assert done.placed.path.is_relative_to(tmp_path / "home")


@pytest.mark.parametrize("agent", PLAIN)
def test_the_same_is_put_there_twice_and_nothing_that_has_grown_is_overwritten(
    agent: str, tmp_path: Path
) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        first = put(store, session_id, agent, tmp_path / "home")
        assert put(store, session_id, agent, tmp_path / "home") == first
        grow(agent, first)
        grown = first.placed.path.read_bytes()
        with pytest.raises(NotPlaced, match=first.placed.id):
            put(store, session_id, agent, tmp_path / "home")
        assert first.placed.path.read_bytes() == grown


@pytest.mark.parametrize("agent", PLAIN)
def test_a_round_trip_is_one_session(agent: str, tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        before = store.session(session_id).messages()
        first = put(store, session_id, agent, tmp_path / "home")
        assert actions(store, first) == [("unchanged", session_id)]
        grow(agent, first)
        assert actions(store, first) == [("grown", session_id)]
        assert actions(store, first) == [("unchanged", session_id)]
        session = store.session(session_id)
        messages = session.messages()
        assert messages[: len(before)] == before
        rest = [(m.role, m.text) for m in messages[len(before) :]]
        assert rest == [("user", "Any swans?"), ("assistant", "One swan.")]
        assert [turn.status for turn in session.turns()] == ["interrupted", "completed"]
        assert told(store, session_id).count(BROKEN) == 1
        assert session.title == "Ducks"
        second = put(store, session_id, agent, tmp_path / "home")
        assert second.placed.id != first.placed.id
        assert len(store.session_ids()) == 1


@pytest.mark.parametrize("agent", PLAIN)
def test_it_is_put_into_a_second_home_too_and_comes_back_from_either(
    agent: str, tmp_path: Path
) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        first = put(store, session_id, agent, tmp_path / "one")
        second = put(store, session_id, agent, tmp_path / "two")
        assert first.placed.path != second.placed.path
        assert put(store, session_id, agent, tmp_path / "one") == first
        grow(agent, second)
        assert actions(store, second) == [("grown", session_id)]
        assert actions(store, first) == [("unchanged", session_id)]


@pytest.mark.parametrize("agent", ["hermes", "opencode", "kilo"])
def test_a_database_that_cannot_be_read_is_named_and_left_as_it_is(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / agent).write_text("#!/bin/sh\n")
    (tmp_path / agent).chmod(0o755)
    folder = AGENTS[agent].folder
    name = "state.db" if agent == "hermes" else f"{agent}.db"
    database = tmp_path / "home" / folder / name
    database.parent.mkdir(parents=True)
    database.write_bytes(b"no database" * 100)
    named = re.escape(f"{database}: file is not a database")
    with Store(tmp_path / "ours.db") as store, pytest.raises(NotPlaced, match=named):
        put(store, broken_off(store, tmp_path), agent, tmp_path / "home")
    assert database.read_bytes() == b"no database" * 100


@pytest.mark.parametrize("agent", ["opencode", "kilo"])
def test_an_agent_that_does_not_answer_is_named(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / agent).write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / agent).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(agents, "_RUN_SECONDS", 0.5)
    told = re.escape(f"`{agent} --version` had not ended after 0.5 seconds")
    with Store(tmp_path / "ours.db") as store, pytest.raises(NotPlaced, match=told):
        put(store, broken_off(store, tmp_path), agent, tmp_path / "home")


def test_gemini_clis_list_of_projects_is_added_to_and_a_damaged_one_left(tmp_path: Path) -> None:
    listed = tmp_path / ".gemini" / "projects.json"
    listed.parent.mkdir()
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        listed.write_text('{"projects": {"/a": "a"')
        with pytest.raises(NotPlaced, match=re.escape(str(listed))):
            put(store, session_id, "gemini", tmp_path)
        assert listed.read_text() == '{"projects": {"/a": "a"'
        listed.write_text('{"projects": {"/a": "a"}, "version": 2}')
        put(store, session_id, "gemini", tmp_path)
    known = json.loads(listed.read_text())
    assert (known["version"], set(known["projects"])) == (2, {"/a", str(tmp_path)})


def test_a_session_that_went_on_in_both_places_is_forked(tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        done = put(store, session_id, "claude-code", tmp_path / "home")
        with store.session(session_id).turn("Go on here.") as turn:
            turn.record(Message("assistant", [Text("Yes.")]))
        grow("claude-code", done)
        ((action, other),) = actions(store, done)
        assert (action, other != session_id) == ("forked", True)
        assert store.session(session_id).messages()[-1].text == "Yes."


def test_a_running_turn_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session = store.create_session()
        with session.turn("Wait."), pytest.raises(NotPlaced, match=f"killick stop {session.id}"):
            put(store, session.id, "codex", tmp_path)
        assert not list(tmp_path.glob("**/*.jsonl"))


def test_what_cannot_be_held_is_said(tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session = store.create_session()
        with session.turn("Look.") as turn:
            turn.record(Message("system", [Text("Be terse.")]))
            turn.record(Message("assistant", [ToolCall("c", "f", "[1]")]))
            turn.record(Message("tool", [ToolResult("c", "seen")]))
        done = put(store, session.id, "copilot", tmp_path)
    assert len(done.losses) == 2


def test_a_home_that_is_the_agents_own_folder_is_taken_for_that(tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        own = put(store, session_id, "codex", tmp_path / ".codex")
    assert own.placed.path.parts[: len(tmp_path.parts) + 2][-2:] == (".codex", "sessions")
    assert f"CODEX_HOME={tmp_path / '.codex'}" in own.command


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_every_agents_file_can_be_exported(agent: str, tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        data = b"".join(export_session(store, broken_off(store, tmp_path), agent))
    assert b"seven ducks" in data


def test_a_rollout_names_no_provider(tmp_path: Path) -> None:
    with Store(tmp_path / "ours.db") as store:
        session_id = broken_off(store, tmp_path)
        handed = put(store, session_id, "codex", tmp_path).placed.path.read_bytes()
        assert b"model_provider" not in handed
        assert b"model_provider" not in b"".join(export_session(store, session_id, "codex"))


@given(st.text(), st.integers(1, 1 << 40), st.integers(0, 1 << 60))
def test_an_id_is_known_again(session_id: str, through: int, at_us: int) -> None:
    minted = mint(session_id, through, at_us)
    assert is_minted(minted)
    assert could_be(minted, session_id)
    assert not could_be(minted, session_id + "x")


@given(st.uuids(version=4))
def test_few_other_ids_look_minted(uuid: Any) -> None:
    assert not could_be(str(uuid), "ses_1") or is_minted(str(uuid))


def actions(store: Store, done: Continuing) -> list[tuple[str, str]]:
    report = import_paths(store, [done.placed.path], as_is=True)
    assert not report.problems
    return [(outcome.action, outcome.session_id) for outcome in report.sessions]


# -- each agent going on, as its files were seen to grow ------------------------------------------


def grow(agent: str, done: Continuing) -> None:
    """Append a prompt and an answer, as the agent would."""
    if agent == "hermes":
        with sqlite3.connect(done.placed.path) as database:
            for role, text in (("user", "Any swans?"), ("assistant", "One swan.")):
                row = (done.placed.id, role, text, 2e9)
                database.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp)"
                    " VALUES (?, ?, ?, ?)", row,
                )  # fmt: skip
        database.close()
        return
    with done.placed.path.open("ab") as file:
        lines = done.placed.path.read_bytes().splitlines()
        for record in _more(agent, done.placed.id, [json.loads(line) for line in lines]):
            file.write(json.dumps(record).encode() + b"\n")


def _more(agent: str, native_id: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    at, last = "2033-05-18T03:33:20.000Z", records[-1]
    match agent:
        case "codex":
            payloads: list[tuple[str, dict[str, Any]]] = [
                ("event_msg", {"type": "task_started", "turn_id": "t2"}),
                ("response_item", _item("user", "input_text", "Any swans?")),
                ("event_msg", {"type": "user_message", "message": "Any swans?"}),
                ("response_item", _item("assistant", "output_text", "One swan.")),
                ("event_msg", {"type": "task_complete", "turn_id": "t2"}),
            ]
            return [{"timestamp": at, "type": kind, "payload": p} for kind, p in payloads]
        case "claude-code":
            parent = next(r["uuid"] for r in reversed(records) if "uuid" in r)
            common = {"sessionId": native_id, "cwd": "/", "version": "2.1.197", "timestamp": at}
            said = {"role": "assistant", "model": "m", "id": "msg_9", "stop_reason": "end_turn"}
            said["content"] = [{"type": "text", "text": "One swan."}]  # type: ignore[assignment]
            return [
                {**common, "type": "user", "uuid": "u1", "parentUuid": parent,
                 "message": {"role": "user", "content": "Any swans?"}},
                {**common, "type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": said},
            ]  # fmt: skip
        case "qwen":
            common = {"sessionId": native_id, "cwd": "/", "version": "0.15.10", "timestamp": at}
            return [
                {**common, "type": "user", "uuid": "u1", "parentUuid": last["uuid"],
                 "message": {"role": "user", "parts": [{"text": "Any swans?"}]}},
                {**common, "type": "assistant", "uuid": "u2", "parentUuid": "u1", "model": "m",
                 "message": {"role": "model", "parts": [{"text": "One swan."}]}},
            ]  # fmt: skip
        case "gemini":
            return [
                {"id": "u1", "timestamp": at, "type": "user", "content": [{"text": "Any swans?"}]},
                {"id": "u2", "timestamp": at, "type": "gemini", "content": "One swan."},
            ]
        case "copilot":
            asked = {"content": "Any swans?", "messageId": "m1"}
            said = {"content": "One swan.", "messageId": "m2", "toolRequests": []}  # type: ignore[dict-item]
            return [
                {"type": "user.message", "data": asked, "id": "u1", "timestamp": at,
                 "parentId": last["id"]},
                {"type": "assistant.message", "data": said, "id": "u2", "timestamp": at,
                 "parentId": "u1"},
            ]  # fmt: skip
        case _:
            blocks = [{"type": "text", "text": "One swan."}]
            return [
                {"type": "message", "id": "u1", "parentId": last["id"], "timestamp": at,
                 "message": {"role": "user", "content": [{"type": "text", "text": "Any swans?"}]}},
                {"type": "message", "id": "u2", "parentId": "u1", "timestamp": at,
                 "message": {"role": "assistant", "content": blocks, "stopReason": "stop"}},
            ]  # fmt: skip


def _item(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
