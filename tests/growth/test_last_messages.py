"""The last messages cost what is in view at the end, whatever was rewound, and are the same."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killick import Message, Session, Store, Text
from killick.journal.compaction import encloses
from killick.journal.kinds import HISTORY, lookup_class
from killick.journal.visibility import History, in_view
from killick.model import entries as e
from killick.session.core.tail import Tail
from killick.stores.contract import LineageReader
from tests.growth.stores import steps_of


class Journal(LineageReader):
    """Entries in a list, read as those of a store are."""

    def __init__(self, entries: list[e.Entry]) -> None:
        self._entries = entries

    def base_of(self, _key: int) -> tuple[int, int] | None:
        return None

    def check_dense(self, _key: int, _entries: list[e.Entry], _after: int) -> None:
        """Do nothing: a list has no gaps."""

    def own_entries(
        self, _key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[e.Entry]:
        return self._entries[after:through][:limit]

    def own_newest(self, _key: int, *, before: int | None, limit: int) -> list[e.Entry]:
        return self._entries[: None if before is None else before - 1][-limit:]

    def own_newest_marked(
        self, _key: int, mark: int, *, before: int | None, limit: int
    ) -> list[e.Entry]:
        below = self._entries[: None if before is None else before - 1]
        return [entry for entry in below if lookup_class(entry.body) == mark][-limit:]


@st.composite
def changed_journals(draw: st.DrawFn) -> list[e.Entry]:
    """Messages, and changes of history that may name anything: more than a store would write."""
    entries: list[e.Entry] = []
    kinds = st.sampled_from(["message", "message", "message", "rewind", "undo"])
    for seq, kind in enumerate(draw(st.lists(kinds, max_size=60)), start=1):
        body: e.Body
        if kind == "rewind":
            through = draw(st.integers(max(0, seq - 25), seq))
            keep = draw(st.sets(st.integers(through, seq), max_size=3))
            history = History(entries)
            planned = all(map(history.is_in_view, {through, *keep}))  # as a store plans it
            since = [x for x in entries if x.seq > through and lookup_class(x.body) == HISTORY]
            whole = planned and encloses(since, through)
            body = e.Rewound(
                id=f"e{seq}", through=through, keep=tuple(sorted(keep)), encloses=whole
            )
        elif kind == "undo":
            body = e.Undone(id=f"e{seq}", seq=draw(st.integers(1, seq)))
        else:
            body = e.MessageRecorded(
                turn_id="t", id=f"m{seq}", role="user", parts=(Text("a"),), model_call_id=None
            )
        entries.append(e.Entry(seq, 0, body))
    return entries


@settings(max_examples=400, deadline=None)
@given(changed_journals(), st.integers(0, 60), st.integers(1, 20))
def test_a_tail_is_the_end_of_what_is_in_view(
    entries: list[e.Entry], after: int, limit: int
) -> None:
    slow = [x for x in in_view(History(entries), entries) if x.seq > after]
    tail = Tail(Journal(entries), 0, after)  # type: ignore[arg-type]  # all that a tail reads by
    while not tail.is_all:
        tail.read(limit)
        assert tail.entries == slow[len(slow) - len(tail.entries) :]
    assert tail.entries == slow


def _rewound(path: Path, rewinds: int, length: int, through: int) -> Path:
    """Make a session in which `length` messages were rewound, so many times."""
    with Store(path, indexing=False) as store:
        session = store.create_session(id="s")
        with session.turn("first") as turn:
            turn.record_all([_message(n) for n in range(30)])
        keep = session.head if through else 0
        for _ in range(rewinds):
            with session.turn("again") as turn:
                turn.record_all([_message(n) for n in range(length)])
            session.rewind(through=keep)
    return path


def _count(path: Path, session: Session) -> tuple[int, list[Message]]:
    return steps_of(path, lambda reader: session._core._last_messages(reader, 0, 20))


def _message(number: int) -> Message:
    return Message(role="assistant", parts=[Text(f"answer {number}")])


@pytest.mark.parametrize("through", [0, 1], ids=["cleared", "rewound"])
def test_what_was_rewound_is_not_read_for_the_last_messages(tmp_path: Path, through: int) -> None:
    counts = []
    for length in (100, 1_000):
        path = _rewound(tmp_path / f"{length}.db", 3, length, through)
        with Store(path, indexing=False) as store:
            session = store.session("s")
            assert session.messages(last=20) == session.messages()[-20:]
        steps, messages = _count(path, session)
        assert len(messages) == (20 if through else 0)
        counts.append(steps)
    assert counts[1] <= counts[0] * 1.1
    assert counts[1] < 8_000


@pytest.mark.parametrize("keeps", [False, True], ids=["whole turns", "an ending stays"])
def test_of_many_rewinds_to_one_place_only_the_last_is_read(tmp_path: Path, *, keeps: bool) -> None:
    counts = []
    for rewinds in (0, 1, 200):
        path = tmp_path / f"{rewinds}.db"
        with Store(path, indexing=False, durability="normal") as store:
            session = store.create_session(id="s")
            with session.turn("first") as turn:
                turn.record_all([_message(n) for n in range(100)])
            through = session.head - keeps
            for _ in range(rewinds):
                with session.turn("again"):
                    pass
                session.rewind(through=through)
            session = store.session("s")
            assert session.messages(last=20) == session.messages()[-20:]
        steps, messages = _count(path, session)
        assert len(messages) == 20
        counts.append(steps)
    none, single, many = counts
    assert many <= 1.9 * none
    assert single <= 2 * none
