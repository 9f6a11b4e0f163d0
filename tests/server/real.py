"""A server with the real, small model on board, and no tools: what a person's page talks to.

python -m tests.server.real STORE --tokens FILE [--port N]
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from killick import AsyncStore
from killick.agent import agent_for
from killick.server.auth import Tokens
from killick.server.launch import serve
from killick.server.log import configure
from killick.server.runner import Runner
from killick.server.service import ServerSettings


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[Runner]:
    said = "You tell stories in plain paragraphs."
    async with agent_for("on-board", tools=[], instructions=said) as agent:
        yield Runner(agent.answer, agent.name, compact=agent.compact)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    configure()
    settings = ServerSettings(port=given.port, drain_seconds=1.0, look_seconds=0.2)
    tokens = Tokens(given.tokens)

    def ready(url: str) -> None:
        print(url, flush=True)

    asyncio.run(
        serve(
            lambda tenant: AsyncStore(given.store, tenant=tenant),
            answering(),
            settings,
            tokens,
            ready,
        )
    )


if __name__ == "__main__":
    main()
