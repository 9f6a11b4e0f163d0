"""Commands that hang, flood or are orphaned, and calls that wait for a person, in a terminal."""

from pathlib import Path

import pytest

from killick import Project, Session, Store
from killick.model import entries as e
from tests.agent.conftest import Chat
from tests.agent.scripting import calling, ended, said, until, until_printed
from tests.recorders.server import Scripted
from tests.waiting import is_over

pytestmark = pytest.mark.timeout(180)

HANGS = "sleep 600 & echo child $!; wait"
MEGABYTES = 50


@pytest.fixture
def session(store: Store, project: Project) -> Session:
    return store.create_session(title="Commands", project=project)


@pytest.mark.crash
def test_a_command_that_hangs(chat: Chat, server: Scripted, session: Session) -> None:
    """Ctrl+C ends it with all it has started; so does kill -9 of the chat that runs it."""
    terminal = chat("--resume", "--allow", "run_command")
    terminal.shows("/help lists")
    server.scripts.append(calling(("run_command", {"command": HANGS})))
    terminal.enter("Wait.")
    child = int(until_printed(session).split()[1])
    terminal.shows("running run_command")
    terminal.interrupt()
    terminal.shows("Stopped (stopped by the user). What came is kept.")
    assert is_over(child), "what the command had started in the background still runs"

    head = until(session, ended).seq
    server.scripts.append(calling(("run_command", {"command": HANGS})))
    terminal.enter("Wait again.")
    child = int(until_printed(session, after=head).split()[1])
    terminal.kill()
    assert is_over(child), "the command has outlived the chat"

    server.scripts.append(said("I ", "see."))
    terminal = chat("--resume")
    terminal.shows("Stopped (crashed). What came is kept.")
    head = session.entries()[-1].seq
    terminal.enter("What became of it?")
    until(session, ended, after=head)
    told = str(server.requests[-1]["messages"])
    assert "The outcome of this tool call is unknown" in told
    assert "child" in told, "what it had printed is not told"
    assert terminal.leave() == 0


def test_a_command_that_floods(chat: Chat, server: Scripted, session: Session) -> None:
    """All of it is recorded; what is shown and what is sent is bounded, and so is the memory."""
    command = f"yes 0123456789abcde | head -c {MEGABYTES * 1024 * 1024}"
    server.scripts.extend([calling(("run_command", {"command": command})), said("Done.")])
    terminal = chat("--resume", "--allow", "run_command")
    terminal.shows("/help lists")
    before = peak(terminal.process.pid)
    terminal.enter("Print a lot.")
    until(session, ended)
    terminal.shows("Done.")
    (result,) = [one.body for one in session.entries() if isinstance(one.body, e.ToolFinished)]
    assert result.output is not None
    assert len(result.output) == MEGABYTES * 1024 * 1024
    sent = server.requests[-1]["messages"][-1]["content"]
    assert "characters are not shown" in sent
    assert len(sent) < 20_000
    assert len(terminal.text) < 1_000_000
    assert " 0 out" in terminal.text, "what a command prints was counted as tokens"
    grown = peak(terminal.process.pid) - before
    assert grown < 24 * MEGABYTES * 1024, f"it has grown by {grown:,} KiB"
    assert terminal.leave() == 0


def peak(pid: int) -> int:
    """The most memory that the process has ever had, in KiB; 0 where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except FileNotFoundError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.crash
def test_calls_that_waited_when_the_chat_was_killed(
    chat: Chat, server: Scripted, session: Session, folder: Path
) -> None:
    """The next chat asks about each, and runs what was approved when all are decided."""
    long = "x" * 300 + " the end of it"
    calls = [
        ("write_file", {"path": "a.txt", "content": "one"}),
        ("write_file", {"path": "b.txt", "content": long}),
        ("write_file", {"path": "c.txt", "content": "three"}),
    ]
    server.scripts.append(calling(*calls))
    terminal = chat("--resume")
    terminal.shows("/help lists")
    terminal.enter("Write them.")
    terminal.shows("[y]es [n]o [a]lways")
    until(session, lambda body: isinstance(body, e.ApprovalAsked), times=3)
    terminal.kill()

    server.scripts.append(said("Two ", "of three."))
    terminal = chat("--resume")
    terminal.shows("Stopped (awaiting_approval)")
    terminal.shows("the end of it")  # nobody can approve what is not shown
    terminal.enter("maybe")
    terminal.shows("Type y, n or a")
    for answer, file in (("y", "a.txt"), ("y", "b.txt"), ("n", "c.txt")):
        terminal.shows(f'Run write_file {{"path": "{file}"')
        terminal.enter(answer)
    terminal.shows("Two of three.")
    written = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert written == {"a.txt": "one", "b.txt": long}
    assert terminal.leave() == 0


def test_always_is_for_this_call_and_more_than_that_is_written_out(
    chat: Chat, server: Scripted, session: Session
) -> None:
    """It holds in the next chat too; what is allowed for a whole tool ends with its chat."""

    def ask(name: str) -> None:
        call = ("write_file", {"path": name, "content": "one"})
        server.scripts.extend([calling(call), said(f"I wrote {name}.")])
        terminal.enter("Write it.")

    terminal = chat("--resume")
    terminal.shows("/help lists")
    ask("a.txt")
    terminal.shows("[y]es [n]o [a]lways this call")
    terminal.enter("a")
    terminal.shows("I wrote a.txt.")
    assert terminal.leave() == 0

    terminal = chat("--resume")
    terminal.shows("/help lists")
    head = session.entries()[-1].seq
    ask("a.txt")
    until(session, ended, after=head)
    ask("b.txt")
    terminal.shows('Run write_file {"path": "b.txt"')
    terminal.enter("all")
    terminal.shows("'every write_file' lets every call of write_file run until you leave")
    terminal.enter("every write_file")
    terminal.shows("I wrote b.txt.")
    ask("c.txt")
    terminal.shows("I wrote c.txt.")
    assert terminal.leave() == 0
    decided = [entry.body for entry in session.entries() if entry.kind == "approval_decided"]
    assert [body.by for body in decided if isinstance(body, e.ApprovalDecided)] == [
        "chat",
        "always",
        "chat",
    ]


def test_what_is_said_to_a_running_turn_is_in_its_next_request(
    chat: Chat, server: Scripted, session: Session, tmp_path: Path
) -> None:
    """Behind the tool's result, as the person's words, and in the same turn."""
    going = tmp_path / "go"
    command = f"echo waiting; while [ ! -e {going} ]; do sleep 0.05; done"
    server.scripts.extend([calling(("run_command", {"command": command})), said("Both.")])
    terminal = chat("--resume", "--allow", "run_command")
    terminal.shows("/help lists")
    terminal.enter("Check the build.")
    until_printed(session)
    terminal.enter("/steer also check the tests")
    until(session, lambda body: isinstance(body, e.PromptWaiting))
    going.touch()
    until(session, ended)
    terminal.shows("Both.")
    *_, result, steered = server.requests[-1]["messages"]
    assert (result["role"], steered["role"]) == ("tool", "user")
    assert "also check the tests" in str(steered["content"])
    assert len(session.turns()) == 1
    assert terminal.leave() == 0
