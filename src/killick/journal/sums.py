"""Figures by day over all sessions: what each session adds to the sums, and what that changes.

A session's model calls are added up beside its journal as they are recorded. The sums over all
sessions are behind that: a session is counted in idle moments, and what was counted of it is kept,
so that a later count changes the sums by the difference alone and an erasure takes it out again.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from killick.journal.summary import Spent
from killick.model import entries as e

DAY_US: Final = 86_400_000_000


class Active(msgspec.Struct, frozen=True, array_like=True):
    """The sessions and turns that began on one day (from 1970, in UTC), and how turns ended."""

    day: int
    sessions: int = 0
    turns: int = 0
    completed: int = 0
    failed: int = 0
    interrupted: int = 0

    def plus(self, other: "Active") -> "Active":
        """Add two rows of the same day."""
        return Active(self.day, *(a + b for a, b in zip(_of(self), _of(other), strict=True)))

    def minus(self, other: "Active") -> "Active":
        return Active(self.day, *(a - b for a, b in zip(_of(self), _of(other), strict=True)))

    def takes_out(self) -> bool:
        """True if this change may leave nothing of its day."""
        return any(number < 0 for number in _of(self))


class SpentSum(Spent, frozen=True):
    """Model calls of many sessions on one day, or a change of it.

    `sessions` have called the model, and `priced` of them know a cost, which is 0.0 if none does.
    """

    sessions: int = 0
    priced: int = 0

    @classmethod
    def of(cls, spent: Spent) -> "SpentSum":
        """Return a session's row as a sum of one."""
        fields = msgspec.structs.asdict(spent)
        fields.update(cost=spent.cost or 0.0, sessions=1, priced=int(spent.cost is not None))
        return cls(**fields)

    def plus(self, other: Spent) -> "SpentSum":
        return self._combined(other, 1)

    def minus(self, other: Spent) -> "SpentSum":
        return self._combined(other, -1)

    def _combined(self, other: Spent, sign: int) -> "SpentSum":
        added = other if isinstance(other, SpentSum) else SpentSum.of(other)
        pairs = zip(_numbers(self), _numbers(added), strict=True)
        both: list[Any] = [a + sign * b for a, b in pairs]
        return SpentSum(self.day, self.provider, self.model, *both)

    def spent(self) -> Spent:
        """Return the row that a report adds up."""
        fields = {name: getattr(self, name) for name in Spent.__struct_fields__}
        return Spent(**{**fields, "cost": self.cost if self.priced else None})


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """The share of one session in the sums; its turns up to the entry `seq`."""

    seq: int = 0
    usage: tuple[Spent, ...] = ()
    days: tuple[Active, ...] = ()


class Sums(msgspec.Struct):
    """The sums of one tenant, or changes of them: by day, provider and model, and by day."""

    usage: dict[tuple[int, str, str], SpentSum] = {}
    days: dict[int, Active] = {}

    def changed(self) -> "Sums":
        """Return the changes that change anything, in one order for all processes."""
        return Sums(
            {name: row for name, row in sorted(self.usage.items()) if any(_numbers(row))},
            {day: active for day, active in sorted(self.days.items()) if any(_of(active))},
        )


def add_turns(
    days: Iterable[Active], entries: Iterable[e.Entry], is_own: Callable[[str], bool]
) -> tuple[Active, ...]:
    """Add starts and endings of turns to a session's days.

    `is_own` says whether a turn that began before these entries began in this session: the ending
    of one that a fork has inherited does not count.
    """
    known = {active.day: active for active in days}
    begun: set[str] = set()
    for entry in entries:
        day = entry.at_us // DAY_US
        match entry.body:
            case e.TurnStarted() as body:
                begun.add(body.turn_id)
                row = Active(day, turns=1)
            case e.TurnEnding() as body if body.turn_id in begun or is_own(body.turn_id):
                row = Active(day, **{body.status: 1})
            case _:
                continue
        known[day] = known[day].plus(row) if day in known else row
    return tuple(known[day] for day in sorted(known))


def change(into: Sums, before: Counted, after: Counted) -> None:
    """Add what the sums change by when a session counts as `after` instead of `before`."""
    for spent in after.usage:
        _change_usage(into, spent, 1)
    for spent in before.usage:
        _change_usage(into, spent, -1)
    for active in after.days:
        known = into.days.get(active.day, Active(active.day))
        into.days[active.day] = known.plus(active)
    for active in before.days:
        known = into.days.get(active.day, Active(active.day))
        into.days[active.day] = known.minus(active)


def _change_usage(into: Sums, spent: Spent, sign: int) -> None:
    name = spent.day, spent.provider, spent.model
    known = into.usage.get(name, SpentSum(*name, cost=0.0))
    into.usage[name] = known.plus(spent) if sign > 0 else known.minus(spent)


def _numbers(row: SpentSum) -> tuple[float, ...]:
    numbers: tuple[float, ...] = msgspec.structs.astuple(row)[3:]
    return numbers


def _of(active: Active) -> tuple[int, ...]:
    numbers: tuple[int, ...] = msgspec.structs.astuple(active)[1:]
    return numbers


def wrong_sums(stored: dict[str, Sums], counted: Iterable[tuple[str, Counted]]) -> list[str]:
    """Say which sums are not what was counted of all sessions; costs may differ by rounding."""
    due: dict[str, Sums] = {}
    for tenant, row in counted:
        change(due.setdefault(tenant, Sums()), Counted(), row)
    wrong = []
    for tenant in sorted({*stored, *due}):
        ours, theirs = stored.get(tenant, Sums()), due.get(tenant, Sums())
        if ours.days != theirs.days:
            wrong.append(
                f"the sums of turns of tenant {tenant!r} are not what its sessions add up to"
            )
        usage = {name: _rounded(row) for name, row in ours.usage.items()}
        if usage != {name: _rounded(row) for name, row in theirs.usage.items()}:
            wrong.append(
                f"the sums of usage of tenant {tenant!r} are not what its sessions add up to"
            )
    return wrong


def _rounded(row: SpentSum) -> SpentSum:
    return msgspec.structs.replace(row, cost=round(row.cost or 0.0, 6))
