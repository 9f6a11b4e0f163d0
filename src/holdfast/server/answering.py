"""The agent as the one who answers here: it is started with the server and ended with it."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.server.running import Runner
from holdfast.server.state import Answering
from holdfast.session.aio import AsyncSession, AsyncStore, AsyncTurn


@asynccontextmanager
async def agent_answering(
    _store: AsyncStore, *, model: str | None, root: Path, allowed: tuple[str, ...] = ()
) -> AsyncIterator[Answering]:
    """The chat agent. Raises ModelUnavailable, in one line, if the model that is named is none."""
    # Takes a while, and brings pydantic-ai along.
    from holdfast.agent import ModelUnavailable, agent_for

    async with contextlib.AsyncExitStack() as stack:
        try:
            agent = await stack.enter_async_context(agent_for(model, root=root, allowed=allowed))
        except ModelUnavailable as unavailable:
            if model is not None:
                raise
            # Sessions can be read without a model; whoever asks is told what is missing.
            yield Answering(_refusing(str(unavailable)), None)
            return
        yield Answering(agent.answer, agent.name, after=agent.title, compact=agent.compact)


def _refusing(why: str) -> Runner:
    async def refuse(_session: AsyncSession, _turn: AsyncTurn) -> None:
        raise UsageError(why)

    return refuse
