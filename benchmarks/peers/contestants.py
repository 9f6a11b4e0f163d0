"""Everybody who is measured, in the order of the tables."""

from collections.abc import Sequence
from typing import Final

from benchmarks.peers import google_adk, langgraph_saver, openai_agents, pydantic_ai_stores
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.ours import Killick, RawSqlite
from benchmarks.peers.plain_files import JsonLines, JsonLinesSynced, WholeFile

ALL: Final[Sequence[type[Contestant]]] = (
    RawSqlite,
    Killick,
    openai_agents.Sqlite,
    openai_agents.AdvancedSqlite,
    openai_agents.SqlAlchemy,
    langgraph_saver.Saver,
    langgraph_saver.Graph,
    google_adk.Sqlite,
    google_adk.Database,
    pydantic_ai_stores.Conversations,
    pydantic_ai_stores.Steps,
    JsonLines,
    JsonLinesSynced,
    WholeFile,
)
