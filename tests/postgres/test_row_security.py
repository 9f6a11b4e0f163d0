"""Row security: whatever a program asks as one tenant, the server shows it nothing of another's."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from killick import Store, StoreReadOnly, UsageError
from killick.stores.postgres import PostgresDatabase, migrate
from killick.stores.postgres.connection import Connection, ConnectionSettings, connect, read_url
from killick.stores.postgres.row_security import grant, tables_of_tenants
from killick.stores.postgres.statements import (
    Bigints,
    Byteas,
    columns,
    join,
    of,
    queries,
    tenant_number,
)
from killick.testing.conformance import CHECKS, Check, World
from tests.postgres_fixtures import shared
from tests.servers import PGBOUNCER, Server, pooler

PROGRAM, RIVAL = "program", "rival"
SEVERAL = {"a_feed_is_of_one_tenant", "tenants_do_not_see_each_other"}
"""Checks that open a store for a second tenant on the same database."""


@pytest.fixture(scope="module")
def server() -> Server:
    """The shared server, with a role that is bound to no tenant for good, and one that is."""
    server = shared("18").server
    for role in (PROGRAM, RIVAL):
        if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
            server.execute(f"CREATE ROLE {role} LOGIN")
    with Connection.connect(server.conninfo(), autocommit=True) as connection:
        grant(connection, "killick", PROGRAM, None)
        grant(connection, "killick", RIVAL, "rival")
    return server


@pytest.fixture
def empty(server: Server) -> Server:
    shared("18").empty()
    return server


@pytest.fixture(scope="module")
def bouncer(server: Server) -> Iterator[int]:
    if not PGBOUNCER.exists():
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    with pooler(server, PROGRAM, RIVAL) as port:
        yield port


CHOSEN = [
    check
    for check in CHECKS
    if check.__module__.rsplit(".", 1)[-1] in ("leases", "turns", "feed")
    and check.__name__ not in SEVERAL
]


@pytest.mark.parametrize("check", CHOSEN, ids=lambda check: str(check.__name__))
def test_a_store_works_as_a_role_that_is_bound(check: Check, empty: Server) -> None:
    url = empty.url(user=PROGRAM)
    World("sync", lambda: PostgresDatabase(url, tenant="default")).run(check)


@pytest.mark.parametrize("check", CHOSEN[::4], ids=lambda check: str(check.__name__))
def test_it_works_behind_a_pooler(check: Check, empty: Server, bouncer: int) -> None:
    """Each transaction names its tenant: the connection was another tenant's a moment ago."""
    url = empty.url(user=PROGRAM, port=bouncer)
    World("sync", lambda: PostgresDatabase(url, tenant="default")).run(check)


def test_two_tenants_share_the_connections_of_a_pooler(empty: Server, bouncer: int) -> None:
    url = empty.url(user=PROGRAM, port=bouncer)
    with Store(url, tenant="first") as first, Store(url, tenant="second") as second:
        for number in range(6):
            for store in (first, second):
                with store.create_session(id=f"s{number}").turn("go"):
                    pass
        for store in (first, second):
            assert len(store.sessions()) == 6
            assert store.session("s3").turns()[0].status == "completed"
    rows = empty.execute("SELECT tenant, count(*) FROM killick.sessions GROUP BY tenant")
    assert sorted(rows) == sorted((tenant_number(name), 6) for name in ("first", "second"))


def test_a_table_that_an_upgrade_brings_binds_the_roles_of_before(
    empty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = migrate.migrations()[:5]
    empty.execute("DROP SCHEMA IF EXISTS older CASCADE")
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: before)
        PostgresDatabase(empty.url("older")).close()
        with Connection.connect(empty.conninfo(), autocommit=True) as connection:
            grant(connection, "older", PROGRAM, None)
            grant(connection, "older", RIVAL, "rival")
    for tenant in ("rival", "victim"):
        with Store(empty.url("older"), tenant=tenant) as store:
            store.set_retention(idle_after=timedelta(1))
    for role, tenant, seen in ((PROGRAM, "victim", 1), (RIVAL, "victim", 0), (RIVAL, "rival", 1)):
        with psycopg.connect(empty.conninfo(user=role), autocommit=True) as connection:
            named = (str(tenant_number(tenant)),)
            connection.execute("SELECT set_config('killick_store.tenant', %s, false)", named)
            rows = connection.execute("SELECT body FROM older.retention").fetchall()
            assert len(rows) == seen, (role, tenant)
    empty.execute("DROP SCHEMA older CASCADE")


def test_a_store_without_a_tenant_says_so(empty: Server) -> None:
    with pytest.raises(UsageError, match="row security binds this role"):
        Store(empty.url(user=PROGRAM))
    with Store(empty.url()) as owner:  # the owner is not bound
        owner.create_session()


@pytest.mark.parametrize("tenant", [None, "default"])
def test_a_turn_of_an_owner_without_a_tenant_is_seen_to_be_alive(
    empty: Server, tenant: str | None
) -> None:
    with Connection.connect(empty.conninfo(), autocommit=True) as connection:
        grant(connection, "killick", PROGRAM, tenant)
    try:
        with Store(empty.url()) as owner, Store(empty.url(user=PROGRAM), tenant="default") as bound:
            session = owner.create_session()
            with session.turn("go"):
                assert bound.session(session.id).turns()[0].status == "running"
    finally:
        with Connection.connect(empty.conninfo(), autocommit=True) as connection:
            grant(connection, "killick", PROGRAM, None)


def test_a_role_of_one_tenant_sees_no_other_whatever_it_sets(empty: Server) -> None:
    with Store(empty.url(), tenant="victim") as victim:
        victim.create_session(id="secret", title="secret")
    with Store(empty.url(user=RIVAL), tenant="rival") as rival:
        rival.create_session(id="mine")
    with psycopg.connect(empty.conninfo(user=RIVAL), autocommit=True) as connection:
        for name, seen in (("rival", 1), ("victim", 0)):
            connection.execute(
                "SELECT set_config('killick_store.tenant', %s, false)", (str(tenant_number(name)),)
            )
            rows = connection.execute("SELECT id FROM killick.sessions").fetchall()
            assert len(rows) == seen


@pytest.mark.parametrize("role", [PROGRAM, RIVAL])
def test_what_has_no_tenant_can_be_read_and_not_changed(empty: Server, role: str) -> None:
    """One update of the state of the index would take the search away from every tenant."""
    with Connection.connect(empty.conninfo(user=role), autocommit=True) as connection:
        for table in ("meta", "migrations", "search_state"):
            connection.execute(f"SELECT count(*) FROM killick.{table}")
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(f"DELETE FROM killick.{table}")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("UPDATE killick.search_state SET damage = 'as a rival says'")
    with Store(empty.url(user="program"), tenant="victim") as victim:
        assert list(victim.search("word")) == []


def test_two_roles_with_long_names_are_each_bound_to_their_tenant(empty: Server) -> None:
    """The name of a policy has room for 63 bytes: these two begin with the same ones."""
    roles = {f"{'a_program_of_a_customer_with_a_long_name' * 2}"[:60] + end: end for end in "xy"}
    for role, tenant in roles.items():
        empty.execute(f"CREATE ROLE {role} LOGIN")
        with Connection.connect(empty.conninfo(), autocommit=True) as connection:
            grant(connection, "killick", role, tenant)
    try:
        with Store(empty.url(), tenant="victim") as victim, victim.create_session().turn("go"):
            pass
        for role in roles:
            with Connection.connect(empty.conninfo(user=role), autocommit=True) as connection:
                number = tenant_number("victim")
                connection.execute(f"SET killick_store.tenant = '{number}'")
                assert connection.execute("SELECT count(*) FROM killick.sessions").fetchall() == [
                    (0,)
                ]
    finally:
        for role in roles:
            empty.execute(f"DROP OWNED BY {role}")
            empty.execute(f"DROP ROLE {role}")


def test_every_table_with_a_tenant_has_row_security(empty: Server) -> None:
    with Connection.connect(empty.conninfo(), autocommit=True) as connection:
        tables = tables_of_tenants(connection, "killick")
        rows = connection.execute(
            "SELECT c.relname, array_agg(p.polname::text) FROM pg_class AS c "
            "JOIN pg_policy AS p ON p.polrelid = c.oid WHERE c.relrowsecurity "
            "AND c.relnamespace = 'killick'::regnamespace GROUP BY c.relname"
        ).fetchall()
    bound = {name for name, policies in rows if "of_tenant" in policies}
    assert bound == set(tables)
    assert {"sessions", "entries", "deltas", "blobs", "news"} <= bound


@pytest.mark.parametrize("role", ["postgres", "nobody_is_called_this"])
def test_a_role_that_is_not_bound_is_given_nothing(empty: Server, role: str) -> None:
    with (
        Connection.connect(empty.conninfo(), autocommit=True) as connection,
        pytest.raises(UsageError, match=r"role|bind"),
    ):
        grant(connection, "killick", role, None)


@pytest.mark.parametrize(
    ("becomes", "tenant"),
    [
        ("postgres", None),
        ("sees_all", None),
        ("pg_execute_server_program", None),
        (PROGRAM, "rival"),
        ("pg_read_all_data", "rival"),
    ],
)
def test_a_role_that_may_become_one_that_is_not_bound_is_given_nothing(
    empty: Server, becomes: str, tenant: str | None
) -> None:
    """SET ROLE needs no inheritance, and a policy binds only the role that it names."""
    empty.execute("CREATE ROLE sees_all BYPASSRLS")
    empty.execute("CREATE ROLE sneaky LOGIN NOINHERIT")
    try:
        empty.execute(f"GRANT {becomes} TO sneaky WITH INHERIT FALSE")
        with (
            Connection.connect(empty.conninfo(), autocommit=True) as connection,
            pytest.raises(UsageError, match=r"'sneaky'.* may become"),
        ):
            grant(connection, "killick", "sneaky", tenant)
    finally:
        empty.execute("DROP OWNED BY sneaky")
        empty.execute("DROP ROLE sneaky, sees_all")


@pytest.mark.parametrize("role", [PROGRAM, RIVAL])
def test_no_other_role_can_have_a_holder_that_lives_taken_for_dead(
    empty: Server, bouncer: int, role: str
) -> None:
    """Behind a pooler a holder has no lock, and nobody but itself may say that it has."""
    pooled = empty.url(port=bouncer)
    with Store(pooled, lease_seconds=60) as owner, Store(empty.url()) as other:
        session = owner.create_session()
        with session.turn("go"):
            with psycopg.connect(empty.conninfo(user=role), autocommit=True) as connection:
                number = str(tenant_number("rival"))
                connection.execute(
                    "SELECT set_config('killick_store.tenant', %s, false)", (number,)
                )
                said = connection.execute(
                    "INSERT INTO killick.holders (holder, until, tenant) "
                    "SELECT holder || '/lock@' || extract(epoch FROM pg_postmaster_start_time()), "
                    "until, %s FROM killick.holders WHERE tenant IS NULL "
                    "ON CONFLICT DO NOTHING",
                    (number,),
                ).rowcount
                assert said > 0
            assert other.session(session.id).turns()[0].status == "running"


def test_only_the_owner_gives_others_a_part(empty: Server) -> None:
    with (
        Connection.connect(empty.conninfo(user=PROGRAM), autocommit=True) as connection,
        pytest.raises(StoreReadOnly, match="owner"),
    ):
        grant(connection, "killick", RIVAL, None)


# -- every statement ---------------------------------------------------------------------------

COVERING = {
    "a_blob_that_only_a_note_names_is_kept",
    "a_context_can_leave_a_turn_out",
    "a_cursor_goes_on_without_gap_or_repeat",
    "a_follower_holds_the_last_turn_of_what_it_brings_in",
    "a_fork_has_inherited_the_notes",
    "a_link_that_was_kept_elsewhere_is_compared",
    "a_sound_session_has_no_findings",
    "an_id_may_be_shortened",
    "begin_and_end_do_what_the_block_does",
    "erasing_is_refused_while_others_depend_on_it",
    "every_entry_has_a_link_that_fits",
    "many_streams_at_once_keep_their_own_text",
    "notes_are_kept_together_and_read_back",
    "nothing_is_due_unless_it_was_asked_for",
    "rules_of_retention_are_kept_and_leave_receipts",
    "opening_a_session_closes_a_turn_whose_process_died",
    "opening_a_session_creates_it_once",
    "parts_are_followed_the_same_live_and_afterwards",
    "sessions_are_listed_newest_first_in_pages",
    "several_messages_are_recorded_together",
    "text_of_any_class_is_taken_as_its_text",
    "the_feed_tells_of_every_session",
    "the_index_can_be_made_anew",
    "usage_is_counted_once",
    "what_waits_is_told_until_it_is_answered",
}
"""Checks that run every statement between them, and those that are put together."""

OF_ALL = {
    *("set_locally", "search_state", "save_search_state", "save_search_damage", "trigrams"),
    *("server", "notify", "lock_holder", "now", "news_end", "store_number", "empty_index"),
    *("collecting", "collecting_is_due", "take_sums", "wait_for_sums"),
}
"""Statements about the server or about the whole store, and one that only its owner may run."""

PARTS = {
    *("sessions", "usage", "match_words", "match_substring", "rank_newest", "search_newest"),
    "index_parts",
}
"""Parts of statements; what is put together of them is taken as it is sent."""

Statement = tuple[str, bytes, Any]


class Captured:
    """The statements that a store has run, each with the parameters of some of its runs."""

    def __init__(self) -> None:
        self._names = {sql.encode(): name for name, sql in vars(queries("killick")).items()}
        self.statements: list[Statement] = []

    def take(self, sql: object, bindings: object) -> None:
        if not isinstance(sql, bytes):
            return
        name = self._names.get(sql)
        if name is None and re.match(rb"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", sql):
            name = "put together"
        times = sum(name == known for known, _, _ in self.statements)
        if name is not None and times < (40 if name == "put together" else 3):
            self.statements.append((name, sql, bindings))


def _rows(server: Server) -> dict[str, list[str]]:
    """Every row of every tenant."""
    with Connection.connect(server.conninfo(), autocommit=True) as connection:
        tables = tables_of_tenants(connection, "killick")
        return {
            name: sorted(
                text
                for (text,) in connection.execute(
                    f"SELECT t::text FROM killick.{name} AS t".encode()
                ).fetchall()
            )
            for name in tables
        }


def _outcomes(server: Server, statements: list[Statement]) -> list[object]:
    """Run them as another tenant; each gives its rows, or the server's refusal."""
    outcomes: list[object] = []
    settings = ConnectionSettings("full", 1, 10, tenant=tenant_number("rival"), bound=True)
    line = connect(read_url(server.url(user=PROGRAM)), settings)
    try:
        for _, sql, bindings in statements:
            try:
                cursor = line.connection.execute(sql, bindings, binary=True)
                rows = cursor.fetchall() if cursor.description else []
                outcomes.append((cursor.rowcount, sorted(map(str, rows))))
            except psycopg.Error as error:
                outcomes.append(error.sqlstate)
    finally:
        line.close()
    return outcomes


@pytest.mark.timeout(300)  # it runs two dozen checks
def test_every_statement_shows_and_changes_nothing_of_another_tenant(
    empty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is that in a store where the other tenant has nothing."""
    url, seen, execute = empty.url(), set[str](), Connection.execute
    checks = [check for check in CHECKS if check.__name__ in COVERING]
    assert {check.__name__ for check in checks} == COVERING
    for check in checks:
        shared("18").empty()
        captured = Captured()

        def spy(
            self: Connection,
            query: Any,
            params: Any = None,
            *,
            to: Captured = captured,
            **more: Any,
        ) -> Any:
            to.take(query, params)
            return execute(self, query, params, **more)

        with monkeypatch.context() as patched:
            patched.setattr(Connection, "execute", spy)
            World("sync", lambda: PostgresDatabase(url)).run(check)
        seen.update(name for name, _, _ in captured.statements)
        statements = [taken for taken in captured.statements if taken[0] not in OF_ALL]
        before = _rows(empty)
        beside_another = _outcomes(empty, statements)
        assert _rows(empty) == before
        shared("18").empty()
        alone = _outcomes(empty, statements)
        for statement, there, here in zip(statements, beside_another, alone, strict=True):
            assert there == here, statement
    assert set(vars(queries("killick"))) - seen - PARTS - OF_ALL <= RARE


RARE = {
    *("drop_news", "has_blob", "has_erasure", "held_sessions", "restamp", "save_heads"),
    *("session_keys", "uncounted", "uncounted_of_all", "take_uncounted", "count_uncounted"),
    *("usage_sums", "activity_sums", "all_usage_sums", "all_activity_sums", "all_counted"),
    *("counted_of", "put_counted", "drop_counted", "add_usage", "add_activity"),
    *("drop_empty_usage", "drop_empty_activity", "empty_usage_sums", "empty_activity_sums"),
    *("empty_counted", "count_from_start"),
}
"""Statements that no check runs, or only in an idle moment: the next test does."""


def test_rare_statements_see_nothing_of_another_tenant(empty: Server) -> None:
    with Store(empty.url(), tenant="victim") as victim:
        with victim.create_session(id="secret").turn("go"):
            pass
        victim.rebuild_sums()
        digest = victim.put_blob(b"secret")
    ((session,),) = empty.execute("SELECT session FROM killick.sessions")
    number = tenant_number("victim")
    key = join(number, session)
    values: dict[str, Any] = dict.fromkeys(
        re.findall(r"%\((\w+)\)s", "".join(vars(queries("killick")).values())), 1
    )
    values |= {
        **of(key),
        **columns([key]),
        "digest": bytes.fromhex(digest.rpartition(":")[2]),
        "heads": Bigints([9]),
        "links": Byteas([b"x" * 32]),
        "line": 0,
        "until": 99_999,
        **dict.fromkeys(("fragment", "provider", "model", "body"), b"secret"),
    }
    sql = vars(queries("killick"))
    statements = [(name, sql[name].encode(), values) for name in sorted(RARE)]
    before = _rows(empty)
    beside_another = _outcomes(empty, statements)
    assert _rows(empty) == before
    shared("18").empty()
    assert _outcomes(empty, statements) == beside_another
