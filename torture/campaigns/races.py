"""A completion meets a Stop, or a take-over, from another process."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import anyio
import trio

from killick import AsyncStore, Session, Store, TurnEnded, TurnStopped
from tests.crash.journals import check_sound
from tests.crash.processes import Channel, Child, Nursery, soon, spin_until
from torture.campaign import Campaign, Round, Sizes

Player = Callable[[Channel, str], None]

_MEETINGS: Final = 100
"""Of the same two processes."""


def answer(number: int) -> list[str]:
    return [f"<{number}>", " the ", "whole ", "answer"]


# -- the holder: says its answer and ends at the given moment --------------------------------------


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


# -- the other process -----------------------------------------------------------------------------


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


# -- the meetings ----------------------------------------------------------------------------------


class Meeting:
    """Two processes that come to the end of one turn at about the same moment."""

    def __init__(self, session: Session, holder: Child, rival: Child) -> None:
        self._session = session
        self._holder = holder
        self._rival = rival
        self.seen: Counter[str] = Counter()

    def once(self, number: int, ahead: float) -> None:
        """One turn, one ending, the text once; and the holder was told what is true."""
        self._holder.send(number)
        turn_id = str(self._holder.receive())
        moment = soon(0.003) + max(0.004, -ahead)
        self._rival.send([turn_id, moment + ahead])
        self._holder.send(moment)
        outcome, said = self._holder.receive()
        self._rival.receive()
        self.seen[outcome] += 1
        (turn,) = (one for one in self._session.turns() if one.id == turn_id)
        expected = {
            "completed": ("completed", None),
            "TurnStopped": ("interrupted", "enough"),
            "StaleFence": ("interrupted", "taken_over"),
            "TurnEnded": ("interrupted", "taken_over"),
        }[outcome]
        assert (turn.status, turn.reason) == expected
        messages = self._session.messages(last=6)
        answers = [m for m in messages if m.role == "assistant" and m.turn_id == turn_id]
        assert [len(message.parts) for message in answers] in ([1], [])
        assert [message.text for message in answers] == ([said] if said else [])


PAIRS: Final[list[tuple[Player, Player]]] = [
    (hold, stop),
    (hold_in_asyncio, stop),
    (hold_in_trio, take_over),
    (hold, take_over),
    (hold_in_trio, stop),
    (hold_in_asyncio, take_over),
]


def run(round_: Round) -> None:
    path = round_.places.at("store.db")
    holder, rival = PAIRS[round_.seed % len(PAIRS)]
    nursery = Nursery(round_.places.died)
    try:
        with Store(path) as store:
            session = store.create_session(id="s")
            children = nursery.start(holder, path), nursery.start(rival, path)
            meeting = Meeting(session, *children)
            for number in range(_MEETINGS * 4):
                if number >= _MEETINGS and len(meeting.seen) > 1:
                    break  # both orders have happened; on a busy machine that may take longer
                # Mostly two commits at once; now and then early enough for the holder to notice.
                early = number % 5 == 0
                ahead = round_.chance.uniform(*((-0.08, -0.03) if early else (-0.004, 0.004)))
                what = f"{holder.__name__} meets {rival.__name__}, {ahead:.4f} s apart"
                round_.check(what, meeting.once, number, ahead)
            for child in children:
                child.send(None)
                assert child.wait() == 0
            check_sound(session)
            assert store.counts()["deltas"] == 0
            assert len(meeting.seen) > 1, (
                f"one of the two orders has never happened: {meeting.seen}"
            )
    finally:
        nursery.close()


CAMPAIGN = Campaign(
    name="races",
    tries="a completion meets a Stop or a take-over from another process, in both orders, on the "
    "synchronous face, in asyncio and in trio",
    holds="one ending, which is what the holder was told; the text once",
    sizes=Sizes(slice=200, torture=5_000, long=100_000),
    run=run,
)
