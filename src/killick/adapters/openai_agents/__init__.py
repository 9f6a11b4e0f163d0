"""Agents of the OpenAI Agents SDK, recorded as they run, and its storage interface on a store.

    async with session.turn("Why does the build fail?") as turn:
        recorder = Recorder(turn)
        await Runner.run(
            agent, await history(session), hooks=recorder, run_config=recorder.run_config
        )

`Recorder` journals every event of a model's stream as it comes, every tool's start before it runs
and every result as it returns. `history` is what the model is sent: computed from the journal,
valid whatever happened. `KillickSession` is the SDK's `Session` on a store. No agent is changed.
"""

from killick.adapters.frameworks import tested

tested("openai-agents", "openai-agents", at_least="0.24", below="0.25")

from killick.adapters.openai_agents.agents_session import KillickSession  # noqa: E402
from killick.adapters.openai_agents.items import history  # noqa: E402
from killick.adapters.openai_agents.recorder import (  # noqa: E402
    PausedRun,
    Recorder,
    SubagentHooks,
    paused,
)

__all__ = ["KillickSession", "PausedRun", "Recorder", "SubagentHooks", "history", "paused"]
