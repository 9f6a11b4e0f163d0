"""What begins with a slash, typed in a terminal: each does what it says, or says why not."""

import re
from pathlib import Path

import pytest

from killick import Project, Session, Store
from killick.cli.chat.slash import COMMANDS
from killick.model import entries as e
from tests.agent.conftest import Chat
from tests.agent.scripting import begun, ended, exchange, refused, said, until, whole
from tests.agent.terminal import Terminal
from tests.recorders.server import Scripted

pytestmark = pytest.mark.timeout(180)

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "chat.md").read_text(encoding="utf-8")
REFUSED = "has to wait: a turn runs."


@pytest.fixture
def session(store: Store, project: Project) -> Session:
    """Two exchanges, and a title of a person's, so that no model is asked for one."""
    session = store.create_session(title="Kelp", project=project)
    exchange(session, "What is kelp?", "Large brown algae.")
    exchange(session, "Who eats it?", "Sea urchins do.")
    return session


@pytest.fixture
def terminal(chat: Chat, session: Session) -> Terminal:
    terminal = chat("--session", session.id)
    terminal.shows("> ", after=terminal.shows("The last turn of 'Kelp':"))
    return terminal


def test_the_guide_lists_every_command_and_no_other() -> None:
    rows = [line.partition(" | ")[0] for line in GUIDE.splitlines() if line.startswith("| `/")]
    assert sorted(re.findall(r"`/(\w+)", " ".join(rows))) == sorted(COMMANDS)


def typed(terminal: Terminal, text: str, *expected: str) -> None:
    """Type a line; what is expected is shown after it.

    The chat hears of the end of a turn a moment after the journal has it, and says that it has to
    wait until then: so it is typed again.
    """
    shown = REFUSED
    while shown == REFUSED:
        before = len(terminal.text)
        terminal.enter(text)
        shown = terminal.first_of((*expected, REFUSED), after=before)
    for one in expected:
        terminal.shows(one, after=before)


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages()]


def test_looking(terminal: Terminal, session: Session) -> None:
    """/help, /title, /context, /queue; and what is no command, or is given too much."""
    head = session.entries()[-1].seq
    typed(terminal, "/help", *(f"/{name}" for name in COMMANDS), "[FORMAT [FILE]]", "Ctrl+D")
    typed(terminal, "/title", "Kelp")
    typed(terminal, "/context", "user  What is kelp?", "assistant  Sea urchins do.")
    typed(terminal, "/queue", "No prompt waits.")
    typed(terminal, "/wait", "Nothing waits to be sent.")
    typed(terminal, "/takeover", "Nothing waits to be sent.")
    typed(terminal, "/nothing at all", "There is no /nothing. /help lists them.")
    typed(terminal, "/contxt", "There is no /contxt. Did you mean /context?")
    typed(terminal, "/", "There is no /.")
    for name in ("compact", "fork", "retry", "context"):
        typed(terminal, f"/{name} 3", f"/{name} takes nothing after it.")
    assert session.entries()[-1].seq == head, "looking has changed something"
    typed(terminal, "/title Brown algae", "Title: Brown algae")
    assert session.info().title == "Brown algae"
    assert session.info().about.titled_by == "person"
    assert terminal.leave() == 0


def test_taking_back_and_asking_again(
    terminal: Terminal, session: Session, server: Scripted
) -> None:
    """/rewind, /retry, /continue."""
    before = session.entries()
    for wrong in ("many", "0", "-1", "²"):
        typed(terminal, f"/rewind {wrong}", f"'{wrong}' is no number of them.")
    assert session.entries() == before
    typed(terminal, "/rewind", "Rewound: what came after is out of view.")
    assert texts(session) == ["What is kelp?", "Large brown algae."]

    server.scripts.append(said("A ", "seaweed."))
    typed(terminal, "/retry", "A seaweed.")
    until(session, ended, after=before[-1].seq)
    assert server.requests[-1]["messages"][-1] == {"role": "user", "content": "What is kelp?"}
    assert texts(session) == ["What is kelp?", "A seaweed."]
    retried = [one.body for one in session.entries() if isinstance(one.body, e.TurnStarted)][-1]
    assert retried.retry_of == session.turns()[0].id

    server.scripts.append(said("It ", "grows ", "fast."))
    typed(terminal, "/continue", "It grows fast.")
    until(session, ended, after=session.turns()[-1].seq)
    typed(terminal, "/rewind 9", "Rewound")
    assert texts(session) == []
    typed(terminal, "/rewind", "There is no turn to take back.")
    typed(terminal, "/retry", "There is nothing to ask again.")
    typed(terminal, "/continue", "There is nothing to go on with.")
    assert terminal.leave() == 0


def test_a_copy_and_a_file(
    terminal: Terminal, session: Session, server: Scripted, store: Store, folder: Path
) -> None:
    """/fork and /export, and files that cannot be written."""
    typed(terminal, "/export", ".md:")
    assert "Sea urchins do." in (folder / f"{session.id}.md").read_text("utf-8")
    typed(terminal, "/export", "File exists")
    typed(terminal, "/export killick two words.jsonl", "two words.jsonl:")
    assert (folder / "two words.jsonl").stat().st_size
    typed(terminal, "/export markdown nowhere/x.md", "No such file or directory")
    typed(terminal, "/export runes", "No format 'runes'")

    typed(terminal, "/fork", "You are in a fork now")
    (forked,) = store.sessions(fork_of=session.id)
    server.scripts.append(said("Otters, ", "too."))
    server.scripts.append(whole("Who eats kelp"))
    typed(terminal, "Anybody else?", "Otters, too.", "Title: Who eats kelp")
    asked = [one["content"] for one in server.requests[0]["messages"][1:]]
    assert asked == [*texts(session), "Anybody else?"]
    assert texts(store.session(forked.id))[-1] == "Otters, too."
    assert texts(session)[-1] == "Sea urchins do."
    assert terminal.leave() == 0


def test_a_summary(terminal: Terminal, session: Session, server: Scripted) -> None:
    """/compact, refused by the model, stopped while it hangs, and done."""
    head = session.entries()[-1].seq
    server.scripts.append(refused(401, "who are you?"))
    typed(terminal, "/compact", "401", "who are you?")
    server.scripts.append(begun())
    typed(terminal, "/compact", "Ctrl+C stops it")
    assert server.stalled.acquire(timeout=60)
    before = len(terminal.text)
    terminal.interrupt()
    terminal.shows("Stopped.", after=before)
    assert session.entries()[-1].seq == head
    terminal.shows("/compact", after=before)  # it is in the line again
    server.scripts.append(whole("They talked about urchins."))
    typed(terminal, "", "What was said before is summarised: They talked about urchins.")
    server.scripts.append(said("Yes."))
    typed(terminal, "Really?", "Yes.")
    asked = str(server.requests[-1]["messages"])
    assert "They talked about urchins." in asked
    assert "Sea urchins do." not in asked
    assert "Sea urchins do." in texts(session)
    until(session, ended, after=head)
    assert terminal.leave() == 0


def test_other_sessions(
    terminal: Terminal, session: Session, store: Store, project: Project
) -> None:
    """/sessions lists and goes on with one, /search finds in all, /quit leaves."""
    other = store.create_session(title="Otters", project=project)
    exchange(other, "What do otters eat?", "Urchins, mostly.")
    exchange(store.create_session(project=project), "Who eats urchins?", "Otters do.")
    typed(terminal, "/sessions", other.id, "Otters", "(this one)", "Who eats urchins?")
    typed(terminal, "/search mostly", "Urchins, mostly.")
    typed(terminal, "/search", "Search for what?")
    typed(terminal, "/serach mostly", "Did you mean /search?")
    typed(terminal, f"/sessions {other.id}", "The last turn of 'Otters':")
    typed(terminal, "/title", "Otters")
    terminal.enter("/quit")
    assert terminal.process.wait(50) == 0


def test_what_was_typed_before_comes_back(terminal: Terminal, server: Scripted) -> None:
    """The arrow key brings back a prompt of an earlier chat; a pasted block is one prompt."""
    server.scripts += [said("Urchins, ", "as I said."), said("Three ", "lines.")]
    terminal.type("\x1b[A")
    terminal.shows("Who eats it?", after=len(terminal.text) - 20)
    typed(terminal, "", "Urchins, as I said.")
    terminal.type("\x1b[200~one\ntwo\nthree\x1b[201~")
    typed(terminal, "", "Three lines.")
    asked = [request["messages"][-1]["content"] for request in server.requests]
    assert asked == ["Who eats it?", "one\ntwo\nthree"]
    assert terminal.leave() == 0
