"""A loop of the user's own, recorded: run by the scenarios in this process, or in one to kill.

python -m tests.recorders.agent STORE URL SHAPE
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from killick import AsyncStore
from killick.recorders import record
from tests.recorders.clients import REQUESTS, AsyncClients

SESSION = "the-session"


async def run(store_path: str, url: str, shape: Any, hanging: Callable[[], None]) -> None:
    """Ask, run what is called, ask again; `t3` hangs when the others are recorded."""
    async with AsyncStore(store_path) as store, AsyncClients(url) as clients:
        session = await store.create_session(id=SESSION)
        results: dict[str, Any] = {}

        async def quick(place: str) -> str:
            return f"done {place}"

        async def hangs(place: str) -> str:
            while len(results) < 2:  # noqa: ASYNC110  (a result is there when it is durable)
                await asyncio.sleep(0)
            hanging()
            await asyncio.Event().wait()
            return place

        tools = {"t1": quick, "t2": quick, "t3": hangs}
        async with session.turn("PROMPT-1") as turn:
            while True:
                reply = record(turn, shape, clients.ask(shape), request=REQUESTS[shape])
                async with turn.run_tools(reply, tools) as running:
                    before, results = results, running.results
                    results.update(before)
                    async for _ in reply:
                        pass
                if not reply.tool_calls:
                    return


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], lambda: print("hanging", flush=True)))
