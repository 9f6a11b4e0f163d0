"""The agent as the one who answers here: it is started with the server and ended with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.server.state import Answering
from holdfast.session.aio import AsyncStore


@asynccontextmanager
async def agent_answering(
    _store: AsyncStore, *, model: str | None, root: Path, allowed: tuple[str, ...] = ()
) -> AsyncIterator[Answering]:
    """The chat agent. Raises ModelUnavailable, in one line."""
    from holdfast.agent import agent_for  # takes a while, and brings pydantic-ai along

    async with agent_for(model, root=root, allowed=allowed) as agent:
        yield Answering(agent.answer, agent.name, after=agent.title, compact=agent.compact)
