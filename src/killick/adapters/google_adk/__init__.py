"""Agents of Google's Agent Development Kit, recorded as they run, and its sessions on a store.

    recorder = Recorder()
    runner = Runner(agent=agent, app_name="app", session_service=service, plugins=[recorder])
    async with session.turn("Why does the build fail?") as turn:
        with recorder.recording(turn):
            async for event in runner.run_async(...):
                ...

`Recorder` is a plugin that journals every chunk of a model's answer as it comes, every tool's start
before it runs and every result as it returns. `JournalContext` is a plugin that gives the model the
journal's view of the conversation, `history` the same as contents. `KillickSessionService` keeps
the ADK's sessions, events and states in a store. No agent is changed.
"""

from killick.adapters.frameworks import tested

tested("google-adk", "google-adk", at_least="2.13", below="2.14")

from killick.adapters.google_adk.contents import history  # noqa: E402
from killick.adapters.google_adk.recorder import JournalContext, Recorder  # noqa: E402
from killick.adapters.google_adk.session_service import KillickSessionService  # noqa: E402

__all__ = ["JournalContext", "KillickSessionService", "Recorder", "history"]
