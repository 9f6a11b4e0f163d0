"""Files that are followed as they are written: by a script, with a process that can be killed."""

import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from killick import Session, Store
from killick.exchange import import_paths
from killick.exchange.attachment import GONE, REWRITTEN, STOPPED, Attachment, Seen
from killick.exchange.importer import look_at
from killick.exchange.writers import Writers
from killick.stores.memory import MemoryDisk
from killick.testing.faults import crash
from tests.exchange import made, test_claude_code, test_codex
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, jsonl, said

MOMENT = 100_000
"""Microseconds: within it an agent may still be writing."""
WHILE = 600_000


class World:
    """A folder in which an agent writes, a store, and what follows the one for the other."""

    def __init__(self, folder: Path) -> None:
        self.now_us = NOW
        self.folder = folder
        self.disk = MemoryDisk()
        self.store = Store(self.disk.open())
        self.agent: subprocess.Popen[bytes] | None = None
        self.attachment = self.attached()

    def attached(self) -> Attachment:
        return Attachment(
            self.store,
            [self.folder],
            clock=lambda: self.now_us,
            ticks=lambda: self.now_us / 1_000_000,
            look_for_writers=lambda _: self.writers(),
        )

    def writers(self) -> Writers:
        """Every file is open in the agent, as long as it runs."""
        if self.agent is None or self.agent.poll() is not None:
            return Writers()
        pids = {self.agent.pid}
        return Writers({os.path.realpath(file): pids for file in self.folder.rglob("*")})

    def start(self) -> None:
        self.agent = subprocess.Popen(["sleep", "600"])

    def kill(self) -> None:
        """Kill -9 the agent."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()
        self.attachment.died()

    def write(self, name: str, data: bytes, *, after_us: int = WHILE) -> list[Seen]:
        """Write the whole file anew, and look after a while."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(self.now_us * 1_000, self.now_us * 1_000))
        return self.look(path, after_us=after_us)

    def look(self, *changed: Path, after_us: int = WHILE) -> list[Seen]:
        self.now_us += after_us
        self.attachment.changed(changed)
        return list(self.attachment.look())

    def again(self) -> None:
        """Begin anew: another opening of the store, another attachment."""
        self.store = Store(self.disk.open())
        self.attachment = self.attached()
        self.attachment.begin([self.folder])

    @property
    def session(self) -> Session:
        (session_id,) = [info.id for info in self.store.sessions()]
        return self.store.session(session_id)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made_world = World(tmp_path)
    made_world.start()
    try:
        yield made_world
    finally:
        if made_world.agent is not None:
            made_world.agent.kill()
            made_world.agent.wait()
        made_world.attachment.close()
        made_world.store.close()


def endings(session: Session) -> list[tuple[str, str | None]]:
    return [(turn.status, turn.cause) for turn in session.turns()]


def states(session: Session) -> dict[str, str]:
    return {tool.call_id: tool.state for shown in session.transcript() for tool in shown.tools}


NAME = test_codex.NAME


def rollout(*steps: str) -> bytes:
    """Return a rollout as far as these steps: asked, called, first, second, answered, ended."""
    file = test_codex.Rollout("paginated")
    file.begin("t1")
    for step in steps:
        match step:
            case "asked":
                file.user("List the files.")
            case "called":
                file.answer("I look.")
                for name in ("c1", "c2"):
                    file.item("function_call", call_id=name, name="shell", arguments="{}")
                file.event("token_count", info={"last_token_usage": {"input_tokens": 1}})
            case "answered":
                file.answer("Two files.")
                file.event("token_count", info={"last_token_usage": {"input_tokens": 2}})
            case "ended":
                file.end("t1")
            case other:
                call_id = {"first": "c1", "second": "c2"}[other]
                file.item("function_call_output", call_id=call_id, output=f"{other} output")
    return file.data()


ALL = ("asked", "called", "first", "second", "answered", "ended")


# -- a turn that is followed -----------------------------------------------------------------------


def test_a_turn_runs_here_as_long_as_its_agent_works_on_it(world: World) -> None:
    world.write(NAME, rollout("asked"))
    assert endings(world.session) == [("running", None)]
    world.write(NAME, rollout(*ALL[:3]))
    assert states(world.session) == {"c1": "finished", "c2": "unknown"}
    assert [info.status for info in world.store.sessions()] == ["running"]
    assert [hit.role for hit in world.store.search("first output")] == ["tool"]
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("completed", None)]
    assert states(world.session) == {"c1": "finished", "c2": "finished"}
    assert world.attachment.held == {}
    check_sound(world.store)


def test_a_turn_whose_agent_is_killed_is_interrupted_at_once(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    assert endings(world.session) == [("running", None)]
    world.kill()
    (seen,) = world.look(after_us=1)
    assert endings(world.session) == [("interrupted", "crashed")]
    assert states(world.session) == {"c1": "finished", "c2": "unknown"}
    assert [outcome.settled_by for outcome in seen.sessions] == ["process"]
    assert seen.running == frozenset()


def test_two_agents_that_are_killed_at_once_are_both_noticed(world: World) -> None:
    first, second = world.folder / NAME, world.folder / NAME.replace("0001.", "0002.")
    agents = {file: subprocess.Popen(["sleep", "600"]) for file in (first, second)}
    try:
        world.attachment = Attachment(
            world.store,
            [world.folder],
            clock=lambda: world.now_us,
            ticks=lambda: world.now_us / 1_000_000,
            look_for_writers=lambda _: Writers(
                {
                    os.path.realpath(file): {agent.pid}
                    for file, agent in agents.items()
                    if agent.poll() is None
                }
            ),
        )
        world.write(first.name, rollout(*ALL[:3]))
        thread = test_codex.THREAD.encode()
        world.write(second.name, rollout(*ALL[:3]).replace(thread, thread[:-1] + b"2"))
        assert [info.status for info in world.store.sessions()] == ["running"] * 2
    finally:
        for agent in agents.values():
            agent.kill()
            agent.wait()
    world.look(first)
    world.look()
    assert [info.status for info in world.store.sessions()] == ["interrupted"] * 2


def test_an_agent_that_was_never_seen_is_gone_when_its_file_has_rested(world: World) -> None:
    world.agent, agent = None, world.agent
    assert agent is not None
    agent.kill()
    agent.wait()
    name, lines = made.LINES["simple"]
    world.write(name, jsonl(*lines[:3]))
    assert endings(world.session) == [("running", None)]
    assert 590 < world.attachment.wait_seconds() < 610
    world.look(after_us=605_000_000)
    assert endings(world.session) == [("interrupted", "crashed")]


@pytest.mark.parametrize("name", ["copilot", "gemini-lines", "aider", "qwen", "pi"])
def test_the_folder_in_which_an_agent_works_is_known(tmp_path: Path, name: str) -> None:
    """It opens its file for each line that it writes: its folder alone tells that it lives."""
    work = tmp_path / "work"
    file, lines = made.LINES.get(name, ("", []))
    path = tmp_path / "home" / "chats" / file if file else work / ".aider.chat.history.md"
    for folder in (work, tmp_path / "home" / "chats"):
        folder.mkdir(parents=True)
    (tmp_path / "home" / ".project_root").write_text(str(work))
    path.write_bytes(jsonl(*lines[:3]).replace(b'"/w"', b'"%s"' % str(work).encode()))
    if not file:
        path.write_text(made.AIDER)
    assert look_at(path).folder == str(work)


def test_an_agent_of_an_unknown_folder_is_gone_when_its_file_has_rested(world: World) -> None:
    world.kill()
    name, lines = made.LINES["gemini-lines"]
    asked = next(n for n, line in enumerate(lines) if line.get("type") == "user")
    world.write(name, jsonl(*lines[: asked + 1]))
    assert endings(world.session) == [("running", None)]
    world.look(after_us=605_000_000)
    assert endings(world.session) == [("interrupted", "crashed")]


def test_an_answer_comes_in_when_it_is_whole(world: World) -> None:
    file = test_claude_code.File()
    file.user("Fix the build.")
    text, use = test_claude_code.text, test_claude_code.use
    file.answer("msg_1", text("I look."), stop="tool_use")
    name = f"{test_claude_code.SESSION}.jsonl"
    world.write(name, file.data(), after_us=MOMENT)
    assert said(world.session) == [("user", "Fix the build.")]
    file.answer("msg_1", use("c1", "Bash", command="make"), stop="tool_use")
    world.write(name, file.data(), after_us=MOMENT)
    assert said(world.session) == [("user", "Fix the build.")]
    world.look()
    assert said(world.session) == [("user", "Fix the build."), ("assistant", "I look.")]
    assert states(world.session) == {"c1": "unknown"}


def test_what_an_agent_injects_is_hidden_while_the_turn_runs(world: World) -> None:
    file = test_codex.Rollout("paginated")
    file.begin("t1")
    file.user("<environment_context>\n<cwd>/w</cwd>\n</environment_context>")
    file.user("List the files.")
    world.write(NAME, file.data())
    assert [shown.text for shown in world.session.transcript()] == ["List the files."]
    assert world.session.title == "List the files."
    file.end("t1")
    world.write(NAME, file.data())
    assert [shown.text for shown in world.session.transcript()][:1] == ["List the files."]
    assert import_paths(world.store, [world.folder], as_is=True).sessions[0].action == "unchanged"


# -- each format, line by line ---------------------------------------------------------------------

GROWING: dict[str, tuple[str, list[bytes]]] = {
    **{
        name: (file, [jsonl(record) for record in records])
        for name, (file, records) in made.LINES.items()
    },
    "claude-code": (
        f"{test_claude_code.SESSION}.jsonl",
        test_claude_code.everything().data().splitlines(keepends=True),
    ),
    "codex": (NAME, test_codex.everything().data().splitlines(keepends=True)),
    "codex-paginated": (NAME, test_codex.everything("paginated").data().splitlines(keepends=True)),
    # It writes a prompt at once, and an answer at once.
    "aider": (
        ".aider.chat.history.md",
        re.findall(rb"(?:####.*\n)+|(?:>.*\n)+|(?:(?!####|>).*\n)+", made.AIDER.encode()),
    ),
}


def journal(store: Store) -> dict[str, object]:
    """What a store holds of each session, however it came in."""
    return {
        info.id: (
            info.title,
            said(store.session(info.id)),
            states(store.session(info.id)),
            [shown.text for shown in store.session(info.id).transcript() if shown.role],
        )
        for info in store.sessions()
    }


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("after_us", [MOMENT, WHILE])
def test_a_session_that_was_followed_is_the_one_that_an_import_brings_in(
    world: World, other: Store, name: str, after_us: int
) -> None:
    file, lines = GROWING[name]
    for count in range(1, len(lines) + 1):
        world.write(file, b"".join(lines[:count]), after_us=after_us)
    world.kill()
    world.look()
    report = import_paths(other, [world.folder], as_is=True, clock=lambda: NOW)
    assert {outcome.action for outcome in report.sessions} == {"new"}
    assert journal(world.store) == journal(other)
    again = import_paths(world.store, [world.folder], as_is=True, clock=lambda: NOW)
    assert {outcome.action for outcome in again.sessions} == {"unchanged"}
    check_sound(world.store)


@pytest.mark.parametrize("name", GROWING)
def test_however_often_attach_dies_nothing_is_lost_or_taken_in_twice(
    world: World, other: Store, name: str
) -> None:
    file, lines = GROWING[name]
    for count in range(1, len(lines) + 1):
        world.write(file, b"".join(lines[:count]))
        crash(world.store)
        world.again()
    world.kill()
    world.look(world.folder / file, after_us=605_000_000)  # it was not seen by the last attach
    import_paths(other, [world.folder], as_is=True, clock=lambda: NOW)
    ours, theirs = journal(world.store), journal(other)
    assert ours.keys() == theirs.keys()
    for session_id in ours:
        assert said(world.store.session(session_id)) == said(other.session(session_id))
        assert states(world.store.session(session_id)) == states(other.session(session_id))
    again = import_paths(world.store, [world.folder], as_is=True, clock=lambda: NOW)
    assert {outcome.action for outcome in again.sessions} == {"unchanged"}
    check_sound(world.store)


# -- what happens to the attachment ----------------------------------------------------------------


def test_when_attach_dies_the_turn_is_closed_and_the_next_goes_on_with_it(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    crash(world.store)
    world.store = Store(world.disk.open())
    assert endings(world.session) == [("interrupted", "crashed")]
    world.again()
    world.look(world.folder / NAME)
    assert endings(world.session) == [("interrupted", "crashed")]  # nothing was said since
    world.write(NAME, rollout(*ALL[:4]))
    first, second = world.session.turns()
    assert (second.status, second.continues) == ("running", first.id)
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("interrupted", "crashed"), ("completed", None)]
    assert states(world.session) == {"c1": "finished", "c2": "finished"}
    assert [text for role, text in said(world.session) if role != "tool"] == [
        "List the files.", "I look.", "Two files.",
    ]  # fmt: skip


def test_when_attach_is_stopped_its_turns_end_and_the_next_goes_on(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    world.attachment.close()
    (turn,) = world.session.turns()
    assert (turn.status, turn.cause, turn.reason) == ("interrupted", "shut_down", STOPPED)
    world.store.close()
    world.again()
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("interrupted", "shut_down"), ("completed", None)]


def test_another_way_in_is_refused_while_the_turn_is_held(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    (outcome,) = import_paths(world.store, [world.folder], as_is=True).sessions
    assert (outcome.action, outcome.why) == ("left", "a turn of it runs here")
    second = world.attached()
    second.begin([world.folder])
    assert list(second.look()) == []
    assert second.held == {}
    assert 0 < second.wait_seconds() <= 1
    assert [turn.status for turn in world.session.turns()] == ["running"]
    assert len(world.store.sessions()) == 1


def test_a_change_from_elsewhere_does_not_stand_in_the_way(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    with Store(world.disk.open()) as elsewhere:
        session = elsewhere.session(world.session.id)
        session.rename("Mine")
        session.tag("ducks")
        session.stop(reason="please")
        session.steer("And hidden ones?")
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("completed", None)]
    assert world.session.title == "Mine"
    assert len(world.store.sessions()) == 1
    assert import_paths(world.store, [world.folder], as_is=True).sessions[0].action == "unchanged"


def test_the_turn_ends_in_the_feed_of_news(world: World) -> None:
    following = world.store.follow()
    world.write(NAME, rollout(*ALL[:3]))
    world.kill()
    world.look()
    lines = following.now()
    assert ("turn_ended", "crashed") in [(line.kind, line.cause) for line in lines]


# -- what happens to the file ----------------------------------------------------------------------


def test_a_file_that_was_cut_is_noticed_and_what_came_in_stays(world: World) -> None:
    world.write(NAME, rollout(*ALL))
    before = said(world.session)
    (seen,) = world.write(NAME, rollout("asked"))
    (problem,) = seen.problems
    assert "it was cut from" in problem.reason
    assert said(world.session) == before
    assert endings(world.session) == [("completed", None)]


def test_a_file_that_was_rewritten_goes_on_in_a_fork(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    original = world.session.id
    file = test_codex.Rollout("paginated")
    file.begin("t1")
    file.user("Count the ducks.")
    (seen,) = world.write(NAME, file.data())
    (outcome,) = seen.sessions
    assert (outcome.action, outcome.fork_of) == ("forked", original)
    assert outcome.why
    (turn,) = world.store.session(original).turns()
    assert (turn.status, turn.cause, turn.reason) == ("interrupted", "other", REWRITTEN)
    assert [turn.status for turn in world.store.session(outcome.session_id).turns()] == ["running"]
    check_sound(world.store)


def test_a_file_that_is_removed_ends_its_turn(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    path = world.folder / NAME
    path.unlink()
    (seen,) = world.look(path)
    assert [problem.reason for problem in seen.problems] == [GONE]
    (turn,) = world.session.turns()
    assert (turn.status, turn.cause, turn.reason) == ("interrupted", "other", GONE)
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("interrupted", "other"), ("completed", None)]


def test_a_file_that_is_moved_is_the_same_session(world: World) -> None:
    world.write(NAME, rollout(*ALL[:3]))
    path, moved = world.folder / NAME, world.folder / "old" / NAME
    moved.parent.mkdir()
    path.rename(moved)
    world.look(path, moved)
    world.write(f"old/{NAME}", rollout(*ALL))
    assert len(world.store.sessions()) == 1
    assert endings(world.session)[-1] == ("completed", None)


def test_old_files_are_left_to_an_import_until_they_are_written_to(world: World) -> None:
    path = world.folder / NAME
    path.write_bytes(rollout(*ALL))
    day_us = 25 * 3600 * 1_000_000
    os.utime(path, ns=((NOW - day_us) * 1_000,) * 2)
    world.attachment.begin([world.folder])
    assert list(world.attachment.look()) == []
    world.write(NAME, rollout(*ALL))
    assert endings(world.session) == [("completed", None)]


def test_reading_a_database_is_no_reason_to_read_it_again(world: World) -> None:
    """A reader opens its log for writing, of which the system tells as of a change."""
    path = made.opencode_database(world.folder / "opencode.db")
    log = path.with_name("opencode.db-wal")
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("PRAGMA journal_mode = WAL")
        agent.execute("UPDATE session SET title = 'One'")
        agent.commit()
        world.look(path)
        waits = world.attachment.wait_seconds()
        world.attachment.changed([log, path.with_name("opencode.db-shm")])
        assert world.attachment.wait_seconds() == waits > 0
        agent.execute("UPDATE session SET title = 'Another'")
        agent.commit()
        world.attachment.changed([log])
        assert world.attachment.wait_seconds() == 0


def test_a_file_without_a_session_is_read_again_once_it_has_changed(world: World) -> None:
    """Reading a database is told as a change of it, so that each look would ask for the next."""
    session, path = simple("Seven."), world.folder / "notes.jsonl"
    stranger = b'{"theme": "dark"}'.ljust(len(session) - 1) + b"\n"
    assert world.write(path.name, stranger) == []
    path.write_bytes(session)
    os.utime(path, ns=(path.stat().st_atime_ns, (world.now_us - WHILE) * 1_000))
    assert world.look(path) == [], "it was read again, though it seemed unchanged"
    os.utime(path)
    assert len(world.look(path)) == 1


def test_files_beside_a_named_one_are_not_followed(world: World) -> None:
    path = world.folder / NAME
    path.write_bytes(rollout("asked"))
    attachment = Attachment(world.store, [path], look_for_writers=lambda _: world.writers())
    attachment.begin([path])
    beside = world.folder / made.LINES["simple"][0]
    beside.write_bytes(jsonl(*made.LINES["simple"][1]))
    attachment.changed([beside])
    list(attachment.look())
    assert len(world.store.sessions()) == 1
    attachment.close()


# -- a message that is written as the model says it ------------------------------------------------


def simple(*words: str, whole: bool = False) -> bytes:
    lines: list[dict[str, object]] = [
        {"simple": 1, "id": "ducks"},
        {"role": "user", "text": "Count the ducks."},
    ]
    for number, text in enumerate(words):
        partial = number == len(words) - 1 and not whole
        more = {"partial": True} if partial else {}
        lines.append({"role": "assistant", "id": f"m{number}", "text": text, **more})
    return jsonl(*lines)


def streaming(session: Session) -> list[str]:
    return [message.text for message in session.messages() if message.state == "streaming"]


def test_a_message_streams_here_as_it_is_written(world: World) -> None:
    world.write("ducks.jsonl", simple("Sev"))
    head = world.session.head
    assert streaming(world.session) == ["Sev"]
    world.write("ducks.jsonl", simple("Seven du"))
    assert streaming(world.session) == ["Seven du"]
    assert world.session.head == head  # they are deltas: nothing was appended
    world.write("ducks.jsonl", simple("Seven ducks.", whole=True))
    assert said(world.session)[1:] == [("assistant", "Seven ducks.")]
    assert [turn.status for turn in world.session.turns()] == ["completed"]
    again = import_paths(world.store, [world.folder], as_is=True, clock=lambda: NOW)
    assert [outcome.action for outcome in again.sessions] == ["unchanged"]
    check_sound(world.store)


def test_a_message_whose_agent_is_killed_is_partial(world: World) -> None:
    world.write("ducks.jsonl", simple("Seven du"))
    world.kill()
    world.look()
    assert [(m.text, m.state) for m in world.session.messages()][1:] == [("Seven du", "partial")]
    assert endings(world.session) == [("interrupted", "crashed")]
    again = import_paths(world.store, [world.folder], as_is=True, clock=lambda: NOW)
    assert [outcome.action for outcome in again.sessions] == ["unchanged"]
    check_sound(world.store)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_rest_of_a_message_comes_in_after_attach_was_gone(world: World, how: str) -> None:
    world.write("ducks.jsonl", simple("Seven du"))
    if how == "killed":
        crash(world.store)
    else:
        world.attachment.close()
        world.store.close()
    world.again()
    assert [(m.text, m.state) for m in world.session.messages()][1:] == [("Seven du", "partial")]
    world.write("ducks.jsonl", simple("Seven ducks.", "And a swan.", whole=True))
    texts = [text for role, text in said(world.session) if role == "assistant"]
    assert texts == ["Seven du", "cks.", "And a swan."]
    first, second = world.session.turns()
    assert (second.continues, second.status) == (first.id, "completed")
    again = import_paths(world.store, [world.folder], as_is=True, clock=lambda: NOW)
    assert [outcome.action for outcome in again.sessions] == ["unchanged"]
    check_sound(world.store)


def test_a_message_that_is_written_anew_comes_in_as_it_is_in_the_end(world: World) -> None:
    world.write("ducks.jsonl", simple("Seven du"))
    world.write("ducks.jsonl", simple("Eight"))
    world.write("ducks.jsonl", simple("Eight geese.", whole=True))
    assert said(world.session)[1:] == [("assistant", "Eight geese.")]
    check_sound(world.store)
