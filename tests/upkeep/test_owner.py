"""What root makes in a service's folder is the service's: it could not use it otherwise."""

import os
from pathlib import Path

import pytest

from killick import Store
from killick.maintenance.restore import restore_backup
from killick.server.auth import Tokens

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")

SERVICE, OTHER = 64_001, 64_002


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a service whose user is not this one."""
    made = tmp_path / "state"
    made.mkdir()
    os.chown(made, SERVICE, SERVICE)
    return made


def owners(folder: Path) -> set[tuple[int, int]]:
    return {(file.stat().st_uid, file.stat().st_gid) for file in folder.iterdir()}


def test_a_token_that_root_makes_is_read_by_the_service(folder: Path) -> None:
    tokens = Tokens(folder / "tokens.json")
    tokens.make("laptop", "write", 0)
    assert owners(folder) == {(SERVICE, SERVICE)}
    os.chown(tokens.path, OTHER, OTHER)
    tokens.make("phone", "write", 0)
    assert (tokens.path.stat().st_uid, len(tokens.all())) == (OTHER, 2)


def test_a_store_that_root_makes_or_restores_is_the_services(folder: Path, tmp_path: Path) -> None:
    path = folder / "sessions.db"
    with Store(path) as store:
        store.create_session(id="kept")
        assert owners(folder) == {(SERVICE, SERVICE)}
        store.backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").stat().st_uid == 0
    restore_backup(tmp_path / "backup.db", path)
    assert owners(folder) == {(SERVICE, SERVICE)}
    with Store(path) as store:
        assert store.session("kept").id == "kept"


def test_a_link_in_the_place_of_a_new_file_gives_nothing_away(folder: Path, tmp_path: Path) -> None:
    """The service may be in an attacker's hands: root must not give it a file of its own."""
    secret = tmp_path / "secret"
    secret.write_text("")
    for name in ("sessions.db-lock", "tokens.json.lock"):
        (folder / name).symlink_to(secret)
    Tokens(folder / "tokens.json").make("laptop", "write", 0)
    with Store(folder / "sessions.db") as store:
        store.create_session()
    assert secret.stat().st_uid == 0
