"""Settling an unknown outcome and continuing due work from a shell."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from killick import Message, Store, ToolCall
from killick.testing.faults import crash
from tests.cli.running import COMMAND, Runner, environment, run_process

AGENT = """
import os
from killick import Store
with Store(os.environ["KILLICK_STORE"]) as store:
    session = store.session(os.environ["KILLICK_SESSION"])
    with session.turn(None, work=os.environ["KILLICK_WORK"]) as turn, turn.stream() as reply:
        reply.text("went on")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a run that was killed while it paid."""
    store = Store(tmp_path / "runs.db")
    session = store.create_session(id="ses_run")
    turn = session.turn("Pay.", resume=1).begin()
    turn.record(Message("assistant", [ToolCall("call_1", "pay", "{}")]))
    turn.tool("call_1").begin()
    crash(store)
    return tmp_path / "runs.db"


def test_an_outcome_is_settled(path: Path, killick: Runner) -> None:
    named = ("--store", str(path))
    done = killick(
        *named, "settle", "ses_run", "call_1", "--ran", "--result", "receipt 7", "--json"
    )
    assert (done.code, done.json["outcome"], done.json["repeated"]) == (0, "ran", False)
    again = killick(*named, "settle", "ses_run", "call_1", "--ran", "--result", "receipt 7")
    assert again.code == 0
    assert "ran, as a person found out: receipt 7" in killick(*named, "show", "ses_run").out
    other = killick(*named, "settle", "ses_run", "call_1", "--did-not-run")
    assert (other.code, "settled already" in other.err) == (5, True)
    with Store(path) as store:
        entries = store.session("ses_run").entries()
    (first,) = [entry.body.id for entry in entries if entry.kind == "settled"]  # type: ignore[union-attr]
    put_right = killick(*named, "settle", "ses_run", "call_1", "--did-not-run", "--replaces", first)
    assert put_right.code == 0


def test_what_cannot_be_settled_is_refused_in_one_line(path: Path, killick: Runner) -> None:
    named = ("--store", str(path))
    for words, code in (
        (["settle", "ses_run", "call_1"], 2),
        (["settle", "ses_run", "call_1", "--ran", "--did-not-run"], 2),
        (["settle", "ses_run", "call_9", "--ran"], 2),
        (["settle", "ses_run", "call_1", "--did-not-run", "--result", "x"], 2),
        (["settle", "ses_none", "call_1", "--ran"], 4),
    ):
        done = killick(*named, *words)
        assert (done.code, done.out) == (code, ""), done
        assert done.err.count("\n") == 1


def test_work_runs_a_command_for_what_is_due(path: Path) -> None:
    named = ("--store", str(path))
    command = ("--", sys.executable, "-c", AGENT)
    waiting = run_process(*named, "work", "--once", *command)
    assert (waiting.code, waiting.out) == (0, ""), "its call is not settled"
    assert run_process(*named, "settle", "ses_run", "call_1", "--did-not-run").code == 0
    done = run_process(*named, "work", "--once", "--json", *command)
    assert done.code == 0, done.err
    assert (done.json["id"], done.json["attempt"], done.json["status"]) == (
        "ses_run",
        1,
        "completed",
    )
    with Store(path) as store:
        assert store.session("ses_run").messages()[-1].text == "went on"
    assert run_process(*named, "work", "--once", *command).out == ""


def test_work_goes_on_until_it_is_interrupted(path: Path) -> None:
    assert run_process("--store", str(path), "settle", "ses_run", "call_1", "--ran").code == 0
    words = ["work", "--store", str(path), "--", sys.executable, "-c", AGENT]
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    try:
        working = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, env=environment())
    finally:
        signal.signal(signal.SIGINT, heard)
    with working, Store(path) as store:
        assert working.stdout is not None
        assert b"completed" in working.stdout.readline()
        assert store.session("ses_run").messages()[-1].text == "went on"
        working.send_signal(signal.SIGINT)
        assert working.wait(50) == 130


def test_a_command_that_does_nothing_is_a_failed_attempt(path: Path) -> None:
    named = ("--store", str(path))
    assert run_process(*named, "settle", "ses_run", "call_1", "--ran").code == 0
    command = ("--lease", "0.01", "--", sys.executable, "-c", "pass")
    done = run_process(*named, "work", "--once", *command)
    assert (done.code, "not begun" in done.out) == (3, True)
    with Store(path) as store:
        kinds = [entry.kind for entry in store.session("ses_run").entries()]
    assert kinds.count("work_taken") == 1
    assert kinds[-1] == "attempts_used"


def test_a_command_that_is_not_there_says_so(path: Path) -> None:
    named = ("--store", str(path))
    assert run_process(*named, "settle", "ses_run", "call_1", "--ran").code == 0
    done = run_process(*named, "work", "--once", "--", os.devnull + "/nothing")
    assert (done.code, "cannot be run" in done.err) == (1, True)
    with Store(path) as store:
        (due,) = store.take_due()
    assert due.attempt == 1, "it costs the run nothing"


def test_a_session_that_is_deleted_meanwhile_ends_no_worker(path: Path) -> None:
    named = ("--store", str(path))
    assert run_process(*named, "settle", "ses_run", "call_1", "--ran").code == 0
    with Store(path) as store:
        store.create_session(id="ses_next").turn("Go.", resume=1).begin().end(cause="shut_down")
    deleting = AGENT.replace("reply.text", "store.delete_session(session.id); reply.text")
    done = run_process(*named, "work", "--once", "--", sys.executable, "-c", deleting)
    assert done.code == 3, done.err
    assert done.out.count("deleted\n") == 2
