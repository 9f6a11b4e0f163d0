"""Thirty-two processes append to one store, most of it to one session."""

from typing import Final

from killick import Message, Store, Text
from killick.model import entries as e
from tests.crash.journals import check_file, check_store
from tests.crash.processes import Channel, Child, Nursery, soon, spin_until
from torture.campaign import Campaign, Round, Sizes

PROCESSES: Final = 32
NOTES: Final = 24
_TURNS: Final = 3

_PATIENCE: Final = 120.0
_PATIENCE_WITH_A_SERVER: Final = 900.0
"""All wait for the shared session, and each looks whenever somebody has written to it: a minute of
two cores that have nothing else to do, and many when they have."""


def append(parent: Channel, path: str, number: int) -> None:
    """Notes and turns in the shared session, turns in an own one; tells all receipts."""
    store = Store(path)
    shared, own = store.session("shared"), store.create_session(id=f"own-{number}")
    parent.send("ready")
    spin_until(parent.receive())
    receipts: list[tuple[int, str]] = []
    for count in range(NOTES):
        name = f"{number}.{count}"
        receipts.append((shared.note(name).seq, name))
        if count % (NOTES // _TURNS) == 0:
            with shared.turn(f"prompt {name}", if_busy="wait") as turn:
                message = Message("assistant", [Text(name)], id=f"msg {name}")
                receipts.append((turn.record(message).seq, name))
            with own.turn(f"prompt {name}") as turn:
                turn.record(message)
                with turn.stream() as reply:
                    reply.text(name)
    store.close()
    parent.send(receipts)


def case(store: Store, path: str, children: list[Child], patience: float) -> None:
    """Every entry is in its session once, at the seq its writer was told; nobody saw an error."""
    for child in children:
        child.expect("ready", 60)
    moment = soon(0.05)
    for child in children:
        child.send(moment)
    receipts = [tuple(receipt) for child in children for receipt in child.receive(patience)]
    assert len(receipts) == len(set(receipts)), "two were told the same place"
    shared = store.session("shared")
    stored = [(x.seq, _name(x.body)) for x in shared.entries() if _name(x.body)]
    assert sorted(receipts) == stored
    check_store(store)
    for child in children:
        assert child.wait() == 0
    check_file(path)


def _name(body: e.Body) -> str:
    match body:
        case e.Note():
            return body.name
        case e.MessageRecorded(role="assistant"):
            return body.id.removeprefix("msg ")
        case _:
            return ""


def run(round_: Round) -> None:
    path, nursery = round_.places.at("store.db"), Nursery(round_.places.died)
    try:
        with Store(path) as store:
            store.create_session(id="shared")
            many = PROCESSES if round_.seed % 2 else PROCESSES // 4
            children = [nursery.start(append, path, number) for number in range(many)]
            appends = many * (NOTES + _TURNS)
            patience = _PATIENCE_WITH_A_SERVER if round_.places.slow else _PATIENCE
            round_.check(f"{many} processes", case, store, path, children, patience, cases=appends)
    finally:
        nursery.close()


CAMPAIGN = Campaign(
    name="processes",
    tries="32 processes append to one session and to their own at the same time, as fast as they "
    "can",
    holds="dense seqs; every append is there once, at the place its writer was told; nobody is "
    "turned away",
    sizes=Sizes(slice=800, torture=4_000, long=1_000_000),
    run=run,
)
