"""What an import did: sessions, entries, and every record that was not taken as it stood."""

from typing import Final, Literal

import msgspec

Action = Literal["new", "grown", "unchanged", "forked", "left"]

PROBLEMS_KEPT: Final = 100
"""How many problems of a session its `imported` entry lists; all are in the report."""


class SourceLocation(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in its source: the file, and its line or row, counted from 1."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Problem(msgspec.Struct, frozen=True, gc=False):
    """A record that was skipped, or taken in another way than it stood."""

    place: SourceLocation
    reason: str
    kind: Literal["skipped", "repaired"] = "skipped"

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}: {self.reason}"


class Outcome(msgspec.Struct, frozen=True):
    """What became of one session of the source.

    A session that was continued here, or whose source was changed, is `forked`: `session_id` is
    the fork, `fork_of` the session that was there. `left` was not touched, `why` says it.
    """

    source: str
    origin: str
    session_id: str
    action: Action
    entries: int = 0
    title: str | None = None
    fork_of: str | None = None
    why: str | None = None


class Report:
    """Filled in while an import runs."""

    def __init__(self) -> None:
        self.sessions: list[Outcome] = []
        self.problems: list[Problem] = []

    @property
    def entries(self) -> int:
        return sum(one.entries for one in self.sessions)

    @property
    def skipped(self) -> list[Problem]:
        return [one for one in self.problems if one.kind == "skipped"]

    @property
    def repaired(self) -> list[Problem]:
        return [one for one in self.problems if one.kind == "repaired"]

    @property
    def exit_code(self) -> int:
        """0, or 3 when records were skipped."""
        return 3 if self.skipped else 0

    def note(self, place: SourceLocation, reason: str, *, repaired: bool) -> None:
        self.problems.append(Problem(place, reason, "repaired" if repaired else "skipped"))

    def skip(self, place: SourceLocation, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def repair(self, place: SourceLocation, reason: str) -> None:
        self.problems.append(Problem(place, reason, "repaired"))

    def summary(self, since: int = 0) -> dict[str, object]:
        """What an `imported` entry keeps of the problems from number `since` on."""
        found = self.problems[since:]
        if not found:
            return {}
        return {
            "skipped": sum(one.kind == "skipped" for one in found),
            "repaired": sum(one.kind == "repaired" for one in found),
            "problems": [str(one) for one in found[:PROBLEMS_KEPT]],
        }
