"""A list costs what it finds, not what the store holds; and however it is found, it is the same."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killick import Store
from killick.model.sessions import Parent, Project, SessionInfo, microseconds
from killick.stores import sql
from killick.stores.contract import Listing
from tests.growth.stores import make_store, steps_of
from tests.postgres_fixtures import OnServer, shared

SIZES = (1_000, 10_000)
RARE: dict[str, dict[str, Any]] = {
    "tag": {"tag": "rare"},
    "model": {"model": "rare-1"},
    "project": {"project": "/rare"},
    "pinned": {"pinned": True},
    "interrupted": {"interrupted": True},
    "parent": {"parent": "pattern"},
    "fork": {"fork_of": "rare"},
    "a tag that all have": {"tag": "common"},
    "a project that all have": {"project": "/common"},
    "not interrupted": {"interrupted": False},
    "all": {},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("growth")
    return [_with_rare(make_store(folder / f"{size}.db", size)) for size in SIZES]


def _with_rare(path: Path) -> Path:
    """Add sessions that have what no copy has, older than all copies."""
    with Store(path, indexing=False, clock=lambda: 1_000_000) as store:
        rare = store.create_session(id="rare", tags=["rare"], project=Project("/rare"))
        rare.pin()
        with suppress(KeyboardInterrupt), rare.turn("go") as turn:
            with turn.stream(model="rare-1") as reply:
                reply.text("a")
            raise KeyboardInterrupt
        rare.fork(id="forked")
        store.create_session(id="child", parent=Parent("pattern", "turn"))
    return path


@pytest.mark.parametrize("name", RARE)
def test_a_list_takes_the_same_steps_in_a_store_ten_times_as_large(
    stores: list[Path], name: str
) -> None:
    listing = Listing(tenant="default", limit=20, **RARE[name])
    (small, first), (large, second) = (
        steps_of(path, lambda reader: reader.sessions(listing)) for path in stores
    )
    assert len(first) == len(second) > 0
    assert large <= small * 1.1 + 50, (small, large)


def test_an_id_is_found_by_its_prefix_in_the_same_steps(stores: list[Path]) -> None:
    (small, first), (large, second) = (
        steps_of(path, lambda reader: reader.find_ids("default", "chil", 5)) for path in stores
    )
    assert first == second == ["child"]
    assert large <= small


# -- the same, however it is found ----------------------------------------------------------------

TAGS, PROJECTS, MODELS, IDS = ("a", "b"), ("/p", "/q"), ("m-1", "m-2"), ("s00", "s01", "s39")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def _fill(store: Store) -> None:
    """Make forty sessions that have many things in common, some at the same time."""
    for n in range(40):
        parent = Parent(IDS[n % 3], "turn") if n % 5 == 4 else None
        session = store.create_session(
            id=f"s{n:02}",
            title=f"Title {n % 4}",
            tags=[tag for m, tag in enumerate(TAGS) if n % (m + 2) == 0],
            project=Project(PROJECTS[n % 2]) if n % 3 else None,
            type="subagent" if n % 7 == 0 else "user",
            parent=parent,
        )
        ended = RuntimeError if n % 6 else KeyboardInterrupt
        with suppress(ended), session.turn("go") as turn:
            with turn.stream(model=MODELS[n % 3 == 0]) as reply:
                reply.text("a")
            raise ended
        if n % 4 == 1:
            session.pin()
        if n % 8 == 2:
            session.archive()
        if n % 11 == 10:
            session.fork(id=f"f{n:02}")


def _clock() -> Callable[[], int]:
    """Go on by a second for every twenty times that it is asked."""
    ticks = iter(range(1_000_000))
    start = int(NOW.timestamp()) * 1_000_000
    return lambda: start + next(ticks) // 20 * 1_000_000


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    if request.param == "sqlite":
        where = str(tmp_path_factory.mktemp("lists") / "work.db")
    else:
        where = OnServer(shared("18")).at("lists")
    with Store(where, clock=_clock(), indexing=False) as opened:
        _fill(opened)
        yield opened


def _slowly(every: list[SessionInfo], wanted: dict[str, Any]) -> list[str]:
    """Look at every session, as the list would that knows no index."""

    def fits(info: SessionInfo) -> bool:
        facts = {
            "archived": info.archived,
            "type": info.type,
            "project": None if info.project is None else info.project.root,
            "interrupted": info.about.status == "interrupted",
            "pinned": info.about.pinned,
            "parent": None if info.about.parent is None else info.about.parent.session_id,
            "fork_of": None if info.fork is None else info.fork.session_id,
            "tag": wanted.get("tag") if wanted.get("tag") in info.tags else None,
            "model": wanted.get("model") if wanted.get("model") in info.about.models else None,
        }
        given = {name: value for name, value in wanted.items() if name in facts}
        title = wanted.get("title", "").casefold()
        at = info.updated_at_us
        return (
            all(facts[name] == value for name, value in given.items())
            and title in (info.title or "").casefold()
            and ("since" not in wanted or at >= microseconds(wanted["since"]))
            and ("until" not in wanted or at < microseconds(wanted["until"]))
            and ("before" not in wanted or (at, info.id) < _place(wanted["before"]))
        )

    return [info.id for info in every if fits(info)][: wanted["limit"]]


def _place(info: SessionInfo) -> tuple[int, str]:
    return info.updated_at_us, info.id


_FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "archived": st.booleans(),
    "type": st.sampled_from(["user", "subagent", "scheduled"]),
    "project": st.sampled_from([*PROJECTS, "/none"]),
    "tag": st.sampled_from([*TAGS, "none"]),
    "model": st.sampled_from([*MODELS, "none"]),
    "interrupted": st.booleans(),
    "pinned": st.booleans(),
    "title": st.sampled_from(["title 1", "3", "none"]),
    "parent": st.sampled_from([*IDS, "none"]),
    "fork_of": st.sampled_from(["s10", "s21", "none"]),
    "since": st.integers(0, 30).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    "until": st.integers(0, 30).map(lambda seconds: NOW + timedelta(seconds=seconds)),
}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), newest=st.sampled_from([1, 5, 20, 500]))
def test_filters_together_give_what_looking_at_every_session_gives(
    store: Store, data: st.DataObject, newest: int
) -> None:
    every = store.sessions(archived=None, limit=1_000)
    names = data.draw(st.sets(st.sampled_from(sorted(_FILTERS)), max_size=4))
    wanted: dict[str, Any] = {"archived": None} if "archived" not in names else {}
    wanted |= {name: data.draw(_FILTERS[name], label=name) for name in sorted(names)}
    wanted["limit"] = data.draw(st.integers(0, 50))
    if data.draw(st.booleans()):
        wanted["before"] = data.draw(st.sampled_from(every))
    known = {name: value for name, value in wanted.items() if value is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "NEWEST", newest)
        assert [info.id for info in store.sessions(**wanted)] == _slowly(every, known)
