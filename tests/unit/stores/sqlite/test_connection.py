"""SQLite's settings and SQLite's errors, in our words."""

from pathlib import Path

import apsw
import pytest

from killick.errors import (
    IdConflict,
    SqliteTooOld,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreReadOnly,
)
from killick.stores.sqlite.connection import (
    Durability,
    check_library,
    connect,
    translate_error,
)
from killick.stores.sqlite.database import translated


def test_a_sqlite_that_can_corrupt_a_store_is_refused_with_what_to_install() -> None:
    with pytest.raises(SqliteTooOld, match=r"install apsw 3\.51\.3"):
        check_library(3_051_002)


def test_a_sqlite_with_the_fix_is_accepted() -> None:
    check_library(3_051_003)
    check_library()


@pytest.mark.parametrize(
    ("error", "ours", "advice"),
    [
        (apsw.BusyError("locked"), StoreBusy, "try again"),
        (apsw.LockedError("locked"), StoreBusy, "try again"),
        (apsw.FullError("full"), StoreDegraded, "make room"),
        (apsw.ReadOnlyError("ro"), StoreReadOnly, "may not be written"),
        (apsw.PermissionsError("perm"), StoreReadOnly, "may not be written"),
        (apsw.NotADBError("no"), StoreNotOurs, "not a SQLite database"),
        (apsw.CorruptError("bad"), StoreDegraded, "damaged"),
        (apsw.IOError("io"), StoreDegraded, "nothing was acknowledged"),
    ],
)
def test_each_error_of_sqlite_becomes_the_one_that_says_what_to_do(
    error: apsw.Error, ours: type[StoreError], advice: str
) -> None:
    found = translate_error(error, "writing")
    assert type(found) is ours
    assert str(found).startswith("writing: ")
    assert advice in str(found)


def test_a_translated_error_carries_the_driver_s_own() -> None:
    driver = apsw.FullError("full")
    with pytest.raises(StoreDegraded) as caught, translated("writing"):
        raise driver
    assert caught.value.__cause__ is driver


def test_an_error_of_ours_goes_through_untouched() -> None:
    ours = IdConflict("x")
    with pytest.raises(IdConflict) as caught, translated("writing"):
        raise ours
    assert caught.value is ours


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_the_durability_asked_for_is_the_one_that_is_set(
    tmp_path: Path, durability: Durability, level: int
) -> None:
    path = tmp_path / "work.db"
    path.touch()
    connection = connect(path, durability=durability, wait_seconds=1, writable=True)
    assert connection.pragma("synchronous") == level
    connection.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    path.touch()
    connection = connect(path, durability="full", wait_seconds=1, writable=False)
    with pytest.raises(apsw.ReadOnlyError):
        connection.execute("CREATE TABLE x (y)")
    connection.close()
