"""Agents of Microsoft's Agent Framework, recorded as they run, and its history on a store.

    recorder = Recorder()
    async with session.turn("Why does the build fail?") as turn:
        with recorder.recording(turn):
            await agent.run(await history(session), middleware=recorder.middleware)

`Recorder` has middleware that journals every update of a model's answer as it comes, every tool's
start before it runs and every result as it returns. `history` is what the model is sent: computed
from the journal, valid whatever happened. `KillickHistoryProvider` is the framework's
`HistoryProvider` on a store. No agent is changed.
"""

from killick.adapters.frameworks import tested

tested("agent-framework-core", "agent-framework", at_least="1.23", below="1.24")

from killick.adapters.agent_framework.contents import history  # noqa: E402
from killick.adapters.agent_framework.history_provider import KillickHistoryProvider  # noqa: E402
from killick.adapters.agent_framework.recorder import Recorder  # noqa: E402

__all__ = ["KillickHistoryProvider", "Recorder", "history"]
