"""Spending of model calls, folded from entries, and the limit that it reaches. Pure.

Rule 1: a call counts when it begins, its tokens (input and output) and cost when they are known.
Rule 2: a call that ended without usage counts by an estimate: the tokens of the call before it,
        which it was sent again, and one for each four bytes of the answer that was kept.
Rule 3: seconds are those in which turns ran, up to the last that was heard of them.
Rule 4: a limit is looked at when a call begins, so one call may go over; the next is refused.
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
        self.cost: float | None = None
        self.estimated = 0
        """Calls whose tokens are an estimate."""
        self._running_us = 0
        self._last_us: int | None = None
        self._open: dict[str, int] = {}
        self._answers: dict[str, str] = {}
        self._context = 0
        self.unpriced = False

    def take(self, entries: Iterable[e.Entry]) -> "Tally":
        for entry in entries:
            self._time(entry)
            self._count(entry.body)
            self.seq = entry.seq
        return self

    def seconds(self, now_us: int) -> float:
        """Return the seconds in which turns ran; a turn that runs is counted until now."""
        since = 0 if self._last_us is None else max(0, now_us - self._last_us)
        return (self._running_us + since) / _SECOND_US

    def _time(self, entry: e.Entry) -> None:
        body = entry.body
        if isinstance(body, e.TurnStarted):
            self._last_us = entry.at_us
        elif self._last_us is not None:
            # The process that closed a dead turn came later; the dead one was silent meanwhile.
            if not (isinstance(body, e.TurnEnding) and body.cause in ("crashed", "terminated")):
                self._running_us += max(0, entry.at_us - self._last_us)
            self._last_us = None if isinstance(body, e.TurnEnding) else entry.at_us

    def _count(self, body: e.Body) -> None:
        match body:
            case e.ModelCallStarted():
                self.calls += 1
                self._open[body.id] = 0
            case e.MessageStarted(model_call_id=str() as call_id):
                self._answers[body.id] = call_id
            case e.MessageEnded():
                call_id = self._answers.pop(body.id, "")
                if call_id in self._open:
                    self._open[call_id] = len(encode(body.parts)) // _BYTES_OF_A_TOKEN
            case e.ModelCallEnded() if body.id in self._open:
                self._end(self._open.pop(body.id), body.usage)
            case e.TurnEnding():
                for answer in self._open.values():
                    self._end(answer, None)
                self._open.clear()
                self._answers.clear()
            case e.Compacted() if body.usage is not None or body.model is not None:
                self.calls += 1
                self._end(0, body.usage)
            case _:
                pass

    def _end(self, answer: int, usage: e.Usage | None) -> None:
        if usage is None:
            self.estimated += 1
            self.tokens += self._context + answer
            return
        self._context = usage.input + usage.output
        self.tokens += self._context
        if usage.cost is None:
            self.unpriced = True
        else:
            self.cost = (self.cost or 0.0) + usage.cost

    def plus(self, other: "Tally") -> "Tally":
        """Return both together; a session's children count towards it."""
        both = Tally()
        both.calls = self.calls + other.calls
        both.tokens = self.tokens + other.tokens
        both.estimated = self.estimated + other.estimated
        both.unpriced = self.unpriced or other.unpriced
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        both.cost = sum(costs) if costs else None
        both._running_us, both._last_us = self._running_us, self._last_us
        return both


def reached(limits: Limits, tally: Tally, now_us: int) -> tuple[str, float, float] | None:
    """Return the limit that is reached: its name, how much it is, and how much was spent."""
    spent = {
        "calls": tally.calls,
        "tokens": tally.tokens,
        "seconds": tally.seconds(now_us),
        "cost": tally.cost or 0.0,
    }
    for name, amount in spent.items():
        limit = getattr(limits, name)
        if limit is not None and amount >= limit:
            return name, limit, amount
    return None


def lacks_cost(limits: Limits, tally: Tally) -> bool:
    """Tell whether cost is limited, and calls are recorded without one."""
    return limits.cost is not None and tally.cost is None and tally.unpriced
