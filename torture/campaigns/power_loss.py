"""Power cuts: every state in which the disk may be found, at every moment of a script.

A script is played on a store with `full` durability while every write and sync is recorded. Then,
for each moment of the record, the files are put together as a power cut could have left them, and
the store is opened.
"""

import random
from pathlib import Path
from typing import Any, Final

import apsw

from killick import Store
from killick.stores.sqlite import SqliteDatabase, connection
from killick.testing.players import Player
from tests.crash.journals import check_sound
from torture.campaign import Campaign, Round, Sizes
from torture.disk import Event, FaultyDisk, Left, Platter, faulty_disk
from torture.scripts import play

_STEPS: Final = 30
_LEFT: Final[tuple[Left, ...]] = ("nothing", "everything", "some", "torn", "zeros")
_CHECKPOINTS: Final = (6, 20, 60, 4_000)
"""After how many pages the log is copied back: early, so that cuts fall into it as well."""

Rows = list[tuple[Any, ...]]


def rows(path: Path) -> tuple[Rows, Rows]:
    """All entries in the order of their commits, and all deltas."""
    reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        if not reading.table_exists("main", "deltas"):
            return [], []
        entries = reading.execute(
            "SELECT session, seq, identity, crc, body FROM entries ORDER BY rowid"
        )
        deltas = "SELECT session, seq, number, body FROM deltas ORDER BY 1, 2, 3"
        return list(entries), list(reading.execute(deltas))
    finally:
        reading.close()


def record(disk: FaultyDisk, path: Path, chance: random.Random, durability: Any) -> Rows:
    """Play a script; after each step everything that can be read was acknowledged."""
    usual = connection._CHECKPOINT_PAGES
    connection._CHECKPOINT_PAGES = chance.choice(_CHECKPOINTS)  # type: ignore[misc]
    try:
        player = Player(lambda: SqliteDatabase(path, durability=durability))
        for _ in range(_STEPS):
            play(player, chance)
            disk.ack(tuple(map(len, rows(path))))
        player.close()
    finally:
        connection._CHECKPOINT_PAGES = usual  # type: ignore[misc]
    return rows(path)[0]


class Cut:
    """One moment at which the power may go."""

    def __init__(self, folder: Path, written: Rows, *, full: bool) -> None:
        self._path = folder / "store.db"
        self._written = written
        self._full = full
        self.acknowledged = 0

    def case(self, files: dict[str, bytes]) -> None:
        for old in self._path.parent.iterdir():
            old.unlink()
        for name, data in files.items():
            (self._path.parent / name).write_bytes(data)
        if "store.db" not in files:
            assert not self.acknowledged or not self._full, "the store is gone"
            return
        found, _ = rows(self._path)
        assert found == self._written[: len(found)], "what is there is not a prefix"
        if self._full:
            assert len(found) >= self.acknowledged, "something acknowledged is missing"
        self._open(found)

    def _open(self, found: Rows) -> None:
        """The store opens, closes what was cut off and takes its next turn."""
        with Store(self._path, durability="normal", indexing=False) as store:
            for info in store.sessions(archived=None):
                session = store.session(info.id)
                check_sound(session)
                with session.turn("and now?") as turn:
                    pass
                assert turn.status == "completed"
            assert store.counts()["deltas"] == 0
        after, _ = rows(self._path)
        assert after[: len(found)] == found, "opening has changed an entry"


def run(round_: Round) -> None:
    full = round_.seed % 5 != 0
    with faulty_disk() as disk:
        made = round_.quick / "made"
        made.mkdir()
        disk.reset()
        written = record(disk, made / "store.db", round_.chance, "full" if full else "normal")
        trace = disk.trace
    found = round_.quick / "found"
    found.mkdir()
    cut, platter = Cut(found, written, full=full), Platter()
    for number, event in enumerate(trace):
        platter.apply(event)
        if event.what == "ack":
            cut.acknowledged = event.fact[0]
        if event.what in ("ack", "open"):
            continue
        _cases(round_, cut, platter, number, event)


def _cases(round_: Round, cut: Cut, platter: Platter, number: int, event: Event) -> None:
    others = [round_.chance.choice(_LEFT[1:])] if platter.unsynced() else []
    for left in (_LEFT[0], *others):
        files = platter.after_power_cut(left, round_.chance)
        what = f"power lost after {event.what} {event.name} (event {number}), {left} left"
        round_.check(what, cut.case, files)


CAMPAIGN = Campaign(
    name="power_loss",
    tries="the power goes at every write and sync of a script: what was not synced is dropped, "
    "kept, reordered, torn at 512 bytes, or zeros",
    holds="what was acknowledged at `full` is there; what is there is a prefix, at `normal` too; "
    "the store opens and goes on",
    sizes=Sizes(slice=800, torture=20_000, long=1_000_000),
    run=run,
)
