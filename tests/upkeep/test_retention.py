"""Rules of retention: each session on its own, and nothing that somebody has come back to."""

from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from killick import Session, Store
from killick.maintenance.erase import CareCore
from killick.maintenance.retention import Removal
from killick.session.drive.steps import Flow
from killick.testing.faults import crash

NOW = timedelta(0)


def talked(store: Store, name: str) -> Session:
    session = store.create_session(id=name)
    with session.turn("Hello."):
        pass
    return session


def ids(store: Store, *, deleted: bool = False) -> set[str]:
    return {info.id for info in store.sessions(deleted=deleted)}


def test_a_damaged_session_keeps_no_other_from_going(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        for name in ("one", "two", "three"):
            talked(store, name)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET about = x'00' WHERE id = CAST('two' AS BLOB)")
    connection.close()
    with Store(path) as store:
        done = {one.session_id: one for one in store.clean_up(idle_after=NOW, dry_run=False)}
        assert done["one"].done
        assert done["three"].done
        assert "damaged" in (done["two"].kept_because or "")
        assert ids(store, deleted=True) == {"one", "three"}


def test_a_dry_run_says_what_forks_keep(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        source = talked(store, "source")
        source.fork(id="fork")
        store.delete_session("source")
        (planned,) = store.clean_up(deleted_after=NOW)
        (done,) = store.clean_up(deleted_after=NOW, dry_run=False)
        assert planned.kept_because == done.kept_because == "forks are made of its entries"


@pytest.mark.parametrize("deleted", [True, False])
def test_what_somebody_comes_back_to_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """Between the look and the removal of the last of many sessions lies time."""
    with Store(tmp_path / "work.db") as store, Store(tmp_path / "work.db") as other:
        talked(store, "mine")
        if deleted:
            store.delete_session("mine")
        remove = CareCore._try_to_remove

        def slowly(care: CareCore, removal: Removal) -> Flow[Removal]:
            if deleted:
                other.restore_session("mine")
            else:
                other.session("mine").pin()
            return (yield from remove(care, removal))

        monkeypatch.setattr(CareCore, "_try_to_remove", slowly)
        (done,) = store.clean_up(idle_after=NOW, deleted_after=NOW, dry_run=False)
        assert not done.done
        assert "changed meanwhile" in (done.kept_because or "")
        assert ids(store) == {"mine"}


def test_a_turn_whose_process_is_gone_keeps_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "work.db")
    talked(store, "mine").turn("Hello?").__enter__()
    crash(store)
    with Store(tmp_path / "work.db") as store:
        (done,) = store.clean_up(idle_after=NOW, dry_run=False)
        assert done.done


def test_time_does_not_run_backwards(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store, pytest.raises(ValueError, match="from zero"):
        store.clean_up(idle_after=timedelta(days=-1))
