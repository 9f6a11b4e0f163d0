"""The records that a format's reader yields, and the report on what became of them.

A reader is a generator of records, in the order of its source, each with its location there. It
decides nothing about journals: `compose` makes entries of them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from killick.journal.kinds import digest
from killick.model.causes import Cause
from killick.model.entries import Usage
from killick.model.messages import Image, Json, Part, Role, Text, ToolResult
from killick.model.sessions import Namer, Project

Action = Literal["new", "grown", "unchanged", "forked", "left"]
SettledBy = Literal["process", "age", "as-is"]
"""How it is known whether an agent still writes: by its processes, by the file's age, not asked."""

PROBLEMS_KEPT: Final = 100
"""How many problems of a session its `imported` entry lists; all are in the report."""

_TITLE_CHARS: Final = 80


class SourceLocation(msgspec.Struct, frozen=True, gc=False):
    """A record's location in its source: the file, and its line or row, counted from 1."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Record(msgspec.Struct, kw_only=True):
    """A record, and when it was made; None is the time of the one before it."""

    location: SourceLocation
    at_us: int | None = None


class BeginRecord(Record, kw_only=True):
    """The session. What can change later is no part of it: a title is `Titled`."""

    native_id: str
    type: str = "user"
    project: Project | None = None
    extra: dict[str, Any] = {}
    parent: str | None = None


class TitleRecord(Record, kw_only=True):
    title: str
    by: Namer = "import"


class TurnStartRecord(Record, kw_only=True):
    """A turn begins; one that was open has lost its ending."""

    key: str


class ModelCallRecord(msgspec.Struct):
    """The model call that a message answers, as far as the source knows it."""

    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    provider_ids: dict[str, str] = {}
    error: str | None = None
    system: str | None = None


class MessageRecord(Record, kw_only=True):
    """A message. One that `begins_turn` is a prompt; `key` is its id in the source.

    More of one that is `growing` may come, as long as nothing stands behind it and its agent lives;
    one that `streams` is written as the model says it. A prompt that is not `called` by its first
    line in a title has another text for it, or "" for none.
    """

    role: Role
    parts: tuple[Part, ...]
    key: str | None = None
    blobs: dict[str, bytes] = {}
    begins_turn: bool = False
    partial: bool = False
    growing: bool = False
    streams: bool = False
    model_call: ModelCallRecord | None = None
    person: bool = True
    model: bool = True
    called: str | None = None

    @property
    def first_line(self) -> str | None:
        """Return the first line of it that says something."""
        text = (self._text() if self.called is None else self.called).strip()
        return text.splitlines()[0].strip()[:_TITLE_CHARS] or None if text else None

    @property
    def is_injected(self) -> bool:
        """Tell whether an agent says it to the model on the user's side."""
        return self.role == "user" and not (self.person or self.begins_turn)

    @property
    def is_instruction(self) -> bool:
        """Tell whether it is injected, or said to the model on the system's side."""
        return self.is_injected or (self.role == "system" and not self.begins_turn)

    def as_note(self) -> "OpaqueRecord":
        """Return what stands for it where no turn takes it."""
        data: Json = {"id": self.key, "role": self.role, "text": self._text()}
        return OpaqueRecord(location=self.location, name="injected", data=data)

    def _text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class ResultRecord(Record, kw_only=True):
    """The result of a tool call."""

    result: ToolResult
    blobs: dict[str, bytes] = {}
    person: bool = True
    model: bool = True


class TurnEndRecord(Record, kw_only=True):
    """The end of a turn. Without a cause it is `failed`, or `other` for an interruption."""

    status: Literal["completed", "failed", "interrupted"]
    reason: str | None = None
    detail: str | None = None
    cause: Cause | None = None


class SummaryRecord(Record, kw_only=True):
    """A summary stands for everything so far, but for what is kept.

    That is prompts with one of these texts, and messages with one of these keys. The source may
    have no more than the newest summary, put beside it `late`: it counts from here, and stands at
    the end of what is known.
    """

    text: str
    late: bool = False
    kept_keys: frozenset[str] = frozenset()
    kept_texts: frozenset[str] = frozenset()
    provider: str | None = None
    model: str | None = None


class RollbackRecord(Record, kw_only=True):
    """The last turns that had a prompt are taken back."""

    turns: int


class BranchRecord(Record, kw_only=True):
    """It goes on from an earlier message; what came after that one is out of view."""

    key: str


class OpaqueRecord(Record, kw_only=True):
    """Something that we have no entry for, kept as a note."""

    name: str
    data: Json

    def as_note(self) -> "OpaqueRecord":
        return self


class ArchiveRecord(Record, kw_only=True):
    """It was put away there."""


class ProblemRecord(Record, kw_only=True):
    """A record that was skipped, or taken in another way than it stood.

    A repair is harmless when it cannot mislead a reader.
    """

    reason: str
    repaired: bool = False
    harmless: bool = False


def image(data: bytes, media_type: str, alt: str | None = None) -> tuple[Image, dict[str, bytes]]:
    """Return an image and its bytes, under the name that a store will give them."""
    name = digest(data)
    return Image(name, media_type, alt), {name: data}


class Source(msgspec.Struct):
    """A session that can be read: its name there, where it lies, its records.

    `settled` says that its agent is done with it: a last turn without an ending was interrupted.
    `answer_ends` says that an answer without calls ends its turn, `changes_late` that messages may
    be hidden or summarized there long afterwards. `changed_us` is when its file was written last.
    """

    name: str
    native_id: str
    origin: str
    records: Iterable[Record]
    settled: bool = True
    answer_ends: bool = False
    changes_late: bool = False
    changed_us: int = 0


_GOES_ON: Final = (
    MessageRecord,
    TurnStartRecord,
    TurnEndRecord,
    SummaryRecord,
    RollbackRecord,
    BranchRecord,
)
"""Records that stand behind a message only when no more of that comes."""

_BESIDE: Final = (TitleRecord, ProblemRecord, ArchiveRecord)


def written(
    records: Iterable[Record], source: Source, leave_open: Callable[[MessageRecord], None]
) -> Iterator[Record]:
    """Yield the records without a last message that still grows, and what hangs on it.

    It comes in when it is whole, or when its agent is gone; until then a caller that follows the
    source has it stream. An entry is never written twice.
    """
    held: list[Record] | None = None
    growing: MessageRecord | None = None
    for record in records:
        if held is not None and isinstance(record, _GOES_ON):
            yield from held
            held = None
        if isinstance(record, MessageRecord) and record.growing and not source.settled:
            held, growing = [record], record
        elif held is None or isinstance(record, _BESIDE):
            yield record
        else:
            held.append(record)
    if held is not None and growing is not None:
        leave_open(growing)


class Problem(msgspec.Struct, frozen=True, gc=False):
    """A record that was skipped, or taken in another way than it stood."""

    location: SourceLocation
    reason: str
    kind: Literal["skipped", "repaired"] = "skipped"
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.location}: {self.kind}: {self.reason}"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one session of the source.

    A session that was continued here, or whose source was changed, is `forked`: `session_id` is
    the fork, `fork_of` the session that was there. `left` was not touched, `why` says it.
    `settled_by` says how it is known that its agent is done with it, or still at it.
    """

    source: str
    origin: str
    session_id: str
    action: Action
    entries: int = 0
    title: str | None = None
    fork_of: str | None = None
    why: str | None = None
    parent: str | None = None
    settled_by: SettledBy | None = None


class Report:
    """Filled in while an import runs."""

    def __init__(self) -> None:
        self.sessions: list[Outcome] = []
        self.problems: list[Problem] = []
        self.unknown: list[str] = []
        """Files of no known format in the folders that were looked through."""

    @property
    def entries(self) -> int:
        return sum(outcome.entries for outcome in self.sessions)

    @property
    def skipped(self) -> list[Problem]:
        return [outcome for outcome in self.problems if outcome.kind == "skipped"]

    @property
    def repaired(self) -> list[Problem]:
        return [outcome for outcome in self.problems if outcome.kind == "repaired"]

    @property
    def exit_code(self) -> int:
        """Return 0, or 3 when something was skipped, or repaired so that it may mislead."""
        return 3 if any(not problem.harmless for problem in self.problems) else 0

    def take(self, record: ProblemRecord) -> None:
        """Add the problem that a reader has found."""
        if record.repaired:
            self.repair(record.location, record.reason, harmless=record.harmless)
        else:
            self.skip(record.location, record.reason)

    def skip(self, location: SourceLocation, reason: str) -> None:
        self.problems.append(Problem(location, reason))

    def repair(self, location: SourceLocation, reason: str, *, harmless: bool = False) -> None:
        self.problems.append(Problem(location, reason, "repaired", harmless))

    def summary(self, since: int = 0) -> dict[str, object]:
        """Return the problems from number `since` on, as an `imported` entry keeps them."""
        problems = self.problems[since:]
        if not problems:
            return {}
        return {
            "skipped": sum(outcome.kind == "skipped" for outcome in problems),
            "repaired": sum(outcome.kind == "repaired" for outcome in problems),
            "problems": [str(outcome) for outcome in problems[:PROBLEMS_KEPT]],
        }
