"""Agents of Strands, recorded as they run, and its sessions on a store.

    recorder = Recorder()
    agent = Agent(plugins=[recorder])
    async with session.turn("Why does the build fail?") as turn:
        with recorder.recording(turn):
            agent.messages = await history(session)
            await agent.invoke_async()

`Recorder` is a plugin that journals every piece of a model's answer as it comes, every tool's start
before it runs and every result as it returns. `history` is what the model is sent: computed from
the journal, valid whatever happened. `KillickSessionManager` is Strands' session manager on a
store.
"""

from killick.adapters.frameworks import tested

tested("strands-agents", "strands", at_least="1.62", below="1.63")

from killick.adapters.strands.contents import history  # noqa: E402
from killick.adapters.strands.recorder import Recorder  # noqa: E402
from killick.adapters.strands.session_manager import (  # noqa: E402
    KillickSessionManager,
    KillickSessionRepository,
)

__all__ = ["KillickSessionManager", "KillickSessionRepository", "Recorder", "history"]
