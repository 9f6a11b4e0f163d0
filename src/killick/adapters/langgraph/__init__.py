"""LangGraph's checkpoints in a store: `graph = builder.compile(checkpointer=KillickSaver(store))`.

A list that grows is stored as a chain: what was there before is not written again. Recording what
happens in the middle of a step is `killick.adapters.langchain`'s; both may use one session.
"""

from killick.adapters.frameworks import tested

tested("langgraph", "langgraph", at_least="1.2", below="1.3")
tested("langgraph-checkpoint", "langgraph", at_least="4.3", below="5")

from killick.adapters.langgraph.saver import KillickSaver  # noqa: E402

__all__ = ["KillickSaver"]
