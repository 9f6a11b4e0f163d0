"""Ctrl+C at every place of one append where Python lets a signal handler run, and at pairs of them.

Once the append is repeated, the message is there, and it is there once.
"""

import contextlib
from functools import partial
from pathlib import Path
from random import Random

from killick import Message, Text, Turn
from tests.interrupt.driving import Disk
from tests.interrupt.ledger import use_again
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)
PAIRS = 80


def test_an_append_that_is_interrupted_at_every_place_and_at_pairs_of_them(disk: Disk) -> None:
    random = Random(22)
    with disk.sync() as store:
        session = store.create_session()
        with session.turn("go") as turn:
            places = 0
            while _interrupted(turn, f"at {places + 1}", {places + 1}):
                places += 1
            assert places > 30
            pairs = {tuple(random.sample(range(1, places + 1), 2)) for _ in range(PAIRS)}
            for first, second in sorted(pairs):
                _interrupted(turn, f"at {first} and {second}", {first, second})
        said = [message.text for message in session.messages()][1:]
        assert said == [f"at {number + 1}" for number in range(places + 1)] + [
            f"at {first} and {second}" for first, second in sorted(pairs)
        ]
        use_again(session)


def _interrupted(turn: Turn, name: str, at: set[int]) -> bool:
    """Record a message, interrupted at these places; False where there is no such place."""
    said = Message("assistant", [Text(name)], id=f"m {name}")
    interrupter = Interrupter(at, HERE)
    with contextlib.suppress(KeyboardInterrupt):
        interrupter.run(partial(turn.record, said))
        assert not interrupter.fired, "the interruption was swallowed"
    turn.record(said)
    return bool(interrupter.fired)
