"""News: the lines that entries add to the one feed over all sessions.

A line says that something happened which a person or a supervisor acts on: in which session, at
which seq, of which kind, and with which cause. It has no text and is derived from its entry, so it
can be rebuilt. Some lines wait: for a decision, for an outcome to be settled, for a turn to be gone
on with. Later entries answer them.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from killick.journal.closing import keeps_waiting
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.causes import KEEP_WAITING

NewsKind = Literal[
    "turn_ended", "outcome_unknown", "settled", "approval_asked", "approval_decided",
    "limit_reached", "attempts_used_up", "paused", "unpaused",
]  # fmt: skip

GONE_ON_WITH: Final[tuple[NewsKind, ...]] = (
    "turn_ended", "approval_asked", "limit_reached", "attempts_used_up",
)  # fmt: skip
"""Lines that the next turn answers: the conversation has gone on."""


_LIMITED: Final = frozenset({"failed", *KEEP_WAITING})
"""Causes of endings that a limit which was reached may be behind: no person had decided."""


class Line(NamedTuple):
    """One line, on its way to the feed."""

    kind: NewsKind
    cause: str | None = None
    waits: bool = False


class Answers(NamedTuple):
    """The waiting lines of a session that an entry answers.

    They are of these kinds; with an `approval`, only its question; with `once_known`, only those of
    turns whose outcomes are all known by now.
    """

    kinds: Sequence[NewsKind]
    approval: str | None = None
    once_known: bool = False


def lines_of(turn: TurnState | None, body: e.Body) -> list[Line]:
    """Return the lines that one more entry adds; `turn` is the turn that ran before it."""
    match body:
        case e.TurnEnding():
            ran = turn if turn is not None and turn.id == body.turn_id else None
            # Whatever it ended with: frameworks wrap errors, and a process may die before its turn.
            limited = ran is not None and ran.limited and body.cause in _LIMITED
            limited = limited or body.error_type == "LimitReached"
            waits = (body.status == "failed" and not limited) or keeps_waiting(body)
            lines = [Line("turn_ended", body.cause, waits)]
            if limited:
                lines.append(Line("limit_reached", body.cause, waits=True))
            if ran is not None and ran.has_unknown:
                lines.append(Line("outcome_unknown", body.cause, waits=True))
            return lines
        case e.ApprovalAsked():
            return [Line("approval_asked", waits=True)]
        case e.ApprovalDecided():
            return [Line("approval_decided")]
        case e.Settled():
            return [Line("settled")]
        case e.AttemptsUsed():
            return [Line("attempts_used_up", waits=True)]
        case e.Paused():
            return [Line("paused", waits=True) if body.paused else Line("unpaused")]
        case _:
            return []


def answers_of(body: e.Body, status: str | None) -> Answers | None:
    """Return which waiting lines an entry answers; `status` is that of the turn before it."""
    match body:
        case e.TurnStarted() if status not in (None, "completed"):
            return Answers(GONE_ON_WITH)
        case e.TurnEnding() if not keeps_waiting(body):
            return Answers(("approval_asked",))
        case e.ApprovalDecided():
            return Answers(("approval_asked",), approval=body.id)
        case e.LateResult() | e.Settled():
            return Answers(("outcome_unknown",), once_known=True)
        case e.Paused() if not body.paused:
            return Answers(("paused",))
        case e.Deleted():
            return Answers((*GONE_ON_WITH, "outcome_unknown", "paused"))
        case _:
            return None


class Told(NamedTuple):
    """A line that is stored: its entry's seq, its number among that entry's lines."""

    seq: int
    number: int
    line: Line


def fold_news(entries: Iterable[e.Entry]) -> list[Told]:
    """Return the lines of a session's own entries, with those that wait after the last of them."""
    fold = _Fold()
    for entry in entries:
        fold.take(entry)
    return fold.lines


class _Fold:
    def __init__(self) -> None:
        self.lines: list[Told] = []
        self._ended: dict[int, TurnState] = {}  # by the seq of their ending
        self._asked: dict[str, int] = {}
        self._running: TurnState | None = None
        self._status: str | None = None

    def take(self, entry: e.Entry) -> None:
        body = entry.body
        lines, answers = lines_of(self._running, body), answers_of(body, self._status)
        for turn in (self._running, *self._ended.values()):
            if turn is not None:
                turn.apply(entry.seq, body)
        match body:
            case e.TurnStarted():
                self._running, self._status = TurnState(entry.seq, body), "running"
            case e.TurnEnding():
                if self._running is not None and self._running.has_unknown:
                    self._ended[entry.seq] = self._running
                self._running, self._status = None, body.status
            case e.ApprovalAsked():
                self._asked[body.id] = entry.seq
            case _:
                pass
        if answers is not None:
            self.lines = [
                stored._replace(line=stored.line._replace(waits=False))
                if self._answers(answers, stored)
                else stored
                for stored in self.lines
            ]
        self.lines += [Told(entry.seq, number, line) for number, line in enumerate(lines)]

    def _answers(self, answers: Answers, stored: Told) -> bool:
        if stored.line.kind not in answers.kinds:
            return False
        if answers.once_known:
            turn = self._ended.get(stored.seq)
            return turn is not None and not turn.has_unknown
        return answers.approval is None or self._asked.get(answers.approval) == stored.seq
