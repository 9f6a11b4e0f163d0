"""A history of thousands of changes says what looking at each of them for each entry says."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killick.journal import visibility
from killick.journal.visibility import Compaction, History
from killick.model import entries as e

SEQS = st.integers(1, 40)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("rewind"), st.integers(0, 40), st.just(0), st.sets(SEQS, max_size=4)),
        st.tuples(st.just("compact"), SEQS, SEQS, st.sets(SEQS, max_size=4)),
        st.tuples(st.just("undo"), SEQS, st.just(0), st.just(set[int]())),
    ),
    max_size=14,
)


def journal(changes: Sequence[tuple[str, int, int, set[int]]]) -> list[e.Entry]:
    """Entries of changes, of which every third seq is one; what they name need make no sense."""
    entries = []
    for n, (kind, first, second, seqs) in enumerate(changes, start=1):
        body: e.Body
        if kind == "rewind":
            body = e.Rewound(id=f"e{n}", through=first, keep=tuple(sorted(seqs)))
        elif kind == "compact":
            low, high = sorted((first, second))
            rest = tuple(sorted(seq + 5 for seq in seqs))
            body = e.Compacted(
                id=f"e{n}", summary="s", first=low, through=high, keep=tuple(seqs), rest=rest
            )
        else:
            body = e.Undone(id=f"e{n}", seq=first // 3 * 3)
        entries.append(e.Entry(3 * n, 0, body))
    return entries


class Slow:
    """The same questions, answered by a look at every change."""

    def __init__(self, entries: list[e.Entry]) -> None:
        undone = {entry.body.seq for entry in entries if isinstance(entry.body, e.Undone)}
        left = [entry for entry in entries if entry.seq not in undone]
        self.rewinds = [(x.seq, x.body) for x in left if isinstance(x.body, e.Rewound)]
        self.compactions = [
            Compaction(entry.seq, entry.body)
            for entry in left
            if isinstance(entry.body, e.Compacted)
            and not any(
                seq > entry.seq and entry.body.through > body.through for seq, body in self.rewinds
            )
        ]

    def drops(self, rewind: tuple[int, e.Rewound], seq: int) -> bool:
        at, body = rewind
        return body.through < seq < at and seq not in body.keep

    def is_in_view(self, seq: int) -> bool:
        return not any(self.drops(rewind, seq) for rewind in self.rewinds)

    def is_reached(self, seq: int) -> bool:
        return any(body.through < seq < at for at, body in self.rewinds)

    def compacted_by(self, seq: int) -> int | None:
        return next((c.seq for c in reversed(self.compactions) if c.replaces(seq)), None)

    def summaries(self) -> list[int]:
        def covers(mine: Compaction, other: Compaction) -> bool:
            within = mine.body.first <= other.body.first and other.body.through <= mine.body.through
            return within and mine.seq > other.seq

        every = self.compactions
        shown = [c for c in every if not any(covers(other, c) for other in every)]
        return [c.seq for c in sorted(shown, key=lambda c: (c.body.first, c.seq))]


@settings(max_examples=500, deadline=None)
@given(CHANGES)
def test_every_quick_answer_is_the_slow_one(
    changes: list[tuple[str, int, int, set[int]]],
) -> None:
    entries = journal(changes)
    quick, slow = History(entries), Slow(entries)
    assert [c.seq for c in quick.compactions] == [c.seq for c in slow.compactions]
    assert [c.seq for c in quick.summaries()] == slow.summaries()
    for seq in range(60):
        assert quick.is_in_view(seq) == slow.is_in_view(seq)
        by = quick.compacted_by(seq)
        assert (None if by is None else by.seq) == slow.compacted_by(seq)
        stretch = quick.stretch_at(seq)
        assert (stretch is not None) == slow.is_reached(seq)
        if stretch is not None:
            assert all(slow.is_reached(n) for n in range(stretch.first, stretch.last + 1))
            assert not slow.is_reached(stretch.first - 1)
            assert not slow.is_reached(stretch.last + 1)
            inside = range(stretch.first, stretch.last + 1)
            assert quick.kept_in(stretch) == [n for n in inside if slow.is_in_view(n)]


def test_a_thousand_compactions_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted are looks at a range: each of two thousand entries asks, and so does each summary."""
    count, looks = 1_000, 0
    entries = [
        e.Entry(2 * n + 1, 0, e.Compacted(id=f"e{n}", summary="s", first=2 * n, through=2 * n))
        for n in range(1, count + 1)
    ]
    history = History(entries)

    class Counted:
        def __init__(self, bounds: list[int]) -> None:
            self._bounds = bounds

        def __len__(self) -> int:
            return len(self._bounds)

        def __getitem__(self, n: int) -> int:
            nonlocal looks
            looks += 1
            return self._bounds[n]

    def replaces(compaction: Compaction, _seq: int) -> bool:
        raise AssertionError(f"compaction {compaction.seq} was asked")

    monkeypatch.setattr(visibility.Compaction, "replaces", replaces)
    bounds, owners = history._ranges
    history.__dict__["_ranges"] = Counted(bounds), owners
    assert len(history.summaries()) == count
    assert sum(history.compacted_by(seq) is not None for seq in range(2 * count + 2)) == count
    assert looks < 2 * count * 15
