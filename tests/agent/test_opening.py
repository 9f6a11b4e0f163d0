"""Which session a chat goes on with, and how it was left: by a signal, a closed window, a key."""

from signal import SIGTERM

import pytest

from killick import Project, Session, Store
from tests.agent.conftest import Chat
from tests.agent.scripting import begun, exchange, said, until, until_said
from tests.agent.scripting import ended as has_ended
from tests.agent.terminal import Terminal
from tests.recorders.server import Scripted

pytestmark = pytest.mark.timeout(180)


def mid_answer(terminal: Terminal, server: Scripted, session: Session, prompt: str) -> None:
    """Ask something, until half of the answer is stored."""
    head = session.entries()[-1].seq
    server.scripts.append(begun("Once ", "upon ", "a time "))
    terminal.enter(prompt)
    until_said(session, "a time", after=head)


def ending(session: Session) -> tuple[str, str | None, str]:
    turn = session.turns()[-1]
    return turn.status, turn.reason, session.messages()[-1].text


def test_left_in_the_middle_of_an_answer(
    chat: Chat, server: Scripted, store: Store, project: Project
) -> None:
    """By SIGTERM, by a window that is closed, by Ctrl+D: it is kept, and said when it goes on."""
    session = store.create_session(title="Stories", project=project)
    kept = "Once upon a time "

    terminal = chat("--resume")
    terminal.shows("/help lists")
    mid_answer(terminal, server, session, "A story.")
    terminal.process.send_signal(SIGTERM)
    assert terminal.process.wait(50) == 0
    assert ending(session) == ("interrupted", "terminated", kept)

    terminal = chat("--resume")
    terminal.shows("Stopped (terminated). What came is kept.", after=terminal.shows("Once upon"))
    mid_answer(terminal, server, session, "Another one.")
    terminal.close()
    assert ending(session) == ("interrupted", "terminal_closed", kept)
    told = str(server.requests[-1]["messages"])
    assert kept in told
    assert "interrupted before it was complete: the program was ended" in told

    terminal = chat("--resume")
    terminal.shows("Stopped (terminal_closed). What came is kept.")
    mid_answer(terminal, server, session, "A third one.")
    terminal.type("\x04")
    assert terminal.process.wait(50) == 0
    assert ending(session) == ("interrupted", "left", kept)
    assert "the user's connection was closed" in str(server.requests[-1]["messages"])

    server.scripts.append(said("The ", "end."))
    terminal = chat("--resume")
    terminal.shows("Stopped (left). What came is kept.")
    head = session.entries()[-1].seq
    terminal.enter("Go on.")
    until(session, has_ended, after=head)
    assert [turn.status for turn in session.turns()] == ["interrupted"] * 3 + ["completed"]
    assert terminal.leave() == 0


def test_a_copy_of_a_session(chat: Chat, server: Scripted, store: Store, project: Project) -> None:
    session = store.create_session(title="Kelp", project=project)
    exchange(session, "What is kelp?", "Algae.")
    terminal = chat("--session", session.id, "--fork")
    terminal.shows("Algae.", after=terminal.shows("The last turn"))
    (copy,) = store.sessions(fork_of=session.id)
    server.scripts.append(said("Urchins."))
    terminal.enter("Who eats it?")
    until(store.session(copy.id), has_ended, after=session.head)
    asked = [one["content"] for one in server.requests[0]["messages"][1:]]
    assert asked == ["What is kelp?", "Algae.", "Who eats it?"]
    assert len(session.messages()) == 2, "the original has changed"
    assert terminal.leave() == 0
    terminal.shows(f"killick chat --session {copy.id}")


def test_choosing_from_a_list(chat: Chat, store: Store, project: Project) -> None:
    """The newest first, those of this project, and none in which nothing was said."""
    for name in ("Kelp", "Otters"):
        exchange(store.create_session(title=name, project=project), f"{name}?", f"{name}!")
    store.create_session(title="Empty", project=project)
    exchange(store.create_session(title="Elsewhere"), "Where?", "There.")
    terminal = chat("--choose")
    terminal.shows("Kelp", after=terminal.shows("Otters"))
    terminal.shows("Which [1]:")
    assert "Empty" not in terminal.text
    assert "Elsewhere" not in terminal.text
    terminal.enter("9")
    terminal.shows("9 is not in the range 1<=x<=2")
    terminal.enter("2")
    terminal.shows("Kelp!", after=terminal.shows("The last turn of 'Kelp':"))
    assert terminal.leave() == 0

    resumed = chat("--resume")
    resumed.shows("The last turn of 'Otters':")
    assert resumed.leave() == 0


def test_what_there_is_not(chat: Chat, store: Store) -> None:
    """One line each, and nothing is left behind."""
    nothing = chat("--resume")
    nothing.shows("there is no session of")
    assert nothing.process.wait(50) == 4
    known = store.create_session(id="ses_kelp_forest", title="Forests").id
    mistyped = chat("--session", "ses_kelp_forrest")
    mistyped.shows(known)
    assert mistyped.process.wait(50) == 4
    unknown = chat("--model", "nobody:x")
    unknown.shows("nobody:x")
    assert unknown.process.wait(50) == 2
    assert [one.id for one in store.sessions()] == [known]
