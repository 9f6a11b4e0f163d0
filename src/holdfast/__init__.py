"""Holdfast: a session store for LLM agents that loses nothing when they are interrupted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    BlobNotFound,
    CallNotFound,
    ConflictError,
    ForeignHandle,
    HandleClosed,
    HoldfastError,
    IdConflict,
    InvalidCursor,
    InvalidEntry,
    InvalidQuery,
    MessageNotFound,
    OutcomeUnknown,
    PromptQueued,
    SearchDamaged,
    ServerTooOld,
    SessionAmbiguous,
    SessionBusy,
    SessionDamaged,
    SessionDeleted,
    SessionHasForks,
    SessionNotFound,
    SqliteTooOld,
    StaleFence,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNewer,
    StoreNotOurs,
    StoreOnNetwork,
    StoreReadOnly,
    StoreReplaced,
    ToolAlreadyStarted,
    ToolNotApproved,
    ToolNotFinished,
    TurnEnded,
    TurnNotFound,
    TurnStopped,
    UndoRefused,
    UsageError,
)
from holdfast.model.entries import Delta, Entry, FollowedDelta, Usage
from holdfast.model.messages import Message
from holdfast.model.parts import File, Image, Opaque, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.search import Hit, Hits
from holdfast.model.sessions import Fork, Parent, Project, SessionInfo, TurnInfo
from holdfast.session.blocks import Stream, Tool, Turn
from holdfast.session.store import Session, Store
from holdfast.stores.standing import Receipt

if TYPE_CHECKING:
    from holdfast.session.aio import AsyncSession, AsyncStore
    from holdfast.session.blocks_aio import AsyncStream, AsyncTool, AsyncTurn

__all__ = [
    "AsyncSession",
    "AsyncStore",
    "AsyncStream",
    "AsyncTool",
    "AsyncTurn",
    "BlobNotFound",
    "CallNotFound",
    "ConflictError",
    "Delta",
    "Entry",
    "File",
    "FollowedDelta",
    "ForeignHandle",
    "Fork",
    "HandleClosed",
    "Hit",
    "Hits",
    "HoldfastError",
    "IdConflict",
    "Image",
    "InvalidCursor",
    "InvalidEntry",
    "InvalidQuery",
    "Message",
    "MessageNotFound",
    "Opaque",
    "OutcomeUnknown",
    "Parent",
    "Project",
    "PromptQueued",
    "Reasoning",
    "Receipt",
    "SearchDamaged",
    "ServerTooOld",
    "Session",
    "SessionAmbiguous",
    "SessionBusy",
    "SessionDamaged",
    "SessionDeleted",
    "SessionHasForks",
    "SessionInfo",
    "SessionNotFound",
    "SqliteTooOld",
    "StaleFence",
    "Store",
    "StoreBusy",
    "StoreDegraded",
    "StoreError",
    "StoreNewer",
    "StoreNotOurs",
    "StoreOnNetwork",
    "StoreReadOnly",
    "StoreReplaced",
    "Stream",
    "Text",
    "Tool",
    "ToolAlreadyStarted",
    "ToolCall",
    "ToolNotApproved",
    "ToolNotFinished",
    "ToolResult",
    "Turn",
    "TurnEnded",
    "TurnInfo",
    "TurnNotFound",
    "TurnStopped",
    "UndoRefused",
    "Usage",
    "UsageError",
]


def __getattr__(name: str) -> Any:
    # The asynchronous face brings an event loop along: loaded only by those who use it.
    if name in __all__:
        module = "aio" if name in ("AsyncSession", "AsyncStore") else "blocks_aio"
        return getattr(import_module(f"holdfast.session.{module}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
