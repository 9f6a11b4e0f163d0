"""Interrupting a coroutine at its k-th suspension, for every k.

The coroutine is driven by hand between it and the event loop, so each time it suspends is a point
that can be counted and visited. Tasks that it starts share the count. Which interruption comes, and
at which moment around the suspension, is for the caller to say.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal

import trio

Moment = Literal["at once", "soon", "answered"]
"""While it suspends; in the next step of the event loop; when what it waits for has just come."""


class Points:
    """Counts suspensions, and calls `interrupt` at those it was given."""

    def __init__(self, at: set[int], moment: Moment) -> None:
        self.count = 0
        self.fired = 0
        self.fired_at = 0
        self.interrupt: Callable[[], object] = lambda: None
        self._at = at
        self._moment = moment

    @types.coroutine
    def watch(self, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same coroutine, with its suspensions counted."""
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as done:
                return done.value
            self._visit(trap)
            try:
                value, error = (yield trap), None
            except BaseException as caught:  # noqa: BLE001  (thrown into the coroutine)
                error = caught

    def _visit(self, trap: Any) -> None:
        self.count += 1
        if self.count not in self._at:
            return
        self.fired, self.fired_at = self.fired + 1, self.count
        if self._moment == "at once":
            self.interrupt()
        elif trio.lowlevel.in_trio_run():
            trio.lowlevel.current_trio_token().run_sync_soon(self.interrupt)
        elif self._moment == "answered" and isinstance(trap, asyncio.Future):
            # Before the task's own callback: it is cancelled with its answer already there.
            trap.add_done_callback(lambda _: self.interrupt())
        else:
            asyncio.get_running_loop().call_soon(self.interrupt)
