"""Repair a source's entries into whole units that a store can take."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Final

import msgspec

from killick.errors import IdConflict, InvalidEntry, KillickError
from killick.exchange.merge import Unit
from killick.exchange.records import Report, SourceLocation
from killick.journal import checks, rules
from killick.journal.codec import encode
from killick.journal.kinds import blobs_of, identity, message_identity, named_identity
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.messages import BLOB_PARTS, OWN_PROVIDER, File, Image, Opaque, Part, ToolResult

_RECENT: Final = 1 << 16
_RUN: Final = 1 << 19
"""Larger runs are not merged any more: merging takes memory of its own."""

HOLDER: Final = "import"
"""Who holds a turn that begins here without a holder of its own; it is over already."""

LOST: Final = "ending_lost"
"""The reason of a turn whose ending could not be read."""

IN_TURN: Final = (
    e.MessageRecorded
    | e.MessageStarted
    | e.MessageEnded
    | e.ModelCallStarted
    | e.ModelCallEnded
    | e.ToolCalled
    | e.ToolStarted
    | e.ToolOutput
    | e.ToolFinished
    | e.ApprovalAsked
    | e.StopAsked
    | e.PromptTaken
    | e.TurnEnding
    | e.LimitHit
)

_LATE = e.LateResult | e.LateText | e.Settled | e.ToolStarted


class LocatedEntry(msgspec.Struct):
    """An entry with the seq that its source gives it, and where it stands there.

    A seq of 0 is no seq: nothing in the source can speak of this entry.
    """

    entry: e.Entry
    location: SourceLocation
    blobs: dict[str, bytes] = {}


class Repairer:
    """Makes whole units of a source's entries, in order."""

    def __init__(self, report: Report, has_blob: Callable[[str], bool]) -> None:
        self._report = report
        self._has_blob = has_blob
        self._seen = CompactSet()
        self._over = CompactSet()
        self._checked_key: tuple[e.Body | None, int] = (None, 0)
        self._turns: dict[str, TurnState] = {}
        self._running: TurnState | None = None
        self._unit = Unit([])
        self._fence = 0
        self._begun = False
        self._deleted = False
        self._last_us = 0

    def units(
        self, entries: Iterable[LocatedEntry], *, close: bool, keep_open: bool = False
    ) -> Iterator[Unit]:
        """Yield the units; a turn that is open at the end is closed, kept open, or left out."""
        location = SourceLocation("")
        for located in entries:
            location = located.location
            yield from self._begin(located)
            yield from self._repair_entry(located)
        if self._running is None:
            return
        if close:
            yield from self._close(location)
        elif keep_open:
            yield self._finished()
        else:
            self._running = None

    def _begin(self, located: LocatedEntry) -> Iterator[Unit]:
        if self._begun:
            return
        self._begun = True
        if not isinstance(located.entry.body, e.SessionCreated):
            self._report.repair(
                located.location, "the session's beginning was lost; it begins here"
            )
            self._remember(e.SessionCreated())
            yield Unit([e.Entry(0, located.entry.at_us, e.SessionCreated())])

    def _repair_entry(self, located: LocatedEntry) -> Iterator[Unit]:
        body = located.entry.body
        self._last_us = located.entry.at_us
        if isinstance(body, e.TurnStarted) and self._running is not None:
            yield from self._close(located.location)
        elif isinstance(body, IN_TURN) and not self._knows(body.turn_id):
            if self._running is not None:
                yield from self._close(located.location)
            yield from self._reopen(located.location, body.turn_id, located.entry.at_us)
        try:
            body = self._checked(located)
        except KillickError as error:
            self._report.skip(located.location, f"{e.kind_of(body)}: {error}")
            return
        yield from self._keep(located, body)

    def _knows(self, turn_id: str) -> bool:
        return turn_id in self._turns or hashed(turn_id) in self._over

    def _checked(self, located: LocatedEntry) -> e.Body:
        """Return the entry as it can be recorded. Raises as a store would."""
        body = located.entry.body
        self._check_new(body)
        checks.check_content(body)
        if self._deleted and not isinstance(body, e.Restored):
            raise checks.session_deleted("")
        self._check_rules(located.entry)
        for name in blobs_of(body):
            if (
                name not in located.blobs
                and name not in self._unit.blobs
                and not self._has_blob(name)
            ):
                self._report.repair(
                    located.location, f"blob {name} is missing; its part keeps the name"
                )
                body = _without_blob(body, name)
        return body

    def _check_new(self, body: e.Body) -> None:
        key = _key(body)
        if key in self._seen:
            raise IdConflict("it is there twice")
        self._checked_key = (body, key)

    def _check_late(self, body: _LATE) -> None:
        turn, running = self._turns.get(body.turn_id), self._running
        if turn is not None:
            rules.admit(turn, body, running if running is not turn else None)
        elif hashed(body.turn_id) not in self._over:
            raise InvalidEntry(f"turn {body.turn_id!r} is not there")
        elif not isinstance(body, e.LateText):
            raise InvalidEntry(f"turn {body.turn_id!r} was complete already")
        elif hashed(message_identity(body.message_id)) not in self._seen:
            raise InvalidEntry(f"turn {body.turn_id!r} has no message {body.message_id!r}")

    def _check_rules(self, entry: e.Entry) -> None:
        body, running = entry.body, self._running
        match body:
            case e.LateResult() | e.LateText() | e.Settled():
                self._check_late(body)
            case e.ToolStarted() if running is not None and running.id != body.turn_id:
                self._check_late(body)  # by a turn that continues the one that made the call
                return
            case e.PromptTaken() | e.PromptWithdrawn() if not self._waits(body):
                raise InvalidEntry(f"prompt {body.id!r} does not wait there")
            case e.Compacted() | e.Rewound() if entry.seq and body.through >= entry.seq:
                raise InvalidEntry("it reaches beyond itself")
            case _:
                pass
        if isinstance(body, IN_TURN):
            if running is None or running.id != body.turn_id:
                raise InvalidEntry(f"turn {body.turn_id!r} does not run there")
            rules.admit(running, body)

    def _keep(self, located: LocatedEntry, body: e.Body) -> Iterator[Unit]:
        entry = located.entry
        if body is not entry.body:  # a link would not fit any more
            entry = e.Entry(entry.seq, entry.at_us, body)
        self._remember(body)
        self._deleted = isinstance(body, e.Deleted) or (
            self._deleted and not isinstance(body, e.Restored)
        )
        if isinstance(body, e.TurnStarted):
            self._fence = body.fence
            self._running = self._turns[body.turn_id] = TurnState(entry.seq, body)
            before = self._turns.get(body.continues or "")
            self._running.line |= set() if before is None else before.line
        elif isinstance(body, _LATE):
            if body.turn_id in self._turns:
                self._turns[body.turn_id].apply(entry.seq, body)
        elif self._running is not None:
            self._running.apply(entry.seq, body)
        self._unit.entries.append(entry)
        if located.blobs:
            named = blobs_of(body)
            self._unit.blobs.update(
                {name: located.blobs[name] for name in named if name in located.blobs}
            )
        if isinstance(body, e.TurnEnding):
            self._forget()
            self._running = None
        if self._running is None:
            yield self._finished()

    def _forget(self) -> None:
        """Keep only the name of a turn for which no result can come late."""
        turn = self._running
        assert turn is not None
        assert turn.ended is not None
        if turn.ended.status == "completed" and turn.is_answered:
            self._over.add(hashed(turn.id))
            del self._turns[turn.id]

    def _finished(self) -> Unit:
        unit, self._unit = self._unit, Unit([])
        return unit

    def _reopen(self, location: SourceLocation, turn_id: str, at_us: int) -> Iterator[Unit]:
        """Begin a turn whose beginning the source has lost."""
        self._report.repair(location, f"the beginning of turn {turn_id!r} was lost; it begins here")
        body = e.TurnStarted(turn_id=turn_id, fence=self._fence + 1, holder=HOLDER)
        yield from self._keep(LocatedEntry(e.Entry(0, at_us, body), location), body)

    def _close(self, location: SourceLocation) -> Iterator[Unit]:
        """End a turn whose ending the source has lost."""
        turn = self._running
        assert turn is not None
        self._report.repair(location, f"the ending of turn {turn.id!r} was lost; it is interrupted")
        body = e.TurnEnding(turn_id=turn.id, status="interrupted", reason=LOST, cause="other")
        yield from self._keep(LocatedEntry(e.Entry(0, self._last_us, body), location), body)

    def _remember(self, body: e.Body) -> None:
        checked, key = self._checked_key
        self._seen.add(key if checked is body else _key(body))

    def _waits(self, body: e.PromptTaken | e.PromptWithdrawn) -> bool:
        queued, gone = (self._key_of(body.id, f"prompt_{name}") for name in ("queued", "withdrawn"))
        return queued in self._seen and gone not in self._seen

    def _key_of(self, entry_id: str, kind: str) -> int:
        return hashed(named_identity(entry_id, kind))


def _key(body: e.Body) -> int:
    return hashed(identity(body))


def _without_blob(body: e.Body, name: str) -> e.Body:
    replace = msgspec.structs.replace
    match body:
        case e.MessageRecorded() | e.MessageEnded() | e.PromptWaiting():
            return replace(body, parts=tuple(_named(part, name) for part in body.parts))
        case e.ToolFinished() | e.LateResult():
            return replace(body, result=_named(body.result, name))
        case e.ModelCallStarted():
            system = None if body.system == name else body.system
            return replace(body, system=system, tools=None if body.tools == name else body.tools)
        case e.Note():
            return replace(body, blobs=tuple(blob for blob in body.blobs if blob != name))
        case _:
            return body


def _named(part: Part, name: str) -> Part:
    """Return a part with a missing blob as data that no provider is sent."""
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = tuple(_kept(inner, name) for inner in part.content)
        return msgspec.structs.replace(part, content=content)
    if isinstance(part, BLOB_PARTS):
        return _kept(part, name)
    return part


def _kept(part: Image | File | Opaque | Part, name: str) -> Opaque | Part:
    if isinstance(part, BLOB_PARTS) and part.blob == name:
        return Opaque(OWN_PROVIDER, encode(part))
    return part


# -- names, in little memory: a journal may have millions ------------------------------------------


def hashed(name: str) -> int:
    """Return a number for a name; two names sharing one is less likely than a broken disk."""
    data = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "big")


class CompactSet:
    """A set of such numbers that only grows: the newest as a set, the rest in sorted runs."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def __contains__(self, number: int) -> bool:
        if number in self._recent:
            return True
        for run in self._runs:
            at = bisect_left(run, number)
            if at < len(run) and run[at] == number:
                return True
        return False

    def add(self, number: int) -> None:
        self._recent.add(number)
        if len(self._recent) >= _RECENT:
            self._fold()

    def _fold(self) -> None:
        run = array("Q", sorted(self._recent))
        self._recent = set()
        while self._runs and len(self._runs[-1]) <= len(run) < _RUN:
            run = array("Q", sorted(chain(self._runs.pop(), run)))
        self._runs.append(run)
