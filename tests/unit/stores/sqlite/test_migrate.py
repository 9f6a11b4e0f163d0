"""Making a store and bringing it up to date, or refusing it."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import Store, Usage
from killick.errors import StoreDegraded, StoreNewer, StoreNotOurs
from killick.stores.sql import Migration
from killick.stores.sqlite import SqliteDatabase, frozen, maintain, migrate
from killick.stores.sqlite.connection import connect
from killick.stores.sqlite.frozen import DatabaseFile
from killick.stores.sqlite.migrate import bring_up_to_date, migrations
from killick.stores.sqlite.pages import FileHeader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    path.touch()
    opened = connect(path, durability="full", wait_seconds=1, writable=True)
    yield opened
    opened.close()


def meta(connection: apsw.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, value FROM meta"))


def tables(connection: apsw.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {row[0] for row in rows}


def add_migration(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    known = migrations()
    added = Migration(len(known) + 1, "0099_added", sql)
    monkeypatch.setattr(migrate, "migrations", lambda: [*known, added])


def test_an_empty_file_becomes_a_store_by_all_migrations(
    connection: apsw.Connection, path: Path
) -> None:
    bring_up_to_date(connection, path)
    done = list(connection.execute("SELECT number, name FROM migrations ORDER BY number"))
    assert done == [(one.number, one.name) for one in migrations()]
    assert (
        meta(connection).items() >= {"version": len(migrations()), "oldest": migrate.OLDEST}.items()
    )
    assert connection.pragma("application_id") == migrate.APPLICATION_ID
    assert connection.pragma("journal_mode") == "wal"


def test_whoever_comes_second_finds_nothing_to_do(connection: apsw.Connection, path: Path) -> None:
    bring_up_to_date(connection, path)
    before = connection.total_changes()
    bring_up_to_date(connection, path)
    assert connection.total_changes() == before


def test_a_new_store_has_no_backup(connection: apsw.Connection, path: Path) -> None:
    bring_up_to_date(connection, path)
    assert not list(path.parent.glob("*backup*"))


def test_the_copy_of_the_old_store_goes_when_the_migrated_one_was_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteDatabase(path).close()
    copied: list[tuple[int, set[str]]] = []
    check = maintain.check

    def look(connection: apsw.Connection, *, quick: bool = False) -> list[str]:
        (backup,) = maintain.copies(path)
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        copy = apsw.Connection(str(backup))
        copied.append((meta(copy)["version"], tables(copy)))
        copy.close()
        return check(connection, quick=quick)

    monkeypatch.setattr(maintain, "check", look)
    at = len(migrations())
    add_migration(monkeypatch, "CREATE TABLE added (x INTEGER) STRICT")
    SqliteDatabase(path).close()
    assert [version for version, _ in copied] == [at]
    assert "added" not in copied[0][1]
    assert maintain.copies(path) == []


def test_the_copy_stays_if_the_migration_fails_or_the_file_is_not_sound(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteDatabase(path).close()
    at = len(migrations())
    with monkeypatch.context() as patch:
        add_migration(patch, "CREATE TABLE added (x INTEGER) STRICT; CREATE TABLE meta (y)")
        with pytest.raises(StoreDegraded):
            SqliteDatabase(path)
    assert [file.name for file in maintain.copies(path)] == [f"work.db-backup-{at}"]
    maintain.copies(path)[0].unlink()
    add_migration(monkeypatch, "CREATE TABLE added (x INTEGER) STRICT")
    monkeypatch.setattr(maintain, "check", lambda _, quick: ["page 3 is torn"])
    SqliteDatabase(path).close()
    assert [file.name for file in maintain.copies(path)] == [f"work.db-backup-{at}"]


def test_others_write_while_a_store_is_copied_and_the_copy_has_all_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They write between two pieces of the copy, and get their turn; nothing of it is missing."""
    monkeypatch.setattr(frozen, "_PAGES_A_PIECE", 4)
    with Store(path) as store:
        session = store.create_session(id="said")
        for number in range(20):
            session.note("before", number)
        pieces, told = DatabaseFile.pieces, []

        def slowly(file: DatabaseFile, header: FileHeader) -> Iterator[bytes]:
            for piece in pieces(file, header):
                session.note("meanwhile", "x" * 3_000)
                told.append(piece)
                yield piece

        monkeypatch.setattr(DatabaseFile, "pieces", slowly)
        known = migrations()
        add_migration(monkeypatch, "CREATE TABLE meta (y)")
        with pytest.raises(StoreDegraded):
            SqliteDatabase(path)
        monkeypatch.setattr(migrate, "migrations", lambda: known)
        assert len(told) > 5
        (copy,) = maintain.copies(path)
        with Store(copy) as kept:
            assert len(kept.session("said").notes()) == 20 + len(told)
            assert kept.check_file() == []
        assert len(session.notes()) == 20 + len(told)


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    connection: apsw.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up_to_date(connection, path)
    before = (meta(connection), tables(connection))
    add_migration(monkeypatch, "CREATE TABLE added (x INTEGER) STRICT; CREATE TABLE meta (y)")
    with pytest.raises(StoreDegraded):
        SqliteDatabase(path)
    with pytest.raises(apsw.SQLError):
        bring_up_to_date(connection, path)
    assert not connection.in_transaction
    assert (meta(connection), tables(connection)) == before


def test_a_creation_that_was_cut_off_before_its_tables_is_done_again(
    connection: apsw.Connection, path: Path
) -> None:
    connection.pragma("application_id", migrate.APPLICATION_ID)
    connection.pragma("journal_mode", "wal")
    bring_up_to_date(connection, path)
    assert "entries" in tables(connection)


def test_a_store_whose_oldest_reader_is_newer_than_this_code_is_refused(
    connection: apsw.Connection, path: Path
) -> None:
    bring_up_to_date(connection, path)
    connection.execute("UPDATE meta SET value = 99")
    with pytest.raises(StoreNewer, match=r"newer Killick \(format 99.*install the newer"):
        bring_up_to_date(connection, path)


def test_a_newer_store_that_this_code_may_still_open_is_opened_and_left_alone(
    connection: apsw.Connection, path: Path
) -> None:
    bring_up_to_date(connection, path)
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'version'")
    bring_up_to_date(connection, path)
    assert meta(connection).items() >= {"version": 99, "oldest": migrate.OLDEST}.items()


def test_another_program_s_database_is_refused_and_left_alone(
    connection: apsw.Connection, path: Path
) -> None:
    connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreNotOurs, match="did not make; name another file"):
        bring_up_to_date(connection, path)
    assert tables(connection) == {"theirs"}
    assert connection.pragma("application_id") == 0


@pytest.mark.parametrize("content", [b"hello, this is no database", b"\0" * 8_192, b"x" * 8_192])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreNotOurs):
        SqliteDatabase(path)
    assert path.read_bytes() == content


def test_an_empty_file_is_taken_as_a_new_store(path: Path) -> None:
    path.touch()
    SqliteDatabase(path).close()
    connection = apsw.Connection(str(path))
    assert "entries" in tables(connection)
    connection.close()


def test_a_refused_file_is_not_kept_open_or_locked(path: Path) -> None:
    path.write_bytes(b"x" * 8_192)
    for _ in range(2):
        with pytest.raises(StoreNotOurs):
            SqliteDatabase(path)
    path.unlink()
    SqliteDatabase(path).close()


def undo_second_migration(connection: apsw.Connection) -> None:
    """Make a store as the first version of this code left it."""
    first = apsw.Connection(":memory:")
    first.execute(migrations()[0].sql)
    for kind, name, _ in objects(connection) - objects(first):
        if kind == "index":
            connection.execute(f"DROP INDEX {name}")
    connection.execute("ALTER TABLE entries RENAME COLUMN mark TO turn")
    for table in tables(connection) & tables(first):
        for name in columns(connection, table) - columns(first, table):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    for table in tables(connection) - tables(first):
        if not re.match("sqlite_|search_words_", table):
            connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM migrations WHERE number >= 2")
    connection.execute("DELETE FROM meta WHERE name NOT IN ('version', 'oldest')")
    connection.execute("UPDATE meta SET value = 1")
    first.close()


def objects(connection: apsw.Connection) -> set[tuple[str, str, str]]:
    """Everything that migrations made by name, and not SQLite by itself."""
    sql = "SELECT type, name, tbl_name FROM sqlite_schema WHERE sql IS NOT NULL"
    rows: list[Any] = connection.execute(sql).fetchall()
    return set(rows)


def columns(connection: apsw.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def derived_rows(path: Path) -> list[object]:
    connection = apsw.Connection(str(path))
    try:
        tables = ("sessions", "labels", "usage")
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    finally:
        connection.close()


def test_what_the_second_migration_derives_comes_from_the_journals(path: Path) -> None:
    """A damaged session is left for the doctor, and keeps nobody from being migrated."""
    with Store(path) as store:
        for name in ("one", "two"):
            session = store.create_session(id=name, title="Title", tags=("t",))
            with session.turn("go") as turn, turn.stream(model="m", provider="p") as reply:
                reply.text("done")
                reply.finish(usage=Usage(input=3, output=1, cost=0.5))
        store.create_session(id="broken")
    before = derived_rows(path)
    connection = apsw.Connection(str(path))
    undo_second_migration(connection)
    connection.execute("UPDATE entries SET crc = 0 WHERE session = 3")
    connection.close()
    with Store(path) as store:
        assert [info.id for info in store.sessions(tag="t", model="m")] == ["two", "one"]
        assert store.usage("all")[0].cost == 1.0
        assert store.examine_session("one") == []
        assert [one.kind for one in store.examine_session("broken")] == ["entry"]
    after = derived_rows(path)
    assert after[1:] == before[1:]
    assert maintain.copies(path) == []
