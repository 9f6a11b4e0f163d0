"""Ctrl+C twice, the end of the interpreter, and the garbage collector."""

import asyncio
import gc
import resource
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import trio

from killick import AsyncSession, AsyncStore, Session, Store
from tests.crash.journals import answers, check_file, check_sound, check_store, endings
from tests.crash.processes import Channel, Child, Nursery, run_script

pytestmark = pytest.mark.crash

PROMPTLY = 2.0
BOUNDED = 10.0
"""Leaving waits 5 s at most for what was handed over; the rest is starting and ending Python."""


# -- Ctrl+C while the ending is written ----------------------------------------------------------


class WriteLock:
    """Keeps every writer of the store waiting, as a slow disk would."""

    def __init__(self, path: str) -> None:
        self._connection: Any
        if "://" in path:
            self._connection = psycopg.connect(path.partition("?")[0], autocommit=True)
            self._connection.execute("BEGIN")
            self._connection.execute("LOCK TABLE killick.sessions IN EXCLUSIVE MODE")
        else:
            self._connection = apsw.Connection(path)
            self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def complete_slowly(parent: Channel, path: str) -> None:
    """Leaves the block of a turn whose ending cannot be written yet."""
    store = Store(path)
    _leave(parent, store.create_session(id="s"))


def be_interrupted_slowly(parent: Channel, path: str) -> None:
    """The same, by Ctrl+C."""
    store = Store(path)
    _leave(parent, store.create_session(id="s"), hang=True)


def _leave(parent: Channel, session: Session, *, hang: bool = False) -> None:
    try:
        with session.turn("prompt") as turn:
            with turn.stream() as reply:
                reply.text("the answer")
            try:
                parent.send("in the block")
                parent.receive(None)
                if hang:
                    parent.hang()
            finally:
                parent.send("leaving")
    except KeyboardInterrupt:
        parent.send("left")


def _interrupt_while_it_waits(child: Child) -> None:
    """Ctrl+C at a moment when the main thread waits for the writer."""
    with pytest.raises(TimeoutError):
        child.receive(0.1)
    child.signal(signal.SIGINT)


def test_ctrl_c_twice_while_a_turn_completes(nursery: Nursery, path: str) -> None:
    """The first Ctrl+C waits for the ending that is being written; the second gives up the wait,
    not the write: the process goes on while the disk is still slow, and the ending is there."""
    child = nursery.start(complete_slowly, path)
    child.expect("in the block")
    lock = WriteLock(path)
    child.send("leave")
    child.expect("leaving")
    _interrupt_while_it_waits(child)
    _interrupt_while_it_waits(child)
    try:
        child.expect("left", PROMPTLY)
    finally:
        lock.release()
    assert child.wait(BOUNDED) == 0
    with Store(path) as store:
        session = store.session("s")
        check_sound(session)
        assert endings(session) == [("completed", None)]
        assert [reply.text for reply in answers(session)] == ["the answer"]


def test_a_second_ctrl_c_while_the_first_is_recorded(nursery: Nursery, path: str) -> None:
    """Ctrl+C in the block begins the ending; a second one gives up the wait for it, not the write:
    the process goes on while the disk is still slow, and the ending is there afterwards."""
    child = nursery.start(be_interrupted_slowly, path)
    child.expect("in the block")
    lock = WriteLock(path)
    child.send("hang")
    child.signal(signal.SIGINT)
    child.expect("leaving")
    _interrupt_while_it_waits(child)
    try:
        child.expect("left", PROMPTLY)
    finally:
        lock.release()
    assert child.wait(BOUNDED) == 0
    with Store(path) as store:
        session = store.session("s")
        check_sound(session)
        assert endings(session) == [("interrupted", "keyboard_interrupt")]


def test_an_exit_does_not_wait_for_ever(nursery: Nursery, path: str) -> None:
    """When the ending cannot be written at all, the process ends all the same in bounded time; the
    next to open the session closes the turn."""
    child = nursery.start(exit_in_turn, path)
    child.expect("in the block")
    lock = WriteLock(path)
    child.send("exit")
    began = time.monotonic()
    status = child.wait(BOUNDED + 10)
    assert time.monotonic() - began < BOUNDED
    assert status == 3
    lock.release()
    nursery.died(child.pid)
    with Store(path) as store:
        session = store.session("s")
        check_sound(session)
        assert endings(session) == [("interrupted", "crashed")]


def exit_in_turn(parent: Channel, path: str) -> None:
    """Leaves the interpreter with the turn still open."""
    session = Store(path).create_session(id="s")
    turn = session.turn("prompt")
    turn.__enter__()
    parent.send("in the block")
    parent.receive()
    sys.exit(3)


# -- the end of the interpreter ------------------------------------------------------------------

BEGIN = """
import sys, threading, time
from killick import Store
store = Store(sys.argv[1])
session = store.create_session(id="s")
"""

INSIDE = """
with session.turn("prompt") as turn, turn.stream() as reply:
    reply.text("half an answer")
    sys.exit(7)
"""

END_OF_SCRIPT = """
turn = session.turn("prompt").__enter__()
reply = turn.stream().__enter__()
reply.text("half an answer")
"""

END_OF_FUNCTION = """
def begin():
    turn = session.turn("prompt").__enter__()
    reply = turn.stream().__enter__()
    reply.text("half an answer")
    return turn, reply
kept = begin()
kept[0].cycle = kept
del kept
"""

# What the thread is told at the end is not printed: Python aborts when a daemon thread is in the
# middle of printing while the interpreter ends, whatever the thread was doing.
DAEMON = """
threading.excepthook = lambda told: None
began = threading.Event()
def stream():
    with session.turn("prompt") as turn, turn.stream() as reply:
        reply.text("half an answer")
        began.set()
        while True:
            reply.text(".")
            time.sleep(0.0005)
threading.Thread(target=stream, daemon=True).start()
began.wait()
"""

UNCAUGHT = """
turn = session.turn("prompt").__enter__()
reply = turn.stream().__enter__()
reply.text("half an answer")
raise ZeroDivisionError
"""

ASYNC = """
import asyncio
from killick import AsyncStore
async def main():
    store = AsyncStore(sys.argv[1])
    session = await store.create_session(id="s")
    turn = await session.turn("prompt").__aenter__()
    reply = await turn.stream().__aenter__()
    reply.text("half an answer")
    return turn, reply
kept = asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("source", "status"),
    [
        pytest.param(INSIDE, 7, id="sys.exit inside"),
        pytest.param(END_OF_SCRIPT, 0, id="end of the script"),
        pytest.param(END_OF_FUNCTION, 0, id="a cycle nobody holds"),
        pytest.param(DAEMON, 0, id="a daemon thread streams"),
        pytest.param(UNCAUGHT, 1, id="an exception nobody catches"),
        pytest.param(ASYNC, 0, id="an event loop that is gone"),
    ],
)
def test_the_interpreter_ends_with_everything_open(path: str, source: str, status: int) -> None:
    """The process ends in bounded time; the turn is ended as interrupted by the process itself,
    once, and what was said is kept."""
    began = time.monotonic()
    ran = run_script(BEGIN + source, path, seconds=30)
    assert time.monotonic() - began < BOUNDED
    assert ran.returncode == status, ran.stderr
    assert "Fatal" not in ran.stderr, ran.stderr
    assert "Exception ignored" not in ran.stderr, ran.stderr
    with Store(path) as store:
        session = store.session("s")
        check_sound(session)
        [(ending, reason)] = endings(session)
        assert ending == "interrupted"
        assert reason != "crashed", "the process has not ended the turn itself"
        [partial] = answers(session)
        assert partial.text.rstrip(".") == "half an answer"
        assert partial.state == "partial"
        assert store.counts()["deltas"] == 0


# -- the garbage collector -----------------------------------------------------------------------


def _generator(session: Session) -> Iterator[None]:
    with session.turn("prompt") as turn, turn.stream() as reply:
        reply.text("half an answer")
        yield
        reply.text(", never said")


def _abandon_turn(session: Session) -> None:
    turn = session.turn("prompt").__enter__()
    reply = turn.stream().__enter__()
    reply.text("half an answer")


def _abandon_stream(session: Session) -> None:
    """The stream alone is forgotten; its turn is left as it should be."""
    with session.turn("prompt") as turn:
        reply = turn.stream().__enter__()
        reply.text("half an answer")
        del reply
        gc.collect()


def _abandon_in_a_cycle(session: Session) -> None:
    turn = session.turn("prompt").__enter__()
    reply = turn.stream().__enter__()
    reply.text("half an answer")
    cycle: list[object] = [turn, reply]
    cycle.append(cycle)


def _abandon_generator(session: Session) -> None:
    abandoned = _generator(session)
    next(abandoned)
    del abandoned


def _abandon_generator_elsewhere(session: Session) -> None:
    """The last reference dies on another thread."""
    kept = [_generator(session)]
    next(kept[0])
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("abandon", "ending"),
    [
        (_abandon_turn, ("interrupted", "abandoned")),
        (_abandon_in_a_cycle, ("interrupted", "abandoned")),
        (_abandon_stream, ("completed", None)),
        (_abandon_generator, ("interrupted", "closed")),
        (_abandon_generator_elsewhere, ("interrupted", "closed")),
    ],
)
def test_what_nobody_holds_is_ended(
    path: str, abandon: Callable[[Session], None], ending: tuple[str, str | None]
) -> None:
    """A turn, stream or generator that is forgotten leaves one ending and its partial text, and the
    session is free for the next turn of the same process."""
    with Store(path) as store:
        session = store.create_session(id="s")
        abandon(session)
        gc.collect()
        with session.turn("next"):
            pass
        check_sound(session)
        assert endings(session) == [ending, ("completed", None)]
        [partial] = answers(session)
        assert (partial.state, partial.text) == ("partial", "half an answer")
        assert store.counts()["deltas"] == 0


async def _async_generator(session: AsyncSession) -> AsyncIterator[None]:
    async with session.turn("prompt") as turn, turn.stream() as reply:
        reply.text("half an answer")
        yield
        reply.text(", never said")


def abandon_in_asyncio(parent: Channel, path: str, how: str) -> None:
    asyncio.run(_abandon_async(parent, path, how))


def abandon_in_trio(parent: Channel, path: str, how: str) -> None:
    trio.run(_abandon_async, parent, path, how)


async def _abandon_async(parent: Channel, path: str, how: str) -> None:
    session = await AsyncStore(path).create_session(id="s")
    generator = _async_generator(session)
    await anext(generator)
    if how == "aclose":
        await generator.aclose()  # type: ignore[attr-defined]
    del generator
    gc.collect()
    parent.send("abandoned")


@pytest.mark.parametrize("how", ["aclose", "forget"])
@pytest.mark.parametrize("runner", [abandon_in_asyncio, abandon_in_trio], ids=["asyncio", "trio"])
def test_an_asynchronous_generator_is_left(
    nursery: Nursery, path: str, runner: Callable[[Channel, str, str], None], how: str
) -> None:
    """An asynchronous generator with the blocks in it, closed or forgotten by its caller, leaves
    one ending and its partial text when its event loop is done; the process ends by itself."""
    child = nursery.start(runner, path, how)
    child.expect("abandoned")
    assert child.wait(BOUNDED) == 0
    with Store(path) as store:
        session = store.session("s")
        check_sound(session)
        [(ending, reason)] = endings(session)
        assert (ending, reason != "crashed") == ("interrupted", True)
        [partial] = answers(session)
        assert (partial.state, partial.text) == ("partial", "half an answer")


# -- ten thousand --------------------------------------------------------------------------------

STREAMS = 10_000
FEWER = 400
"""On a server, where each of them is several round trips."""

GROWTH_BYTES = 16 * 1024 * 1024
"""What the process may have grown by between the first thousand streams and the last."""

FILE_BYTES = STREAMS * 2_000
"""Four entries for every stream, each with its places in two indexes."""

LOG_BYTES = 32 * 1024 * 1024
"""The log is begun anew when it has been copied into the file, every 16 MB or so."""


def cancel_streams(parent: Channel, path: str, streams: int) -> None:
    """Starts and cancels thousands of streams; tells how much memory was used, early and late."""
    store = Store(path, durability="normal")
    grown = []
    for number in range(streams // 100):
        session = store.create_session(id=f"session-{number % 10}")
        with session.turn(None) as turn:
            for count in range(100):
                try:
                    with turn.stream() as reply:
                        reply.text("half an answer, about as long as a line")
                        if count % 10 == 0:  # a whole call is written at once, with the text so far
                            reply.tool_call(f"call {count}", name="shell", arguments="{}")
                        raise asyncio.CancelledError
                except asyncio.CancelledError:
                    pass
        if number + 1 in (max(2, streams // 1000), streams // 100):
            grown.append(_memory())
    parent.send([grown, store.counts()["deltas"]])
    parent.receive()
    store.close()


def _memory() -> int:
    """The most memory this process has used so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ten_thousand_streams_are_started_and_cancelled(nursery: Nursery, path: str) -> None:
    """No delta row is left, memory stays flat, and the files are no larger than what was said."""
    is_file = "://" not in path
    streams = STREAMS if is_file else FEWER
    child = nursery.start(cancel_streams, path, streams)
    (early, late), deltas = child.receive(100)
    assert deltas == 0
    assert late - early < GROWTH_BYTES
    if is_file:
        assert Path(path).stat().st_size < FILE_BYTES
        assert Path(f"{path}-wal").stat().st_size < LOG_BYTES
    child.send("close")
    assert child.wait() == 0
    with Store(path) as store:
        check_store(store)
        partials = [m for info in store.sessions() for m in answers(store.session(info.id))]
        assert len(partials) == streams
        assert {m.state for m in partials} == {"partial"}
    check_file(path)
