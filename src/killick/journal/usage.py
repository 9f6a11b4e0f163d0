"""What model calls have cost: tokens and money, by day and model."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from killick.model import entries as e
from killick.model.sessions import moment

_DAY_US: Final = 86_400_000_000


class Spent(msgspec.Struct, frozen=True):
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
        """Both together, under the first one's name."""
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
    """What one entry adds; `call` is the start of the model call that it ends.

    A call counts when it starts, so that one which never ends is counted; its tokens count when
    they are known.
    """
    day = at_us // _DAY_US
    match body:
        case e.ModelCallStarted():
            return Spent(day, body.provider or "", body.model or "", calls=1)
        case e.ModelCallEnded(usage=e.Usage() as usage) if call is not None:
            return _with(Spent(day, call.provider or "", call.model or ""), usage)
        case e.Compacted() if body.usage is not None or body.model is not None:
            made = Spent(day, body.provider or "", body.model or "", calls=1)
            return made if body.usage is None else _with(made, body.usage)
        case _:
            return None


def fold_usage(entries: Iterable[e.Entry]) -> list[Spent]:
    """What a session's own entries have cost, a row for each day, provider and model."""
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
    """What was spent under one name: a session, a model, a project or a day."""

    name: str
    calls: int
    input: int
    output: int
    cached: int
    reasoning: int
    cost: float | None


def add_up(rows: Iterable[tuple[str, str | None, Spent]], by: str) -> list[Total]:
    """Rows of (session, project, spent) as totals, in the order of their names."""
    name_of = _NAMES.get(by)
    if name_of is None:
        raise ValueError(f"by={by!r}; it is one of {', '.join(_NAMES)}")
    totals: dict[str, Spent] = {}
    for session, project, spent in rows:
        name = name_of(session, project, spent)
        totals[name] = totals[name].plus(spent) if name in totals else spent
    return [
        Total(name, one.calls, one.input, one.output, one.cached, one.reasoning, one.cost)
        for name, one in sorted(totals.items())
    ]


_NAMES: Final[dict[str, Callable[[str, str | None, Spent], str]]] = {
    "session": lambda session, project, spent: session,
    "model": lambda session, project, spent: spent.model,
    "project": lambda session, project, spent: project or "",
    "day": lambda session, project, spent: moment(spent.day * _DAY_US).date().isoformat(),
    "all": lambda session, project, spent: "",
}


def _with(call: Spent, usage: e.Usage) -> Spent:
    return msgspec.structs.replace(
        call,
        input=usage.input,
        output=usage.output,
        cached=usage.cached,
        reasoning=usage.reasoning,
        cost=usage.cost,
    )
