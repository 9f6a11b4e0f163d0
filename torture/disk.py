"""A disk that fails when it is told to, and remembers what reached it in which order.

`FaultyDisk` is an apsw VFS over the usual one: it lets every operation of SQLite through, unless a
fault says otherwise, and keeps a trace of those that change something. `Platter` plays a trace
again and knows at each moment what a power cut could leave: what was synced is there; of what was
written since, any sector may be there, be missing or be zeros, whatever the order of the writes.
"""

import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import apsw

SECTOR: Final = 512
NAME: Final = "killick-torture"

Kind = Literal["write", "short", "fsync", "read", "open"]
_COPY: Final = re.compile(r"-backup-\d+$")
"""The copy of a store before its migration; of any other file the making must have been seen."""

Left = Literal["nothing", "everything", "some", "torn", "zeros"]
"""What a power cut leaves of what was not synced."""


class Event(NamedTuple):
    """Something that changed the disk, or (`ack`) something that a caller was told."""

    what: Literal["open", "create", "delete", "syncdir", "write", "truncate", "sync", "lost", "ack"]
    name: str = ""
    at: int = 0
    data: bytes = b""
    fact: Any = None


class Fault:
    """Fails the k-th operation of a kind, once or from then on, until it is healed."""

    def __init__(self, kind: Kind, at: int, *, lasting: bool) -> None:
        self.kind = kind
        self.at = at
        self.lasting = lasting
        self.seen = 0
        self.fired = 0
        self.healed = False

    def meets(self, kind: str) -> bool:
        if kind != ("write" if self.kind == "short" else self.kind):
            return False
        self.seen += 1
        hit = self.seen == self.at or (self.lasting and self.seen > self.at)
        if not hit or self.healed:
            return False
        self.fired += 1
        return True


class FullDisk(Fault):
    """From the k-th write that makes a file longer on there is no room, until some is made."""

    def __init__(self, at: int) -> None:
        super().__init__("short", at, lasting=True)


class FaultyDisk(apsw.VFS):
    """The usual file system, as SQLite sees it through us."""

    def __init__(self) -> None:
        self.usual = apsw.vfs_names()[0]
        self.fault: Fault | None = None
        self.counts: dict[str, int] = {}
        self.trace: list[Event] = []
        self._known: set[str] = set()
        self._mutex = threading.Lock()
        super().__init__(NAME, self.usual, makedefault=True)

    def reset(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.counts = {}
        self.trace = []
        self._known = set()

    def note(self, event: Event) -> None:
        with self._mutex:
            self.trace.append(event)

    def ack(self, fact: Any) -> None:
        self.note(Event("ack", fact=fact))

    def is_hit(self, kind: str) -> bool:
        with self._mutex:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return self.fault is not None and self.fault.meets(kind)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is not None and self.is_hit("open"):
            raise apsw.CantOpenError("open: Too many open files")
        there = path is not None and Path(path).exists()
        short = "" if path is None else Path(path).name
        opened = _File(self, name, flags, short)
        self.note(Event("open", short))
        if short and short not in self._known:
            self._known.add(short)
            if not there or Path(path).stat().st_size == 0:
                self.note(Event("create", short))
        return opened

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: FBT001  (SQLite's own)
        super().xDelete(name, syncdir)
        short = Path(name).name
        self._known.discard(short)
        self.note(Event("delete", short))
        if syncdir:
            self.note(Event("syncdir"))


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int], short: str) -> None:
        wanted = flags[0]
        super().__init__(disk.usual, name, flags)
        self._disk = disk
        self._name = short
        journals = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        # As SQLite does: the first sync of a new log syncs its directory entry too.
        self._new_entry = bool(wanted & apsw.SQLITE_OPEN_CREATE and wanted & journals)

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._name and self._disk.is_hit("read"):
            raise apsw.IOError("read: Input/output error")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        disk = self._disk
        if not self._name:
            super().xWrite(data, offset)
            return
        longer = not isinstance(disk.fault, FullDisk) or offset + len(data) > self.xFileSize()
        if longer and disk.is_hit("write"):
            self._fail_write(bytes(data), offset)
        super().xWrite(data, offset)
        disk.note(Event("write", self._name, offset, bytes(data)))

    def _fail_write(self, data: bytes, offset: int) -> None:
        fault = self._disk.fault
        if fault is None or fault.kind == "write":
            raise apsw.IOError("write: Input/output error")
        half = data[: len(data) // 2]
        super().xWrite(half, offset)
        self._disk.note(Event("write", self._name, offset, half))
        if isinstance(fault, FullDisk):
            raise apsw.FullError("write: No space left on device")
        raise apsw.IOError("write: Input/output error, half of it was written")

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._disk.note(Event("truncate", self._name, size))

    def xSync(self, flags: int) -> None:
        if self._disk.is_hit("fsync"):
            # What the kernel could not write it forgets; the next fsync will call it written.
            self._disk.note(Event("lost", self._name))
            raise apsw.IOError("fsync: Input/output error")
        super().xSync(flags)
        self._disk.note(Event("sync", self._name))
        if self._new_entry:
            self._new_entry = False
            self._disk.note(Event("syncdir"))


@contextmanager
def faulty_disk() -> Iterator[FaultyDisk]:
    """SQLite's default file system, for as long as the block lasts."""
    disk = FaultyDisk()
    try:
        yield disk
    finally:
        disk.unregister()
        assert apsw.vfs_names()[0] == disk.usual


class _Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.synced = bytearray(data)
        self.pending: list[Event] = []


class Platter:
    """What is on the disk for certain, and what may be."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self._entries = {name: _Inode(data) for name, data in (files or {}).items()}
        self._now = dict(self._entries)
        self._pending: list[tuple[str, _Inode | None]] = []

    def apply(self, event: Event) -> None:
        """One more event of the trace has happened."""
        match event.what:
            case "create":
                self._now[event.name] = _Inode()
                self._pending.append((event.name, self._now[event.name]))
            case "delete":
                self._now.pop(event.name, None)
                self._pending.append((event.name, None))
            case "syncdir":
                self._entries = _changed(self._entries, self._pending)
                self._pending = []
            case "open" | "ack":
                pass
            case _ if _COPY.search(event.name):
                pass  # it comes and goes by its name, without SQLite
            case "write" | "truncate":
                self._now[event.name].pending.append(event)
            case "sync":
                inode = self._now[event.name]
                inode.synced = _written(inode.synced, inode.pending)
                inode.pending = []
            case "lost":
                self._now[event.name].pending = []

    def unsynced(self) -> int:
        """How many writes and directory entries a power cut may take."""
        inodes = {id(one): one for one in [*self._entries.values(), *self._now.values()]}
        return len(self._pending) + sum(len(one.pending) for one in inodes.values())

    def after_power_cut(self, left: Left, chance: random.Random) -> dict[str, bytes]:
        """One of the states in which the files may be found."""
        kept = [
            one
            for one in self._pending
            if left == "everything" or (left != "nothing" and chance.random() < 0.5)
        ]
        entries = _changed(self._entries, kept)
        return {
            name: bytes(_written(inode.synced, _survivors(inode.pending, left, chance)))
            for name, inode in entries.items()
        }


def _changed(
    entries: dict[str, _Inode], changes: list[tuple[str, _Inode | None]]
) -> dict[str, _Inode]:
    entries = dict(entries)
    for name, inode in changes:
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode
    return entries


def _written(image: bytearray, events: list[Event]) -> bytearray:
    image = bytearray(image)
    for event in events:
        if event.what == "truncate":
            del image[event.at :]
            image.extend(bytes(event.at - len(image)))
            continue
        image.extend(bytes(max(0, event.at - len(image))))
        image[event.at : event.at + len(event.data)] = event.data
    return image


def _survivors(pending: list[Event], left: Left, chance: random.Random) -> list[Event]:
    if left == "nothing":
        return []
    if left == "everything":
        return pending
    survivors: list[Event] = []
    for event in pending:
        if event.what == "truncate" or left == "some":
            survivors += [event] if chance.random() < 0.5 else []
        else:
            survivors += _sectors(event, left, chance)
    return survivors


def _sectors(event: Event, left: Left, chance: random.Random) -> Iterator[Event]:
    at, end = event.at, event.at + len(event.data)
    while at < end:
        after = min(end, (at // SECTOR + 1) * SECTOR)
        data = event.data[at - event.at : after - event.at]
        fate = chance.random()
        if fate < 0.5:
            yield event._replace(at=at, data=data)
        elif left == "zeros" and fate < 0.8:
            yield event._replace(at=at, data=bytes(len(data)))
        at = after
