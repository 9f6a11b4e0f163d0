"""The end of a journal, read backwards in pieces: the same as the whole, however large they are."""

import random

import pytest

from killick import Session, Store
from killick.journal.visibility import History, in_view
from killick.model.entries import Entry
from killick.session.core.tail import Tail
from killick.stores.contract import Reader
from killick.stores.memory import MemoryDisk


def rewound(session: Session, seed: int) -> None:
    """Turns, and rewinds that reach into each other."""
    chance = random.Random(seed)
    for number in range(12):
        with session.turn(f"{number}"):
            pass
        if chance.random() < 0.5:
            whole = session.entries()
            session.rewind(chance.choice([entry.seq for entry in in_view(History(whole), whole)]))


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("seed", range(6))
def test_a_tail_in_pieces_is_what_is_in_view(seed: int, limit: int) -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        rewound(session, seed)

        def read(reader: Reader) -> list[Entry]:
            key = reader.find_key("default", session.id)
            assert key is not None
            tail = Tail(reader, key, after=0)
            while not tail.is_all:
                tail.read(limit)
            return tail.entries

        whole = session.entries()
        assert store._core.runtime().read(read) == list(in_view(History(whole), whole))
