"""What is typed becomes turns: as it was typed, one after another, and held after a Stop."""

import threading

import pytest

from killick import Project, Session, Store
from killick.model import entries as e
from tests.agent.conftest import Chat
from tests.agent.scripting import begun, ended, held, said, until, until_said
from tests.recorders.server import Scripted

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def session(store: Store, project: Project) -> Session:
    return store.create_session(title="Talk", project=project)


def queued(body: e.Body) -> bool:
    return isinstance(body, e.PromptWaiting)


def test_a_prompt_is_kept_as_it_was_typed(chat: Chat, server: Scripted, session: Session) -> None:
    """A mark that is not seen belongs to the text."""
    terminal = chat("--resume")
    terminal.shows("/help lists")
    server.scripts.append(said("Yes."))
    terminal.enter("shalom\u200f?")
    until(session, ended)
    assert session.messages()[0].text == "shalom\u200f?"
    assert server.requests[0]["messages"][-1]["content"] == "shalom\u200f?"
    assert terminal.leave() == 0


def test_stop_holds_the_queue(chat: Chat, server: Scripted, session: Session) -> None:
    terminal = chat("--resume")
    terminal.shows("/help lists")
    server.scripts.append(begun("Once ", "upon "))
    terminal.enter("A story.")
    assert server.stalled.acquire(timeout=60)
    terminal.enter("Another one.")
    until(session, queued)
    terminal.interrupt()
    terminal.shows("1 prompt(s) held; Enter sends it")
    stopped = until(session, ended)
    assert [turn.reason for turn in session.turns()] == ["stopped by the user"]
    server.scripts.append(said("The ", "end."))
    terminal.enter("/queue")
    terminal.shows("Another one.", after=terminal.shows("/queue"))
    assert len(server.requests) == 1
    terminal.enter("")
    until(session, ended, after=stopped.seq)
    assert server.requests[1]["messages"][-1]["content"] == "Another one."
    assert terminal.leave() == 0


def test_ctrl_c_stops_a_turn_on_a_dumb_terminal_too(
    chat: Chat, server: Scripted, session: Session
) -> None:
    terminal = chat("--resume", TERM="dumb")
    terminal.shows("/help lists")
    server.scripts.append(begun("Once ", "upon "))
    terminal.enter("A story.")
    assert server.stalled.acquire(timeout=60)
    terminal.interrupt()
    terminal.shows("Stopped (stopped by the user). What came is kept.")
    stopped = until(session, ended)
    server.scripts.append(said("Yes."))
    terminal.enter("And now?")
    until(session, ended, after=stopped.seq)
    assert [turn.reason for turn in session.turns()] == ["stopped by the user", None]
    assert terminal.leave() == 0


def test_what_waits_is_sent_once(chat: Chat, server: Scripted, session: Session) -> None:
    """Two chats want to send what is queued: one does, and the other asks for nothing."""
    free = threading.Event()
    first = chat("--resume")
    first.shows("/help lists")
    server.scripts.extend([held(free, "Once ", "upon."), said("The ", "end.")])
    first.enter("A story.")
    until_said(session, "Once")
    second = chat("--resume")
    second.shows("This session is busy")
    second.enter("Another one.")
    until(session, queued)
    second.enter("/wait")
    second.enter("/wait")
    second.shows("Your own turn runs, or waits already.")
    free.set()
    until(session, ended, times=2)
    began = [one.body for one in session.entries() if isinstance(one.body, e.TurnStarted)]
    if began[0].holder == began[1].holder:  # the first was faster; the other finds nothing
        until(session, ended, times=3)
    assert [turn.status for turn in session.turns()] == ["completed"] * len(session.turns())
    asked = [one["messages"][-1]["content"] for one in server.requests]
    assert asked == ["A story.", "Another one."]
    assert first.leave() == 0
    assert second.leave() == 0
