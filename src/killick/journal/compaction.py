"""Decides what a change of history keeps, once, when it is made.

Each function takes entries of a journal and returns the seqs that its entry will name, or raises
InvalidEntry with what is wrong and what to do.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from killick.errors import InvalidEntry, UndoRefused
from killick.journal.closing import closing
from killick.journal.kinds import message_of
from killick.journal.turn_state import TurnState, fold_turn
from killick.journal.visibility import Group, Groups, History
from killick.model import entries as e


def check_seq(seq: int, head: int, what: str, *, least: int = 1) -> None:
    """Refuse a seq that does not exist."""
    if isinstance(seq, bool) or not isinstance(seq, int):
        raise InvalidEntry(f"{what} is a seq, a whole number, and this is {seq!r}")
    if not least <= seq <= head:
        raise InvalidEntry(
            f"{what}={seq}: no such seq; this session has {least} to {head} (message.seq and "
            "entry.seq say which is which)"
        )


def check_in_view(history: History, seq: int, what: str) -> None:
    """Refuse a seq that a rewind has taken out."""
    if not history.is_in_view(seq):
        raise InvalidEntry(
            f"{what}={seq} was rewound; name a seq that is in view, or undo the rewind first"
        )


class Compacting(NamedTuple):
    """The entries of a range that stay, and those after its end that go with it."""

    keep: tuple[int, ...]
    rest: tuple[int, ...]


def plan_compaction(
    entries: Iterable[e.Entry],
    history: History,
    *,
    first: int,
    through: int,
    chosen: Sequence[int],
    as_of: int | None = None,
) -> Compacting:
    """Plan what becomes of the messages that began from `first` to `through`.

    `entries` are those in view up to the end of the turn that ran at `through`, without what is
    compacted already. Chosen messages stay, and so do system messages. In a turn that still runs,
    what was not finished at `through` stays too: the summary may not know its rest.
    With `as_of`, the head when the summary was begun, what was not finished then stays.
    """
    if first > through:
        raise InvalidEntry(f"the range from {first} to {through} is upside down")
    groups, endings, torn = Groups(), dict[str, int](), dict[str, int]()
    for entry in entries:
        groups.take(entry)
        if isinstance(entry.body, e.TurnEnding):
            endings[entry.body.turn_id] = entry.seq
        elif isinstance(entry.body, e.Rewound):  # whose ending it took out is over all the same
            torn.update({group.turn_id: entry.seq for group in groups.all})
    torn.update(endings)
    inside = [group for group in groups.all if first <= group.seq <= through]
    _check_chosen(inside, history, chosen)
    kept, gone = set[int](), set[int]()
    for group in inside:
        over = group.turn_id in torn
        is_chosen = group.role == "system" or any(seq in group.seqs for seq in chosen)
        known = _is_known(group, torn.get(group.turn_id), through, as_of)
        (kept if is_chosen or not known else gone).update(group.seqs)
        if is_chosen and over and not group.finished:  # what is said of its calls depends on it
            kept.add(torn[group.turn_id])
    for group in groups.all:
        # Its end or its results are in the range, or its model call, which says who answers.
        if not first <= group.seq <= through:
            kept.update(group.seqs)
            if not group.finished and group.turn_id in torn:
                kept.add(torn[group.turn_id])
    if not gone:
        raise InvalidEntry(f"there is nothing to compact from {first} to {through}")
    gone.update(_endings_without_turn(groups, endings, gone))
    return Compacting(
        tuple(sorted(seq for seq in kept if first <= seq <= through)),
        tuple(sorted(seq for seq in gone if seq > through)),
    )


def _is_known(group: Group, turn_over: int | None, through: int, as_of: int | None) -> bool:
    """Return True if the maker of the summary can have known all of a message."""
    if as_of is None:
        return turn_over is not None or (group.finished and max(group.seqs) <= through)
    if turn_over is not None and turn_over <= as_of:
        return True
    return group.finished and max(group.seqs) <= as_of


def _endings_without_turn(groups: Groups, endings: dict[str, int], gone: set[int]) -> set[int]:
    """Return the endings of turns of which nothing stays."""
    staying = {group.turn_id for group in groups.all if group.seq not in gone}
    return {seq for turn_id, seq in endings.items() if turn_id not in staying}


def _check_chosen(inside: Collection[Group], history: History, chosen: Sequence[int]) -> None:
    for seq in chosen:
        if any(seq in group.seqs for group in inside):
            continue
        if history.compacted_by(seq) is not None:
            raise InvalidEntry(f"keep={seq} was compacted before; undo that first")
        raise InvalidEntry(f"keep={seq} is no message in the range; give the seq of a message")


def plan_rewind(entries: Iterable[e.Entry], *, through: int) -> tuple[int, ...]:
    """Return the entries after `through` that stay, because what they belong to began by then.

    `entries` begin no later than the turn that ran at `through`, and are all that follow. The
    ending of a turn belongs to it when nothing else of the turn began later.
    """
    groups, kept, torn = Groups(), list[int](), set[str]()
    for entry in entries:
        group = groups.take(entry)
        if entry.seq <= through:
            continue
        body = entry.body
        if group is not None and group.seq > through:
            torn.add(group.turn_id)
        elif message_of(body) is not None:
            kept.append(entry.seq)  # what is not known here began before the entries given
        elif isinstance(body, e.TurnStarted):
            torn.add(body.turn_id)
        elif isinstance(body, e.TurnEnding) and body.turn_id not in torn:
            kept.append(entry.seq)
    return tuple(kept)


def encloses(changes: Iterable[e.Entry], through: int) -> bool:
    """Return True if no change of history after `through` is about anything before it.

    `changes` are those after it. What is undone there may lie before it; a rewind there that kept
    the entry at `through` reaches further.
    """
    return not any(
        isinstance(entry.body, e.Undone)
        or (isinstance(entry.body, e.Rewound) and entry.body.through < through)
        for entry in changes
    )


def plan_visibility(entries: Iterable[e.Entry], seq: int) -> tuple[str, tuple[int, ...]]:
    """Return the id of the message at this seq, and the entries that are hidden with it.

    `entries` are those of its turn. A tool's result hides its content and no other entry: its
    call must keep a result.
    """
    groups = Groups()
    for entry in entries:
        groups.take(entry)
        if entry.seq == seq:
            match entry.body:
                case e.ToolStarted() as body:
                    return f"{body.message_id}/{body.call_id}", ()
                case e.ToolFinished(started=None) | e.LateResult(started=None) as body:
                    return f"{body.message_id}/{body.result.call_id}", ()
                case e.MessageRecorded() as body if groups.begun_at(seq) is None:
                    return f"{body.id}/result", ()
                case _:
                    pass
    group = groups.begun_at(seq)
    if group is None:
        raise InvalidEntry(f"there is no message at seq {seq}; message.seq says where one is")
    return group.message_id, tuple(sorted(group.seqs))


def check_undo(history_entries: Iterable[e.Entry], seq: int | None, newest_turn: int) -> e.Undone:
    """Return the entry that undoes the operation at this seq, or the newest that is in effect."""
    entries = list(history_entries)
    undone = {entry.body.seq for entry in entries if isinstance(entry.body, e.Undone)}
    operations = {
        entry.seq: entry.body
        for entry in entries
        if isinstance(entry.body, e.Compacted | e.Rewound)
    }
    if seq is None:
        seq = max(operations.keys() - undone, default=None)
        if seq is None:
            raise UndoRefused("there is nothing to undo: no compaction or rewind is in effect")
    body = operations.get(seq)
    if body is None:
        raise InvalidEntry(f"there is no compaction or rewind at seq {seq}")
    if isinstance(body, e.Rewound) and newest_turn > seq and seq not in undone:
        raise UndoRefused(
            f"a turn has begun since the rewind at seq {seq}, so undoing it would mix two "
            f"conversations; session.fork(at={seq - 1}) gives the one before it"
        )
    if seq not in undone:
        left = {at: operations[at] for at in operations if at not in undone}
        _check_not_compacted_since(body, seq, left)
    return e.Undone(id=body.id, seq=seq)


def _check_not_compacted_since(
    undone: e.Compacted | e.Rewound, seq: int, in_effect: dict[int, e.Compacted | e.Rewound]
) -> None:
    """Refuse to bring back messages that a later summary would not stand for."""
    for at, later in in_effect.items():
        if at > seq and isinstance(later, e.Compacted) and _knows_half(later, undone):
            raise UndoRefused(
                f"the compaction at seq {at} reaches over what seq {seq} has taken out, and "
                f"its summary does not know it; undo that one first: session.undo({at})"
            )


def _knows_half(later: e.Compacted, earlier: e.Compacted | e.Rewound) -> bool:
    """Return True if a later summary was made of a part of what an earlier one took out."""
    if isinstance(earlier, e.Rewound):
        return later.through > earlier.through
    if later.first <= earlier.first and earlier.through <= later.through:
        return False
    return later.first <= earlier.through and earlier.first <= later.through


def plan_fork(
    entries: Sequence[e.Entry], *, at: int, deltas: Callable[[int], Sequence[e.Delta]]
) -> list[tuple[e.Body, int | None]]:
    """Return the entries that close, in a fork, what was open at `at`, each with its time.

    What the source has keeps its time; what only the fork says has none yet. `entries` are those of
    the turn that ran at `at`, and all that follow. What began by then is carried over whole, as far
    as it is known: a fork says nothing that did not happen. The turn is interrupted in the fork,
    unless nothing else of it came.
    """
    turn = fold_turn(entry for entry in entries if entry.seq <= at)
    if turn is None or turn.ended is not None:
        return []
    carried = _Carried(turn, at + 2)  # the fork's own beginning stands between
    kept = set(plan_rewind(entries, through=at))
    for entry in entries:
        body = entry.body
        if entry.seq in kept:
            carried.add(body, entry.seq, entry.at_us)
        elif entry.seq <= at:
            continue
        elif isinstance(body, e.ModelCallEnded) and body.id in turn.model_calls:
            carried.add(msgspec.structs.replace(body, usage=None), entry.seq, entry.at_us)
        elif isinstance(body, e.TurnEnding) and body.turn_id == turn.id:
            carried.add(_forked(turn.id), entry.seq, None)
    if turn.ended is None:
        for body in closing(turn, _forked(turn.id), lambda seq: deltas(carried.source(seq))):
            carried.add(body, 0, None)
    return carried.timed


class _Carried:
    """Entries on their way into a fork, where each has another seq."""

    def __init__(self, turn: TurnState, first: int) -> None:
        self.timed: list[tuple[e.Body, int | None]] = []
        self._turn = turn
        self._first = first
        self._seqs: dict[int, int] = {}

    def source(self, seq: int) -> int:
        """Return the seq in the source of what has this seq in the fork."""
        return next((source for source, here in self._seqs.items() if here == seq), seq)

    def add(self, body: e.Body, seq: int, at_us: int | None) -> None:
        here = self._seqs[seq] = self._first + len(self.timed)
        if isinstance(body, e.ToolFinished | e.LateResult) and body.started is not None:
            started = self._seqs.get(body.started, body.started)
            body = msgspec.structs.replace(body, started=started)
        self.timed.append((body, at_us))
        self._turn.apply(here, body)


def _forked(turn_id: str) -> e.TurnEnding:
    return e.TurnEnding(turn_id=turn_id, status="interrupted", reason="forked", cause="forked")
