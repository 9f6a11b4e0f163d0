"""What is known of a session and of a turn as a whole."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

Namer = Literal["person", "model", "import"]
Status = Literal["running", "completed", "failed", "interrupted"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at_us: int) -> datetime:
    """Microseconds since 1970 as an aware time; exact, where floats are not."""
    return _EPOCH + timedelta(microseconds=at_us)


class Project(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the work of a session lies: the project's root and the working directory."""

    root: str
    directory: str | None = None


class Parent(msgspec.Struct, frozen=True):
    """The turn that a subagent's session works for."""

    session_id: str
    turn_id: str


class Description(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session's journal says of the session itself: derived, never the truth."""

    title: str | None = None
    titled_by: Namer | None = None
    type: str = "user"
    project: Project | None = None
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    parent: Parent | None = None
    archived: bool = False
    deleted: bool = False


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
    def archived(self) -> bool:
        return self.about.archived

    @property
    def created_at(self) -> datetime:
        return moment(self.created_at_us)

    @property
    def updated_at(self) -> datetime:
        """When a turn last began or ended, or the session itself was changed."""
        return moment(self.updated_at_us)


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

    @property
    def started_at(self) -> datetime:
        return moment(self.started_at_us)

    @property
    def ended_at(self) -> datetime | None:
        return None if self.ended_at_us is None else moment(self.ended_at_us)
