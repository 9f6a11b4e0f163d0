"""A holder that was fenced out, and does not know it, tries to write in every way."""

import contextlib
from collections.abc import Callable
from typing import Any, Final

from killick import Message, StaleFence, Store, Text, ToolCall, TurnEnded, TurnStopped
from tests.crash.journals import check_sound
from tests.crash.processes import Channel, Nursery
from torture.campaign import Campaign, Round, Sizes

_TRIES: Final = 50
_WAYS: Final = ("record", "tool", "stream", "end")


def hold(parent: Channel, path: str) -> None:
    """Begins a turn, waits until it was taken over, and then writes as if nothing had been."""
    store = Store(path)
    session = store.session("s")
    while (way := parent.receive()) is not None:
        turn = session.turn("mine")
        turn.__enter__()
        turn.record(Message("assistant", [ToolCall("call", "shell", "{}")]))
        stream: Any = turn.stream()
        stream.__enter__()
        stream.text("before")
        parent.send(turn.id)
        parent.receive()
        _know_nothing(turn)
        # What came before may be durable already. This is late, if that was not refused as late.
        with contextlib.suppress(StaleFence):
            stream.text("after")
        parent.send([_attempt(turn, stream, way, number) for number in range(_TRIES)])
        _let_go(turn, stream)
    store.close()


def _attempt(turn: Any, stream: Any, way: str, number: int) -> str:
    """What became of one stale write: the name of what refused it, or `written`."""
    _know_nothing(turn)
    ways: dict[str, Callable[[], Any]] = {
        "record": lambda: turn.record(Message("assistant", [Text(f"stale {number}")])),
        "tool": lambda: turn.tool("call").__enter__(),
        "stream": lambda: turn.stream().__enter__(),
        "end": lambda: turn.__exit__(None, None, None),
    }
    try:
        ways[way]()
    except (StaleFence, TurnEnded, TurnStopped) as error:
        return type(error).__name__
    return "written"


def _know_nothing(turn: Any) -> None:
    """The store is what is asked: the turn's own memory of having lost must not be what refuses."""
    turn._core.stop_reason = None
    turn._core.over = False


def _let_go(turn: Any, stream: Any) -> None:
    for block in (stream, turn):
        turn._core.over = False
        with contextlib.suppress(TurnEnded, TurnStopped):
            block.__exit__(None, None, None)


class Rivals:
    """The one that takes over, in this process, and the one that is fenced out."""

    def __init__(self, store: Store, child: Any) -> None:
        self._session = store.session("s")
        self._child = child

    def case(self, way: str) -> None:
        self._child.send(way)
        turn_id = self._child.receive()
        with self._session.turn("mine now", if_busy="take_over") as turn:
            before = self._session.entries()
            self._child.send("go")
            outcomes = self._child.receive()
            assert set(outcomes) <= {"StaleFence", "TurnEnded"}, outcomes
            added = self._session.entries(after=before[-1].seq)
            assert {entry.kind for entry in added} <= {"late_text"}, added
        assert turn.status == "completed"
        check_sound(self._session)
        (old,) = (one for one in self._session.turns() if one.id == turn_id)
        assert (old.status, old.reason) == ("interrupted", "taken_over")


def run(round_: Round) -> None:
    path, nursery = round_.places.at("store.db"), Nursery(round_.places.died)
    try:
        with Store(path) as store:
            store.create_session(id="s")
            child = nursery.start(hold, path)
            rivals = Rivals(store, child)
            for way in _WAYS:
                round_.check(f"{_TRIES} stale writes: {way}", rivals.case, way, cases=_TRIES)
            child.send(None)
            child.wait()
    finally:
        nursery.close()


CAMPAIGN = Campaign(
    name="fences",
    tries="a holder in another process, whose session was taken over and who does not know it, "
    "records, streams, starts tools and ends its turn",
    holds="every one of its writes is refused; nothing but late text is added",
    sizes=Sizes(slice=200, torture=2_000, long=1_000_000),
    run=run,
)
