"""The keyword arguments that both faces share, written once."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal, TypedDict

from killick.journal import checks
from killick.journal.redaction import Redact
from killick.model import entries as e
from killick.model.messages import Json, Role
from killick.model.sessions import Namer, Parent, Project, SessionInfo, microseconds
from killick.search.port import Order
from killick.session.arguments import check_is, check_names, filters_of
from killick.session.core.stream import ModelCall
from killick.session.core.turn import TurnOptions
from killick.session.open import Durability
from killick.session.runtime import Clock, IdSource
from killick.stores.engine.turn_ops import IfBusy

Progress = Callable[[int, int], None]
"""Called with how much is done, and with how much there is to do."""

UsageBy = Literal["session", "model", "project", "day", "all"]


class OpenSettings(TypedDict, total=False):
    """How a store is opened; every one has a default."""

    tenant: str
    durability: Durability
    window_seconds: float
    buffer_bytes: int
    flush_bytes: int
    lock_wait_seconds: float
    lease_seconds: float
    answer_seconds: float
    network: bool
    indexing: bool
    clock: Clock
    ids: IdSource
    redact: Redact | Literal["secrets"] | None


class CreateSettings(TypedDict, total=False):
    """What a session begins with. An `id` of the caller's makes creating it idempotent."""

    id: str
    title: str | None
    titled_by: Namer
    type: str
    project: Project | None
    tags: tuple[str, ...]
    extra: dict[str, Any]
    parent: Parent | None


class ListFilters(TypedDict, total=False):
    """Which sessions are listed; a filter that is not given filters nothing.

    `archived` is False if not given, None shows both. `title` is a text in the title, `since` and
    `until` are about the last change, `before` is the last session of the page before.
    """

    type: str
    project: str
    tag: str
    model: str
    interrupted: bool
    archived: bool | None
    pinned: bool
    deleted: bool
    title: str
    since: datetime
    until: datetime
    parent: str
    fork_of: str
    limit: int
    before: SessionInfo | None


class SearchFilters(TypedDict, total=False):
    """Where and how to look; a filter that is not given filters nothing.

    `session` is an id; a fork is searched with what it has inherited. `role` may be `summary` too.
    `project` is a root, `interrupted` is about the session's newest turn, `since` and `until` about
    the message. `reasoning=False` leaves reasoning out. `substring=True` takes the words as a piece
    of text. `order` is "newest" or "best". `wait_seconds` is how long to let the index catch up.
    """

    session: str
    role: str
    state: str
    project: str
    interrupted: bool
    since: datetime
    until: datetime
    reasoning: bool
    substring: bool
    order: Order
    limit: int
    wait_seconds: float


class UsageFilters(TypedDict, total=False):
    """Whose model calls are counted; days are those of UTC, both ends included."""

    session: str
    project: str
    model: str
    since: date
    until: date


class TurnSettings(TypedDict, total=False):
    """How a turn begins."""

    key: str | None
    if_busy: IfBusy
    wait_seconds: float | None
    continues: str | None
    retry_of: str | None


class CallSettings(TypedDict, total=False):
    """What a model is asked with. `system` and `tools` are stored once, as blobs."""

    provider: str | None
    model: str | None
    settings: dict[str, Any] | None
    system: str | None
    tools: Json
    attempt: int
    retry_of: str | None
    role: Role


def session_created(settings: CreateSettings) -> tuple[str | None, e.SessionCreated]:
    """The id asked for, if any, and the entry that begins the session."""
    check_names(settings, CreateSettings, "create_session()")
    title = settings.get("title")
    created = e.SessionCreated(
        type=settings.get("type", "user"),
        title=title,
        titled_by=settings.get("titled_by", "person") if title is not None else None,
        project=settings.get("project"),
        tags=checks.as_tags(settings.get("tags", ())),
        extra=settings.get("extra", {}),
        parent=settings.get("parent"),
    )
    return settings.get("id"), created


def list_filters(filters: ListFilters) -> dict[str, Any]:
    """The filters as a listing has them."""
    wanted = filters_of(filters, ListFilters, "sessions()")
    if "archived" in filters:
        wanted["archived"] = filters["archived"]  # None is a filter too: both kinds
    for name in ("since", "until"):
        if name in wanted:
            wanted[f"{name}_us"] = microseconds(wanted.pop(name))
    before = wanted.pop("before", None)
    if before is not None:
        wanted["before"] = (before.updated_at_us, before.id)
    return wanted


def usage_filters(filters: UsageFilters) -> dict[str, Any]:
    wanted = filters_of(filters, UsageFilters, "usage()")
    for name in ("since", "until"):
        if name in wanted:
            wanted[f"{name}_day"] = (wanted.pop(name) - date(1970, 1, 1)).days
    return wanted


def turn_options(settings: TurnSettings) -> TurnOptions:
    check_names(settings, TurnSettings, "turn()")
    return TurnOptions(
        key=settings.get("key"),
        if_busy=settings.get("if_busy", "refuse"),
        continues=settings.get("continues"),
        retry_of=settings.get("retry_of"),
        wait_seconds=settings.get("wait_seconds"),
    )


def model_call(settings: CallSettings) -> ModelCall:
    check_names(settings, CallSettings, "stream()")
    return ModelCall(
        provider=settings.get("provider"),
        model=settings.get("model"),
        settings=settings.get("settings"),
        system=settings.get("system"),
        tools=settings.get("tools"),
        attempt=settings.get("attempt", 1),
        retry_of=settings.get("retry_of"),
        role=settings.get("role", "assistant"),
    )


def decision(
    asked: e.ApprovalAsked, *, approved: bool, by: str | None, reason: str | None
) -> e.ApprovalDecided:
    """A decision that is bound to what was asked."""
    check_is(asked, e.ApprovalAsked, "what is decided on")
    return e.ApprovalDecided(
        id=asked.id,
        turn_id=asked.turn_id,
        arguments_hash=asked.arguments_hash,
        approved=approved,
        by=by,
        reason=reason,
    )
