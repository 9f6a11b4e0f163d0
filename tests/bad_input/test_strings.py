"""Strings with quotes, NUL, lone surrogates and marks of direction are stored exactly."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

from pathlib import Path

import pytest

from killick import (
    File,
    Message,
    Opaque,
    Parent,
    Project,
    Reasoning,
    Store,
    Text,
    ToolCall,
    ToolResult,
)
from tests.bad_input.helpers import HARD_TEXTS

pytestmark = pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())


def test_in_titles_tags_projects_and_extra_data(path: Path, text: str) -> None:
    with Store(path) as store:
        store.create_session(
            id="s",
            title=text,
            type=text,
            tags=(text,),
            project=Project(text, text),
            extra={text: text},
            parent=Parent(text, text),
        )
    with Store(path) as store:
        session = store.session("s")
        about = store.sessions()[0].about
        assert (session.title, about.title, about.type) == (text, text, text)
        assert (about.tags, about.project) == ((text,), Project(text, text))
        assert (about.extra, about.parent) == ({text: text}, Parent(text, text))
        session.rename(text + "!")
        assert store.session("s").title == text + "!"


def test_in_session_ids(path: Path, text: str) -> None:
    with Store(path) as store:
        store.create_session(id=text).note("n")
        store.create_session(id=text + "x")
    with Store(path) as store:
        assert store.session(text).head == 2
        assert {info.id for info in store.sessions()} == {text, text + "x"}


def test_in_texts_and_parts(path: Path, text: str) -> None:
    parts = (
        Text(text),
        Reasoning(text, text, text),
        ToolCall(text, text, text),
        Opaque(text, text.encode("utf-8", "surrogatepass")),
        ToolResult(text, text, structured={text: [text]}),
    )
    with Store(path) as store:
        session = store.create_session(id="s")
        file = File(store.put_blob(b"x"), text, text)
        with session.turn(text) as turn:
            turn.record(Message(role="assistant", parts=[*parts, file], id=text))
    with Store(path) as store:
        prompt, message = store.session("s").messages()
        assert prompt.text == text
        assert (message.id, message.parts) == (text, (*parts, file))


def test_in_streams(path: Path, text: str) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn, turn.stream(provider=text, model=text) as reply:
            reply.reasoning(text, signature=text)
            reply.text(text)
            reply.text(text)
            reply.tool_call(text, name=text, arguments=text)
            reply.finish(finish_reason=text, provider_ids={text: text})
    with Store(path) as store:
        message = store.session("s").messages()[-1]
        assert message.parts == (
            Reasoning(text, signature=text),
            Text(text + text),
            ToolCall(text, text, text),
        )


def test_in_streams_cut_between_the_halves_of_a_text(path: Path, text: str) -> None:
    with Store(path, window_seconds=0.001) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn, turn.stream() as reply:
            for char in text:
                reply.text(char)
        assert session.messages()[-1].text == text


def test_in_system_prompts_and_tool_definitions(path: Path, text: str) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn:
            with turn.stream(system=text, tools=[{"name": text}], settings={text: text}):
                pass
        call = next(entry.body for entry in session.entries() if entry.kind == "model_call_started")
        kept = store.blob(getattr(call, "system", ""))
        assert kept.decode("utf-8", "surrogatepass") == text
        assert getattr(call, "settings", None) == {text: text}


def test_in_tools_and_their_output(path: Path, text: str) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall(text, "n", "{}")]))
            with turn.tool(text) as call:
                call.output(text)
                call.finish(text + "!", structured={text: text})
    with Store(path) as store:
        session = store.session("s")
        assert session.messages()[-1].parts == (
            ToolResult(text, text + "!", structured={text: text}),
        )
        finished = next(entry.body for entry in session.entries() if entry.kind == "tool_result")
        assert getattr(finished, "output", None) == text


def test_in_notes_and_keys(path: Path, text: str) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        session.note(text, {text: [text, None]}, key=text)
        assert session.note(text, {text: [text, None]}, key=text).repeated
        with session.turn(text, key=text) as turn:
            pass
        with session.turn(text, key=text) as again:
            assert (again.repeated, again.id) == (True, turn.id)
        note = session.entries()[1].body
        assert (getattr(note, "name", None), getattr(note, "data", None)) == (
            text,
            {text: [text, None]},
        )


def test_in_reasons_of_stopping_and_deleting(path: Path, text: str) -> None:
    from killick import TurnStopped

    with Store(path) as store:
        session = store.create_session(id="s")
        with pytest.raises(TurnStopped), session.turn("go") as turn:
            session.stop(reason=text)
            turn.record(Message(role="assistant", parts=[Text("x")]))
        assert session.turns()[-1].reason == text
        store.delete_session("s", reason=text)
        assert getattr(session.entries()[-1].body, "reason", None) == text


def test_in_the_message_of_an_exception_that_fails_a_turn(path: Path, text: str) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        with pytest.raises(ValueError, match=r"x"), session.turn("go"):
            raise ValueError("x" + text)
        assert session.turns()[-1].reason == f"ValueError: x{text}"


def test_in_tenants(path: Path, text: str) -> None:
    with Store(path, tenant=text) as store:
        store.create_session(id="s").note("n")
        store.put_blob(b"x")
    with Store(path, tenant=text) as store:
        assert store.session("s").head == 2
        assert [info.tenant for info in store.sessions()] == [text]
