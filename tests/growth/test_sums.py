"""Figures over all sessions cost days, and are what looking at every session gives."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import Store
from killick.journal.fold import fold_turns
from killick.journal.kinds import TURNS
from killick.journal.summary import add_up
from killick.model.entries import Usage
from killick.session.core import figures
from killick.session.drive.steps import write
from killick.stores.contract import Reader, UsageQuery
from killick.stores.engine.sum_ops import count_sessions
from killick.stores.memory import MemoryDisk
from killick.stores.postgres.statements import queries, tenant_number
from killick.stores.sql import chosen
from tests.growth.stores import make_store, steps_of
from tests.growth.test_postgres_lists import fill, looked_at
from tests.postgres_fixtures import shared
from tests.waiting import until

DAY_US = 86_400_000_000
FIRST = date(1970, 1, 1)
SIZES = (1_000, 10_000)


# -- what the slow way gives -------------------------------------------------------------------


def slow_activity(reader: Reader) -> list[figures.ActiveDay]:
    days: dict[int, dict[str, int]] = {}

    def note(at_us: int, what: str) -> None:
        of_day = days.setdefault(at_us // DAY_US, {})
        of_day[what] = of_day.get(what, 0) + 1

    for key in reader.session_keys():
        row = reader.session(key)
        assert row is not None
        if row.about.deleted:
            continue
        note(row.created_at_us, "sessions")
        for turn in fold_turns(reader.marked_entries(key, TURNS, after=row.base_seq)):
            note(turn.started_at_us, "turns")
            if turn.ended_at_us is not None:
                note(turn.ended_at_us, turn.status)
    return [
        figures.ActiveDay((FIRST + timedelta(days=day)).isoformat(), **days[day])
        for day in sorted(days)
    ]


def check(store: Store, since: int, until: int, model: str | None) -> None:
    read = store._core.runtime().read
    asked: dict[str, Any] = {
        "since": FIRST + timedelta(days=since),
        "until": FIRST + timedelta(days=until),
    }
    query = UsageQuery(tenant="default", model=model, since_day=since, until_day=until)
    for by in ("model", "day", "all"):
        quick = store.usage(by, model=model, **asked)
        slow = add_up(read(lambda reader: reader.usage(query)), by)
        assert quick.behind == 0
        assert [rounded(total) for total in quick] == [rounded(total) for total in slow]
    days = [day for day in read(slow_activity) if asked["since"] <= _day(day) <= asked["until"]]
    assert store.activity(**asked) == days


def rounded(total: Any) -> tuple[Any, ...]:
    cost = None if total.cost is None else round(total.cost, 9)
    return (total.name, total.calls, total.input, total.output, cost)


def _day(day: figures.ActiveDay) -> date:
    return date.fromisoformat(day.day)


# -- what may happen ---------------------------------------------------------------------------


class Fail(Exception):
    pass


class Play:
    """Sessions to which things happen, on days that come in any order."""

    def __init__(self, where: Any) -> None:
        self.day = 3
        self.number = 0
        self.store = Store(where, clock=lambda: self.day * DAY_US, indexing=False)
        self.sessions: list[str] = []
        self.running: dict[str, Any] = {}

    def do(self, what: str, day: int, which: int) -> None:
        self.day = day
        if what != "create" and not self.sessions:
            return
        name = self.sessions[which % len(self.sessions)] if self.sessions else ""
        getattr(self, f"_{what}")(name, which)

    def _name(self) -> str:
        self.number += 1
        self.sessions.append(f"s{self.number}")
        return self.sessions[-1]

    def _open(self, name: str) -> Any | None:
        deleted = {info.id for info in self.store.sessions(deleted=True)}
        return None if name in deleted else self.store.session(name)

    def _create(self, _name: str, _which: int) -> None:
        self.store.create_session(id=self._name())

    def _turn(self, name: str, which: int) -> None:
        session = self._open(name)
        if session is None or name in self.running:
            return
        try:
            with session.turn("go") as turn:
                with turn.stream(model=f"m{which % 3}", provider="p") as reply:
                    reply.text("a")
                    cost = None if which % 2 else which * 0.1
                    reply.finish(usage=Usage(input=which, output=1, cost=cost))
                if which % 5 == 0:
                    raise Fail("no")
                if which % 7 == 0:
                    raise KeyboardInterrupt
        except (Fail, KeyboardInterrupt):
            pass

    def _begin(self, name: str, which: int) -> None:
        """Begin a turn that goes on for days, or end it."""
        if name in self.running:
            self.running.pop(name).end()
            return
        session = self._open(name)
        if session is not None:
            self.running[name] = session.turn("long").begin()
            with self.running[name].stream(model=f"m{which % 3}"):
                pass

    def _fork(self, name: str, _which: int) -> None:
        session = self._open(name)
        if session is not None:
            session.fork(id=self._name())

    def _delete(self, name: str, _which: int) -> None:
        self.running.pop(name, None)
        self.store.delete_session(name)

    def _restore(self, name: str, _which: int) -> None:
        self.store.restore_session(name)

    def _compact(self, name: str, which: int) -> None:
        session = self._open(name)
        messages = session.messages() if session is not None else []
        if session is not None and messages and name not in self.running:
            through = messages[-1].seq
            session.compact("s", through=through, model="small", usage=Usage(input=which))

    def _bring_in(self, name: str, _which: int) -> None:
        session = self._open(name)
        if session is not None and name not in self.running and session.info().fork is None:
            self.store.import_entries(self._name(), session.entries())

    def _erase(self, name: str, _which: int) -> None:
        if name in self.running or any(self.store.sessions(fork_of=name, archived=None)):
            return
        if any(self.store.sessions(fork_of=name, deleted=True)):
            return
        self.store.erase_session(name)
        self.sessions.remove(name)

    def _rebuild(self, name: str, _which: int) -> None:
        if name not in self.running:
            self.store.examine_session(name, rebuild=True)

    def _count(self, _name: str, _which: int) -> None:
        self.store._run(write(lambda engine: count_sessions(engine, 10.0)))


ACTIONS = [name.removeprefix("_") for name in vars(Play) if name.startswith("_") and name[1] != "_"]
ACTIONS = [name for name in ACTIONS if name not in ("name", "open")]
HAPPENED = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, "create", "turn", "turn", "count"]),
        st.integers(0, 6),
        st.integers(0, 40),
    ),
    min_size=5,
    max_size=30,
)
"""What happens, on which day, to which session."""


def play(where: Any, happened: list[tuple[str, int, int]], since: int, until: int) -> None:
    played = Play(where)
    try:
        with played.store:
            played.do("create", 2, 0)
            for what in happened:
                played.do(*what)
            for model in (None, "m1"):
                check(played.store, since, until, model)
            played.do("count", 0, 0)
            check(played.store, since, until, None)
            assert [one for one in played.store.check_file() if one.kind == "sums"] == []
            played.running.clear()
    finally:
        played.store.close()


SPAN = st.integers(0, 6)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(HAPPENED, SPAN, SPAN)
def test_the_sums_are_what_every_session_adds_up_to(
    tmp_path_factory: pytest.TempPathFactory,
    happened: list[tuple[str, int, int]],
    since: int,
    until: int,
) -> None:
    play(tmp_path_factory.mktemp("sums") / "work.db", happened, since, until)


@settings(max_examples=60, deadline=None)
@given(HAPPENED, SPAN, SPAN)
def test_a_store_in_memory_gives_the_same(
    happened: list[tuple[str, int, int]], since: int, until: int
) -> None:
    play(MemoryDisk().open(), happened, since, until)


@settings(max_examples=12, deadline=None)
@given(HAPPENED, SPAN, SPAN)
def test_so_does_a_server(happened: list[tuple[str, int, int]], since: int, until: int) -> None:
    shared("18").empty()
    play(shared("18").server.url(), happened, since, until)


# -- what it costs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sums")
    made = [make_store(folder / f"{size}.db", size) for size in SIZES]
    for path in made:
        with Store(path, indexing=False) as store:
            store.rebuild_sums()
    return made


READS: dict[str, Callable[[Reader], Any]] = {
    "usage by model": lambda reader: figures._usage_of_all(
        reader, "model", UsageQuery(tenant="default")
    ),
    "activity": lambda reader: figures._activity(reader, "default", 0, 10**6),
    "what is uncounted": lambda reader: reader.count_uncounted("default"),
}


@pytest.mark.parametrize("name", READS)
def test_figures_take_the_same_steps_in_a_store_ten_times_as_large(
    stores: list[Path], name: str
) -> None:
    (small, first), (large, second) = (steps_of(path, READS[name]) for path in stores)
    assert bool(first) == bool(second)
    assert large <= small


def test_a_report_says_how_far_it_is_behind(tmp_path: Path) -> None:
    path = make_store(tmp_path / "work.db", 1_200)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET uncounted = 1")
    connection.close()
    with Store(path, indexing=False) as store:
        report = store.usage("all")
        lacking = 1_201 - figures.ADDED_SESSIONS
        assert (report.behind, store.activity().behind) == (lacking, lacking)
        assert report[0].calls == figures.ADDED_SESSIONS
        store.rebuild_sums()
        assert (store.usage("all").behind, store.usage("all")[0].calls) == (0, 1_201)


def test_sessions_are_counted_in_idle_moments_and_before_a_store_closes(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        with store.create_session().turn("go"):
            pass
        until(lambda: not store._core.runtime().read(lambda reader: reader.uncounted(None, 1)))
        with store.create_session().turn("go"):
            pass
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT turns FROM activity_sums").get == 2
    connection.close()


def test_wrong_sums_are_found_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store, store.create_session().turn("go"):
        pass
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE activity_sums SET turns = 5")
    connection.close()
    with Store(path) as store:
        (found,) = store.check_file()
        assert (found.kind, store.activity()[0].turns) == ("sums", 5)
        store.rebuild_sums()
        assert store.check_file() == []
        assert store.activity()[0].turns == 1


_COUNTED = """
UPDATE killick.sessions SET uncounted = session <= 3;
INSERT INTO killick.counted SELECT tenant, session, '[0,[],[]]' FROM killick.sessions;
INSERT INTO killick.usage_sums
SELECT DISTINCT tenant, n, 'p'::bytea, 'm'::bytea, 1, 1, 1, 1, 1, 0.0, 1, 0
FROM killick.sessions, generate_series(1, 50) AS n;
INSERT INTO killick.activity_sums
SELECT DISTINCT tenant, n, 1, 1, 1, 0, 0 FROM killick.sessions, generate_series(1, 50) AS n;
"""


def test_a_server_looks_at_the_days_and_at_what_is_uncounted() -> None:
    sql, tenant = queries("killick"), {"tenant": tenant_number("default")}
    usage = chosen(sql.usage_sums, "all", frozenset({"since_day"}))
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "usage": (usage, {**tenant, "since_day": 21}),
        "days": (sql.activity_sums, {**tenant, "since": 21, "until": 60}),
        "uncounted": (sql.uncounted, {**tenant, "limit": 500}),
        "all uncounted": (sql.uncounted_of_all, {"limit": 500}),
        "to count": (sql.take_uncounted, {"limit": 500}),
        "behind": (sql.count_uncounted, tenant),
    }
    with psycopg.connect(shared("18").server.conninfo(), autocommit=True) as connection:
        fill(connection, SIZES[-1])
        connection.execute(_COUNTED.encode())
        connection.execute(
            "VACUUM ANALYZE killick.sessions, killick.counted, killick.usage_sums, "
            "killick.activity_sums"
        )
        looked = {name: looked_at(connection, *statement) for name, statement in asked.items()}
    shared("18").empty()
    assert looked.pop("usage") <= 50
    assert looked.pop("days") <= 50
    assert max(looked.values()) <= 12, looked
