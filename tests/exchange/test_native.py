"""Sessions on their way to Codex and goose: read back, they are the same."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import Entry, Message, Session, Store
from killick.exchange import EXPORTS, NotTheSame, export_session, import_paths, prepare_export
from killick.exchange.continuation import continue_in
from killick.exchange.export.native import Losses, native
from killick.exchange.export.to_codex import ToCodex, thread_id
from killick.exchange.records import Report
from killick.model.entries import ModelCallStarted
from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.stores.memory import MemoryDisk
from killick.testing.strategies import journals
from tests.exchange.checks import PNG, VALIDATORS, check_sound, converse
from tests.exchange.sources import NOW
from tests.exchange.test_codex import everything as codex_everything
from tests.exchange.test_codex import source as codex_source
from tests.exchange.test_goose import database as goose_database_file
from tests.exchange.test_own import _whole_turns

NAMES = {"codex": "rollout-x.jsonl", "goose": "export.json"}


def back(store: Store, session_id: str, to: str, folder: Path, other: Store) -> Session:
    """The session as it comes in again from the other agent's file."""
    path = folder / NAMES[to]
    path.write_bytes(b"".join(export_session(store, session_id, to)))
    report = import_paths(other, [path], clock=lambda: NOW)
    assert report.problems == []
    assert [one.source for one in report.sessions] == [to]
    check_sound(other)
    return other.session(report.sessions[0].session_id)


def spoken(session: Session) -> list[tuple[str, tuple[Part, ...]]]:
    return [(one.role, tuple(one.parts)) for one in session.messages()]


def full(store: Store, thought: Reasoning) -> Session:
    """What both agents can hold, all of it."""
    session = store.create_session(title="Fix it")
    blob = store.put_blob(PNG)
    with session.turn([Text("Look at this."), Image(blob, "image/png")]) as turn:
        with turn.stream(model="m-1", provider="openai", system="Be brief.") as reply:
            reply.part(thought)
            reply.text("I look.")
            reply.tool_call("c1", name="shell", arguments='{"command":"ls"}')
            reply.tool_call("c2", name="shell", arguments="{}")
        turn.record(Message("tool", [ToolResult("c1", "a.txt")]))
        turn.record(Message("tool", [ToolResult("c2", (Text("one"), Image(blob, "image/png")))]))
        turn.record(Message("assistant", [Text("There is one."), Text("No more.")]))
    with session.turn("And\u2028now?") as turn:
        turn.record(Message("assistant", [Text("Nothing.\n\n")]))
        turn.record(Message("assistant", [Text("Really nothing.")]))
    return session


THOUGHTS = {"codex": Reasoning("Hm.", encrypted="sealed"), "goose": Reasoning("Hm.", signature="s")}


@pytest.mark.parametrize("to", NAMES)
def test_what_the_target_can_hold_comes_back_the_same(
    store: Store, other: Store, tmp_path: Path, to: str
) -> None:
    session = full(store, THOUGHTS[to])
    assert prepare_export(store, session.id, to).losses == []
    again = back(store, session.id, to, tmp_path, other)
    assert spoken(again) == spoken(session)
    assert [turn.status for turn in again.turns()] == ["completed", "completed"]
    assert again.info().models == ("m-1",)


def test_it_can_be_gone_on_with(store: Store, other: Store, tmp_path: Path) -> None:
    """Begun here, continued there, and brought back."""
    again = back(store, full(store, THOUGHTS["codex"]).id, "codex", tmp_path, other)
    with again.turn("More.") as turn:
        turn.record(Message("assistant", [Text("Done.")]))
    with Store(MemoryDisk().open()) as third:
        once_more = back(other, again.id, "codex", tmp_path, third)
        assert spoken(once_more) == spoken(again)


def test_codex_keeps_interruptions_and_custom_tools(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.create_session()
    with session.turn("Patch it.") as turn:
        turn.record(Message("system", [Text("Careful.")]))
        call = ToolCall("c1", "apply_patch", "*** Begin Patch", "custom")
        turn.record(Message("assistant", [Text("So."), call, Text("Then.")]))
        turn.record(Message("tool", [ToolResult("c1", "ok")]))
    try:
        with session.turn("Delete it.") as turn:
            turn.record(Message("assistant", [ToolCall("c2", "shell", "{}")]))
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    again = back(store, session.id, "codex", tmp_path, other)
    assert spoken(again) == spoken(session)
    assert [turn.status for turn in again.turns()] == ["completed", "interrupted"]
    assert prepare_export(store, session.id, "codex").losses == ["why a turn was interrupted (1)"]


def test_goose_keeps_errors_structure_and_both_visibilities(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.create_session()
    with session.turn("Run.") as turn:
        turn.record(Message("assistant", [ToolCall("c1", "shell", "{}")]))
        result = ToolResult("c1", "boom", is_error=True, structured={"code": 2})
        turn.record(Message("tool", [result]))
        turn.record(Message("assistant", [Text("For the model only.")]))
        turn.record(Message("assistant", [Text("For the person only.")]))
        turn.record(Message("assistant", [Text("For both.")]))
    messages = session.messages()
    session.hide(messages[3], model=False)
    session.hide(messages[4], person=False)
    assert prepare_export(store, session.id, "goose").losses == []
    again = back(store, session.id, "goose", tmp_path, other)
    assert spoken(again) == spoken(session)
    assert [one.text for one in again.transcript()] == [one.text for one in session.transcript()]
    context = json.dumps(again.context("anthropic").messages)
    assert "For the person only." not in context


def test_what_the_target_cannot_hold_is_listed(store: Store) -> None:
    session = store.create_session(tags=("a",))
    blob = store.put_blob(b"x")
    parts: list[Part] = [Text("Hi.\ud800"), File(blob, "text/plain"), Image(blob, "no kind", "alt")]
    with session.turn(parts) as turn:
        turn.record(Message("assistant", [Reasoning("r", signature="s", encrypted="e"),
                                          Opaque("openai", b"{}"),
                                          ToolCall("c1", "t", "free text", "custom")]))  # fmt: skip
        turn.record(Message("tool", [ToolResult("c1", "no", is_error=True, structured={"x": 1})]))
    session.note("n", {})
    try:
        with session.turn("Again."):
            raise RuntimeError("broken")
    except RuntimeError:
        pass
    common = {"a provider's own data (1)", "characters that are no Unicode (1)", "files (1)",
              "images of an unknown kind (1)", "notes of applications (1)", "tags (1)"}  # fmt: skip
    assert set(prepare_export(store, session.id, "codex").losses) == common | {
        "signatures of reasoning (1)", "structured results (1)", "that a result was an error (1)",
        "that a turn failed: it is said to be interrupted (1)",
    }  # fmt: skip
    assert set(prepare_export(store, session.id, "goose").losses) == common | {
        "arguments that are no JSON object: they become one (1)", "encrypted reasoning (1)",
        "how a turn ended (1)", "what kind of tool was called (1)",
    }  # fmt: skip


@pytest.mark.parametrize("to", NAMES)
def test_a_session_with_a_bit_of_everything(
    store: Store, other: Store, tmp_path: Path, to: str
) -> None:
    again = back(store, converse(store), to, tmp_path, other)
    context = json.dumps(again.context("anthropic").messages)
    assert "They looked for the linker." in context
    assert "Let me look." not in context
    assert "Once more." in context


@pytest.mark.parametrize("to", NAMES)
def test_sessions_of_other_agents_pass_through(
    store: Store, other: Store, tmp_path: Path, to: str
) -> None:
    from killick.exchange.formats.goose import goose_database
    from tests.exchange.sources import bring

    (tmp_path / "in").mkdir()
    codex = bring(store, codex_source(tmp_path / "in", codex_everything().data())).sessions[0]
    path = goose_database_file(tmp_path / "in" / "sessions.db")
    goose = bring(store, goose_database(path, settled=True)).sessions[0]
    for outcome in (codex, goose):
        session = store.session(outcome.session_id)
        again = back(store, session.id, to, tmp_path, other)
        assert len(again.messages()) >= len(session.messages()) - 2


def test_codex_takes_the_id_for_one_of_its_own() -> None:
    own = thread_id("ses_1", 1_787_389_200_123_456)
    assert own == thread_id("ses_1", 1_787_389_200_123_456)
    parts = own.split("-")
    assert [len(part) for part in parts] == [8, 4, 4, 4, 12]
    assert int(parts[0] + parts[1], 16) == 1_787_389_200_123
    assert (parts[2][0], parts[3][0] in "89ab") == ("7", True)


class Forgetful(ToCodex):
    """Writes less than it says."""

    def write(self, talk: Any) -> Any:
        lines = list(super().write(talk))
        return iter([line for line in lines if b"I look." not in line])


def test_a_file_that_reads_back_as_something_else_is_not_given_out(store: Store) -> None:
    session = full(store, THOUGHTS["codex"])
    with pytest.raises(NotTheSame, match="message 2 differs"):
        native(store, session.id, Forgetful())


def test_nothing_is_left_of_an_export(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read, dropped or refused: the file that was checked is gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = full(store, THOUGHTS["codex"])
    pieces = export_session(store, session.id, "codex")
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["session.jsonl"]
    assert b"".join(pieces)
    assert list(tmp_path.iterdir()) == []
    assert next(pieces, None) is None
    pieces = export_session(store, session.id, "codex", redact=True)
    assert len(list(tmp_path.iterdir())) == 1
    del pieces
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotTheSame):
        native(store, session.id, Forgetful())
    assert list(tmp_path.iterdir()) == []


def test_what_came_late_stands_in_its_place(store: Store, other: Store, tmp_path: Path) -> None:
    """A result that comes after its turn, and turns with and without a model."""
    session = store.create_session()
    try:
        with session.turn("Go.") as turn:
            with turn.stream(provider="openai") as reply:
                reply.tool_call("c1", name="shell", arguments="{}")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    with session.turn("On.") as turn, turn.stream(model="m-2", provider="openai") as reply:
        reply.text("Yes.")
    session.finish_tool(session.turns()[0].id, "c1", "there after all")
    again = back(store, session.id, "codex", tmp_path, other)
    assert sorted(map(str, spoken(again))) == sorted(map(str, spoken(session)))
    assert again.info().models == ("m-2",)


def long_session(store: Store, megabytes: int) -> Session:
    """Turns of half a megabyte, and one of as much as all others."""
    session = store.create_session()
    words = "All work and no play. " * 6_000
    for number in range(2 * megabytes):
        with session.turn(f"{number} {words}") as turn:
            for step in range(2 * megabytes if number == 1 else 1):
                call = ToolCall(f"c{number}.{step}", "shell", "{}")
                turn.record(Message("assistant", [call]))
                turn.record(Message("tool", [ToolResult(call.id, f"{step} {words}")]))
            turn.record(Message("assistant", [Text(words)]))
    return session


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with one session of 60 MB."""
    with Store(tmp_path_factory.mktemp("long") / "long.db") as store:
        long_session(store, 24)
        yield store


@contextmanager
def held_at_most(peak: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < peak


@pytest.mark.parametrize("to", [name for name in EXPORTS if name not in VALIDATORS])
def test_a_long_session_is_never_in_memory_as_a_whole(long_store: Store, to: str) -> None:
    """Pages, a few messages, and what the search index reads beside it."""
    session = long_store.session(long_store.session_ids()[0])  # opening it reads all of it
    with held_at_most(16_000_000):
        assert sum(map(len, export_session(long_store, session.id, to))) > 24_000_000


@pytest.mark.parametrize("agent", ["codex", "claude-code", "qwen", "copilot", "pi", "hermes"])
def test_a_long_session_goes_on_elsewhere(long_store: Store, tmp_path: Path, agent: str) -> None:
    """Our reader of Gemini CLI's lines, which counts them, holds all of them."""
    session = long_store.session(long_store.session_ids()[0])
    with held_at_most(16_000_000):
        continue_in(long_store, session.id, agent, home=tmp_path, environment={})


def test_losses_are_told_in_order() -> None:
    losses = Losses()
    for what in ("b", "a", "b"):
        losses.add(what)
    assert losses.summary() == ["a (1)", "b (2)"]


TEXT = st.text(min_size=1, max_size=30)
ARGUMENTS = st.dictionaries(TEXT, st.integers() | TEXT, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), to=st.sampled_from(sorted(NAMES)))
def test_any_talk_that_both_can_hold_comes_back(
    data: st.DataObject, to: str, tmp_path: Path
) -> None:
    with Store(MemoryDisk().open()) as store, Store(MemoryDisk().open()) as other:
        session = store.create_session()
        for number in range(data.draw(st.integers(1, 3))):
            with session.turn(data.draw(TEXT)) as turn:
                for step in range(data.draw(st.integers(0, 2))):
                    call = ToolCall(f"c{number}.{step}", "shell", data.draw(ARGUMENTS))
                    turn.record(Message("assistant", [Text(data.draw(TEXT)), call]))
                    turn.record(Message("tool", [ToolResult(call.id, data.draw(TEXT))]))
                turn.record(Message("assistant", [Text(data.draw(TEXT))]))
        assert prepare_export(store, session.id, to).losses == []
        assert spoken(back(store, session.id, to, tmp_path, other)) == spoken(session)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(journal=journals(), to=st.sampled_from(sorted(NAMES)))
def test_every_journal_can_leave(journal: list[Entry], to: str) -> None:
    """Whatever a store has written: what is listed is lost, and nothing else."""
    whole = _whole_turns(journal)
    with Store(MemoryDisk().open()) as store:
        store.put_blob(b"s")  # the system prompt of every generated journal
        store.import_entries("ses_1", whole)
        assert b"".join(prepare_export(store, "ses_1", to).pieces)


# -- without secrets -------------------------------------------------------------------------------

SECRET = "ghp_" + "a1B2" * 10
OTHER = "AKIA" + "ABCDEFGH12345678"


def secretive(store: Store) -> Session:
    session = store.create_session(title=f"With {SECRET}")
    with session.turn(f"Use {SECRET} and {OTHER}.") as turn:
        with turn.stream(system=f"The key is {OTHER}.") as reply:
            reply.text(f"I use {SECRET}.")
            reply.tool_call("c1", name="shell", arguments=json.dumps({"token": SECRET}))
        turn.record(Message("tool", [ToolResult("c1", f"ok {OTHER}", structured={"t": SECRET})]))
    session.note("n", {"key": OTHER})
    return session


@pytest.mark.parametrize("to", ["killick", "markdown", "html", "openai-chat", "codex", "goose"])
def test_no_secret_leaves(store: Store, to: str) -> None:
    session = secretive(store)
    plain = b"".join(export_session(store, session.id, to)).decode()
    assert SECRET in plain
    clean = b"".join(export_session(store, session.id, to, redact=True)).decode()
    assert SECRET not in clean
    assert OTHER not in clean
    assert clean == b"".join(export_session(store, session.id, to, redact=True)).decode()


def check_new_chain(report: Report) -> None:
    """Other bodies have other links: that is said, and it is all."""
    (problem,) = report.problems
    assert "has a new chain" in problem.reason
    assert (problem.harmless, report.exit_code) == (True, 0)


def test_the_same_secret_becomes_the_same_words(store: Store, other: Store, tmp_path: Path) -> None:
    session = secretive(store)
    path = tmp_path / "clean.jsonl"
    path.write_bytes(b"".join(export_session(store, session.id, redact=True)))
    check_new_chain(import_paths(other, [path]))
    clean = other.session(session.id)
    one, two = "[redacted: GitHub token 1]", "[redacted: AWS key id 2]"
    assert [m.text for m in clean.messages()][:2] == [f"Use {one} and {two}.", f"I use {one}."]
    assert clean.messages()[1].tool_calls[0].arguments == json.dumps({"token": one})
    assert clean.context("openai-responses").system == f"The key is {two}."
    assert clean.title == f"With {one}"
    assert store.session(session.id).messages()[0].text.startswith(f"Use {SECRET}")
    check_sound(other)


def test_a_redacted_export_has_every_blob_that_it_names(
    store: Store, other: Store, tmp_path: Path
) -> None:
    """Prompts and tools become other blobs without their secrets, and are named so."""
    session = store.create_session()
    tools = [{"name": "fetch", "description": f"with {SECRET}"}]
    with session.turn("go") as turn, turn.stream(system=f"Use {OTHER}.", tools=tools) as reply:
        reply.text("Done.")
    path = tmp_path / "clean.jsonl"
    path.write_bytes(b"".join(export_session(store, session.id, redact=True)))
    report = import_paths(other, [path])
    check_new_chain(report)
    bodies = [entry.body for entry in other.session(session.id).entries()]
    (call,) = [body for body in bodies if isinstance(body, ModelCallStarted)]
    assert other.blob(call.system or "") == b"Use [redacted: AWS key id 1]."
    assert b"with [redacted: GitHub token 2]" in other.blob(call.tools or "")
