"""What a person is shown of a journal as it grows, in whole blocks of Markdown."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from killick import AsyncSession, AsyncStore, Message
from killick.cli.chat.screen import Screen, rendered, state_line
from killick.cli.chat.view import View, ViewedMessage, call_text, whole_blocks
from killick.model import entries as e
from killick.model.messages import Text, ToolCall

CODE = "Look:\n\n```python\nx = 1\n\ny = 2\n```\n\nThat is it."


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one line", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\ntwo\n", "one\n\n"),
        (CODE[: CODE.index("y = 2")], "Look:\n\n"),
        (CODE, CODE[: CODE.index("That")]),
    ],
)
def test_blocks_are_given_out_when_they_are_whole(text: str, whole: str) -> None:
    assert text[: whole_blocks(text)] == whole


def test_what_is_shown_is_what_was_said(tmp_path: Path) -> None:
    """However the deltas are cut, nothing is shown twice and nothing is left out."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Hello?") as turn:
                async with turn.stream() as reply:
                    for letter in CODE:
                        reply.text(letter)
                    reply.tool_call("c1", name="f", arguments='{"a": 1}')
                async with turn.tool("c1") as tool:
                    tool.output("printing\n")
                    await tool.finish("line\n" * 20)
            shown = await taken(session, lambda kind: kind == "turn_ended")
            prose = "".join(one.text for one in shown if one.kind == "prose")
            assert prose == CODE
            assert ViewedMessage("tool", 'f {"a": 1}') in shown
            assert ViewedMessage("prompt", "Hello?") in shown
            (result,) = [one.text for one in shown if one.kind == "result"]
            assert result.splitlines()[-1] == "… 14 more lines"

    asyncio.run(main())


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_deltas_are_shown_once(size: int) -> None:
    view, shown = View(), []
    for offset in range(0, len(CODE), size):
        delta = e.Delta(0, offset, "text", CODE[offset : offset + size])
        shown += view.take(e.FollowedDelta(2, "turn", "msg", None, delta))
    assert view.tail == "That is it."
    ended = e.MessageEnded(id="msg", turn_id="turn", state="complete", parts=(Text(CODE),))
    shown += view.take(e.Entry(3, 0, ended))
    assert "".join(one.text for one in shown) == CODE
    assert view.tail == ""


def test_a_partial_answer_and_a_failure_say_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            with contextlib.suppress(OSError):
                async with session.turn("Hello?") as turn, turn.stream() as reply:
                    reply.text("It is")
                    raise OSError("gone")
            shown = await taken(session, lambda kind: kind == "turn_ended")
            assert shown[-3:] == [
                ViewedMessage("prose", "It is"),
                ViewedMessage("note", "(cut off here)"),
                ViewedMessage("warning", "The turn failed: OSError: gone. What came is kept."),
            ]

    asyncio.run(main())


def test_a_question_goes_away_when_the_turn_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            view = View()
            async with session.turn("Hello?") as turn:
                call = ToolCall("c1", "f", "{}")
                await turn.record(Message("assistant", [Text("Hm."), call]))
                await turn.ask_approval("c1", "{}")
                for entry in await session.entries():
                    view.take(entry)
                assert [one.call for one in view.pending.values()] == [call]
            for entry in await session.entries():
                view.take(entry)
            assert view.pending == {}

    asyncio.run(main())


def test_what_a_command_prints_is_no_token() -> None:
    view = View()
    view.take(e.FollowedDelta(2, "turn", "msg", "c1", e.Delta(0, 0, "output", "x" * 4000)))
    assert view.tokens == "0 in, 0 out"
    view.take(e.FollowedDelta(3, "turn", "msg", None, e.Delta(0, 0, "text", "x" * 4000)))
    assert view.tokens == "0 in, 1,000 out"


@pytest.mark.parametrize("length", [10, 300, 10_000])
def test_a_person_is_shown_what_is_asked_about(length: int) -> None:
    """All of a call, as it will run; not its beginning alone, and not with its spaces pressed."""
    call = ToolCall("c1", "run_command", '{"command": "' + "x" * length + '   ; rm -rf /"}')
    said = e.MessageRecorded(id="msg", turn_id="turn", role="assistant", parts=(call,))
    view = View()
    view.take(e.Entry(2, 0, said))
    asked = e.ApprovalAsked(
        id="a1", turn_id="turn", message_id="msg", call_id="c1", arguments_hash="x"
    )
    shown = "".join(one.text for one in view.take(e.Entry(3, 0, asked))) or call_text(call)
    assert shown == f"{call.name} {call.arguments}"


async def taken(session: AsyncSession, last: Callable[[str], bool]) -> list[ViewedMessage]:
    view, shown = View(), []
    async for item in session.follow():
        shown += view.take(item)
        if last(item.kind):
            return shown
    raise AssertionError("the store was closed")


def test_nor_is_what_a_person_is_asked_about() -> None:
    with create_pipe_input() as source:
        screen = Screen(View(), on_interrupt=lambda: None, source=source, sink=DummyOutput())
        screen.question = "Run rm \u202egnihton\x1b[2J ?"
        shown = "".join(fragment[1] for fragment in screen.message())
    assert shown == "Run rm \\u202egnihton\\x1b[2J ? "


def test_what_a_model_says_is_not_obeyed_by_the_terminal() -> None:
    text = rendered(ViewedMessage("prose", "a\x1b]0;title\x07b"))
    assert "\x1b]" not in text
    assert "\x07" not in text


def test_a_link_is_its_text_and_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt's terminal knows no hyperlinks: it would show their escape as letters."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = rendered(ViewedMessage("prose", "See [the page](https://example.org/a)."))
    assert "\x1b]" not in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text).strip() == "See the page (https://example.org/a)."


def test_arguments_that_do_not_fit_are_told_in_words(tmp_path: Path) -> None:
    """The model is told a list of JSON; a person is told the names and what is wrong with them."""
    told = '[{"type":"missing","loc":["path"],"msg":"Field required","input":{}},'
    told += '{"type":"int_type","loc":["at",0],"msg":"Input should be an integer","input":"x"}]'

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Write.") as turn:
                async with turn.stream() as reply:
                    reply.tool_call("c1", name="write_file", arguments="{}")
                async with turn.tool("c1") as tool:
                    await tool.finish(told, is_error=True)
            shown = await taken(session, lambda kind: kind == "turn_ended")
            (warning,) = [one.text for one in shown if one.kind == "warning"]
            assert warning == "path: Field required\nat.0: Input should be an integer"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ("He had been stuck for twenty years.", ["He had been stuck", "for twenty years."]),
        ("東京の天気はどうですか。晴れです。", ["東京の天気はどうです", "か。晴れです。"]),
        ("x" * 45, ["x" * 20, "x" * 20, "x" * 5]),
        ("one\n\n  two", ["one", "", "  two"]),
    ],
)
def test_what_streams_is_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, said: str, lines: list[str]
) -> None:
    """As it is when it is whole; a sign that is two columns wide counts as two."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "24")
    view = View()
    view.output = said
    with create_pipe_input() as source:
        screen = Screen(view, on_interrupt=lambda: None, source=source, sink=DummyOutput())
        assert screen.message()[0][1].splitlines() == lines


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "waiting for the model · 3 s · 0 in, 0 out · Ctrl+C stops"),
        (50, "waiting for the model · 3 s · 0 in, 0 out"),
        (38, "waiting for the … · 3 s · 0 in, 0 out"),
    ],
)
def test_a_narrow_terminal_shows_seconds_and_tokens_whole(columns: int, line: str) -> None:
    assert state_line("waiting for the model", "3 s · 0 in, 0 out", columns) == line
    assert len(line) < columns
