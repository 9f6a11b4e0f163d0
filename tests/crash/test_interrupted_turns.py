"""The three scenarios, cut off in every way a process can be."""

import asyncio
import signal
import time
from collections.abc import Callable

import anyio
import pytest
import trio

from killick import AsyncStore, Store
from tests.crash import scenarios
from tests.crash.processes import Channel, Child, Nursery

pytestmark = pytest.mark.crash

SCENARIOS = ["par", "seq", "str"]
FLUSHED_AFTER = 0.05 + 0.75
"""The window, and room for a slow disk and a busy machine."""

SOON = 5.0
"""How long a look may take on such a machine. A lease lasts for longer, so nobody waited for it."""


def in_sync(parent: Channel, path: str, name: str) -> None:
    """Runs a scenario until it hangs; tells what came out of it, and stays until it is killed."""
    store = Store(path)
    session = store.create_session(id="s")

    def hang() -> None:
        parent.send("hanging")
        parent.hang()

    try:
        scenarios.SYNC[name](session, hang)
    except BaseException as error:  # noqa: BLE001  (told to the test, which knows what to expect)
        parent.send(type(error).__name__)
    parent.hang()


def in_asyncio(parent: Channel, path: str, name: str) -> None:
    """The same, cancelled as asyncio cancels when the parent says so."""
    raised: list[str] = []

    async def main() -> None:
        task = asyncio.create_task(_scenario(parent, path, name, raised))
        await anyio.to_thread.run_sync(parent.receive)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        parent.send(raised[0])
        await anyio.to_thread.run_sync(parent.hang)

    asyncio.run(main())


def in_trio(parent: Channel, path: str, name: str) -> None:
    """The same, cancelled as trio cancels when the parent says so."""
    raised: list[str] = []

    async def main() -> None:
        async with trio.open_nursery() as tasks:
            scope = trio.CancelScope()

            async def cancellable() -> None:
                with scope:
                    await _scenario(parent, path, name, raised)
                assert scope.cancelled_caught

            tasks.start_soon(cancellable)
            await trio.to_thread.run_sync(parent.receive)
            scope.cancel()
        parent.send(raised[0])
        await trio.to_thread.run_sync(parent.hang)

    trio.run(main)


async def _scenario(parent: Channel, path: str, name: str, raised: list[str]) -> None:
    store = AsyncStore(path)
    session = await store.create_session(id="s")

    async def hang() -> None:
        parent.send("hanging")
        # In short rounds: a signal that comes just before the loop waits does not wake it.
        while True:  # noqa: ASYNC110
            await anyio.sleep(0.02)

    try:
        await scenarios.ASYNC[name](session, hang)
    except BaseException as error:
        raised.append(type(error).__name__)
        raise


def interrupted_in_asyncio(parent: Channel, path: str, name: str) -> None:
    """Runs a scenario in the main task, where Ctrl+C is a cancellation that asyncio turns back."""
    raised: list[str] = []
    try:
        asyncio.run(_scenario(parent, path, name, raised))
    except KeyboardInterrupt:
        parent.send("KeyboardInterrupt")
    parent.hang()


def interrupted_in_trio(parent: Channel, path: str, name: str) -> None:
    """Runs a scenario in the main task, where trio raises KeyboardInterrupt."""
    raised: list[str] = []
    try:
        trio.run(_scenario, parent, path, name, raised)
    except* KeyboardInterrupt:
        parent.send("KeyboardInterrupt")
    parent.hang()


Runner = Callable[[Channel, str, str], None]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    ("runner", "raised"),
    [(in_asyncio, "CancelledError"), (in_trio, "Cancelled")],
    ids=["asyncio", "trio"],
)
def test_a_cancelled_turn_keeps_everything(
    nursery: Nursery, path: str, name: str, runner: Runner, raised: str
) -> None:
    """After a cancel everything is durable before the cancellation leaves the block.

    The process is killed as soon as it has seen the exception; then the prompt, both results, the
    third start and the text so far are there, with one ending: interrupted, cancelled.
    """
    child = nursery.start(runner, path, name)
    child.expect("hanging")
    child.send("cancel")
    child.expect(raised)
    child.kill()
    _look(path, name, "cancelled")


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    ("runner", "reason"),
    [
        (in_sync, "keyboard_interrupt"),
        (interrupted_in_asyncio, "cancelled"),
        (interrupted_in_trio, "keyboard_interrupt"),
    ],
    ids=["sync", "asyncio", "trio"],
)
def test_ctrl_c_keeps_everything(
    nursery: Nursery, path: str, name: str, runner: Runner, reason: str
) -> None:
    """After SIGINT the KeyboardInterrupt goes on, and everything was durable before it did."""
    child = nursery.start(runner, path, name)
    child.expect("hanging")
    child.signal(signal.SIGINT)
    child.expect("KeyboardInterrupt")
    child.kill()
    _look(path, name, reason)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("runner", [in_sync, in_asyncio, in_trio], ids=["sync", "asyncio", "trio"])
def test_kill_9_keeps_everything(nursery: Nursery, path: str, name: str, runner: Runner) -> None:
    """After kill -9 the next opening closes the turn as crashed, in under a second, with all of it.

    Streamed text and output were handed over longer ago than the window, so they are there too.
    """
    child = nursery.start(runner, path, name)
    child.expect("hanging")
    _let_the_window_pass(child)
    child.kill()
    _look(path, name, "crashed")


def _let_the_window_pass(child: Child) -> None:
    with pytest.raises(TimeoutError):
        child.receive(FLUSHED_AFTER)


def _look(path: str, name: str, reason: str) -> None:
    began = time.monotonic()
    with Store(path) as store:
        session = store.session("s")
        assert time.monotonic() - began < SOON, "it waited for something"
        scenarios.check(name, session, reason)
        assert store.counts()["deltas"] == 0
    with Store(path) as store:  # looking again adds nothing
        head = session.head
        again = store.session("s")
        scenarios.check(name, again, reason)
        assert again.head == head
