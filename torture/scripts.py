"""Scripts for a `Player`, step by step, decided by one source of chance.

The same as `killick.testing.strategies`, without Hypothesis: nothing is shrunk, it is quick, and
a number is enough to have the same script again on any version of anything.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from killick.testing.players import Player
from killick.testing.strategies import HISTORY

_TEXTS: Final = [
    "Let me look.",
    "",
    " ",
    "two\nlines\r\n",
    "\ud800",
    "a\0b",
    "\u202e\u2028",
    "}{",
    "ok",
    "東京 ",
    "x" * 700,
]
_ARGUMENTS: Final = ["{}", "{}", "{}", '{"a": 1}', '{"a"', ": 1}", "", "[1]", '{"b": "\\u2028"}']
_CALLS: Final = ["call_0", "call_0", "call_1", "toolu_01/…", "x" * 70]
_HOWS: Final = ["normally", "interrupted", "failing"]
_KEYS: Final = [None, "key_1", "key_2"]

Draw = Callable[[random.Random], tuple[Any, ...]]


def _number(chance: random.Random) -> int:
    return chance.randrange(41)


def _said(chance: random.Random) -> str:
    return chance.choice(_TEXTS) or "…"


STEPS: Final[dict[str, Draw]] = {
    "start_turn": lambda c: (
        _said(c),
        c.choice(_KEYS),
        c.choice(["refuse", "refuse", "queue", "take_over"]),
        c.choice([0, 1, 3]),
    ),
    "take_due": lambda c: (600.0,),
    "work": lambda c: (c.randrange(3),),
    "pause": lambda c: (c.random() < 0.5,),
    "resume_at": lambda c: (c.choice([None, 1999, 2999]),),
    "close_dead": lambda c: (),
    "end_turn": lambda c: (c.choice(_HOWS),),
    "open_stream": lambda c: (),
    "say": lambda c: (c.choice(_TEXTS),),
    "think": lambda c: (c.choice(_TEXTS), c.choice([None, "sig", "c2ln"])),
    "call": lambda c: (c.choice(_CALLS), c.choice(_ARGUMENTS)),
    "serve": lambda c: (_number(c),),
    "end_stream": lambda c: (c.choice(_HOWS),),
    "continue_turn": lambda c: (_number(c),),
    "start_tool": lambda c: (
        c.choice(_CALLS),
        c.choice(["once", "once", "none", "idempotent"]),
    ),
    "repeat_tool": lambda c: (c.randrange(4), c.choice(_CALLS)),
    "settle": lambda c: (
        c.randrange(4),
        c.choice(_CALLS),
        c.choice(["ran", "did_not_run"]),
        c.choice(["person", "check"]),
    ),
    "print": lambda c: (c.choice(_TEXTS),),
    "finish_tool": lambda c: (c.choice([None, *_TEXTS]),),
    "end_tool": lambda c: (c.choice(_HOWS),),
    "record": lambda c: (
        c.choice(_TEXTS),
        c.choice(["mine_1", "mine_2", "mine_3"]),
        c.choice([None, *_CALLS]),
    ),
    "late_result": lambda c: (c.randrange(6), c.choice(_CALLS), c.choice(_TEXTS)),
    "late_text": lambda c: (c.randrange(6), c.choice(_TEXTS)),
    "stop": lambda c: (c.choice(["enough", "user"]),),
    "queue": lambda c: (_said(c), c.choice(_KEYS)),
    "steer": lambda c: (_said(c), c.choice(_KEYS)),
    "take_steering": lambda c: (),
    "rename": lambda c: (c.choice(_TEXTS), c.choice(["person", "model"])),
    "tag": lambda c: (c.choice("ab"), c.choice("ac")),
    "pin": lambda c: (c.random() < 0.5,),
    "compact": lambda c: ("In short: much was said.", _number(c), _number(c), _number(c)),
    "rewind": lambda c: (_number(c),),
    "undo": lambda c: (_number(c),),
    "see": lambda c: (_number(c), *(c.random() < 0.5 for _ in range(3))),
    "fork": lambda c: (_number(c),),
}


def play(player: Player, chance: random.Random, *, history: bool = True) -> None:
    """One step more: mostly one that leads somewhere, sometimes any, now and then a crash."""
    side = chance.choice([0, 0, 0, 1])
    if chance.randrange(20) == 0:
        player.crash(side)
        return
    known = player.likely(side) if chance.random() < 0.8 else list(STEPS)
    name = chance.choice([one for one in known if history or one not in HISTORY])
    player.step(side, name, *STEPS[name](chance))
