"""Tell whether an agent still writes to a session: by its processes, or by the age of its file.

On Linux a process says what it has open and where it works. An agent that was killed a second ago
is gone, however young its file is. Processes of other users are not seen, nor is anything on other
systems; there a file that has rested for ten minutes counts as done with.
"""

import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from killick.exchange.records import SettledBy

SETTLED_SECONDS: Final = 600
"""An agent that has not written to a file for so long is done with it."""

_QUIET_US: Final = 500_000
"""An agent that writes something in pieces has written them all after so long."""

_LINUX: Final = sys.platform.startswith("linux")
_PROC: Final = Path("/proc")


class Writers(msgspec.Struct, frozen=True):
    """The processes that have each file open, and those of each command by where it works."""

    files: dict[str, set[int]] = {}
    folders: dict[tuple[str, str], set[int]] = {}

    def has(self, files: Iterable[Path], commands: Iterable[str], folder: str | None) -> bool:
        """Tell whether one of the files is open, or one of the commands runs in the folder."""
        return bool(self.of(files, commands, folder))

    def of(self, files: Iterable[Path], commands: Iterable[str], folder: str | None) -> set[int]:
        """Return the processes with one of the files open, or of a command in the folder."""
        writers = set[int]()
        for file in files:
            writers |= self.files.get(os.path.realpath(file), set())
        if folder is not None:
            real_folder = os.path.realpath(folder)
            for command in commands:
                writers |= self.folders.get((command, real_folder), set())
        return writers


def find_writers(commands: frozenset[str]) -> Writers | None:
    """Look at the processes once; None where they cannot be seen.

    Of a process that runs none of the commands, only the open files count.
    """
    if not _LINUX or not _PROC.is_dir():
        return None
    writers, own = Writers({}, {}), os.getpid()
    for process in _processes():
        number = int(process.name)
        if number == own:
            continue
        for file in _open_files(process):
            writers.files.setdefault(file, set()).add(number)
        folder = _link(process / "cwd")
        if folder is not None:
            for name in _names(process) & commands:
                writers.folders.setdefault((name, folder), set()).add(number)
    return writers


def rested(written_us: int, now_us: int) -> bool:
    """Tell whether a file was written so long ago that its agent is done with it anyhow.

    A terminal may stay open for days.
    """
    return now_us - written_us > SETTLED_SECONDS * 1_000_000


def is_quiet(written_us: int, now_us: int) -> bool:
    """Tell whether a file was left alone for a moment."""
    return now_us - written_us >= _QUIET_US


def settled(files: list[Path], writers: Writers | None, *, living: bool) -> tuple[bool, SettledBy]:
    """Decide of a young file whether its agent is done with it, and say how that is known."""
    if writers is None or not all(_is_ours(file) for file in files):
        return False, "age"
    return not living, "process"


def _is_ours(file: Path) -> bool:
    """Tell whether this user sees the processes that write to a file."""
    return os.geteuid() in (0, file.stat().st_uid)


def _processes() -> Iterator[Path]:
    yield from (path for path in _PROC.iterdir() if path.name.isdecimal())


def _open_files(process: Path) -> Iterator[str]:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return  # of another user, or gone
    for descriptor in descriptors:
        name = _link(descriptor)
        if name is not None and name.startswith("/") and not name.startswith("/dev/"):
            yield name


def _names(process: Path) -> set[str]:
    """Return the names of a process' command and of its first arguments.

    An agent that runs in an interpreter is named by its script.
    """
    try:
        command = (process / "cmdline").read_bytes()
    except OSError:
        return set()
    words = command.decode("utf-8", "replace").split("\0")[:3]
    return {part.removesuffix(".js") for word in words for part in Path(word).parts[-4:]}


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


class LivingProcesses:
    """Processes whose end is heard of at once, where the system has descriptors for them (Linux).

    A descriptor stands for the process itself: another one with the same number is not it.
    """

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def watch(self, numbers: Iterable[int]) -> frozenset[int]:
        """Watch these processes from now on; return those whose end will be heard of."""
        for number in set(numbers) - self._descriptors.keys():
            with suppress(OSError, AttributeError):
                self._descriptors[number] = os.pidfd_open(number)
        return frozenset(self._descriptors.keys() & set(numbers))

    def alive(self, numbers: Iterable[int]) -> bool:
        """Tell whether one of these lives; those that are gone are no longer watched."""
        self._drop_dead()
        return not self._descriptors.keys().isdisjoint(numbers)

    def _drop_dead(self) -> None:
        if not self._descriptors:
            return
        poll = select.poll()
        for descriptor in self._descriptors.values():
            poll.register(descriptor, select.POLLIN)
        dead = {descriptor for descriptor, _ in poll.poll(0)}
        for number in [number for number, fd in self._descriptors.items() if fd in dead]:
            os.close(self._descriptors.pop(number))

    def descriptors(self) -> list[int]:
        """Return what can be waited for; a descriptor is ready when its process is gone."""
        return list(self._descriptors.values())

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
