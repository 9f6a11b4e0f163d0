"""The feed passes no transaction that is still open, in whatever order commits become visible."""

import psycopg

from killick import News, Store
from tests.postgres_fixtures import Shared


def ended(store: Store, session_id: str) -> None:
    with store.open_session(session_id).turn("go"):
        pass


def named(news: list[News]) -> list[str]:
    return [line.session_id for line in news]


def test_a_commit_that_is_held_open_hides_none(server: Shared) -> None:
    """A line that was written first and becomes visible last is given first."""
    with (
        psycopg.connect(server.server.conninfo()) as other,
        Store(server.server.url()) as store,
    ):
        ended(store, "before")
        following = store.follow()
        assert named(following.now()) == ["before"]
        # Another process has written, and has not committed yet.
        other.execute("INSERT INTO killick.holders VALUES ('slow', clock_timestamp())")
        ended(store, "after")
        assert named(following.now()) == [], "an earlier line may still become visible"
        assert named(store.follow(waiting=True).now()) == []
        other.execute(
            "INSERT INTO killick.news (tenant, session, seq, line, place, kind, cause, waits) "
            "SELECT tenant, session, 99, 0, pg_current_xact_id()::text::bigint, 'turn_ended', "
            "NULL, false FROM killick.sessions WHERE id = 'before'"
        )
        other.commit()
        given = following.now()
        assert (given[0].session_id, given[0].seq) == ("before", 99)
        assert named(given) == ["before", "after"]
        assert following.now() == []


def test_a_session_s_lines_are_in_order_whichever_transaction_began_first(server: Shared) -> None:
    """A transaction that began before another, and wrote to its session after it."""
    put = (
        "INSERT INTO killick.news (tenant, session, seq, line, place, kind, cause, waits) "
        "SELECT tenant, session, %s, 0, {place}, 'turn_ended', NULL, false "
        "FROM killick.sessions WHERE id = 's'"
    )
    last = (
        "greatest(pg_current_xact_id()::text::bigint, (SELECT place FROM killick.news AS n "
        "WHERE n.session = sessions.session ORDER BY seq DESC, line DESC LIMIT 1))"
    )
    with (
        psycopg.connect(server.server.conninfo()) as early,
        psycopg.connect(server.server.conninfo()) as late,
        Store(server.server.url()) as store,
    ):
        store.create_session(id="s")
        early.execute("SELECT pg_current_xact_id()")
        late.execute(put.format(place=last).encode(), (5,))
        late.commit()
        early.execute(put.format(place=last).encode(), (6,))
        early.commit()
        assert [line.seq for line in store.follow().now()] == [5, 6]
        first, second = store.follow().now()
        assert store.follow(after=first.cursor).now() == [second]
