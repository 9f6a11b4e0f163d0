"""killick attach, as a process, beside agents that are processes too."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from killick import Store
from killick.session.sync import Session
from tests.cli.running import COMMAND, environment, run_process
from tests.exchange import test_codex
from tests.exchange.test_attach import ALL, rollout
from tests.exchange.test_attach import NAME as ROLLOUT
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

AGENT = """
import sys
file = open(sys.argv[1], "ab", buffering=0)
for line in sys.stdin.buffer:
    file.write(line)
"""
"""Keeps its file open and appends what it is told, until it is killed."""


@contextmanager
def attached(store: Path, *arguments: str, home: Path | None = None) -> Iterator[list[str]]:
    """Run attach; what it prints is in the list, line by line."""
    more = {} if home is None else {"HOME": str(home)}
    process = start(store, *arguments, more=more)
    printed: list[str] = []
    assert process.stdout is not None
    out = process.stdout
    reader = threading.Thread(target=lambda: printed.extend(line.decode() for line in out))
    reader.start()
    try:
        yield printed
    finally:
        process.send_signal(signal.SIGINT)
        reader.join(50)
        err = b"" if process.stderr is None else process.stderr.read()
        process.communicate(timeout=50)
        assert (process.returncode, err.count(b"Traceback")) == (130, 0), err.decode()


def start(
    store: Path, *arguments: str, more: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "--store", str(store), "attach", *arguments],
        env=environment(more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@contextmanager
def agents(*files: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    running = [
        subprocess.Popen([sys.executable, "-c", AGENT, str(file)], stdin=subprocess.PIPE)
        for file in files
    ]
    try:
        yield running
    finally:
        for agent in running:
            agent.kill()
            agent.communicate()


def say(agent: subprocess.Popen[bytes], data: bytes) -> None:
    assert agent.stdin is not None
    agent.stdin.write(data)
    agent.stdin.flush()


def sessions(store: Store) -> list[Session]:
    return [store.session(info.id) for info in store.sessions()]


def statuses(store: Store) -> list[str]:
    return [turn.status for session in sessions(store) for turn in session.turns()]


def numbered(number: int, data: bytes) -> bytes:
    """The same session under another id."""
    thread = test_codex.THREAD
    return data.replace(thread.encode(), f"{thread[:-2]}{number:02d}".encode())


@pytest.mark.linux
def test_ten_agents_are_followed_at_once_and_each_that_is_killed_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    files = [folder / ROLLOUT.replace("0001.", f"00{number:02d}.") for number in range(10)]
    with (
        Store(tmp_path / "work.db") as store,
        attached(tmp_path / "work.db", str(folder)),
        agents(*files) as running,
    ):
        for number, agent in enumerate(running):
            say(agent, numbered(number, rollout(*ALL[:3])))
        until(lambda: statuses(store) == ["running"] * 10)
        seconds = []
        for number, agent in enumerate(running):
            agent.kill()
            agent.wait()
            killed = time.monotonic()
            until(lambda count=number + 1: statuses(store).count("interrupted") == count)  # type: ignore[misc]
            seconds.append(time.monotonic() - killed)
        assert sorted(seconds)[5] < 1, seconds
        for session in sessions(store):
            assert [turn.cause for turn in session.turns()] == ["crashed"]
            states = [tool.state for shown in session.transcript() for tool in shown.tools]
            assert states == ["finished", "unknown"]
    assert run_process("--store", str(tmp_path / "work.db"), "doctor").code == 0


def test_tail_and_search_show_it_while_it_runs(tmp_path: Path) -> None:
    store_path, file = tmp_path / "work.db", tmp_path / "from" / ROLLOUT
    file.parent.mkdir()
    with Store(store_path) as store, attached(store_path, str(file.parent)) as printed:
        with agents(file) as (agent,):
            say(agent, rollout("asked"))
            until(lambda: statuses(store) == ["running"])
            (session,) = sessions(store)
            tail = subprocess.Popen(
                [*COMMAND, "--store", str(store_path), "tail", session.id, "--until-end"],
                env=environment(),
                stdout=subprocess.PIPE,
            )
            whole = rollout(*ALL)
            say(agent, whole[len(rollout("asked")) :])
            shown = tail.communicate(timeout=50)[0].decode()
        assert "I look." in shown
        assert "second output" in shown
        until(lambda: [hit.session_id for hit in store.search("Two files")] == [session.id])
        assert statuses(store) == ["completed"]
        until(lambda: printed)
    assert printed[0].startswith(f"running: {session.id}  List the files. (codex, ")


def test_the_next_attach_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    store_path, file = tmp_path / "work.db", tmp_path / "from" / ROLLOUT
    file.parent.mkdir()
    with Store(store_path) as store, agents(file) as (agent,):
        first = start(store_path, str(file))
        until(lambda: first.poll() is None and file.exists())
        say(agent, rollout(*ALL[:3]))
        until(lambda: statuses(store) == ["running"])
        first.kill()
        first.communicate()
        assert [(turn.status, turn.cause) for turn in sessions(store)[0].turns()] == [
            ("interrupted", "crashed")
        ]
        with attached(store_path, str(file), "--json") as printed:
            say(agent, rollout(*ALL)[len(rollout(*ALL[:3])) :])
            until(lambda: statuses(store) == ["interrupted", "completed"] and printed)
        (session,) = sessions(store)
        texts = [message.text for message in session.messages() if message.role != "tool"]
        assert texts == ["List the files.", "I look.", "Two files."]
        assert session.turns()[1].continues == session.turns()[0].id
    assert {json.loads(line)["session_id"] for line in printed} == {session.id}


def test_an_agent_that_begins_later_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with Store(tmp_path / "work.db") as store, attached(tmp_path / "work.db", home=home):
        file = home / ".codex" / "sessions" / "2026" / "11" / "18" / ROLLOUT
        file.parent.mkdir(parents=True)
        with agents(file) as (agent,):
            say(agent, rollout(*ALL))
            until(lambda: statuses(store) == ["completed"])


def test_it_ends_its_turns_when_it_is_terminated(tmp_path: Path) -> None:
    store_path, file = tmp_path / "work.db", tmp_path / "from" / ROLLOUT
    file.parent.mkdir()
    with Store(store_path) as store, agents(file) as (agent,):
        say(agent, rollout(*ALL[:3]))
        until(lambda: file.exists() and file.stat().st_size)
        process = start(store_path, str(file))
        until(lambda: statuses(store) == ["running"])
        process.terminate()
        process.communicate(timeout=50)
        assert process.returncode == 143
        (session,) = sessions(store)
        assert [turn.cause for turn in session.turns()] == ["shut_down"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the time is read from /proc")
def test_it_costs_next_to_nothing_when_nothing_happens(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    for number in range(100):
        (folder / str(number)).mkdir(parents=True)
    file = folder / "1" / ROLLOUT
    with Store(tmp_path / "work.db") as store, agents(file) as (agent,):
        say(agent, rollout(*ALL[:3]))
        process = start(tmp_path / "work.db", str(folder))
        until(lambda: statuses(store) == ["running"])
        try:
            assert any(_share(process.pid, 3) <= 0.01 for _ in range(3))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=50)


def _share(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes."""
    ticks = os.sysconf("SC_CLK_TCK")

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    before, began = used(), time.monotonic()
    until(lambda: time.monotonic() - began >= seconds)
    return (used() - before) / (time.monotonic() - began)


def test_without_its_extra_it_names_the_command(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "watchfiles"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('gone', name='watchfiles')")
    more = {"PYTHONPATH": str(hidden.parent)}
    done = run_process("--store", str(tmp_path / "work.db"), "attach", str(tmp_path), more=more)
    assert (done.code, done.err) == (
        1,
        "killick: following files needs watchfiles; install it in a clone of Killick: "
        "pip install '.[attach]'\n",
    )


def test_a_file_that_is_no_session_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"theme": "dark"}')
    done = run_process("--store", str(tmp_path / "work.db"), "attach", str(tmp_path / "y.json"))
    assert (done.code, "no such file or folder" in done.err) == (6, True)
    process = start(tmp_path / "work.db", str(tmp_path / "x.json"))
    assert process.stdout is not None
    assert b"no session in it" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=50)
