"""Codex's rollouts."""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from killick import Opaque, Reasoning, Store, ToolCall, Usage
from killick.exchange.formats.codex import codex
from killick.exchange.importer import detect, import_paths
from killick.exchange.records import Source
from killick.model import entries as e
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, bring, jsonl, kinds, mutate, said

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

THREAD = "019a0000-0000-7000-8000-000000000001"
NAME = f"rollout-2026-08-22T05-54-43-{THREAD}.jsonl"


class Rollout:
    """Writes lines as the agent does."""

    def __init__(self, mode: str = "legacy", **meta: Any) -> None:
        self.mode = mode
        self.lines: list[dict[str, Any]] = []
        self.add("session_meta", session_id=THREAD, id=THREAD, cwd="/w", originator="codex_cli",
                 timestamp="2026-08-22T05:54:43.000Z", cli_version="0.1", source="cli",
                 model_provider="openai", base_instructions={"text": "You are careful."},
                 history_mode=mode, git={"branch": "main"}, **meta)  # fmt: skip

    def add(self, kind: str, **payload: Any) -> None:
        number = len(self.lines)
        line: dict[str, Any] = {
            "timestamp": f"2026-08-22T05:54:{number % 60:02d}.123Z",
            "type": kind,
            "payload": payload,
        }
        if self.mode == "paginated":
            line["ordinal"] = number
        self.lines.append(line)

    def event(self, kind: str, **payload: Any) -> None:
        self.add("event_msg", type=kind, **payload)

    def item(self, kind: str, **payload: Any) -> None:
        self.add("response_item", type=kind, **payload)

    def user(self, text: str, role: str = "user") -> None:
        self.item("message", role=role, content=[{"type": "input_text", "text": text}])
        if self.mode == "legacy":
            self.event("user_message", message=text, local_images=[])

    def answer(self, text: str, **more: Any) -> None:
        content = [{"type": "output_text", "text": text}]
        self.item("message", role="assistant", content=content, **more)
        if self.mode == "legacy":
            self.event("agent_message", message=text)
        else:
            self.event("item_completed", thread_id=THREAD, item={"type": "AgentMessage"})

    def begin(self, turn_id: str) -> None:
        self.event("task_started", turn_id=turn_id, model_context_window=272000)
        self.add("turn_context", turn_id=turn_id, cwd="/w", model="gpt-x", effort="medium")

    def end(self, turn_id: str) -> None:
        self.event("task_complete", turn_id=turn_id, last_agent_message="…")

    def data(self) -> bytes:
        return jsonl(*self.lines)


def everything(mode: str = "legacy") -> Rollout:
    """Each kind of line, and each trap."""
    file = Rollout(mode)
    file.begin("t1")
    file.user("Permissions: …", "developer")
    file.user("<environment_context>\n<cwd>/w</cwd>\n</environment_context>")
    file.user("List the files.")
    file.item("reasoning", summary=[{"type": "summary_text", "text": "I list."}],
              encrypted_content="sealed", id="rs_1")  # fmt: skip
    file.item("function_call", name="exec_command", arguments='{"cmd":"ls"}', call_id="call_1")
    file.item("custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin Patch")
    last = {"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 3,
            "reasoning_output_tokens": 1}  # fmt: skip
    file.event("token_count", info={"total_token_usage": last, "last_token_usage": last})
    file.item("function_call_output", call_id="call_1", output="a.txt")
    file.item("custom_tool_call_output", call_id="c2",
              output=[{"type": "input_text", "text": "ok"}])  # fmt: skip
    file.item("web_search_call", id="ws_1", status="completed", action={"type": "search"})
    file.item("local_shell_call", call_id="c3", status="completed",
              action={"type": "exec", "command": ["ls"]})  # fmt: skip
    file.item("function_call_output", call_id="c3", output={"content": "no", "success": False})
    file.item("tool_search_call", call_id="c4", arguments={"query": "q"}, execution="client")
    file.item("tool_search_output", call_id="c4", tools=[{"name": "x"}])
    file.answer("a.txt", id="msg_1", phase="final_answer")
    file.end("t1")
    file.begin("t2")
    file.user("Delete it.")
    file.item("function_call", name="exec_command", arguments='{"cmd":"rm a"}', call_id="call_5")
    file.user("<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>")
    file.event("turn_aborted", turn_id="t2", reason="interrupted")
    file.begin("t3")
    file.user("A mistake.")
    file.answer("Certainly.")
    file.end("t3")
    file.event("thread_rolled_back", num_turns=1)
    history = [{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "List the files."}]}]  # fmt: skip
    file.begin("t4")
    file.user("Go on.")
    file.add("compacted", message="They listed files.", replacement_history=history)
    file.add("world_state", full=True, state={})
    file.answer("I go on.")
    file.event("thread_goal_updated", goal="x")
    file.end("t4")
    file.add("security_risk_score", score=1)
    return file


def source(folder: Path, data: bytes, *, settled: bool = True, name: str = NAME) -> Source:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return codex(path, settled=settled)


@pytest.mark.parametrize("mode", ["legacy", "paginated"])
def test_each_kind_of_line(store: Store, tmp_path: Path, mode: str) -> None:
    report = bring(store, source(tmp_path, everything(mode).data()))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    messages = session.messages()
    assert [message.role for message in messages] == [
        "system", "user", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
        "tool", "assistant", "user", "assistant", "user", "user", "assistant",
    ]  # fmt: skip
    asking = messages[3]
    assert asking.parts == (
        Reasoning("I list.", encrypted="sealed"),
        ToolCall("call_1", "exec_command", '{"cmd":"ls"}'),
        ToolCall("c2", "apply_patch", "*** Begin Patch", "custom"),
    )
    assert isinstance(messages[6].parts[0], Opaque)
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("interrupted", "interrupted"), ("completed", None),
        ("completed", None),
    ]  # fmt: skip
    assert session.title == "List the files."
    check_sound(store)


def test_models_usage_and_system_prompt_are_kept(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    calls = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallEnded)]
    assert calls[0].usage == Usage(input=7, output=3, cached=2, reasoning=1)
    assert session.info().models == ("gpt-x",)
    context = session.context("openai-responses")
    assert "You are careful." in (context.system or "")


def test_injected_context_is_for_the_model_only(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    shown = [one.text for one in session.transcript() if one.role == "user"]
    assert not any("environment_context" in text or "turn_aborted" in text for text in shown)
    assert "environment_context" in str(said(session))


def test_a_rollback_takes_the_turn_out_of_view(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    assert "A mistake." not in str(said(session))
    assert "rewind" in kinds(session)


def test_a_compaction_keeps_the_prompts_that_were_kept(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    context = json.dumps(session.context("openai-chat").messages)
    assert "They listed files." in context
    assert "List the files." in context
    assert "a.txt" not in context
    assert "I go on." in context


def test_a_tool_that_was_stopped_may_have_run(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, everything().data()))
    session = store.session(report.sessions[0].session_id)
    tools = {tool.call_id: tool.state for one in _flat(session.transcript()) for tool in one.tools}
    assert tools["call_5"] == "unknown"
    assert tools["c3"] == "failed"


def _flat(shown: Any) -> Any:
    for one in shown:
        yield one
        yield from _flat(one.folded)


def test_a_turn_that_still_runs_is_left_for_the_next_import(store: Store, tmp_path: Path) -> None:
    whole = everything().data().splitlines(keepends=True)
    for end in range(1, len(whole), 2):
        data = b"".join(whole[:end]) + whole[end][:30]
        report = bring(store, source(tmp_path, data, settled=False))
        assert report.problems == []
        assert report.sessions[0].action != "forked"
    report = bring(store, source(tmp_path, b"".join(whole)))
    session = store.session(report.sessions[0].session_id)
    with Store(tmp_path / "other.db") as other:
        fresh = bring(other, source(tmp_path, b"".join(whole))).sessions[0].session_id
        assert said(session) == said(other.session(fresh))
    check_sound(store)


def test_older_rollouts_without_turn_events(store: Store, tmp_path: Path) -> None:
    file = Rollout()
    file.user("One.")
    file.answer("First.")
    file.user("Two.")
    report = bring(store, source(tmp_path, file.data()))
    session = store.session(report.sessions[0].session_id)
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None), ("interrupted", "unfinished"),
    ]  # fmt: skip


def test_a_fork_comes_in_with_the_part_it_goes_on_from(store: Store, tmp_path: Path) -> None:
    base = everything("paginated")
    ends = [
        n for n, line in enumerate(base.lines) if line["payload"].get("type") == "task_complete"
    ]
    source(tmp_path, base.data(), name=f"sessions/2026/08/22/{NAME}")
    other = "019b0000-0000-7000-8000-000000000002"
    fork = Rollout("paginated", history_base={
        "thread_id": THREAD, "end_ordinal_exclusive": ends[0] + 1})  # fmt: skip
    fork.lines[0]["payload"] |= {"id": other, "session_id": other, "forked_from_id": THREAD}
    fork.begin("t9")
    fork.user("Another way.")
    fork.answer("Yes.")
    fork.end("t9")
    name = f"sessions/2026/08/23/rollout-x-{other}.jsonl"
    report = bring(store, source(tmp_path, fork.data(), name=name))
    assert report.problems == []
    texts = [text for _, text in said(store.session(report.sessions[0].session_id))]
    assert "List the files." in texts
    assert "Delete it." not in texts
    assert texts[-2:] == ["Another way.", "Yes."]


def test_a_missing_base_and_a_circle_of_bases_are_named(store: Store, tmp_path: Path) -> None:
    for base in ("019c", THREAD, "../../etc"):
        fork = Rollout("paginated", history_base={"thread_id": base, "end_ordinal_exclusive": 3})
        report = bring(store, source(tmp_path, fork.data(), name=f"sessions/a/{NAME}"))
        assert ["is not there" in problem.reason for problem in report.problems] == [True]


def test_names_and_archives(store: Store, tmp_path: Path) -> None:
    (tmp_path / "session_index.jsonl").write_bytes(
        jsonl(
            {"id": THREAD, "thread_name": "Old"},
            {"id": "other", "thread_name": "Not mine"},
            {"id": THREAD, "thread_name": "My files"},
        )
    )
    report = bring(store, source(tmp_path, everything().data(), name=f"archived_sessions/{NAME}"))
    info = store.session(report.sessions[0].session_id).info()
    assert (info.title, info.archived) == ("My files", True)


def test_a_subagents_inherited_context_is_for_the_model_only(store: Store, tmp_path: Path) -> None:
    file = Rollout("paginated", subagent_history_start_ordinal=5,
                   parent_thread_id=THREAD)  # fmt: skip
    file.user("What the parent was asked.")
    file.answer("What the parent said.")
    file.begin("t1")
    file.user("Review it.")
    file.answer("It is good.")
    file.end("t1")
    session = store.session(bring(store, source(tmp_path, file.data())).sessions[0].session_id)
    shown = [one.text for one in session.transcript()]
    assert shown == ["Review it.", "It is good."]
    assert "What the parent said." in str(said(session))
    assert (session.info().type, session.title) == ("subagent", "Review it.")


def test_two_responses_are_two_messages(store: Store, tmp_path: Path) -> None:
    file = Rollout()
    file.begin("t1")
    file.user("Talk.")
    used = {"input_tokens": 1, "output_tokens": 1}
    for word in ("One.", "Two."):
        file.answer(word)
        file.event("token_count", info={"last_token_usage": used})
        file.event("token_count", info=None)
    file.end("t1")
    session = store.session(bring(store, source(tmp_path, file.data())).sessions[0].session_id)
    assert [words for _, words in said(session)] == ["Talk.", "One.", "Two."]


# -- compressed ------------------------------------------------------------------------------------


def packed(data: bytes) -> bytes:
    return zstd.compress(data)


def test_a_rollout_that_was_compressed_is_the_same_session(store: Store, tmp_path: Path) -> None:
    data = everything("paginated").data()
    first = bring(store, source(tmp_path, data)).sessions[0]
    (tmp_path / NAME).unlink()
    path = tmp_path / f"{NAME}.zst"
    half = len(data) // 2
    path.write_bytes(packed(data[:half]) + packed(data[half:]))  # two frames
    assert detect(path) == "codex"
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert (report.problems, report.sessions[0].action) == ([], "unchanged")
    assert report.sessions[0].session_id == first.session_id


def test_the_plain_one_of_two_siblings_is_read(store: Store, tmp_path: Path) -> None:
    data = everything().data()
    (tmp_path / NAME).write_bytes(data)
    (tmp_path / f"{NAME}.zst").write_bytes(packed(data[: len(data) // 3]))
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert [one.origin for one in report.sessions] == [str(tmp_path / NAME)]


def test_a_fork_of_a_compressed_rollout(store: Store, tmp_path: Path) -> None:
    base = everything("paginated")
    path = tmp_path / "sessions" / f"{NAME}.zst"
    path.parent.mkdir()
    path.write_bytes(packed(base.data()))
    fork = Rollout("paginated", history_base={"thread_id": THREAD, "end_ordinal_exclusive": 20})
    fork.lines[0]["payload"] |= {"id": "other", "session_id": "other"}
    report = bring(store, source(tmp_path, fork.data(), name="sessions/rollout-x-other.jsonl"))
    assert report.problems == []
    assert "List the files." in str(said(store.session(report.sessions[0].session_id)))


def test_a_compressed_rollout_that_is_damaged_comes_in_up_to_there(
    store: Store, tmp_path: Path
) -> None:
    data = packed(everything().data())
    path = tmp_path / f"{NAME}.zst"
    for end in range(40, len(data), 150):
        path.write_bytes(data[:end])
        report = import_paths(store, [path], clock=lambda: NOW)
        assert any("cut off" in one.reason for one in report.skipped) or not report.sessions
    # Text that repeats itself would make one block of all of it.
    random = Random(1)
    file = Rollout()
    for number in range(200):
        file.user(f"{number} {random.randbytes(900).hex()}")
    data = packed(file.data())
    path.write_bytes(data[:-20_000])
    report = import_paths(store, [path], clock=lambda: NOW)
    assert [one.reason for one in report.skipped][-1] == "the compressed data is cut off"
    assert len(said(store.session(report.sessions[0].session_id))) > 50
    check_sound(store)


def test_a_bomb_is_left_at_its_bound(store: Store, tmp_path: Path) -> None:
    """What unpacks to 8 GB of nothing is read for a moment, and then no more."""
    zeros = packed(b"\0" * (64 << 20)) * 128
    assert len(zeros) < 1 << 20
    path = tmp_path / f"{NAME}.zst"
    path.write_bytes(packed(everything().data()) + zeros)
    report = import_paths(store, [path], clock=lambda: NOW)
    assert ["it unpacks to more than" in one.reason for one in report.skipped][-1]
    assert said(store.session(report.sessions[0].session_id))[-1] == ("assistant", "I go on.")


def test_without_the_library_it_says_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    (tmp_path / f"{NAME}.zst").write_bytes(packed(everything().data()))
    report = import_paths(store, [tmp_path], clock=lambda: NOW)
    assert report.sessions == []
    assert "pip install '.[zstd]'" in report.skipped[0].reason


@pytest.mark.parametrize("mode", ["legacy", "paginated"])
@pytest.mark.parametrize("block", range(10))
def test_damaged_files_come_in_as_far_as_they_are_whole(
    tmp_path: Path, mode: str, block: int
) -> None:
    seeds = range(block * 10, block * 10 + 10)
    data = everything(mode).data()
    mutate(data, tmp_path, NAME, seeds, lambda path: [codex(path, settled=True)])
