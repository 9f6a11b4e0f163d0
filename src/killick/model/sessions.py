"""Facts of a session and of a turn as a whole."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

Namer = Literal["person", "model", "import"]
Status = Literal["running", "completed", "failed", "interrupted"]
Starts = Literal["seen", "unseen"]
"""Whether the recorder of a turn sees when a tool starts: only then does no start mean not run."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at_us: int) -> datetime:
    """Microseconds since 1970 as an aware time; exact, where floats are not."""
    return _EPOCH + timedelta(microseconds=at_us)


def microseconds(at: datetime) -> int:
    """A time as microseconds since 1970; one without a zone is taken as local time."""
    return (at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


class Project(msgspec.Struct, frozen=True, omit_defaults=True):
    """The directories that a session works in: the project's root and the working directory."""

    root: str
    directory: str | None = None


class Parent(msgspec.Struct, frozen=True):
    """The turn that a subagent's session works for."""

    session_id: str
    turn_id: str


class Fork(msgspec.Struct, frozen=True):
    """The origin of a fork: its journal begins with that session's entries up to `at`."""

    session_id: str
    at: int


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that model calls may spend: of a session with its children, or of one turn.

    `seconds` are those in which turns run. None limits nothing.
    """

    tokens: int | None = None
    calls: int | None = None
    seconds: float | None = None
    cost: float | None = None


class Description(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session's own facts, derived from its journal, which is the truth.

    `status` is that of the newest turn, `models` are those that were asked, `system` names the
    newest system prompt.
    """

    title: str | None = None
    titled_by: Namer | None = None
    type: str = "user"
    project: Project | None = None
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    parent: Parent | None = None
    fork: Fork | None = None
    archived: bool = False
    pinned: bool = False
    deleted_at_us: int | None = None
    status: Status | None = None
    models: tuple[str, ...] = ()
    system: str | None = None
    redacted: int = 0
    limits: Limits | None = None

    @property
    def deleted(self) -> bool:
        return self.deleted_at_us is not None


class ErasureNote(msgspec.Struct, frozen=True):
    """A receipt, as it is kept in the store: which session was erased, when, and by what rule.

    `scrubbed_at_us` is None until its bytes were seen to be gone from the store's files.
    """

    session_id: str
    entries: int
    at_us: int
    scrubbed_at_us: int | None
    because: str | None


class SessionInfo(msgspec.Struct, frozen=True):
    """One line of a list of sessions."""

    id: str
    about: Description
    tenant: str
    created_at_us: int
    updated_at_us: int

    @property
    def title(self) -> str | None:
        return self.about.title

    @property
    def type(self) -> str:
        return self.about.type

    @property
    def project(self) -> Project | None:
        return self.about.project

    @property
    def tags(self) -> tuple[str, ...]:
        return self.about.tags

    @property
    def extra(self) -> dict[str, Any]:
        """The application's own data, as the session was created with it."""
        return self.about.extra

    @property
    def models(self) -> tuple[str, ...]:
        return self.about.models

    @property
    def status(self) -> Status | None:
        """The status of the newest turn; None before the first."""
        return self.about.status

    @property
    def redacted(self) -> int:
        """The number of secrets that were taken out before it was written."""
        return self.about.redacted

    @property
    def archived(self) -> bool:
        return self.about.archived

    @property
    def pinned(self) -> bool:
        return self.about.pinned

    @property
    def deleted_at(self) -> datetime | None:
        at_us = self.about.deleted_at_us
        return None if at_us is None else moment(at_us)

    @property
    def fork(self) -> Fork | None:
        """The session that this one was forked from, and where."""
        return self.about.fork

    @property
    def parent(self) -> Parent | None:
        """The turn that this subagent's session works for."""
        return self.about.parent

    @property
    def created_at(self) -> datetime:
        return moment(self.created_at_us)

    @property
    def updated_at(self) -> datetime:
        """The time when a turn last began or ended, or the session itself was changed."""
        return moment(self.updated_at_us)


class SessionNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A note that an application keeps beside the conversation.

    To keep one, give `name` and `data`, a `key` when a repeated write must be recognised, and the
    `blobs` that it names. `id`, `seq` and `at_us` are filled in when it is read back.
    """

    name: str
    data: Any = None
    key: str | None = None
    blobs: Sequence[str] = ()
    id: str = ""
    seq: int = 0
    at_us: int = 0

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class TurnInfo(msgspec.Struct, frozen=True):
    """One turn: where it began, and how it ended if it has."""

    id: str
    seq: int
    status: Status
    reason: str | None
    detail: str | None
    started_at_us: int
    ended_at_us: int | None
    continues: str | None = None
    retry_of: str | None = None
    cause: str | None = None
    starts: Starts = "seen"

    @property
    def started_at(self) -> datetime:
        return moment(self.started_at_us)

    @property
    def ended_at(self) -> datetime | None:
        return None if self.ended_at_us is None else moment(self.ended_at_us)
