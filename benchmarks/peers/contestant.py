"""What a store must be able to do to be measured."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from benchmarks.raw import TEXT

NOT_OFFERED: Final = -1
"""What `load_last` gives where a store can only load everything."""


class Conversation(ABC):
    """One session of one store, which a single caller appends to."""

    @abstractmethod
    async def append(self) -> None:
        """One message of 600 bytes, as durable as the store makes it before it returns."""

    async def fill(self, messages: int) -> None:
        """So many messages, however the store is quickest at it. Not measured."""
        for _ in range(messages):
            await self.append()

    @abstractmethod
    async def load(self) -> int:
        """Read everything, as the next turn of an agent would; how many messages came."""

    async def load_last(self, count: int) -> int:
        """Read the newest messages; how many came, or NOT_OFFERED."""
        return NOT_OFFERED


class Contestant(ABC):
    """One store, opened in a folder of its own."""

    name: str
    durability: str
    """What an append has reached when it returns."""

    bulk_fill = False
    """Whether `fill` leaves less on the disk than as many appends would."""

    together_max: int | None = None
    """So many sessions at once it can be asked to serve, and no more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    async def open(self) -> None:  # noqa: B027  (not all have something to do)
        """Make it ready."""

    @abstractmethod
    async def conversation(self, name: str) -> Conversation: ...

    async def close(self) -> None:  # noqa: B027  (not all have something to do)
        """Let go of files and threads."""

    def stored(self) -> int:
        """Bytes on the disk; asked after closing, when logs have been copied back."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


FULL: Final = "synced"
NOT_SYNCED: Final = "not synced"
SAID: Final = TEXT
