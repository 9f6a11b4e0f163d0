"""A completion meets a Stop, or a take-over, from another process: one ending, the text once."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import anyio
import pytest
import trio

from holdfast import AsyncStore, Session, Store, TurnEnded, TurnStopped
from holdfast.model import entries as e
from tests.crash.journals import check_sound
from tests.crash.processes import Channel, Child, Nursery, soon, spin_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

Holder = Callable[[Channel, str], None]


def answer(number: int) -> list[str]:
    return [f"<{number}>", " the ", "whole ", "answer"]


# -- the holder: says its answer and ends at the given moment -----------------------------------


def hold(parent: Channel, path: str) -> None:
    """The synchronous face."""
    store = Store(path)
    session = store.session("s")
    while (number := parent.receive()) is not None:
        said: list[str] = []
        outcome = "completed"
        try:
            with session.turn(f"prompt {number}") as turn, turn.stream() as reply:
                parent.send(turn.id)
                moment = parent.receive()
                for chunk in answer(number):
                    reply.text(chunk)
                    said.append(chunk)
                    if len(said) == 2:
                        time.sleep(max(0.0, moment - 0.001 - time.monotonic()))
                spin_until(moment)
        except (TurnStopped, TurnEnded) as error:
            outcome = type(error).__name__
        parent.send([outcome, "".join(said)])
    store.close()


def hold_in_asyncio(parent: Channel, path: str) -> None:
    asyncio.run(_hold_async(parent, path))


def hold_in_trio(parent: Channel, path: str) -> None:
    trio.run(_hold_async, parent, path)


async def _hold_async(parent: Channel, path: str) -> None:
    async with AsyncStore(path) as store:
        session = await store.session("s")
        while (number := parent.receive()) is not None:
            said: list[str] = []
            outcome = "completed"
            try:
                async with session.turn(f"prompt {number}") as turn, turn.stream() as reply:
                    parent.send(turn.id)
                    moment = parent.receive()
                    for chunk in answer(number):
                        reply.text(chunk)
                        said.append(chunk)
                        if len(said) == 2:
                            await anyio.sleep(max(0.0, moment - 0.001 - time.monotonic()))
                    spin_until(moment)
            except (TurnStopped, TurnEnded) as error:
                outcome = type(error).__name__
            # The cancellation that a stop brings is taken back: the task can go on.
            task = _asyncio_task()
            assert task is None or task.cancelling() == 0
            await session.turns()
            parent.send([outcome, "".join(said)])


def _asyncio_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # under trio
        return None


# -- the other process --------------------------------------------------------------------------


def stop(parent: Channel, path: str) -> None:
    """Asks for a stop at the given moment."""
    store = Store(path)
    session = store.session("s")
    while (order := parent.receive()) is not None:
        turn_id, moment = order
        spin_until(moment)
        parent.send(session.stop(turn_id, reason="enough"))
    store.close()


def take_over(parent: Channel, path: str) -> None:
    """Takes the session over at the given moment, and does a turn of its own."""
    store = Store(path)
    session = store.session("s")
    while (order := parent.receive()) is not None:
        turn_id, moment = order
        spin_until(moment)
        with session.turn("mine now", if_busy="take_over") as turn:
            assert turn.id != turn_id
        parent.send(turn.id)
    store.close()


# -- the rounds ---------------------------------------------------------------------------------


def _race(
    nursery: Nursery, path: str, holder: Holder, rival: Holder, rounds: int, seed: int
) -> tuple[Session, list[str], list[tuple[str, str]]]:
    """The session, the turn of each round, and what its holder has seen and said."""
    store = Store(path)
    session = store.create_session(id="s")
    first, second = nursery.start(holder, path), nursery.start(rival, path)
    jitter = random.Random(seed)
    turns, outcomes = [], []
    for number in range(rounds):
        # Mostly a close race of two commits; now and then early enough for the holder to notice.
        ahead = jitter.uniform(-0.08, -0.03) if number % 5 == 0 else jitter.uniform(-0.004, 0.004)
        turns.append(_round(first, second, number, ahead))
        outcome, said = first.receive()
        outcomes.append((outcome, said))
        second.receive()
    for child in (first, second):
        child.send(None)
        assert child.wait() == 0
    assert store.counts()["deltas"] == 0
    return session, turns, outcomes


def _round(first: Child, second: Child, number: int, ahead: float) -> str:
    first.send(number)
    turn_id = str(first.receive())
    moment = soon(0.003) + max(0.004, -ahead)
    second.send([turn_id, moment + ahead])
    first.send(moment)
    return turn_id


def _check_text_once(session: Session, turns: list[str], saids: list[str]) -> None:
    """The text of each round is there once: in one message, in one part."""
    texts: dict[str | None, list[str]] = {}
    for message in session.messages():
        if message.role == "assistant":
            assert len(message.parts) == 1
            texts.setdefault(message.turn_id, []).append(message.text)
    for turn_id, said in zip(turns, saids, strict=True):
        assert texts.get(turn_id, []) == ([said] if said else []), turn_id


def _check_stop(
    session: Session, turns: list[str], outcomes: list[tuple[str, str]]
) -> Counter[str]:
    check_sound(session)
    ended = {turn.id: turn for turn in session.turns()}
    for turn_id, (outcome, _) in zip(turns, outcomes, strict=True):
        turn = ended[turn_id]
        assert turn.status == {"completed": "completed", "TurnStopped": "interrupted"}[outcome]
        assert turn.reason == {"completed": None, "TurnStopped": "enough"}[outcome]
    _check_text_once(session, turns, [said for _, said in outcomes])
    return Counter(outcome for outcome, _ in outcomes)


FACES = pytest.mark.parametrize(
    "holder", [hold, hold_in_asyncio, hold_in_trio], ids=["sync", "asyncio", "trio"]
)


@FACES
def test_a_completion_meets_a_stop(nursery: Nursery, path: str, holder: Holder) -> None:
    """However the two fall: the turn has one ending, which is what its holder was told; the text
    is there exactly once; the holder's task can go on."""
    session, turns, outcomes = _race(nursery, path, holder, stop, 200, seed=1)
    seen = _check_stop(session, turns, outcomes)
    asked = [x.body.turn_id for x in session.entries() if isinstance(x.body, e.StopAsked)]
    assert 0 < len(asked) < len(turns), "one of the two orders has never happened"
    assert seen["completed"] > 0
    assert seen["TurnStopped"] > 0


@pytest.mark.campaign
@FACES
def test_a_completion_meets_a_stop_thousands_of_times(
    nursery: Nursery, path: str, holder: Holder
) -> None:
    """The same, 5,000 times."""
    for seed in range(10):
        where = f"{path}-{seed}"
        session, turns, outcomes = _race(nursery, where, holder, stop, 500, seed=100 + seed)
        _check_stop(session, turns, outcomes)


def _check_take_over(
    session: Session, turns: list[str], outcomes: list[tuple[str, str]]
) -> Counter[str]:
    check_sound(session)
    ended = {turn.id: turn for turn in session.turns()}
    for turn_id, (outcome, _) in zip(turns, outcomes, strict=True):
        turn = ended[turn_id]
        if outcome == "completed":
            assert turn.status == "completed"
        else:
            assert outcome in ("StaleFence", "TurnEnded")
            assert (turn.status, turn.reason) == ("interrupted", "taken_over")
    _check_text_once(session, turns, [said for _, said in outcomes])
    return Counter(outcome for outcome, _ in outcomes)


@FACES
def test_a_completion_meets_a_take_over(nursery: Nursery, path: str, holder: Holder) -> None:
    """However the two fall: one ending for each turn; a holder that lost is told so, and what it
    had said is kept once, as a partial message and what came late to it."""
    session, turns, outcomes = _race(nursery, path, holder, take_over, 200, seed=2)
    seen = _check_take_over(session, turns, outcomes)
    assert seen["completed"] > 0, "the completion has never won"
    assert seen["StaleFence"] + seen["TurnEnded"] > 0, "the take-over has never won"


@pytest.mark.campaign
@FACES
def test_a_completion_meets_a_take_over_thousands_of_times(
    nursery: Nursery, path: str, holder: Holder
) -> None:
    """The same, 5,000 times."""
    for seed in range(10):
        where = f"{path}-{seed}"
        session, turns, outcomes = _race(nursery, where, holder, take_over, 500, seed=200 + seed)
        _check_take_over(session, turns, outcomes)
