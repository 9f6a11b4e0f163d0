"""Agents and graphs of LangChain, recorded by its callbacks as they run.

    async with session.turn("Why does the build fail?") as turn:
        messages = await history(session)
        await agent.ainvoke({"messages": messages}, {"callbacks": [Recorder(turn)]})

`Recorder` journals every token as it comes, every tool's start before it runs and every result as
it returns; `BlockingRecorder` does so for `invoke`. `history` is what the model is sent. With a
checkpointer, `JournalView` gives the model the journal's view and leaves the checkpoint alone.
"""

from killick.adapters.frameworks import tested

tested("langchain", "langchain", at_least="1.4", below="1.5")
tested("langchain-core", "langchain", at_least="1.7", below="1.8")

from killick.adapters.langchain.journal_view import (  # noqa: E402
    JournalView,
    as_messages,
    blocking_history,
    history,
)
from killick.adapters.langchain.recorder import BlockingRecorder, Recorder  # noqa: E402

__all__ = [
    "BlockingRecorder",
    "JournalView",
    "Recorder",
    "as_messages",
    "blocking_history",
    "history",
]
