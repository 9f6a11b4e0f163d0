"""One lock file beside the database: whose turn it is to write, and who is still alive.

Both are POSIX record locks on single bytes. They belong to the process: the kernel drops them when
it dies, however it dies, a child does not inherit them through fork(), a reused pid means nothing,
and they are seen across containers that share the kernel. Byte 0 is the turn to write; blocking on
it is fair, where SQLite's own waiting lets some writers starve. Every opening of a store holds one
further byte for as long as it lives, and its number is in every lease that it takes. What stands in
the file is the generation of the store's file that was written last.

A process loses all its locks on a file when it closes any descriptor of it, so there is one
descriptor for each file and process, shared by all that open the same store.
"""

import contextlib
import fcntl
import os
import re
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from errno import EDEADLK
from os.path import samestat
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, Final

from killick.errors import StoreBusy
from killick.stores.owner import open_or_make

_TURN: Final = 0
_HOLDERS: Final = 1_024
_NUMBER_BITS: Final = 48
_GENERATION: Final = "generation {:08x}\n"

_DEADLOCK_SECONDS: Final = 0.001
"""How long after the kernel saw a deadlock where there is none the turn is asked for again."""

# struct flock: Linux puts type and whence first, macOS and the BSDs put them last.
_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = "@hhqqi" if _LINUX else "@qqihh"


class LockFile:
    """The locks of one process on one store."""

    _open: ClassVar[dict[str, "LockFile"]] = {}
    _registry: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = open_or_make(path, path.with_name(path.name.removesuffix("-lock")))
        self._users = 0
        self._holders: set[int] = set()
        self._turn = threading.Lock()
        self._helper: _Blocking | None = None

    @classmethod
    def open(cls, path: Path) -> "LockFile":
        """The lock file of this process for this path."""
        with cls._registry:
            lock = cls._open.get(str(path)) or cls._find(path)
            if lock is None:
                lock = cls._open[str(path)] = cls(path)
            lock._users += 1
            return lock

    @classmethod
    def _find(cls, path: Path) -> "LockFile | None":
        """Return the same file under another name: a folder mounted twice, letters of any case."""
        try:
            wanted = path.stat()
        except FileNotFoundError:
            return None
        same = (lock for lock in cls._open.values() if samestat(os.fstat(lock._fd), wanted))
        return next(same, None)

    @classmethod
    def forget_inherited(cls) -> None:
        """Begin anew in a child after fork(): the parent's locks are not ours."""
        cls._open = {}
        cls._registry = threading.Lock()

    def close(self) -> None:
        with self._registry:
            self._users -= 1
            if self._users == 0:
                if self._helper is not None:
                    self._helper.end()  # it forgets the file when it waits no longer
                else:
                    self._forget()

    def _forget_unused(self) -> bool:
        """Close the file; False when this process has opened it again meanwhile."""
        with self._registry:
            if self._users == 0:
                self._forget()
            return self._users == 0

    def _forget(self) -> None:
        # Only together: a second descriptor, opened in between, would lose its locks to the close.
        self._open.pop(str(self._path), None)
        os.close(self._fd)

    # -- whose turn it is ----------------------------------------------------------------------

    def acquire_turn(self, seconds: float) -> None:
        """Wait for the turn to write. Raises StoreBusy, naming who has it, when time runs out."""
        if not self._turn.acquire(timeout=seconds):
            other = self._locker(_TURN)
            owner = f"pid {os.getpid()}, this process" if other is None else describe_process(other)
            raise StoreBusy(self._describe_wait(seconds, owner))
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _TURN)
        except BlockingIOError:
            self._acquire_blocking(seconds)
        except BaseException:
            self._turn.release()
            raise

    def release_turn(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _TURN)
        self._turn.release()

    def _acquire_blocking(self, seconds: float) -> None:
        # A blocking lock has no time limit, so another thread blocks and this one waits for it.
        try:
            if self._helper is None:
                self._helper = _Blocking(self._fd, self._forget_unused)
        except BaseException:  # no thread could be started
            self._turn.release()
            raise
        # The helper keeps the turn's mutex until its lock comes. If no thread waits for it by then,
        # it gives up both.
        request = self._helper.request(self._turn.release)
        try:
            request.wait(seconds)
        except BaseException:  # interrupted, as a thread that opens a store can be
            if request.give_up():
                self.release_turn()
            raise
        if not request.give_up():
            raise request.refused or StoreBusy(self._describe_wait(seconds, self._turn_owner()))

    def _turn_owner(self) -> str:
        pid = self._locker(_TURN)
        if pid is None:
            return "a program that opened the file without Killick, or a process just gone"
        return describe_process(pid)

    def _describe_wait(self, seconds: float, owner: str) -> str:
        return (
            f"waited {seconds:g} s for the write lock of {self._path}, held by {owner}; "
            "end it or let it finish, then try again"
        )

    # -- who is alive --------------------------------------------------------------------------

    def take_holder(self) -> str:
        """Begin a life: a name whose lock lasts as long as this process, or until it is let go."""
        while True:
            number = secrets.randbits(_NUMBER_BITS)
            with contextlib.suppress(BlockingIOError):
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _HOLDERS + number)
                self._holders.add(number)
                return f"{socket.gethostname()}/{os.getpid()}/{number:x}"

    def release_holder(self, holder: str) -> None:
        number = _number_of(holder)
        if number in self._holders:
            self._holders.discard(number)
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _HOLDERS + number)

    def is_alive(self, holder: str) -> bool:
        """True if the opening with this name still exists, in this process or another."""
        number = _number_of(holder)
        if number is None:
            return False
        return number in self._holders or self._locker(_HOLDERS + number) is not None

    def is_alone(self) -> bool:
        """True if the store has no opening, in this process or another, that took a holder."""
        return not self._holders and self._locker(_HOLDERS, length=0) is None

    def opened_by(self) -> str | None:
        """Describe a process that has the store open; None if there is none."""
        if self._holders:
            return f"pid {os.getpid()}, this process"
        pid = self._locker(_HOLDERS, length=0)
        return None if pid is None else describe_process(pid)

    # -- which file was written last -----------------------------------------------------------

    def generation(self) -> int | None:
        """Return the generation of the file that was written last; None if it is not known."""
        return _generation_in(os.pread(self._fd, 64, 0))

    @classmethod
    def generation_at(cls, path: Path) -> int | None:
        """Return the same from a file that may not be written, or is not there."""
        with cls._registry:  # no other descriptor may be opened meanwhile: this one is closed
            lock = cls._open.get(str(path)) or cls._find(path)
            if lock is not None:
                return lock.generation()
            try:
                return _generation_in(path.read_bytes()[:64])
            except OSError:
                return None

    def set_generation(self, generation: int | None) -> None:
        """Keep the generation of the file that is written from now on; with the turn to write.

        If interrupted, or the disk is full: it is not known, or it is the old or the new one.
        """
        if generation == self.generation():
            return
        try:
            if generation is None:
                os.ftruncate(self._fd, 0)
            else:
                os.pwrite(self._fd, _GENERATION.format(generation).encode(), 0)
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, 0)

    def _locker(self, byte: int, *, length: int = 1) -> int | None:
        """Return the pid that holds another process's lock; asking takes no lock.

        A length of 0 asks about that byte and all behind it.
        """
        ask = (byte, length, 0, fcntl.F_WRLCK, 0)
        if _LINUX:
            ask = (fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
        answer = struct.unpack(
            _FLOCK, fcntl.fcntl(self._fd, fcntl.F_GETLK, struct.pack(_FLOCK, *ask))
        )
        kind, pid = (answer[0], answer[4]) if _LINUX else (answer[3], answer[2])
        return None if kind == fcntl.F_UNLCK else int(pid)


class _Request:
    """One thread's wait for the turn: granted, refused or given up."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._answered = threading.Event()
        self._given_up = False
        self._granted = False
        self.refused: OSError | None = None

    def wait(self, seconds: float) -> None:
        self._answered.wait(seconds)

    def give_up(self) -> bool:
        """Wait no longer; True if the turn has come by now."""
        with self._mutex:
            self._given_up = True
            return self._granted

    def answer(self, refused: OSError | None) -> bool:
        """Answer the waiting thread; True if it has the turn now."""
        with self._mutex:
            self.refused = refused
            self._granted = refused is None and not self._given_up
        self._answered.set()
        return self._granted


class _Blocking:
    """A thread that blocks on the turn for others; it exists once a store has had to wait."""

    def __init__(self, fd: int, forget_unused: Callable[[], bool]) -> None:
        self._fd = fd
        self._forget_unused = forget_unused
        self._requests: SimpleQueue[tuple[_Request, Callable[[], None]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="killick-turn", daemon=True).start()

    def request(self, give_up: Callable[[], None]) -> _Request:
        """Ask for the turn; `give_up` is called if the asking thread does not get it."""
        request = _Request()
        self._requests.put((request, give_up))
        return request

    def end(self) -> None:
        self._requests.put(None)

    def _run(self) -> None:
        while True:
            item = self._requests.get()
            if item is not None:
                self._serve(*item)
            elif self._forget_unused():
                return

    def _serve(self, request: _Request, give_up: Callable[[], None]) -> None:
        if not request.answer(self._take()):
            with contextlib.suppress(OSError):
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _TURN)
            give_up()

    def _take(self) -> OSError | None:
        """Block until the turn is this process's; return the error that kept it from that."""
        while True:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, _TURN)
            except OSError as error:
                if error.errno != EDEADLK:
                    return error
            else:
                return None
            # The kernel thinks of processes. Where two of them have two stores open, one thread
            # each that waits for the other's turn is a deadlock to it; the threads that have those
            # turns go on and let go of them.
            time.sleep(_DEADLOCK_SECONDS)


def describe_process(pid: int) -> str:
    """Describe a process as a person would look for it."""
    if pid <= 0:
        return "a process in another container"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({command.decode(errors='replace')[:80]})"


def locker_of(path: Path) -> str:
    """Describe the process that locks a file which we must not open: closing it drops our locks."""
    try:
        status = path.stat()
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "another program"
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks.splitlines():
        fields = line.split()
        if "WRITE" in fields and device in fields:
            pid = fields[fields.index("WRITE") + 1]
            return describe_process(int(pid))
    return "another program"


def _generation_in(text: bytes) -> int | None:
    match = re.fullmatch(rb"generation ([0-9a-f]{8})\n", text)
    return None if match is None else int(match[1], 16)


def _number_of(holder: str) -> int | None:
    try:
        number = int(holder.rsplit("/", 1)[1], 16)
    except (IndexError, ValueError):
        return None
    return number if 0 <= number < 1 << _NUMBER_BITS else None
