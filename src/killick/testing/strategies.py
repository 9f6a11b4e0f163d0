"""Hypothesis strategies: steps of a script, and journals that came of playing one.

Every generated journal is one that a store has really written, so it keeps all the rules; it holds
cancellations, failures, crashes, stops, take-overs, parallel tools, repeated ids, late results,
compactions, rewinds, hidden messages and forks.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from killick.testing.players import Player

Step = tuple[str, tuple[Any, ...]]

texts = st.text(max_size=20) | st.sampled_from(["\ud800", "a\0b", "\u202e", "}{", "ok"])
call_ids = st.sampled_from(["call_0", "call_0", "call_1"])
hows = st.sampled_from(["normally", "interrupted", "failing"])
keys = st.none() | st.sampled_from(["key_1", "key_2"])
arguments = st.sampled_from(["{}", "{}", "{}", '{"a": 1}', '{"a"', ": 1}", "", "[1]"])

numbers = st.integers(0, 40)

STEPS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "start_turn": (
        texts.filter(bool),
        keys,
        st.sampled_from(["refuse", "refuse", "queue", "take_over"]),
        st.sampled_from([0, 1, 3]),
    ),
    "take_due": (st.sampled_from([600.0, 600.0, 1e-6]),),
    "work": (st.integers(0, 2),),
    "pause": (st.booleans(),),
    "resume_at": (st.sampled_from([None, 1999, 2999]),),
    "close_dead": (),
    "end_turn": (hows,),
    "open_stream": (),
    "say": (texts,),
    "think": (texts, st.none() | st.sampled_from(["sig", "c2ln"])),
    "call": (call_ids, arguments),
    "serve": (numbers,),
    "end_stream": (hows,),
    "continue_turn": (numbers,),
    "start_tool": (call_ids, st.sampled_from(["once", "once", "none", "idempotent"])),
    "repeat_tool": (st.integers(0, 3), call_ids),
    "settle": (
        st.integers(0, 3),
        call_ids,
        st.sampled_from(["ran", "did_not_run"]),
        st.sampled_from(["person", "check"]),
    ),
    "print": (texts,),
    "finish_tool": (st.none() | texts,),
    "end_tool": (hows,),
    "record": (
        texts,
        st.sampled_from(["mine_1", "mine_2", "mine_3"]),
        st.none() | call_ids,
    ),
    "late_result": (st.integers(0, 5), call_ids, texts),
    "late_text": (st.integers(0, 5), texts),
    "stop": (st.sampled_from(["enough", "user"]),),
    "queue": (texts.filter(bool), keys),
    "withdraw": (numbers,),
    "steer": (texts.filter(bool), keys),
    "take_steering": (),
    "rename": (texts, st.sampled_from(["person", "model"])),
    "limit": (st.sampled_from([None, 2, 30]),),
    "tag": (st.sampled_from(["a", "b"]), st.sampled_from(["a", "c"])),
    "pin": (st.booleans(),),
    "compact": (st.sampled_from(["In short: much was said.", "So far, so good."]), *[numbers] * 3),
    "rewind": (numbers,),
    "undo": (numbers,),
    "see": (numbers, st.booleans(), st.booleans(), st.booleans()),
    "fork": (numbers,),
}
"""Every step a player knows, and what it is given. Deleting and crashing are apart."""


HISTORY = frozenset({"compact", "rewind", "undo", "see", "fork"})
"""Steps that change which messages are in view."""

sides = st.sampled_from([0, 0, 0, 1])


def draw_step(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    player: Player,
    side: int,
    *,
    history: bool = True,
) -> Step:
    """A step for this player to take: mostly one that leads somewhere, sometimes any."""
    names = draw(st.sampled_from(["likely", "likely", "likely", "likely", "any"]))
    known = player.likely(side) if names == "likely" else list(STEPS)
    name = draw(st.sampled_from(known if history else [n for n in known if n not in HISTORY]))
    return name, tuple(draw(given) for given in STEPS[name])


@st.composite
def journals(draw: st.DrawFn, steps_max: int = 60, *, history: bool = True) -> list[e.Entry]:
    """A whole journal, of any shape a store can leave behind, its history changed or not."""
    player = Player(MemoryDisk().open)
    try:
        for _ in range(draw(st.integers(0, steps_max))):
            side = draw(sides)
            if draw(st.integers(0, 19)) == 0:
                player.crash(side)
            else:
                name, args = draw_step(draw, player, side, history=history)
                player.step(side, name, *args)
        return player.journal()
    finally:
        player.close()
