"""Where a store's file lies, and whether SQLite can be trusted there."""

import os
import stat
from pathlib import Path

import pytest

from killick.errors import StoreError, StoreNotOurs, StoreOnNetwork, StoreReplaced
from killick.stores.sqlite import connection, database

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:2 master:3 - xfs /dev/sdb1 rw
31 30 0:41 / /home/ann/remote rw - nfs4 server:/x rw,vers=4.2
32 22 0:42 / /mnt/with\040space rw - cifs //server/share rw
33 22 0:43 / /mnt/tab\011and\134slash rw - fuse.sshfs host: rw
34 31 0:44 / /home/ann/remote/local rw - ext4 /dev/sdc1 rw
35 22 0:45 / /twice rw - ext4 /dev/sdd1 rw
36 35 0:46 / /twice rw - nfs server:/y rw
37 22 0:47 / /mnt/größe rw - nfs4 server:/z rw
a line that means nothing
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/work.db", "ext4"),
        ("/home/ann/work.db", "xfs"),
        ("/home/ann/remote/work.db", "nfs4"),
        ("/home/ann/remote-not/work.db", "xfs"),
        ("/home/ann/remote/local/work.db", "ext4"),
        ("/mnt/with space/work.db", "cifs"),
        ("/mnt/tab\tand\\slash/work.db", "fuse.sshfs"),
        ("/mnt/größe/work.db", "nfs4"),
    ],
)
def test_a_path_lies_on_its_nearest_mount(path: str, kind: str) -> None:
    assert connection.file_system(Path(path), MOUNTS) == kind


def test_of_two_mounts_at_one_point_the_later_one_counts() -> None:
    assert connection.file_system(Path("/twice/work.db"), MOUNTS) == "nfs"


def test_without_mounts_the_kind_is_unknown() -> None:
    assert connection.file_system(Path("/work.db"), "") is None


@pytest.mark.parametrize(
    "path", ["/home/ann/remote/w.db", "/mnt/with space/w.db", "/mnt/tab\tand\\slash/w.db"]
)
def test_a_network_file_system_is_refused_with_a_way_out(path: str) -> None:
    with pytest.raises(StoreOnNetwork, match=r"network file system.*local disk.*network=True"):
        connection.refuse_network(Path(path), MOUNTS)


def test_a_network_file_system_at_a_point_outside_ascii_is_refused() -> None:
    with pytest.raises(StoreOnNetwork):
        connection.refuse_network(Path("/mnt/größe/w.db"), MOUNTS)


def test_a_local_file_system_is_not_refused() -> None:
    connection.refuse_network(Path("/home/ann/work.db"), MOUNTS)


def test_a_new_file_may_be_read_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = connection.prepare(tmp_path / "work.db", network=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    path.write_bytes(b"something")
    assert connection.prepare(path, network=False).read_bytes() == b"something"


def test_a_link_leads_to_the_file_itself(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real.db")
    real = connection.prepare(link, network=False)
    assert real.name == "real.db"
    assert real.exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"folder .*gone does not exist; make it first"):
        connection.prepare(tmp_path / "gone" / "work.db", network=False)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotOurs, match="is a folder"):
        connection.prepare(tmp_path, network=False)


def test_the_same_file_is_the_same(tmp_path: Path) -> None:
    path = connection.prepare(tmp_path / "work.db", network=False)
    database.check_same(str(path), connection.inode(path))


def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    path = connection.prepare(tmp_path / "work.db", network=False)
    opened = connection.inode(path)
    path.unlink()
    with pytest.raises(StoreReplaced, match="deleted"):
        database.check_same(str(path), opened)


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = connection.prepare(tmp_path / "work.db", network=False)
    other = connection.prepare(tmp_path / "other.db", network=False)
    opened = connection.inode(path)
    other.rename(path)
    with pytest.raises(StoreReplaced, match="replaced"):
        database.check_same(str(path), opened)
