"""A signal handler that raises something of its own, as one that limits the time of a call does.

Such an exception is no interruption by its kind. It comes at the same places all the same, and must
not leave a turn behind that nobody holds.
"""

import gc
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from killick import Store, Turn
from killick.stores.memory import MemoryDisk
from tests.interrupt.ledger import use_again
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)


class Alarm(Exception):
    """The time is over."""


def enter(turn: Turn) -> None:
    turn.__enter__()


def leave(turn: Turn) -> None:
    turn.__exit__(None, None, None)


@pytest.mark.parametrize("work", [enter, leave])
def test_an_alarm_leaves_no_turn_behind(work: Callable[[Turn], None]) -> None:
    with Store(MemoryDisk().open()) as store:
        places = 0
        while _alarmed_at(store, places + 1, work):
            places += 1
        assert places > 20


def _alarmed_at(store: Store, place: int, work: Callable[[Turn], None]) -> bool:
    """Whether there is such a place; whatever came of the turn, the session can be used again."""
    session = store.create_session()
    turn = session.turn("go")
    if work is leave:
        turn.__enter__()
    alarm = Interrupter({place}, HERE, Alarm)
    try:
        alarm.run(partial(work, turn))
    except Alarm:
        pass
    else:
        assert not alarm.fired, "the alarm was swallowed"
        turn.__exit__(None, None, None)
    del turn
    gc.collect()  # one that was entered all the same, and that nobody leaves, ends when collected
    use_again(session)
    assert all(one.status != "running" for one in session.turns())
    return bool(alarm.fired)


def test_a_signal_handler_closes_a_store_that_is_being_closed() -> None:
    """As one for SIGTERM may, in a program that was about to end. Nothing ends a wait in it."""
    done = subprocess.run(
        [sys.executable, "-c", _CLOSING_TWICE], capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("closed in the handler\nclosed\n", "")


_CLOSING_TWICE = """
import signal, threading
from killick import Store
from killick.stores.engine.state import Op
from killick.stores.memory import MemoryDisk

store, go = Store(MemoryDisk().open()), threading.Event()
store._core.runtime().writer.submit(Op(lambda engine: go.wait()))

def close(*_):
    go.set()
    store.close()
    print("closed in the handler", flush=True)

signal.signal(signal.SIGALRM, close)
signal.setitimer(signal.ITIMER_REAL, 0.1)
store.close()  # it waits for what was handed over
print("closed")
"""


def test_a_handler_that_speaks_amid_a_piece_is_refused() -> None:
    """Between two pieces its words are recorded; a piece that it comes into is recorded whole."""
    done = subprocess.run(
        [sys.executable, "-c", _SPEAKING_AMID], capture_output=True, text=True, timeout=30
    )
    refused = "a handler spoke into {} amid a piece of it"
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            *(refused.format(place) for place in ("the stream", "the stream", "the tool's output")),
            "one, two, three.",
            "1, 2, 3.",
        ],
        "",
    )


_SPEAKING_AMID = """
import sys
from killick import Store, UsageError
from killick.stores.memory import MemoryDisk

def amid(say):  # as a signal comes, or a garbage collection: at any call of ours
    def handle(frame, event, _argument):
        if event == "call" and frame.f_code.co_name == "admit":
            sys.setprofile(None)
            try:
                say()
            except UsageError as refused:
                print(str(refused).partition(":")[0])
    sys.setprofile(handle)

with Store(MemoryDisk().open()) as store:
    session = store.create_session()
    with session.turn("Count.") as turn:
        with turn.stream() as reply:
            amid(lambda: reply.text("two, "))
            reply.text("one, ")
            reply.text("two, ")
            reply.text("three.")
            amid(lambda: reply.tool_call("c", name="count", arguments="{}"))
            reply.tool_call("k", name="count", arguments="{}")
        with turn.tool("k") as call:
            amid(lambda: call.output("2, "))
            call.output("1, ")
            call.output("2, ")
            call.output("3.")
            call.finish(None)
    print(session.messages()[1].text)
    print(session.messages()[2].parts[0].content)
"""
