"""The fold of a session's journal that a store saves beside it, for cheap writes and lists."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from killick.journal import due
from killick.journal.due import Due
from killick.journal.kinds import KINDS
from killick.model import entries as e
from killick.model.sessions import Description, moment


class Derived(msgspec.Struct, kw_only=True):
    """The fold of a session's own entries.

    `turn_seq` is where the running turn started, `stop_seq` the newest request to stop it and
    `queue_seq` the oldest prompt that was queued since a turn began; None when there is none.
    `holder` runs the turn, or has taken the work. `due` is what is known of the newest turn as
    work, and `due_us` when that may be taken. Turns up to `imported` came from elsewhere; that
    alone is no fold of entries.
    """

    about: Description = Description()
    fence: int = 0
    updated_at_us: int = 0
    turn_seq: int | None = None
    stop_seq: int | None = None
    queue_seq: int | None = None
    holder: str | None = None
    due: Due | None = None
    due_us: int | None = None
    imported: int = 0


def advance(derived: Derived, seq: int, at_us: int, body: e.Body) -> bool:
    """Take the next entry; return True if anything changed."""
    changed = KINDS[type(body)].in_summary and _advance(derived, seq, at_us, body)
    if derived.due is not None or derived.due_us is not None:
        changed = _advance_due(derived, at_us, body) or changed
    if not isinstance(body, e.Unknown) and body.redacted:
        count = derived.about.redacted + body.redacted
        derived.about = msgspec.structs.replace(derived.about, redacted=count)
        return True
    return changed


def _advance_due(derived: Derived, at_us: int, body: e.Body) -> bool:
    before = derived.due, derived.due_us, derived.holder
    if derived.due is not None and not isinstance(body, e.TurnStarted | e.Paused):
        derived.due = due.step(derived.due, at_us, body)
    known = derived.due
    derived.due_us = None if derived.about.deleted else due.ready_us(known)
    if derived.turn_seq is None:
        derived.holder = None if known is None else known.taker
    return before != (derived.due, derived.due_us, derived.holder)


def _advance(derived: Derived, seq: int, at_us: int, body: e.Body) -> bool:
    about = describe(derived.about, body, at_us)
    match body:
        case e.TurnStarted():
            derived.fence = body.fence
            derived.turn_seq = seq
            derived.stop_seq = None
            derived.holder = body.holder
            derived.due = due.begun(derived.due, body, imported=seq <= derived.imported)
            if body.work is None:  # a turn that only goes on leaves waiting what waits
                derived.queue_seq = None
        case e.TurnEnding():
            derived.turn_seq = derived.stop_seq = derived.holder = None
            at_us = max(at_us, derived.updated_at_us)  # a fork inherits an ending with its time
        case e.StopAsked():
            derived.stop_seq = seq
            return True
        case e.Paused():
            derived.due = due.paused(derived.due, body)
        case e.WorkTaken() | e.AttemptsUsed() | e.ResumeAt():
            return False  # of the work alone
        case e.PromptWaiting():
            if derived.queue_seq is not None:
                return False
            derived.queue_seq = seq
        case e.ModelCallStarted():
            changed, derived.about = about != derived.about, about
            return changed
        case _:
            pass
    derived.about = about
    derived.updated_at_us = at_us
    return True


def describe(about: Description, body: e.Body, at_us: int) -> Description:
    """Return the session's description after one more entry."""
    match body:
        case e.SessionCreated():
            return _begin(body, about.redacted)
        case e.Renamed():
            if about.titled_by == "person" and body.by != "person":
                return about  # a person's title is never replaced by a generated one
            return msgspec.structs.replace(about, title=body.title, titled_by=body.by)
        case e.LimitsSet():
            return msgspec.structs.replace(about, limits=body.limits)
        case e.Archived():
            return msgspec.structs.replace(about, archived=body.archived)
        case e.Pinned():
            return msgspec.structs.replace(about, pinned=body.pinned)
        case e.Tagged():
            return msgspec.structs.replace(about, tags=retagged(about.tags, body))
        case e.Moved():
            return msgspec.structs.replace(about, project=body.project)
        case e.Deleted():
            return msgspec.structs.replace(about, deleted_at_us=at_us)
        case e.Restored():
            return msgspec.structs.replace(about, deleted_at_us=None)
        case e.TurnStarted():
            return msgspec.structs.replace(about, status="running")
        case e.TurnEnding():
            return msgspec.structs.replace(about, status=body.status)
        case e.ModelCallStarted():
            return _with_call(about, body)
        case _:
            return about


def retagged(tags: tuple[str, ...], body: e.Tagged) -> tuple[str, ...]:
    """Return the tags after some were taken off and some put on, each once, in order."""
    kept = [tag for tag in tags if tag not in body.remove]
    return tuple(dict.fromkeys([*kept, *body.add]))


def _begin(body: e.SessionCreated, redacted: int) -> Description:
    return Description(
        redacted=redacted,
        title=body.title,
        titled_by=body.titled_by,
        type=body.type,
        project=body.project,
        tags=tuple(dict.fromkeys(body.tags)),
        extra=body.extra,
        parent=body.parent,
        fork=body.fork,
        limits=body.limits,
    )


def _with_call(about: Description, body: e.ModelCallStarted) -> Description:
    """Most calls ask the model that was asked before, with the same system prompt."""
    models, system = about.models, body.system or about.system
    if body.model is not None and body.model not in models:
        models = (*models, body.model)
    if models == about.models and system == about.system:
        return about
    return msgspec.structs.replace(about, models=models, system=system)


_DAY_US: Final = 86_400_000_000


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """Model calls of one model on one day (numbered from 1970, in UTC), added up."""

    day: int
    provider: str = ""
    model: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None

    def plus(self, other: "Spent") -> "Spent":
        """Add two rows, under the name of the first."""
        return msgspec.structs.replace(
            self,
            calls=self.calls + other.calls,
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            cost=other.cost if self.cost is None else self.cost + (other.cost or 0.0),
        )


def spent_by(at_us: int, body: e.Body, call: e.ModelCallStarted | None) -> Spent | None:
    """Return what one entry adds; `call` is the start of the model call that it ends.

    A call counts when it starts, so that one which never ends is counted; its tokens count when
    they are known.
    """
    day = at_us // _DAY_US
    match body:
        case e.ModelCallStarted():
            return _spent(day, body, 1)
        case e.ModelCallEnded(usage=e.Usage() as usage) if call is not None:
            return _spent(day, call, 0, usage)
        case e.Compacted() if body.usage is not None or body.model is not None:
            return _spent(day, body, 1, body.usage)
        case _:
            return None


def _spent(
    day: int, by: e.ModelCallStarted | e.Compacted, calls: int, usage: e.Usage | None = None
) -> Spent:
    tokens = () if usage is None else msgspec.structs.astuple(usage)
    return Spent(day, by.provider or "", by.model or "", calls, *tokens)


def fold_usage(entries: Iterable[e.Entry]) -> list[Spent]:
    """Add up what a session's own entries cost, a row for each day, provider and model."""
    calls: dict[str, e.ModelCallStarted] = {}
    totals: dict[tuple[int, str, str], Spent] = {}
    for entry in entries:
        body = entry.body
        if isinstance(body, e.ModelCallStarted):
            calls[body.id] = body
        call = calls.get(body.id) if isinstance(body, e.ModelCallEnded) else None
        spent = spent_by(entry.at_us, body, call)
        if spent is not None:
            name = spent.day, spent.provider, spent.model
            totals[name] = totals[name].plus(spent) if name in totals else spent
    return [totals[name] for name in sorted(totals)]


class Total(msgspec.Struct, frozen=True):
    """The model calls, tokens and cost of a session, a model, a project or a day."""

    name: str
    calls: int
    input: int
    output: int
    cached: int
    reasoning: int
    cost: float | None


def add_up(rows: Iterable[tuple[str, str | None, Spent]], by: str) -> list[Total]:
    """Add up rows of (session, project, spent), in the order of their names."""
    name_of = names_total(by)
    totals: dict[str, Spent] = {}
    for session, project, spent in rows:
        name = name_of(session, project, spent)
        totals[name] = totals[name].plus(spent) if name in totals else spent
    return [
        Total(name, row.calls, row.input, row.output, row.cached, row.reasoning, row.cost)
        for name, row in sorted(totals.items())
    ]


def names_total(by: str) -> Callable[[str, str | None, Spent], str]:
    """Return the function that names the total of a row. Raises ValueError."""
    name_of = _NAMES.get(by)
    if name_of is None:
        raise ValueError(f"by={by!r}; it is one of {', '.join(_NAMES)}")
    return name_of


_NAMES: Final[dict[str, Callable[[str, str | None, Spent], str]]] = {
    "session": lambda session, project, spent: session,
    "model": lambda session, project, spent: spent.model,
    "project": lambda session, project, spent: project or "",
    "day": lambda session, project, spent: moment(spent.day * _DAY_US).date().isoformat(),
    "all": lambda session, project, spent: "",
}
