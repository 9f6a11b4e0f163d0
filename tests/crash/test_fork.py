"""fork(): the parent's turns belong to the parent, and its connections are never touched."""

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from killick import ForeignHandle, Message, Store, Stream, Text, Tool, Turn
from tests.crash.journals import check_file, check_sound, check_store, endings
from tests.crash.processes import Channel, Nursery

pytestmark = pytest.mark.crash

FORKS = 20
FEWER = 5
"""On a server, where every child connects anew."""


class Writers:
    """Threads that write without pause, each in its own session; counts what was acknowledged."""

    def __init__(self, store: Store, count: int) -> None:
        self._stop = threading.Event()
        self.acknowledged = [0] * count
        self._threads = [
            threading.Thread(target=self._write, args=(store, number)) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, store: Store, number: int) -> None:
        session = store.create_session(id=f"busy-{number}")
        while not self._stop.is_set():
            with session.turn("go") as turn:
                for _ in range(20):
                    turn.record(Message("assistant", [Text(str(self.acknowledged[number]))]))
                    self.acknowledged[number] += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _forks(path: str) -> int:
    return FEWER if "://" in path else FORKS


def _fork() -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)  # a child that waits for a lock nobody holds must not wait for ever
    return pid


def _raises_foreign(call: Callable[[], object]) -> str:
    try:
        call()
    except ForeignHandle:
        return "ForeignHandle"
    except BaseException as error:  # noqa: BLE001  (reported to the test)
        return repr(error)
    return "nothing was raised"


def in_child(store: Store, turn: Turn, reply: Stream, call: Tool, number: int) -> dict[str, object]:
    """What a forked child can and cannot do with what it has inherited."""
    inherited = _files_of_process()
    seen: dict[str, object] = {
        "record": _raises_foreign(lambda: turn.record(Message("assistant", [Text("no")]))),
        "stream": _raises_foreign(lambda: turn.stream().__enter__()),
        "tool": _raises_foreign(lambda: turn.tool("call").__enter__()),
        "text": _raises_foreign(lambda: reply.text("no")),
        "output": _raises_foreign(lambda: call.output("no")),
        "finish": _raises_foreign(lambda: call.finish("no")),
    }
    session = store.create_session(id=f"child-{number}")
    with session.turn("from the child") as own, own.stream() as answer:
        answer.text("the child's answer")
    held = store.session("held")
    seen["running"] = [one.status for one in held.turns()]
    seen["mine"] = [message.text for message in session.messages()]
    gc.collect()
    seen["closed"] = sorted(inherited.items() - _files_of_process().items())
    return seen


def _files_of_process() -> dict[int, str]:
    """The open descriptors of this process that may be a store's, where the system tells."""
    found = {}
    with contextlib.suppress(FileNotFoundError):  # no /proc: the test sees the rest
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if ".db" in target or target.startswith("socket:"):
                    found[int(link.name)] = target
    return found


def fork_while_busy(parent: Channel, path: str) -> None:
    """Forks again and again with everything open and the writer at work; tells what came of it."""
    store = Store(path)
    writers = Writers(store, 3)
    said = ""
    with store.create_session(id="held").turn("mine") as turn:
        turn.record(Message("assistant", [Text("calling")], id="first"))
        with turn.stream() as reply:
            reply.tool_call("call", name="shell", arguments="{}")
            with turn.tool("call") as call:
                for number in range(_forks(path)):
                    reply.text(f"{number} ")
                    said += f"{number} "
                    call.output(f"{number}\n")
                    _fork_once(parent, store, turn, reply, call, number)
                call.finish("done")
    writers.stop()
    parent.send([said, writers.acknowledged])
    store.close()


def _fork_once(
    parent: Channel, store: Store, turn: Turn, reply: Stream, call: Tool, number: int
) -> None:
    pid = _fork()
    if pid == 0:
        parent.send(in_child(store, turn, reply, call, number))
        if number % 2:
            sys.exit(0)  # leaves every block of the parent, then runs the exit handlers
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    parent.send(os.waitstatus_to_exitcode(status))


def test_a_fork_while_everything_is_open(nursery: Nursery, path: str) -> None:
    """The child's inherited turn, stream and tool raise ForeignHandle; its inherited store works;
    it closes nothing that it has inherited; it ends nothing of the parent's, by os._exit or by
    sys.exit. The parent goes on; nothing acknowledged is missing; the file is whole."""
    child = nursery.start(fork_while_busy, path)
    foreign = ("record", "stream", "tool", "text", "output", "finish")
    for _ in range(_forks(path)):
        seen = child.receive()
        assert {name: seen[name] for name in foreign} == dict.fromkeys(foreign, "ForeignHandle")
        assert seen["running"] == ["running"]
        assert seen["mine"] == ["from the child", "the child's answer"]
        assert seen["closed"] == [], "the child has closed what it inherited"
        assert child.receive() == 0
    said, acknowledged = child.receive()
    assert child.wait() == 0
    with Store(path) as store:
        check_store(store)
        held = store.session("held")
        assert endings(held) == [("completed", None)]
        assert held.messages()[2].text == said
        for number, count in enumerate(acknowledged):
            texts = [m.text for m in store.session(f"busy-{number}").messages(after=1)]
            assert [t for t in texts if t != "go"] == [str(one) for one in range(count)]
        for number in range(_forks(path)):
            assert len(store.session(f"child-{number}").messages()) == 2
    check_file(path)


def test_a_fork_while_everything_is_open_leaves_by_exception(nursery: Nursery, path: str) -> None:
    """A child that leaves the parent's blocks by an exception ends nothing of the parent's."""
    child = nursery.start(fork_and_raise, path)
    child.expect("child left")
    child.expect(0)
    child.expect("parent left")
    assert child.wait() == 0
    with Store(path) as store:
        session = store.session("held")
        check_sound(session)
        assert endings(session) == [("completed", None)]
        assert [m.text for m in session.messages()] == ["mine", "before after"]


def fork_and_raise(parent: Channel, path: str) -> None:
    with Store(path) as store:
        pid = -1
        try:
            with store.create_session(id="held").turn("mine") as turn, turn.stream() as reply:
                reply.text("before ")
                pid = _fork()
                if pid == 0:
                    raise KeyboardInterrupt
                _, status = os.waitpid(pid, 0)
                parent.send(os.waitstatus_to_exitcode(status))
                reply.text("after")
        except KeyboardInterrupt:
            parent.send("child left")
            return
        parent.send("parent left")


def outlive(parent: Channel, path: str, *, use: bool) -> None:
    """Forks a child that stays, with or without having used the store, and stays itself."""
    store = Store(path)
    with store.create_session(id="held").turn("mine") as turn, turn.stream() as reply:
        reply.text("half an answer")
        reply.tool_call("call", name="shell", arguments="{}")
        with turn.tool("call"):
            if _fork() == 0:
                session = store.create_session(id="child") if use else None
                parent.send(os.getpid())
                parent.hang()
                if session is not None:
                    session.note("after all others were gone")
                parent.send("noted")
                parent.hang()
            signal.pause()  # to be killed; the channel is the child's now


@pytest.mark.parametrize("use", [False, True], ids=["idle", "used"])
def test_a_parent_dies_while_its_child_lives(nursery: Nursery, path: str, use: bool) -> None:
    """The lock of the parent is not kept by its child: a third process finds the turn dead and
    closes it, while the child goes on with its own opening of the store, and loses nothing when
    the third process has left again."""
    child = nursery.start(outlive_used if use else outlive_idle, path)
    grandchild = child.receive()
    child.kill()
    try:
        os.kill(grandchild, 0)
        with Store(path) as store:
            session = store.session("held")
            check_sound(session)
            assert endings(session) == [("interrupted", "crashed")]
            assert session.messages()[1].text == "half an answer"
            assert store.counts()["sessions"] == 1 + use
        child.send("go on")
        child.expect("noted")
        if use:
            with Store(path) as store:
                assert store.session("child").head == 2, "the child's note was acknowledged"
    finally:
        os.kill(grandchild, signal.SIGKILL)
    check_file(path)


def outlive_idle(parent: Channel, path: str) -> None:
    outlive(parent, path, use=False)


def outlive_used(parent: Channel, path: str) -> None:
    outlive(parent, path, use=True)


def fork_holder(parent: Channel, path: str) -> None:
    """A child takes a turn through the inherited store while the parent's opening lives on."""
    store = Store(path)
    session = store.create_session(id="held")
    pid = _fork()
    if pid == 0:
        turn = session.turn("the child's")
        turn.__enter__()
        parent.send(os.getpid())
        parent.hang()
    parent.receive()
    os.waitpid(pid, 0)
    with session.turn("the parent's, after it"):
        pass
    parent.send([(turn.status, turn.reason) for turn in session.turns()])
    store.close()


def test_a_child_dies_while_its_parent_lives(nursery: Nursery, path: str) -> None:
    """A turn that the child began in its own opening is dead when the child is, although the
    parent lives: the parent's next turn closes it."""
    child = nursery.start(fork_holder, path)
    holder = child.receive()
    os.kill(holder, signal.SIGKILL)
    nursery.died(holder)
    child.send("it is dead")
    assert child.receive() == [["interrupted", "crashed"], ["completed", None]]
    assert child.wait() == 0


def close_before_child(parent: Channel, path: str) -> None:
    """The child uses the store it inherited, then the parent leaves it, then the child goes on."""
    store = Store(path)
    store.create_session(id="parent")
    asked, told = os.pipe()
    pid = _fork()
    if pid == 0:
        session = store.create_session(id="child")
        parent.send("reopened")
        os.read(asked, 1)
        for number in range(20):
            session.note(str(number))
        parent.send("noted")
        parent.hang()
    parent.receive()
    store.close()
    os.write(told, b"x")
    parent.send("closed")
    os.waitpid(pid, 0)


def test_a_parent_closes_the_store_while_its_child_uses_it(nursery: Nursery, path: str) -> None:
    """What the child writes after the parent has closed its opening is in the store: the parent
    does not take itself for the last one and remove the log under its child."""
    child = nursery.start(close_before_child, path)
    child.expect("reopened")
    child.send("close")
    assert sorted([child.receive(), child.receive()]) == ["closed", "noted"]
    with Store(path) as store:
        session = store.session("child")
        check_sound(session)
        assert [x.kind for x in session.entries()] == ["session_created"] + ["note"] * 20
    check_file(path)


def forget_inherited(parent: Channel, path: str) -> None:
    """A child that lets go of the store it inherited, without ever having used it."""
    store = Store(path)
    store.create_session(id="parent").messages()
    if _fork() == 0:
        inherited = _files_of_process()
        store.create_session(id="child").messages()
        del store
        gc.collect()
        parent.send(sorted(inherited.items() - _files_of_process().items()))
        os._exit(0)
    parent.hang()


def test_a_child_never_closes_what_it_inherited(nursery: Nursery, path: str) -> None:
    """Not by using the store, and not when the garbage collector comes for it either."""
    child = nursery.start(forget_inherited, path)
    assert child.receive() == []
