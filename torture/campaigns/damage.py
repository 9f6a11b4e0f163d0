"""Pages, rows and bytes of one session's records are damaged: it says so, and no other suffers."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from killick import KillickError, Message, SessionDamaged, Store, Text
from torture.campaign import Campaign, Round, Sizes

_CASES: Final = 60
OTHERS: Final = ("before", "after")
_TABLES: Final = ("entries", "entries", "entries_by_seq")


def fill(path: Path, notes: int) -> None:
    """A session that will be damaged, between two that must not be touched by it."""
    with Store(path, durability="normal", indexing=False) as store:
        for session_id in ("before", "bad", "after"):
            session = store.create_session(id=session_id, title=session_id)
            with session.turn("go") as turn:
                turn.record(Message("assistant", [Text(f"done {session_id}")]))
            for number in range(notes if session_id == "bad" else 2):
                session.note("n", "x" * 600, key=f"old {number}")


# -- damage ----------------------------------------------------------------------------------------


class Damage:
    """One way of damaging, decided by chance; `named` when it must be noticed."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path = path
        self._chance = chance
        self.what = ""
        self.named = True

    def do(self) -> None:
        ways = [
            self._flip_a_body,
            self._change_a_row,
            self._lose_a_row,
            self._session_row,
            self._page,
            self._page,
        ]
        self._chance.choice(ways)()

    def _run(self, sql: str, *bindings: Any) -> None:
        connection = apsw.Connection(str(self._path))
        connection.execute(sql, bindings)
        connection.close()

    def _seq(self) -> int:
        return self._chance.randrange(2, 60)

    def _flip_a_body(self) -> None:
        """One bit of one record."""
        connection = apsw.Connection(str(self._path))
        seq = self._seq()
        body: Any = connection.execute(
            "SELECT body FROM entries WHERE session = 2 AND seq = ?", (seq,)
        ).get
        at, bit = self._chance.randrange(len(body)), 1 << self._chance.randrange(8)
        changed = body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]
        connection.execute(
            "UPDATE entries SET body = ? WHERE session = 2 AND seq = ?", (changed, seq)
        )
        connection.close()
        self.what = f"bit {bit} of byte {at} of entry {seq}"

    def _change_a_row(self) -> None:
        seq = self._seq()
        change = self._chance.choice(
            ["body = x''", "crc = crc + 1", "body = zeroblob(40)", "blob = 99", "body = x'ff00'"]
        )
        self._run(f"UPDATE entries SET {change} WHERE session = 2 AND seq = ?", seq)
        self.what = f"{change} in entry {seq}"

    def _lose_a_row(self) -> None:
        seq = self._seq()
        self._run("DELETE FROM entries WHERE session = 2 AND seq = ?", seq)
        self.what = f"entry {seq} is gone"

    def _session_row(self) -> None:
        """What is derived of the session; its journal is whole."""
        self._run("UPDATE sessions SET about = randomblob(20) WHERE key = 2")
        self.what = "what is known of the session"

    def _page(self) -> None:
        """A page that holds rows of the large session only."""
        connection = apsw.Connection(str(self._path))
        size = int(connection.pragma("page_size"))
        table = self._chance.choice(_TABLES)
        pages: list[Any] = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
        ).fetchall()
        connection.close()
        inner = pages[2:-2]
        if not inner:
            self._flip_a_body()
            return
        page = self._chance.choice(inner)[0]
        with self._path.open("r+b") as file:
            file.seek((page - 1) * size)
            old = file.read(size)
            file.seek((page - 1) * size)
            file.write(self._changed(old))
        self.what = f"{self.what} in page {page} of {table}"

    def _changed(self, old: bytes) -> bytes:
        kind = self._chance.choice(["zeros", "noise", "bytes", "cells", "other"])
        self.what = kind
        if kind == "zeros":
            return bytes(len(old))
        if kind == "noise":
            return self._chance.randbytes(len(old))
        if kind == "cells":
            cells = int.from_bytes(old[3:5], "big")
            return old[:3] + (cells - 1).to_bytes(2, "big") + old[5:]
        if kind == "other":
            return old[:2048] + old[:2048]
        self.named = False  # bytes that no row uses can be changed without harm
        at = self._chance.randrange(8, len(old) - 16)
        return old[:at] + self._chance.randbytes(8) + old[at + 8 :]


# -- what must hold --------------------------------------------------------------------------------


def case(template: Path, path: Path, chance: random.Random) -> None:
    for old in path.parent.glob("bad.db*"):
        old.unlink()
    shutil.copy(template, path)
    damage = Damage(path, chance)
    damage.do()
    with Store(path, durability="normal", indexing=False) as store:
        known = _everything(store, "bad")
        named = _is_named(store)
        if damage.named:
            assert named, f"nobody was told of {damage.what}"
        elif not named:
            assert _everything(store, "bad") == known, damage.what
        for session_id in OTHERS:
            _is_whole(store, session_id)
        assert {info.id for info in store.sessions()} == {"before", "bad", "after"}, damage.what
        _write_into_it(store)
        for session_id in OTHERS:
            _is_usable(store, session_id)
        assert store.status == "ok"


def _everything(store: Store, session_id: str) -> Any:
    return _or_damaged(lambda: store.session(session_id).messages())


def _or_damaged(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SessionDamaged as error:
        assert error.session_id == "bad"  # noqa: PT017
        return "damaged"


def _is_named(store: Store) -> bool:
    found = _or_damaged(lambda: store.session("bad").entries())
    if found == "damaged":
        return True
    return any(one.session_id in ("bad", None) for one in store.examine_session("bad"))


def _write_into_it(store: Store) -> None:
    """Whether it goes well or not: it is said, and stops nobody else."""
    try:
        store.session("bad").note("more", "x", key="more")
    except KillickError:
        return


def _is_whole(store: Store, session_id: str) -> None:
    texts = [message.text for message in store.session(session_id).messages()]
    assert texts == ["go", f"done {session_id}"], texts


def _is_usable(store: Store, session_id: str) -> None:
    session = store.session(session_id)
    with session.turn("still there?") as turn:
        turn.record(Message("assistant", [Text("yes")]))
    assert [message.text for message in session.messages(last=2)] == ["still there?", "yes"]


def run(round_: Round) -> None:
    template = round_.quick / "template.db"
    fill(template, notes=round_.chance.choice((60, 60, 900)))
    for _ in range(_CASES):
        round_.check("damage", case, template, round_.quick / "bad.db", round_.chance)


CAMPAIGN = Campaign(
    name="damage",
    tries="bits, rows and pages of one session's records are changed, zeroed or lost",
    holds="the damage is named with its session; the other sessions are read and written as before",
    sizes=Sizes(slice=200, torture=5_000, long=200_000),
    run=run,
)
