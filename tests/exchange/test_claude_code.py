"""Claude Code's files."""

import json
from pathlib import Path
from typing import Any

import pytest

from killick import Reasoning, Session, Store, ToolCall, Usage
from killick.exchange.formats.claude_code import claude_code
from killick.exchange.records import Source
from killick.model import entries as e
from tests.exchange.checks import check_sound
from tests.exchange.sources import bring, jsonl, kinds, mutate, said

SESSION = "5f0c1a52-0000-4000-8000-000000000001"


class File:
    """Writes lines as the agent does: each names the one before it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.tip: str | None = None

    def add(self, kind: str, message: Any = None, **more: Any) -> str:
        number = len(self.lines)
        own = f"u{number}"
        line = {
            "parentUuid": self.tip, "isSidechain": False, "cwd": "/w", "sessionId": SESSION,
            "version": "2.0.1", "gitBranch": "main", "type": kind, "uuid": own,
            "timestamp": f"2026-01-01T00:00:{number:02d}.123Z",
        }  # fmt: skip
        if message is not None:
            line["message"] = message
        self.lines.append(line | more)
        if not more.get("isSidechain"):
            self.tip = own
        return own

    def user(self, content: Any, **more: Any) -> str:
        return self.add("user", {"role": "user", "content": content}, **more)

    def count(self, **tokens: int) -> None:
        """What the last line says that its answer has cost."""
        self.lines[-1]["message"]["usage"] = tokens

    def answer(
        self, message_id: str, *blocks: dict[str, Any], stop: str | None = None, **more: Any
    ) -> str:
        """One line for each block, all with the same usage."""
        own = ""
        for block in blocks:
            message = {
                "id": message_id, "type": "message", "role": "assistant", "model": "claude-x",
                "content": [block], "stop_reason": stop,
                "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 5},
            }  # fmt: skip
            own = self.add("assistant", message, requestId="req_1", **more)
        return own

    def bare(self, **line: Any) -> None:
        self.lines.append(line)

    def data(self) -> bytes:
        return jsonl(*self.lines)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content} | more]


def everything() -> File:
    """Each kind of line, and each trap."""
    file = File()
    file.bare(type="summary", summary="An old title", leafUuid="u2")
    file.bare(type="file-history-snapshot", messageId="m", snapshot={"files": {}})
    file.user("Caveat: …", isMeta=True)
    file.user("Fix the build.")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    file.answer("msg_1", thought, text("I look."), use("t1", command="make"), use("t2"))
    caller = file.tip
    file.user(result("t1", "Error 2", is_error=True), toolUseResult={"stdout": "", "code": 2})
    file.tip = caller
    file.user(result("t2", [text("fine")]))
    file.answer("msg_2", text("The linker is missing."), stop="end_turn")
    done = file.tip
    file.add("system", subtype="turn_duration", durationMs=12)
    file.user("Install it.")
    file.answer("msg_3", use("t3", command="apt install ld"), stop="tool_use")
    file.user([text("[Request interrupted by user for tool use]")])
    file.tip = done
    file.user("Do not install it, build it.")
    file.answer("msg_4", text("Building."), use("task", "Task", prompt="build"))
    file.user("Build ld.", isSidechain=True, parentUuid=None)
    root = file.lines[-1]["uuid"]
    file.answer("msg_s", text("Built."), stop="end_turn", isSidechain=True, parentUuid=root)
    file.user(result("task", "built"))
    file.answer("msg_5", text("Done."), stop="end_turn")
    file.add("system", subtype="compact_boundary", compactMetadata={"trigger": "manual"})
    file.user("They built the linker.", isCompactSummary=True)
    file.user("<command-name>/cost</command-name>")
    file.user("And the tests?")
    error = {
        "id": "e1",
        "role": "assistant",
        "model": "<synthetic>",
        "content": [text("API Error")],
    }
    file.add("assistant", error, isApiErrorMessage=True)
    file.user("Again.")
    file.answer("msg_6", text("They pass."), stop="end_turn")
    file.bare(type="ai-title", aiTitle="Build the linker")
    file.bare(type="custom-title", customTitle="My build")
    file.bare(type="ai-title", aiTitle="Another")
    file.bare(type="brand-new-kind", data=[1])
    return file


def sources(folder: Path, data: bytes, *, settled: bool = True) -> list[Source]:
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(data)
    return list(claude_code(path, settled=settled))


def test_each_kind_of_line(store: Store, tmp_path: Path) -> None:
    report = bring(store, *sources(tmp_path, everything().data()))
    assert report.problems == []
    main, subagent = (store.session(one.session_id) for one in report.sessions)
    assert said(main) == [
        ("user", "Caveat: …"), ("user", "Fix the build."), ("assistant", "I look."),
        ("tool", "Error 2"), ("tool", "(Text(text='fine'),)"),
        ("assistant", "The linker is missing."), ("user", "Do not install it, build it."),
        ("assistant", "Building."), ("tool", "built"), ("assistant", "Done."),
        ("user", "<command-name>/cost</command-name>"), ("user", "And the tests?"),
        ("user", "Again."), ("assistant", "They pass."),
    ]  # fmt: skip
    assert [(turn.status, turn.reason) for turn in main.turns()] == [
        ("completed", None), ("interrupted", "user"), ("completed", None), ("failed", "api_error"),
        ("completed", None),
    ]  # fmt: skip
    assert main.title == "My build"
    assert main.info().project is not None
    assert kinds(main)[-1] == "imported"
    assert said(subagent) == [("user", "Build ld."), ("assistant", "Built.")]
    assert subagent.info().type == "subagent"
    parent = subagent.info().parent
    assert parent is not None
    assert parent.session_id == main.id
    check_sound(store)


@pytest.mark.parametrize("read", [0, 2**40])
def test_a_count_that_can_be_none_costs_no_session(store: Store, tmp_path: Path, read: int) -> None:
    file = File()
    for number in range(3):
        file.user("Again")
        file.answer(f"msg_{number}", text("Yes."), stop="end_turn")
        file.count(input_tokens=2**61 if read == 0 else 2**40, cache_read_input_tokens=read)
    report = bring(store, *sources(tmp_path, file.data()))
    assert (report.sessions[0].action, report.problems) == ("new", [])
    assert [(one.calls, one.input) for one in store.usage("all")] == [(3, 0)]


def test_an_answer_is_one_message_and_its_usage_counts_once(store: Store, tmp_path: Path) -> None:
    report = bring(store, *sources(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    answer = session.messages()[2]
    assert answer.parts[0] == Reasoning("Hm.", signature="c2ln")
    assert answer.parts[2] == ToolCall("t1", "Bash", '{"command":"make"}')
    ended = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallEnded)]
    assert ended[0].usage == Usage(input=13, output=5, cached=10)
    assert ended[0].provider_ids == {"message": "msg_1", "request": "req_1"}
    finished = [one.body for one in session.entries() if isinstance(one.body, e.ToolFinished)]
    assert finished[0].result.structured == {"stdout": "", "code": 2}
    assert finished[0].result.is_error


def test_times_are_those_of_the_lines(store: Store, tmp_path: Path) -> None:
    report = bring(store, *sources(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    prompt = next(one for one in session.entries() if getattr(one.body, "id", "") == "u3")
    assert prompt.at.isoformat() == "2026-01-01T00:00:03.123000+00:00"


def test_a_branch_that_was_left_is_rewound_and_still_in_the_journal(
    store: Store, tmp_path: Path
) -> None:
    report = bring(store, *sources(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    everything_said = [one.body for one in session.entries() if one.kind == "message"]
    assert any("Install it." in str(body) for body in everything_said)
    assert "Install it." not in str(said(session))
    assert kinds(session).count("rewind") == 1


def test_the_context_begins_with_the_summary(store: Store, tmp_path: Path) -> None:
    report = bring(store, *sources(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    context = json.dumps(session.context("anthropic").messages)
    assert "They built the linker." in context
    assert "The linker is missing." not in context
    assert "They pass." in context
    shown = [one for one in session.transcript() if one.kind == "message"]
    assert "Caveat" not in str(shown)


def test_a_call_that_was_stopped_may_have_run(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Install it.")
    file.answer("msg_3", use("t3", command="apt install ld"))
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("interrupted", "unfinished")
    ]
    (shown,) = [tool for one in session.transcript() for tool in one.tools]
    assert shown.state == "unknown"


def test_a_file_that_is_still_written_adds_its_turns_when_they_are_over(
    store: Store, tmp_path: Path
) -> None:
    whole = everything().data().splitlines(keepends=True)
    actions = []
    for end in range(0, len(whole) + 1, 3):
        data = b"".join(whole[:end]) + (whole[end][:20] if end < len(whole) else b"")
        report = bring(store, *sources(tmp_path, data, settled=False))
        assert report.problems == []
        actions += [one.action for one in report.sessions]
    report = bring(store, *sources(tmp_path, b"".join(whole)))
    assert "forked" not in actions
    with Store(tmp_path / "other.db") as other:
        at_once = bring(other, *sources(tmp_path, b"".join(whole)))
        for grown, one in zip(report.sessions, at_once.sessions, strict=True):
            session, fresh = store.session(grown.session_id), other.session(one.session_id)
            assert session.messages()[-1].text == fresh.messages()[-1].text
            assert said(session) == said(fresh)
    check_sound(store)


def test_an_agent_file_is_a_subagents_session(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("Look around.", isSidechain=True, agentId="a1")
    file.answer("m", text("Nothing."), stop="end_turn", isSidechain=True, agentId="a1")
    path = tmp_path / "agent-a1.jsonl"
    path.write_bytes(file.data())
    report = bring(store, *claude_code(path, settled=True))
    session = store.session(report.sessions[0].session_id)
    assert said(session) == [("user", "Look around."), ("assistant", "Nothing.")]
    assert session.info().type == "subagent"


def test_cycles_and_repeated_ids_do_no_harm(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("One.", parentUuid="u1")
    file.answer("m1", text("First."), stop="end_turn")
    file.user("Two.", uuid="u0", parentUuid="u0")
    file.answer("m2", text("Second."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    assert [problem.kind for problem in report.problems] == ["repaired"]
    session = store.session(report.sessions[0].session_id)
    assert [words for _, words in said(session)][-2:] == ["Two.", "Second."]
    check_sound(store)


@pytest.mark.parametrize("block", range(20))
def test_damaged_files_come_in_as_far_as_they_are_whole(tmp_path: Path, block: int) -> None:
    seeds = range(block * 10, block * 10 + 10)
    data = everything().data()
    mutate(
        data,
        tmp_path,
        f"{SESSION}.jsonl",
        seeds,
        lambda path: list(claude_code(path, settled=True)),
    )


def shown_to_person(session: Session) -> list[str]:
    return [text for one in session.transcript() for text in one.text.splitlines() if text]


def test_a_command_that_the_person_ran_is_a_turn_that_did_not_break_off(
    store: Store, tmp_path: Path
) -> None:
    file = File()
    start = file.user("Caveat: …", isMeta=True)
    file.user("<command-name>/clear</command-name>")
    file.user("<local-command-stdout></local-command-stdout>")
    file.tip = start
    file.user("<bash-input>make</bash-input>")
    file.user("<bash-stdout>Error 2</bash-stdout><bash-stderr></bash-stderr>")
    file.user("Please fix it.")
    file.answer("m1", text("It is fixed."), stop="end_turn")
    file.user("<bash-input>make</bash-input>")
    file.user("<bash-stdout>fine</bash-stdout>")
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert {turn.status for turn in session.turns()} == {"completed"}
    context = json.dumps(session.context("openai-chat").messages)
    assert "interrupted" not in context
    assert shown_to_person(session) == [
        "<bash-input>make</bash-input>",
        "<bash-stdout>Error 2</bash-stdout><bash-stderr></bash-stderr>",
        "Please fix it.",
        "It is fixed.",
        "<bash-input>make</bash-input>",
        "<bash-stdout>fine</bash-stdout>",
    ]
    assert session.title == "Please fix it."
    check_sound(store)


def test_a_command_whose_output_did_not_come_broke_off(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user("<bash-input>sleep 300</bash-input>")
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert [turn.status for turn in session.turns()] == ["interrupted"]


def test_a_command_that_goes_to_the_model_is_a_prompt(store: Store, tmp_path: Path) -> None:
    file = File()
    file.user(
        "<command-message>review</command-message>\n<command-name>/review</command-name>\n"
        "<command-args>42</command-args>"
    )
    file.user([text("Review the pull request 42, thoroughly.")], isMeta=True)
    file.answer("m1", text("It is fine."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert session.title == "/review 42"
    assert "<command-args>42</command-args>" in shown_to_person(session)
    assert "thoroughly" not in str(shown_to_person(session))
    assert "thoroughly" in json.dumps(session.context("anthropic").messages)
    assert [turn.status for turn in session.turns()] == ["completed"]


def test_what_an_editor_puts_beside_a_prompt_is_hidden_and_no_title(
    store: Store, tmp_path: Path
) -> None:
    file = File()
    opened = "<ide_opened_file>The user opened the file /w/a.py.</ide_opened_file>"
    file.user([text(opened), text("Fix the build.")])
    file.answer("m1", text("It is fixed."), stop="end_turn")
    file.user([text("<ide_selection>1 to 2</ide_selection>")])
    file.user("And now?")
    file.answer("m2", text("Fixed."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert session.title == "Fix the build."
    assert shown_to_person(session) == ["Fix the build.", "It is fixed.", "And now?", "Fixed."]
    context = json.dumps(session.context("anthropic").messages)
    assert "/w/a.py" in context
    assert "ide_selection" in context
    assert [turn.status for turn in session.turns()] == ["completed", "completed"]
    check_sound(store)


@pytest.mark.parametrize("told", ["<task-notification>\n<task-id>", "<teammate-message id='a'>"])
def test_what_another_agent_tells_is_no_prompt(store: Store, tmp_path: Path, told: str) -> None:
    file = File()
    file.user(f"{told} The build is over.")
    file.answer("m1", text("It is over."), stop="end_turn")
    file.user("Good.")
    file.answer("m2", text("Yes."), stop="end_turn")
    report = bring(store, *sources(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert session.title == "Good."
    assert shown_to_person(session) == ["It is over.", "Good.", "Yes."]
    assert "The build is over." in json.dumps(session.context("anthropic").messages)
    assert [turn.status for turn in session.turns()] == ["completed", "completed"]


def test_an_older_copy_that_was_cut_in_an_answer_is_no_fork(store: Store, tmp_path: Path) -> None:
    whole = everything().data().splitlines(keepends=True)
    bring(store, *sources(tmp_path, b"".join(whole)))
    before = set(store.session_ids())
    reasons = set()
    for end in range(1, len(whole)):
        report = bring(store, *sources(tmp_path, b"".join(whole[:end])))
        assert {one.action for one in report.sessions} == {"unchanged"}, end
        reasons |= {one.why for one in report.sessions}
    assert set(store.session_ids()) == before
    assert "there is more of it here than in this file" in reasons


def test_a_copy_that_goes_on_differently_is_a_fork_with_all_of_it(
    store: Store, tmp_path: Path
) -> None:
    """Its end looks like an older copy's, until another prompt follows."""

    def begun() -> File:
        file = File()
        file.user("One.")
        file.answer("m1", text("First."), stop="end_turn")
        return file

    whole, other = begun(), begun()
    whole.user("Two.")
    whole.answer("m2", text("Second."), stop="end_turn")
    bring(store, *sources(tmp_path, whole.data()))
    other.add("system", subtype="local_note", content="Elsewhere.")
    other.user("Three.")
    other.answer("m3", text("Third."), stop="end_turn")
    (one,) = bring(store, *sources(tmp_path, other.data())).sessions
    assert one.action == "forked"
    fork = store.session(one.session_id)
    assert [words for _, words in said(fork)] == ["One.", "First.", "Three.", "Third."]
    assert "Elsewhere." in str([note.data for note in fork.notes()])
    check_sound(store)


def test_a_copy_that_was_stopped_is_none_that_is_older(store: Store, tmp_path: Path) -> None:
    whole, other = File(), File()
    for file in (whole, other):
        file.user("One.")
        file.answer("m1", text("I look."), use("t1"))
    whole.user(result("t1", "fine"))
    whole.answer("m2", text("Fine."), stop="end_turn")
    other.user([text("[Request interrupted by user]")])
    bring(store, *sources(tmp_path, whole.data()))
    (one,) = bring(store, *sources(tmp_path, other.data())).sessions
    assert one.action == "forked"
