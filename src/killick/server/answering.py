"""The agent as the one who answers here: it is started with the server and ended with it."""

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from killick.errors import UsageError
from killick.server.failing import sentence
from killick.server.running import Answering
from killick.session.aio import AsyncStore


@asynccontextmanager
async def agent_answering(
    _store: AsyncStore, *, model: str | None, root: Path, allowed: tuple[str, ...] = ()
) -> AsyncIterator[Answering]:
    """The chat agent. Raises UsageError, in one line, if the model that is named is none.

    Where none is named and none is found, sessions can still be read; whoever asks is told what to
    set.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            # Takes a while, and brings pydantic-ai along.
            from killick.agent import agent_for

            agent = await stack.enter_async_context(agent_for(model, root=root, allowed=allowed))
            answers = Answering(agent.answer, agent.name, after=agent.title, compact=agent.compact)
        except ModuleNotFoundError as missing:
            answers = _nobody(
                UsageError(f"an agent needs {missing.name}: pip install 'killick[chat]'"), model
            )
        except UsageError as unavailable:
            answers = _nobody(unavailable, model)
        yield answers


def _nobody(why: UsageError, named: str | None) -> Answering:
    if named or os.environ.get("KILLICK_MODEL"):
        raise why
    return Answering(None, None, lacks=sentence(str(why)))
