"""Usage of one session, of a project or of some days costs what there is of it."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killick import Store
from killick.journal.summary import add_up
from killick.model.sessions import Project
from killick.stores.contract import UsageQuery
from tests.growth.stores import make_store, steps_of
from tests.postgres_fixtures import OnServer, shared

SIZES = (1_000, 10_000)
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("usage")
    made = []
    for size in SIZES:
        path = make_store(folder / f"{size}.db", size)
        with Store(path, indexing=False, clock=lambda: 5 * DAY_US) as store:
            session = store.create_session(id="rare", project=Project("/rare"))
            with session.turn("go") as turn, turn.stream(model="rare-1") as reply:
                reply.text("a")
        made.append(path)
    return made


QUERIES: dict[str, dict[str, Any]] = {
    "one session": {"session": "rare"},
    "a project": {"project": "/rare"},
    "a day": {"since_day": 5, "until_day": 5},
}


@pytest.mark.parametrize("name", QUERIES)
def test_usage_takes_the_same_steps_in_a_store_ten_times_as_large(
    stores: list[Path], name: str
) -> None:
    query = UsageQuery(tenant="default", **QUERIES[name])
    (small, first), (large, second) = (
        steps_of(path, lambda reader: reader.usage(query)) for path in stores
    )
    assert len(first) == len(second) == 1
    assert large <= small


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    if request.param == "sqlite":
        where = str(tmp_path_factory.mktemp("usage") / "work.db")
    else:
        where = OnServer(shared("18")).at("usage")
    now = [0]
    with Store(where, clock=lambda: now[0] * DAY_US, indexing=False) as opened:
        for n in range(12):
            now[0] = n // 3
            project = Project(f"/{n % 2}") if n % 3 else None
            session = opened.create_session(id=f"s{n}", project=project)
            for model in ("m-1", "m-2")[: 1 + n % 2]:
                with session.turn("go") as turn, turn.stream(model=model) as reply:
                    reply.text("a")
        yield opened


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries(
        {"by": st.sampled_from(["session", "model", "project", "day", "all"])},
        optional={
            "session": st.sampled_from(["s1", "s4", "none"]),
            "project": st.sampled_from(["/0", "/1", "/none"]),
            "model": st.sampled_from(["m-1", "m-2", "none"]),
            "since": st.integers(1, 5).map(lambda day: date(1970, 1, day)),
            "until": st.integers(1, 5).map(lambda day: date(1970, 1, day)),
        },
    )
)
def test_filters_together_give_what_looking_at_every_row_gives(
    store: Store, wanted: dict[str, Any]
) -> None:
    every = store._core.runtime().read(lambda reader: reader.usage(UsageQuery(tenant="default")))
    first = (wanted.get("since", date(1970, 1, 1)) - date(1970, 1, 1)).days
    last = (wanted.get("until", date(1970, 12, 1)) - date(1970, 1, 1)).days
    rows = [
        (session, project, spent)
        for session, project, spent in every
        if wanted.get("session", session) == session
        and wanted.get("project", project) == project
        and wanted.get("model", spent.model) == spent.model
        and first <= spent.day <= last
    ]
    assert store.usage(**wanted) == add_up(rows, wanted["by"])
