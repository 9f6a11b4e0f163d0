"""A real model takes and answers a conversation that was interrupted, in each way there is.

It runs behind the shapes of OpenAI and Anthropic, and the official SDKs ask it.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from killick import Message, Session, Store, Text, ToolCall
from killick.agent.embedded import model_file, serving_model
from killick.testing.faults import crash

pytestmark = [
    pytest.mark.skipif(model_file() is None, reason="requirements/model.lock is not there"),
    pytest.mark.timeout(300),  # a model shares the cores with whatever else runs
]
LIMIT = 6
CALL = '{"city": "Oslo"}'


def cut_in_text(session: Session) -> None:
    with session.turn("Tell me about kelp.") as turn, turn.stream(provider="other") as reply:
        reply.text("Kelp is a large brown")
        raise KeyboardInterrupt


def cut_in_arguments(session: Session) -> None:
    with session.turn("What is the weather?") as turn, turn.stream(provider="other") as reply:
        reply.text("Let me look.")
        reply.tool_call("c1", name="weather", arguments='{"city": "Os')
        raise KeyboardInterrupt


def never_started(session: Session) -> None:
    with session.turn("What is the weather?") as turn:
        turn.record(Message("assistant", [Text("Let me look."), ToolCall("c1", "weather", CALL)]))
        raise KeyboardInterrupt


def unknown_outcome(session: Session) -> None:
    with session.turn("What is the weather?") as turn:
        turn.record(Message("assistant", [ToolCall("c1", "weather", CALL)]))
        with turn.tool("c1") as call:
            call.output("asking")
            raise KeyboardInterrupt


def some_of_three_finished(session: Session) -> None:
    with session.turn("Compare three cities.") as turn:
        calls = [ToolCall(f"c{n}", "weather", CALL) for n in range(3)]
        turn.record(Message("assistant", calls))
        for number in (2, 0):
            with turn.tool(f"c{number}") as call:
                call.finish("rain")
        raise KeyboardInterrupt


def late_result(session: Session) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        unknown_outcome(session)
    session.finish_tool(session.turns()[-1].id, "c1", "rain")


def prompt_without_an_answer(session: Session) -> None:
    with session.turn("Are you there?"):
        raise KeyboardInterrupt


def failed(session: Session) -> None:
    with session.turn("Divide by zero."):
        raise ZeroDivisionError


def compacted_and_rewound(session: Session) -> None:
    for number in range(3):
        with session.turn(f"Question {number}") as turn:
            turn.record(Message("assistant", [Text(f"Answer {number}")]))
    messages = session.messages()
    session.rewind(through=messages[3].seq)
    session.compact("They asked a question.", through=messages[1].seq)


WAYS: list[Callable[[Session], None]] = [
    cut_in_text,
    cut_in_arguments,
    never_started,
    unknown_outcome,
    some_of_three_finished,
    late_result,
    prompt_without_an_answer,
    failed,
    compacted_and_rewound,
]


class Asker:
    """The SDKs, pointed at the model; each returns what it answered."""

    def __init__(self, url: str) -> None:
        self._openai = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self._anthropic = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)

    def openai_chat(self, messages: list[Any]) -> str | None:
        answer = self._openai.chat.completions.create(
            model="smol", messages=messages, max_tokens=LIMIT
        )
        return answer.choices[0].message.content

    def anthropic(self, messages: list[Any]) -> str:
        answer = self._anthropic.messages.create(model="smol", messages=messages, max_tokens=LIMIT)
        return "".join(block.text for block in answer.content if block.type == "text")

    def close(self) -> None:
        self._openai.close()
        self._anthropic.close()


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with serving_model() as url:
        opened = Asker(url)
        yield opened
        opened.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_model_answers_what_was_interrupted(
    tmp_path: Path, asker: Asker, way: Callable[[Session], None]
) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with contextlib.suppress(KeyboardInterrupt, ZeroDivisionError):
            way(session)
        with session.turn("Go on."):
            chat, messages = session.context("openai-chat"), session.context("anthropic")
            assert asker.openai_chat(chat.messages)
            assert asker.anthropic(messages.messages)


def test_a_model_answers_what_a_dead_process_left(tmp_path: Path, asker: Asker) -> None:
    store = Store(tmp_path / "work.db", window_seconds=0.001)
    turn = store.create_session(id="left").turn("Tell me about kelp.")
    reply = turn.__enter__().stream()
    reply.__enter__().text("Kelp is")
    crash(store)
    with Store(tmp_path / "work.db") as store:
        session = store.session("left")
        with session.turn("Go on."):
            assert asker.openai_chat(session.context("openai-chat").messages)
            assert asker.anthropic(session.context("anthropic").messages)
