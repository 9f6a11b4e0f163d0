"""Two processes that measure in turn, block by block: a busy machine disturbs both alike."""

import os
from contextlib import suppress
from typing import Final

TURNS: Final = "KILLICK_BENCH_TURNS"
"""Names the descriptors that a process takes its turn from and hands it over by."""


class Turns:
    """The right to measure now: a byte that two processes hand to each other.

    A process that measures alone has it always. It is taken when a measurement begins, so that none
    is warmed up while the other is measured.
    """

    def __init__(self, fds: str | None) -> None:
        self._fds = tuple(map(int, fds.split(","))) if fds else None
        self._mine = False
        self.take()

    def take(self) -> None:
        """Wait for the other process; one that has ended is not waited for."""
        if self._fds is not None and not self._mine:
            self._mine = True
            os.read(self._fds[0], 1)

    def hand_over(self) -> None:
        if self._fds is not None:
            self._mine = False
            with suppress(BrokenPipeError):
                os.write(self._fds[1], b".")

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.hand_over()


turns: Final = Turns(os.environ.pop(TURNS, None))
