"""Every type that public signatures name, and every value that they return."""

from killick.journal.chain import LinkedEntry
from killick.journal.redaction import Redact
from killick.journal.summary import Total
from killick.maintenance.erase import Erasure
from killick.maintenance.examine import Finding, Salvaged
from killick.maintenance.prove import ExpectedLink, Verified
from killick.maintenance.retention import Removal, RetentionRule
from killick.model.causes import Cause
from killick.model.effects import Effect, Outcome, SettledBy
from killick.model.entries import ApprovalAsked, Delta, Entry, FollowedDelta, TurnEnding, Usage
from killick.model.messages import (
    Extra,
    File,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    Prompt,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from killick.model.sessions import (
    ErasureNote,
    Fork,
    Limits,
    Namer,
    Parent,
    Project,
    SessionInfo,
    SessionNote,
    Starts,
    TurnInfo,
)
from killick.search.port import Order
from killick.search.results import Hit, Hits
from killick.session.batch import BatchedWrite
from killick.session.core.figures import ActiveDay, Totals, UsageBy
from killick.session.core.queries import Changes, Progress
from killick.session.core.session import AddedMessages, Content, Steer
from killick.session.core.stream import ToolType
from killick.session.core.work import ClosedTurn, TakenWork
from killick.session.feeds import Feed, Following, PartEvents, StoreFollowing
from killick.session.follow import Cursor, Fed, Followed, FollowedItem
from killick.session.news import News
from killick.session.open import Durability, Url
from killick.session.parts import PartEvent, PartType
from killick.session.runtime import Clock, IdSource
from killick.session.sync_blocks import Calling, Checks, Effects, Found, ToolRun, Tools
from killick.stores.contract import BackupReceipt, Database, Figures, RestoreReceipt
from killick.stores.engine.state import Receipt
from killick.stores.engine.turn_ops import DueWork, IfBusy
from killick.views.budget import CountTokens
from killick.views.context import Context, Format
from killick.views.neutral import Errors, Partial
from killick.views.timeline import TimedTurn, TimedWait
from killick.views.transcript import Shown, ShownSettlement

__all__ = [
    "ActiveDay", "AddedMessages", "ApprovalAsked", "BackupReceipt", "BatchedWrite", "Calling",
    "Cause", "Changes", "Checks", "Clock", "ClosedTurn", "Content", "Context", "CountTokens",
    "Cursor", "Database", "Delta", "DueWork", "Durability", "Effect", "Effects", "Entry", "Erasure",
    "ErasureNote", "Errors", "ExpectedLink", "Extra", "Fed", "Feed", "Figures", "File", "Finding",
    "Followed", "FollowedDelta", "FollowedItem", "Following", "Fork", "Format", "Found", "Hit",
    "Hits", "IdSource", "IfBusy", "Image", "Json", "Limits", "LinkedEntry", "Message", "Namer",
    "News", "Opaque", "Order", "Outcome", "Parent", "Part", "PartEvent", "PartEvents", "PartType",
    "Partial", "Progress", "Project", "Prompt", "Reasoning", "Receipt", "Redact", "Removal",
    "RestoreReceipt", "RetentionRule", "Role", "Salvaged", "SessionInfo", "SessionNote",
    "SettledBy", "Shown", "ShownSettlement", "Starts", "Steer", "StoreFollowing", "TakenWork",
    "Text", "TimedTurn", "TimedWait", "ToolCall", "ToolResult", "ToolRun", "ToolType", "Tools",
    "Total", "Totals", "TurnEnding", "TurnInfo", "Url", "Usage", "UsageBy", "Verified",
]  # fmt: skip
