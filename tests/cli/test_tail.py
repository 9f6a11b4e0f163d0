"""Following a session that another process writes, and leaving."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from killick import Store
from tests.cli.running import COMMAND, Runner, environment
from tests.cli.sample import Sample


@contextmanager
def tailing(sample: Sample, *options: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [*COMMAND, "tail", sample.empty, "--store", str(sample.path), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
        # Ctrl+C is ignored by whatever a shell has started in the background.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def read_until(child: subprocess.Popen[str], wanted: str) -> str:
    """What the child has printed when it has printed this."""
    assert child.stdout is not None
    text = ""
    while wanted not in text:
        piece = os.read(child.stdout.fileno(), 65536)
        assert piece, f"it ended after {text!r}"
        text += piece.decode()
    return text


def test_text_is_shown_while_it_streams_in_another_process(sample: Sample) -> None:
    """Each delta is there before the answer is complete."""
    with tailing(sample, "--after", "0") as child, Store(sample.path) as store:
        read_until(child, "session created")
        session = store.session(sample.empty)
        with session.turn("Go.") as turn:
            with turn.stream(model="small") as reply:
                reply.text("Once upon ")
                assert "Go." in read_until(child, "Once upon ")
                reply.text("a time")
                read_until(child, "a time")
                reply.tool_call("c", name="shell", arguments="{}")
            with turn.tool("c") as call:
                call.output("compiling\n")
                assert "shell runs" in read_until(child, "compiling")
                call.finish("done")
            assert "shell finished" in read_until(child, "shell finished")
        read_until(child, "the turn completed")


def test_ctrl_c_leaves_quietly_with_130(sample: Sample) -> None:
    with tailing(sample, "--after", "0") as child:
        read_until(child, "session created")
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (130, "")


def test_until_the_end_leaves_when_the_turn_ends(sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.empty)
        with session.turn("Go.") as turn, tailing(sample, "--until-end", "--json") as child:
            text = read_until(child, '"turn_started"')
            with turn.stream() as reply:
                reply.text("Hello")
            turn.__exit__(None, None, None)
            rest, err = child.communicate(timeout=30)
            assert (child.returncode, err) == (0, "")
    items = [json.loads(row) for row in (text + rest).splitlines()]
    assert items[-1]["kind"] == "turn_ended"
    assert [one["seq"] for one in items if one["kind"] != "delta"] == list(range(2, 9))


def test_json_has_deltas_that_make_the_text(sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.empty)
        with session.turn("Go.") as turn, tailing(sample, "--json") as child:
            with turn.stream() as reply:
                read = read_until(child, '"message_started"')
                for word in ("one ", "two ", "three"):
                    reply.text(word)
                    if "three" not in read:
                        read += read_until(child, word.strip())
            read += read_until(child, '"message_ended"')
    items = [json.loads(row) for row in read.splitlines() if row.endswith("}")]
    assert "".join(one["text"] for one in items if one["kind"] == "delta") == "one two three"


def test_a_session_that_is_deleted_ends_it(sample: Sample) -> None:
    with tailing(sample, "--after", "0") as child, Store(sample.path) as store:
        read_until(child, "session created")
        store.delete_session(sample.empty)
        child.communicate(timeout=30)
        assert child.returncode == 0


def test_without_a_place_it_begins_with_the_newest_turn(killick: Runner, sample: Sample) -> None:
    text = killick("tail", sample.build, "--until-end").out
    assert "Install it." in text
    assert "Why does the build fail?" not in text
    assert "the turn was interrupted: keyboard_interrupt" in text


@pytest.mark.parametrize("after", ["999", "26"])
def test_after_the_head_there_is_nothing_to_wait_for(
    killick: Runner, sample: Sample, after: str
) -> None:
    begin = time.monotonic()
    done = killick("tail", sample.build, "--after", after, "--until-end")
    assert (done.code, done.out) == (0, "")
    assert time.monotonic() - begin < 30
