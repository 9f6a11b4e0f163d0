"""Agents of pydantic-ai, recorded as they run.

    async with session.turn("Why does the build fail?") as turn:
        await agent.run(message_history=await history(session), capabilities=[Recorder(turn)])

`Recorder` journals every delta as it comes, every tool's start before it runs and every result as
it returns. `history` is what the model is sent: computed from the journal, valid whatever happened.
`Approvals` lets a person decide on a call, in whatever process the person is. None of them changes
what the agent does.
"""

from killick.adapters.frameworks import tested

tested("pydantic-ai-slim", "chat", at_least="2.62", below="3")

from killick.adapters.pydantic_ai.model_messages import as_history, history  # noqa: E402
from killick.adapters.pydantic_ai.recorder import (  # noqa: E402
    Approvals,
    Granted,
    Recorder,
    granted,
)

__all__ = ["Approvals", "Granted", "Recorder", "as_history", "granted", "history"]
