"""Closing the turns of servers that died: whoever is left looks for them, and closes each once."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final

from killick.errors import KillickError, StoreError
from killick.model.sessions import moment
from killick.server.logs import Log, cause
from killick.session.aio import AsyncStore
from killick.session.sources import Clock

_FIRST_DAYS: Final = 7
"""How far back a server looks when it begins; older turns are closed when they are opened."""

_OVERLAP: Final = timedelta(minutes=5)
"""The clocks of several machines may differ by this much."""

_LISTED: Final = 10_000


class Keeper:
    """Knows which sessions were seen running, and opens each to see whether its holder lives.

    `here` are those whose turns run in this process: they need not be looked at.
    """

    def __init__(
        self, store: AsyncStore, clock: Clock, log: Log, here: Callable[[], Collection[str]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._here = here
        self._seen_running: set[str] = set()
        self._since = moment(clock()) - timedelta(days=_FIRST_DAYS)

    async def run(self, seconds: float) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  (said, and looked at again)
                self._log.warning("look_failed", **cause(error))
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Close the turns whose holders are dead. If interrupted: each is closed or it is not."""
        began = moment(self._clock())
        changed = await self._store.sessions(since=self._since, archived=None, limit=_LISTED)
        self._since = began - _OVERLAP
        self._seen_running |= {info.id for info in changed if info.status == "running"}
        for session_id in self._seen_running - set(self._here()):
            try:
                session = await self._store.session(session_id)  # closes what is dead
                running = (await session.info()).status == "running"
            except KillickError as error:
                self._log.warning("session_failed", session=session_id, **cause(error))
                running = isinstance(error, StoreError)  # the store failed: it may still run
            if not running:
                self._seen_running.discard(session_id)
