"""Killick: a session store for LLM agents that loses nothing when they are interrupted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from killick.errors import (
    BlobNotFound,
    CallNotFound,
    ConflictError,
    ForeignHandle,
    HandleClosed,
    IdConflict,
    InvalidCursor,
    InvalidEntry,
    InvalidQuery,
    KillickError,
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
from killick.model.entries import Delta, Entry, FollowedDelta, Usage
from killick.model.messages import (
    File,
    Image,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from killick.model.sessions import Fork, Parent, Project, SessionInfo, TurnInfo
from killick.search.results import Hit, Hits
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Stream, Tool, Turn
from killick.stores.engine.state import Receipt

if TYPE_CHECKING:
    from killick.session.aio import AsyncSession, AsyncStore
    from killick.session.aio_blocks import AsyncStream, AsyncTool, AsyncTurn

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
    "IdConflict",
    "Image",
    "InvalidCursor",
    "InvalidEntry",
    "InvalidQuery",
    "KillickError",
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
        module = "aio" if name in ("AsyncSession", "AsyncStore") else "aio_blocks"
        return getattr(import_module(f"killick.session.{module}"), name)
    raise AttributeError(f"module 'killick' has no attribute {name!r}")
