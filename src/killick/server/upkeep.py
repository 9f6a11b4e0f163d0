"""Verifying, and applying retention: done by a server beside requests, if it was told to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from killick.errors import KillickError
from killick.maintenance.verify import Pacer
from killick.server.log import Log
from killick.session.aio import AsyncStore

VERIFY_BYTES_A_SECOND: Final = 10_000_000
"""On the whole: a session is read at once, and a wait follows."""


class StoreUpkeep:
    """Looks after one tenant's store, again and again. Damage is told, and stops nothing."""

    def __init__(
        self,
        store: AsyncStore,
        log: Log,
        due: dict[str, float],
        count: Callable[[int], None] = lambda _damaged: None,
    ) -> None:
        """`due` says when what was done before is to be done again; it outlives an opening.

        `count` is told how many sessions a verification has found damaged.
        """
        self._count = count
        self._store = store
        self._log = log
        self._due = due

    async def verify_every(self, seconds: float) -> None:
        """Verify all sessions, then wait; the first time at once."""
        async for _ in self._every(seconds, "verify"):
            try:
                await self.verify()
            except KillickError as error:
                self._log.warning("verify_failed", error=type(error).__name__)

    async def _every(self, seconds: float, what: str) -> AsyncIterator[None]:
        while True:
            await asyncio.sleep(max(0.0, self._due.get(what, 0.0) - time.monotonic()))
            yield
            self._due[what] = time.monotonic() + seconds

    async def verify(self) -> None:
        """Read all sessions again at a bounded rate, and name in the log what is damaged."""
        pace, damaged, size = Pacer(VERIFY_BYTES_A_SECOND), 0, 0
        ids = await self._store.session_ids()
        for session_id in ids:
            kinds: dict[str, int] = {}
            try:
                verified = await self._store.verify_session(session_id)
            except KillickError as error:
                if session_id not in await self._store.session_ids():
                    continue  # it was erased meanwhile
                kinds[type(error).__name__] = 1
            else:
                for finding in verified.findings:
                    kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
                size += verified.bytes
                await asyncio.sleep(pace.seconds_for(verified.bytes))
            if kinds:
                damaged += 1
                self._count(damaged)
                self._log.warning("session_damaged", session=session_id, findings=kinds)
        self._count(damaged)
        self._log.info("verified", sessions=len(ids), damaged=damaged, bytes=size)

    async def apply_retention_every(self, seconds: float) -> None:
        """Apply the rules that are kept in the store, then wait; the first time at once."""
        async for _ in self._every(seconds, "retention"):
            try:
                done = await self._store.apply_retention(dry_run=False)
            except KillickError as error:
                self._log.warning("retention_failed", error=type(error).__name__)
            else:
                removed = sum(removal.done for removal in done)
                self._log.info("retention", removed=removed, kept=len(done) - removed)
