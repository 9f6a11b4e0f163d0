"""A provider that refuses, breaks off or is not there: the turn fails, and what came is kept."""

import asyncio
from pathlib import Path

import pytest

from killick import AsyncStore, Project, Store
from killick.agent import ModelUnavailable, agent_for
from killick.agent.agent import find_model
from killick.agent.choice import VARIABLE
from tests.agent.conftest import Chat
from tests.agent.scripting import refused
from tests.agent.terminal import Terminal
from tests.cli.running import run_in_terminal, run_process
from tests.recorders.saying import answer
from tests.recorders.server import Script, Scripted

TRIES = 3
"""The SDK repeats what failed by the provider's fault twice."""

REPEATED = (429, 500)
REFUSALS = {
    401: "who are you?",
    404: "the model m does not exist",
    429: "too many requests",
    500: "we are sorry",
}


def broken() -> Script:
    script = answer("openai-chat", ["The ", "answer ", "is "])
    return Script(script.events[:3], "broken")


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_fails_the_turn_with_its_reason(
    tmp_path: Path, server: Scripted, status: int
) -> None:
    body = {"error": {"message": "no", "type": "x"}}
    server.scripts.extend(Script(body=body, status=status) for _ in range(TRIES))
    reason, messages = asyncio.run(asked(tmp_path, server))
    assert str(status) in reason
    assert messages == ["Hello?"]


def test_a_connection_that_breaks_keeps_the_partial_answer(
    tmp_path: Path, server: Scripted
) -> None:
    server.scripts.append(broken())
    reason, messages = asyncio.run(asked(tmp_path, server))
    assert reason
    assert messages == ["Hello?", "The answer is "]


async def asked(path: Path, server: Scripted) -> tuple[str, list[str]]:
    """Ask a model there; why the turn failed, and what is kept of it."""
    async with (
        AsyncStore(path / "w.db") as store,
        agent_for(f"{server.url}/v1#m", root=path) as agent,
    ):
        session = await store.create_session()
        with pytest.raises(Exception, match=r"."):
            async with session.turn("Hello?") as turn:
                await agent.answer(session, turn)
        (failed,) = await session.turns()
        assert failed.status == "failed"
        texts = [message.text for message in await session.messages()]
        return failed.reason or "", texts


def follow_to_the_end(store: Store, *, turns: int) -> None:
    """What is shown is durable; that the turn is over is known a moment later."""
    for item in store.session(store.sessions()[0].id).follow():
        turns -= item.kind == "turn_ended"
        if not turns:
            return


@pytest.mark.timeout(180)
def test_a_failed_prompt_is_offered_again(
    chat: Chat, store: Store, project: Project, server: Scripted
) -> None:
    """Whatever went wrong: the reason is said, what came stays, Enter asks again."""
    session = store.create_session(title="Failures", project=project)
    terminal = chat("--resume")
    terminal.shows("/help lists")
    terminal.type("Hello?")
    for status, why in REFUSALS.items():
        server.scripts.extend([refused(status, why)] * (TRIES if status in REPEATED else 1))
        again(terminal, "The turn failed: ", f"status_code: {status}", why)
    server.scripts.append(broken())
    again(terminal, "The answer is", "(cut off here)", "The turn failed: ")
    server.scripts.append(answer("openai-chat", ["Here ", "I ", "am."]))
    before = len(terminal.text)
    terminal.enter("")
    terminal.shows("Here I am.", after=before)
    follow_to_the_end(store, turns=len(REFUSALS) + 2)
    assert terminal.leave() == 0
    assert [turn.status for turn in session.turns()] == ["failed"] * 5 + ["completed"]
    for turn, status in zip(session.turns(), REFUSALS, strict=False):
        assert f"status_code: {status}" in (turn.reason or "")
    partial = [one for one in session.messages() if one.state == "partial"]
    assert [one.text for one in partial] == ["The answer is "]


def again(terminal: Terminal, *expected: str) -> None:
    """Send what is in the line; it fails so, and then it is in the line again."""
    place = len(terminal.text)
    terminal.enter("")
    for one in expected:
        place = terminal.shows(one, after=place)
    terminal.shows("Hello?", after=place)


@pytest.mark.parametrize("name", ["nothing", "nobody:model", "openai:gpt-5", ""])
def test_a_model_that_cannot_be_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelUnavailable) as raised:
        find_model(name)
    assert "\n" not in str(raised.value)


def test_chat_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    more = {"KILLICK_STORE": str(tmp_path / "w.db")}
    unknown = run_in_terminal(100, "chat", "--model", "nobody:x", more=more)
    assert unknown.code == 2
    assert "nobody:x" in unknown.lines[-1]
    with Store(tmp_path / "w.db") as store:
        known = store.create_session(title="The linker").id
    nearest = run_in_terminal(200, "chat", "--session", "linker", more=more)
    assert nearest.code == 4
    assert known in nearest.lines[-1]
    piped = run_process("chat", more=more)
    assert (piped.code, piped.lines) == (2, [])
    assert "the prompt is empty" in piped.err


@pytest.mark.timeout(180)
def test_a_second_chat_says_who_is_busy_and_takes_over(tmp_path: Path, server: Scripted) -> None:
    server.scripts.append(answer("openai-chat", ["I ", "am "], stalls=True))
    more = {"KILLICK_STORE": str(tmp_path / "w.db"), VARIABLE: f"{server.url}/v1#m"}
    with (
        Store(tmp_path / "w.db") as store,
        Terminal("chat", folder=tmp_path, more=more) as first,
    ):
        first.shows("/help lists")
        first.enter("Hello?")
        assert server.stalled.acquire(timeout=60)
        session = store.session(store.sessions()[0].id)
        with Terminal("chat", "--session", session.id, folder=tmp_path, more=more) as second:
            second.shows("This session is busy")
            second.enter("And I?")
            second.shows("Queued: And I?")
            server.scripts.append(answer("openai-chat", ["You ", "too."]))
            server.scripts.append(answer("openai-chat", ["A title"]))
            second.enter("/takeover")
            second.shows("You too.")
            follow_to_the_end(store, turns=2)
            assert second.leave() == 0
        first.shows("Stopped (taken_over)")
        assert first.leave() == 0
        endings = [(turn.status, turn.reason) for turn in session.turns()]
        assert endings == [("interrupted", "taken_over"), ("completed", None)]
        assert server.requests[1]["messages"][-1]["content"] == "And I?"
