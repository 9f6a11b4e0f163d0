"""Spending of model calls, folded from entries, and the limit that it reaches. Pure.

Rule 1: a call counts when it begins, its tokens (input and output) and cost when they are known.
Rule 2: a call that ended without usage counts by an estimate: the tokens of the last call with
        usage, which it was sent again, and one for each four bytes that were said since.
Rule 3: a call without cost counts by the price of a token so far. Before any call has told its
        cost, one that was cut costs nothing; one with usage is refused a limit of cost.
Rule 4: seconds are those in which turns ran, up to the last that was heard of them; a second in
        which a session and its children ran counts once.
Rule 5: a limit is looked at when a call begins, so one call may go over; the next is refused.
"""

from collections.abc import Iterable
from typing import Final

from killick.journal.codec import encode
from killick.model import entries as e
from killick.model.sessions import Limits

_BYTES_OF_A_TOKEN: Final = 4
_SECOND_US: Final = 1_000_000


class Tally:
    """Calls, tokens, seconds and cost of a session's own entries, folded one by one."""

    def __init__(self) -> None:
        self.seq = 0
        self.calls = 0
        self.tokens = 0
        self.estimated = 0
        """Calls whose tokens are an estimate."""
        self.unpriced = 0
        """Calls whose cost is one."""
        self._told_no_cost = False
        self._cost: float | None = None
        self._priced_tokens = 0
        self._spans: list[tuple[int, int]] = []
        self._since: int | None = None
        self._last = 0
        self._open: set[str] = set()
        self._context = 0
        self._said = 0

    def take(self, entries: Iterable[e.Entry]) -> "Tally":
        for entry in entries:
            self._time(entry)
            self._count(entry.body)
            self.seq = entry.seq
        return self

    @property
    def cost(self) -> float | None:
        """Return what was spent, with estimates; None if no call has told its cost."""
        if self._cost is None or not self._priced_tokens:
            return self._cost
        return self._cost * (self.tokens / self._priced_tokens)

    @property
    def lacks_cost(self) -> bool:
        """True if calls told their usage, and none its cost."""
        return self._cost is None and self._told_no_cost

    def seconds(self, now_us: int) -> float:
        """Return the seconds in which turns ran; the session's own turn is counted until now."""
        spans = list(self._spans)
        if self._since is not None:
            spans.append((self._since, max(self._last, now_us)))
        ran, reach = 0, 0
        for since, until in sorted(spans):
            ran += max(0, until - max(since, reach))
            reach = max(reach, until)
        return ran / _SECOND_US

    def _time(self, entry: e.Entry) -> None:
        body = entry.body
        if isinstance(body, e.TurnStarted):
            self._since = self._last = entry.at_us
        elif self._since is not None:
            # The process that closed a dead turn came later; the dead one was silent meanwhile.
            if not (isinstance(body, e.TurnEnding) and body.cause in ("crashed", "terminated")):
                self._last = max(self._last, entry.at_us)
            if isinstance(body, e.TurnEnding):
                self._spans.append((self._since, self._last))
                self._since = None

    def _count(self, body: e.Body) -> None:
        match body:
            case e.ModelCallStarted():
                self.calls += 1
                self._open.add(body.id)
            case e.MessageRecorded() | e.MessageEnded():
                self._said += len(encode(body.parts))
            case e.ToolFinished() | e.LateResult():
                self._said += len(encode(body.result))
            case e.ModelCallEnded() if body.id in self._open:
                self._open.discard(body.id)
                self._end(body.usage)
            case e.TurnEnding():
                for _ in self._open:
                    self._end(None)
                self._open.clear()
            case e.Compacted() if body.usage is not None or body.model is not None:
                self.calls += 1
                self._end(body.usage)
            case _:
                pass

    def _end(self, usage: e.Usage | None) -> None:
        if usage is None:
            self.estimated += 1
            self.unpriced += 1
            self.tokens += self._context + self._said // _BYTES_OF_A_TOKEN
            return
        self._context, self._said = usage.input + usage.output, 0
        self.tokens += self._context
        if usage.cost is None:
            self.unpriced += 1
            self._told_no_cost = True
        else:
            self._cost = (self._cost or 0.0) + usage.cost
            self._priced_tokens += self._context

    def plus(self, other: "Tally", heard_us: int = 0) -> "Tally":
        """Return both together; a session's children count towards it.

        A child that runs was heard of last by its newest entry, or at this time.
        """
        both = Tally()
        both.calls = self.calls + other.calls
        both.tokens = self.tokens + other.tokens
        both.estimated = self.estimated + other.estimated
        both.unpriced = self.unpriced + other.unpriced
        both._told_no_cost = self._told_no_cost or other._told_no_cost
        costs = [cost for cost in (self._cost, other._cost) if cost is not None]
        both._cost = sum(costs) if costs else None
        both._priced_tokens = self._priced_tokens + other._priced_tokens
        both._spans = [*self._spans, *other._spans]
        if other._since is not None:
            both._spans.append((other._since, max(other._last, heard_us)))
        both._since, both._last = self._since, self._last
        return both


def reached(limits: Limits, tally: Tally, now_us: int) -> tuple[str, float, float, int] | None:
    """Return the limit that is reached: its name, how much it is, how much was spent.

    At last, by how many calls of which this was estimated.
    """
    spent = {
        "calls": (tally.calls, 0),
        "tokens": (tally.tokens, tally.estimated),
        "seconds": (tally.seconds(now_us), 0),
        "cost": (tally.cost or 0.0, tally.unpriced),
    }
    for name, (amount, estimated) in spent.items():
        limit = getattr(limits, name)
        if limit is not None and amount >= limit:
            return name, limit, amount, estimated
    return None
