"""Reads a journal from its beginning and lists the rules that it breaks."""

from collections.abc import Callable, Sequence

from killick.errors import KillickError
from killick.journal import rules
from killick.journal.kinds import identity, subject
from killick.journal.turn_state import TurnState
from killick.model import entries as e

Violation = tuple[int, str]
"""The seq where a rule is broken, and which."""

TurnOf = Callable[[str], TurnState | None]
"""Finds a turn that stands before the entries that are looked at."""


def audit(entries: Sequence[e.Entry]) -> list[Violation]:
    """Return every broken rule, in order. Entries of unknown kinds are passed over."""
    return _Audit().run(entries)


def audit_continuation(
    entries: Sequence[e.Entry],
    *,
    turn_of: TurnOf,
    is_queued: Callable[[str], bool],
    running: TurnState | None = None,
    may_stay_open: bool = False,
) -> list[Violation]:
    """Return the same of entries that are to follow on a journal, in which this turn runs or none.

    They hold whole turns: one that is begun and not ended breaks a rule as well, unless it may stay
    open. A `running` turn takes the entries up, so the caller gives a copy.
    """
    replay = _Audit(first=entries[0].seq, turn_of=turn_of, is_queued=is_queued, running=running)
    broken = replay.run(entries)
    return broken if may_stay_open else [*broken, *replay.left_open(entries[-1].seq)]


class _Audit:
    """Replays a journal and applies the rules to each entry."""

    def __init__(
        self,
        first: int = 1,
        turn_of: TurnOf = lambda _: None,
        is_queued: Callable[[str], bool] = lambda _: False,
        running: TurnState | None = None,
    ) -> None:
        self._first = first
        self._turn_of = turn_of
        self._is_queued = is_queued
        self._broken: list[Violation] = []
        self._seen: set[str] = set()
        self._turns: dict[str, TurnState] = {} if running is None else {running.id: running}
        self._running = running
        self._queued: set[str] = set()
        self._withdrawn: set[str] = set()

    def run(self, entries: Sequence[e.Entry]) -> list[Violation]:
        for seq, entry in enumerate(entries, start=self._first):
            if entry.seq != seq:
                self._broken.append((seq, "an entry is missing"))
                return self._broken
            self._check(entry)
        begins = self._first == 1
        if begins and entries and not isinstance(entries[0].body, e.SessionCreated):
            self._broken.insert(0, (1, "the journal does not begin with the session's beginning"))
        return self._broken

    def left_open(self, seq: int) -> list[Violation]:
        running = self._running
        return [] if running is None else [(seq, f"turn {running.id!r} is not ended")]

    def _check(self, entry: e.Entry) -> None:
        body = entry.body
        name = identity(body)
        if name in self._seen:
            self._say(entry, f"{e.kind_of(body)} {subject(body)!r} is there twice")
        self._seen.add(name)
        match body:
            case e.TurnStarted():
                self._start(entry, body)
            case e.TurnEnding():
                self._end(entry, body)
            case e.LateResult() | e.LateText():
                self._check_late(entry, body)
            case e.ToolStarted() if self._running and self._running.id != body.turn_id:
                self._follow_line(body.turn_id, self._running)
                self._check_late(entry, body, self._running)
            case e.Settled():
                running = self._running
                other = running is not None and running.id != body.turn_id
                self._check_late(entry, body, running if other else None)
            case e.PromptTaken() | e.PromptWithdrawn() if not self._waits(body.id):
                done = "taken" if isinstance(body, e.PromptTaken) else "withdrawn"
                self._say(entry, f"prompt {body.id!r} was {done} and did not wait")
            case e.PromptWithdrawn():
                self._withdrawn.add(body.id)
            case e.PromptWaiting():
                self._queued.add(body.id)
            case e.Compacted() | e.Rewound() if body.through >= entry.seq:
                self._say(entry, "it reaches beyond itself")
            case _:
                self._check_fenced(entry, body)

    def _waits(self, prompt_id: str) -> bool:
        queued = prompt_id in self._queued or self._is_queued(prompt_id)
        return queued and prompt_id not in self._withdrawn

    def _start(self, entry: e.Entry, body: e.TurnStarted) -> None:
        if self._running is not None:
            self._say(entry, f"it began while turn {self._running.id!r} was running")
        self._running = self._turns[body.turn_id] = TurnState(entry.seq, body)

    def _end(self, entry: e.Entry, body: e.TurnEnding) -> None:
        if self._running is None or self._running.id != body.turn_id:
            self._say(entry, f"turn {body.turn_id!r} ended and was not running")
            return
        running = self._running
        self._ask(entry, lambda: rules.admit(running, body))
        running.apply(entry.seq, body)
        self._running = None

    def _follow_line(self, turn_id: str, running: TurnState) -> None:
        """Find out whether the running turn goes on with this one, through others between them."""
        before = running.continues
        while before is not None and turn_id not in running.line:
            turn = self._turns.get(before) or self._turn_of(before)
            before = None if turn is None or turn.continues in running.line else turn.continues
            if before is not None:
                running.line.add(before)

    def _check_late(
        self,
        entry: e.Entry,
        body: e.LateResult | e.LateText | e.ToolStarted | e.Settled,
        running: TurnState | None = None,
    ) -> None:
        turn = self._turns.get(body.turn_id) or self._turn_of(body.turn_id)
        if turn is None:
            self._say(entry, f"it is late for turn {body.turn_id!r}, which is not there")
            return
        self._turns[turn.id] = turn
        if self._ask(entry, lambda: rules.admit(turn, body, running)):
            turn.apply(entry.seq, body)

    def _check_fenced(self, entry: e.Entry, body: e.Body) -> None:
        if not rules.needs_running_turn(body) and not isinstance(body, e.ToolStarted):
            return
        turn, turn_id = self._running, getattr(body, "turn_id", None)
        if turn is None or turn.id != turn_id:
            self._say(entry, f"it belongs to turn {turn_id!r}, which was not running")
            return
        if self._ask(entry, lambda: rules.admit(turn, body)):
            turn.apply(entry.seq, body)

    def _ask(self, entry: e.Entry, ask: Callable[[], None]) -> bool:
        """Return True if the rules allow it; what they forbid cannot be folded either."""
        try:
            ask()
        except KillickError as broken:
            self._say(entry, str(broken))
            return False
        return True

    def _say(self, entry: e.Entry, what: str) -> None:
        self._broken.append((entry.seq, f"{entry.kind}: {what}"))
