"""`killick chat` in a terminal, with the real model: stopped, left, killed, and gone on with."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from killick import Entry, Session, Store
from killick.agent.embedded import model_file, serving_model
from killick.model import entries as e
from tests.agent.proxy import Proxy, between
from tests.agent.scripting import ended, newest, until
from tests.agent.terminal import Terminal

pytestmark = [
    pytest.mark.skipif(model_file() is None, reason="requirements/model.lock is not there"),
    pytest.mark.timeout(300),  # a model shares the cores with whatever else runs
    pytest.mark.slow,
]
PROMPT = "Tell me a long story about the sea."


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with serving_model() as url:
        yield url


@pytest.fixture
def proxy(model: str) -> Iterator[Proxy]:
    with between(model) as running:
        yield running


@pytest.fixture
def chat(tmp_path: Path, proxy: Proxy, store: Store) -> Iterator[Callable[..., Terminal]]:
    """Starts a chat in a folder of its own; all are ended in the end."""
    folder = tmp_path / "project"
    folder.mkdir()
    begun: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        more = {
            "KILLICK_STORE": str(tmp_path / "work.db"),
            "KILLICK_MODEL": f"on-board@{proxy.url}",
        }
        terminal = Terminal("chat", *arguments, folder=folder, more=more)
        begun.append(terminal)
        terminal.shows(">", after=terminal.shows("/help lists"))
        return terminal

    yield start
    for terminal in begun:
        terminal.kill()


def until_said(session: Session, after: int) -> str:
    """Wait until an answer has begun; what it says so far."""
    text = ""
    for item in session.follow(after=after):
        if not isinstance(item, Entry) and item.delta.type == "text":
            text += item.text
            if len(text) > 10:
                return text
    raise AssertionError("the store was closed")


def test_stopped_then_asked_again(
    chat: Callable[..., Terminal], store: Store, proxy: Proxy
) -> None:
    terminal = chat()
    session = newest(store)
    proxy.hold()
    terminal.enter(PROMPT)
    said = until_said(session, 0)
    terminal.interrupt()
    terminal.shows("Stopped (stopped by the user). What came is kept.")
    proxy.free.set()
    stopped = session.turns()[-1]
    assert (stopped.status, stopped.reason) == ("interrupted", "stopped by the user")

    shown, head = len(terminal.text), session.entries()[-1].seq
    terminal.enter("What did I ask?")
    until(session, ended, after=head)
    sent = json.dumps(proxy.talks[-1]["messages"])
    assert PROMPT in sent
    assert said.split()[0] in sent
    assert "The turn above was interrupted" in sent
    assert proxy.talks[-1]["messages"][-1] == {"role": "user", "content": "What did I ask?"}
    assert session.turns()[-1].status == "completed"
    terminal.shows("What did I ask?", after=shown)
    assert terminal.leave() == 0
    terminal.shows(f"killick chat --session {session.id}")


def test_killed_and_resumed(chat: Callable[..., Terminal], store: Store, proxy: Proxy) -> None:
    terminal = chat()
    session = newest(store)
    proxy.hold()
    terminal.enter(PROMPT)
    said = until_said(session, 0)
    terminal.enter("And how does it end?")
    until(session, lambda body: isinstance(body, e.PromptWaiting))
    terminal.kill()
    proxy.free.set()

    terminal = chat("--resume")
    terminal.shows("Stopped (crashed). What came is kept.")
    terminal.shows("1 prompt(s) held; Enter sends it")
    assert session.messages()[1].state == "partial"
    assert session.messages()[1].text.startswith(said)
    head = session.entries()[-1].seq
    terminal.enter("")
    until(session, ended, after=head)
    assert session.turns()[-1].status == "completed"
    messages = proxy.talks[-1]["messages"]
    assert messages[-1] == {"role": "user", "content": "And how does it end?"}
    assert any(said.split()[0] in str(one["content"]) for one in messages)
    assert terminal.leave() == 0


def test_what_is_typed_meanwhile_is_asked_next(
    chat: Callable[..., Terminal], store: Store, proxy: Proxy
) -> None:
    terminal = chat()
    session = newest(store)
    proxy.hold()
    terminal.enter("Say hello.")
    until_said(session, 0)
    terminal.enter("Say goodbye.")
    queued = until(session, lambda body: isinstance(body, e.PromptWaiting))
    terminal.shows("Queued: Say goodbye.")
    proxy.free.set()
    until(session, lambda body: isinstance(body, e.PromptTaken), after=queued.seq)
    first = until(session, ended)
    until(session, ended, after=first.seq)
    assert [turn.status for turn in session.turns()] == ["completed", "completed"]
    assert proxy.talks[-1]["messages"][-1]["content"] == "Say goodbye."
    assert terminal.leave() == 0
