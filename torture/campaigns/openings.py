"""Two processes open a store that does not exist yet, at the same instant."""

from collections import Counter
from typing import Any, Final

from killick import Store
from tests.crash.journals import check_file
from tests.crash.processes import Channel, Nursery, soon, spin_until
from torture.campaign import Campaign, Round, Sizes

_OPENINGS: Final = 25


def create(parent: Channel, number: int) -> None:
    """Opens stores that do not exist yet, each at the moment that it is told."""
    parent.send("ready")
    while (order := parent.receive()) is not None:
        path, moment = order
        spin_until(moment)
        with Store(path) as store:
            store.create_session(id=f"own-{number}")
            store.create_session(id="both")
            parent.send("made")


def case(path: str, children: list[Any]) -> None:
    moment = soon(0.005)
    for child in children:
        child.send([path, moment])
    for child in children:
        child.expect("made")
    with Store(path) as store:
        found = Counter(info.id for info in store.sessions())
        assert found == Counter([*(f"own-{number}" for number in range(len(children))), "both"])
    check_file(path)


def run(round_: Round) -> None:
    nursery = Nursery()
    try:
        children = [nursery.start(create, number) for number in range(round_.chance.choice((2, 3)))]
        for child in children:
            child.expect("ready")
        for count in range(_OPENINGS):
            path = str(round_.folder / f"{count}.db")
            round_.check("first openings", case, path, children)
        for child in children:
            child.send(None)
            assert child.wait() == 0
    finally:
        nursery.close()


CAMPAIGN = Campaign(
    name="openings",
    tries="two or three processes make the same store, and a session of the same id, at the same "
    "instant",
    holds="all succeed, on one store; every session is there once",
    sizes=Sizes(slice=25, torture=200, long=20_000),
    run=run,
)
