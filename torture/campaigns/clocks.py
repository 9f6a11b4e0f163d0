"""Clocks that jump, stand still and run backwards.

The clock only dates entries. Whatever it says, the order is that of the calls, no lease is taken
from anybody who lives, and retention removes nothing that was used within its time.
"""

import random
from datetime import timedelta
from typing import Final

from killick import Message, SessionBusy, Store, Text
from tests.crash.journals import check_sound
from torture.campaign import Campaign, Round, Sizes

_HISTORIES: Final = 50
"""On one store: whatever one of them does with the clock, the others see it too."""

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_JUMPS: Final = (
    0,
    0,
    1,
    -40_000,
    _SECOND,
    -_HOUR,
    _HOUR,
    -24 * 365 * 10 * _HOUR,
    24 * 365 * 10 * _HOUR,
)
_KEEP: Final = timedelta(days=30)


class Clock:
    """Microseconds since 1970, as the machine believes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.now = 1_700_000_000 * _SECOND

    def __call__(self) -> int:
        self.now = max(0, self.now + self._chance.choice(_JUMPS))
        return self.now


class History:
    """One session, written under such a clock by two openings of the store."""

    def __init__(self, stores: tuple[Store, Store], clock: Clock, chance: random.Random) -> None:
        self._stores = stores
        self._clock = clock
        self._chance = chance

    def case(self, name: str) -> None:
        first, second = self._stores
        session, said = first.create_session(id=name), []
        for number in range(self._chance.randrange(2, 6)):
            store = self._chance.choice(self._stores)
            mine = store.session(name)
            with mine.turn(f"{number}: prompt") as turn:
                said.append(f"{number}: prompt")
                self._nobody_takes_it(second if store is first else first, name)
                turn.record(Message("assistant", [Text(f"{number}: answer")]))
                said.append(f"{number}: answer")
            assert turn.status == "completed"
        assert [message.text for message in session.messages()] == said, "the order is another"
        assert [m["content"] for m in session.context("openai-chat").messages] == said
        check_sound(session)
        self._used_just_now(session.id)

    def _nobody_takes_it(self, other: Store, name: str) -> None:
        """However much time seems to have passed, the holder lives."""
        try:
            with other.session(name).turn("mine?"):
                raise AssertionError("a lease was taken from somebody who lives")
        except SessionBusy:
            pass

    def _used_just_now(self, name: str) -> None:
        """Whatever was used last is not removed for being old, and nothing without being asked."""
        first, _ = self._stores
        before = {info.id for info in first.sessions(limit=10_000)}
        first.session(name).note("used")
        newest = self._clock.now
        removed = first.clean_up(idle_after=_KEEP)  # a dry run: it only says what it would do
        assert before == {info.id for info in first.sessions(limit=10_000)}
        if abs(self._clock.now - newest) < _HOUR:
            assert name not in {one.session_id for one in removed}, "it was used a moment ago"


def run(round_: Round) -> None:
    clock = Clock(round_.chance)
    path = round_.quick / "store.db"
    with (
        Store(path, durability="normal", clock=clock, indexing=False) as first,
        Store(path, durability="normal", clock=clock, indexing=False) as second,
    ):
        history = History((first, second), clock, round_.chance)
        for number in range(_HISTORIES):
            round_.check("a history", history.case, f"s{number}")
        if not round_.failures:
            round_.check("all of them, in the end", _all_are_there, first)


def _all_are_there(store: Store) -> None:
    assert len(store.sessions(limit=10_000)) == _HISTORIES
    assert not store.sessions(deleted=True)


CAMPAIGN = Campaign(
    name="clocks",
    tries="the clock jumps by milliseconds, hours and years, stands still and runs backwards, "
    "between any two calls",
    holds="the order is that of the calls; no lease is taken from who lives; retention removes "
    "nothing by itself, and nothing that was just used",
    sizes=Sizes(slice=200, torture=10_000, long=500_000),
    run=run,
)
