"""The writer knows many sessions, forgets those used longest ago, and none whose turn runs."""

from pathlib import Path

import pytest

from killick import Message, Session, Store, Text, Turn
from killick.stores.engine import state
from killick.stores.sqlite.rows import SqliteTransaction

MAX = 8


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions whose rows a writer reads because it does not know them any more."""
    monkeypatch.setattr(state, "_STATES_MAX", MAX)
    read: list[int] = []
    known = SqliteTransaction.session

    def session(tx: SqliteTransaction, key: int) -> object:
        read.append(key)
        return known(tx, key)

    monkeypatch.setattr(SqliteTransaction, "session", session)
    return read


def _message() -> Message:
    return Message(role="assistant", parts=[Text("a")])


def test_a_session_whose_turn_runs_is_never_read_again(tmp_path: Path, reads: list[int]) -> None:
    with Store(tmp_path / "work.db", indexing=False) as store:
        running: list[Turn] = []
        for n in range(2 * MAX):
            running.append(store.create_session(id=f"running {n}").turn("go"))
            running[-1].begin()
        for n in range(5 * MAX):
            store.create_session(id=f"idle {n}")
        reads.clear()
        for turn in running:
            turn.record(_message())
        assert reads == []
        for turn in running:
            turn.end()


def test_of_the_others_those_used_last_stay_known(tmp_path: Path, reads: list[int]) -> None:
    with Store(tmp_path / "work.db", indexing=False) as store:
        used: list[Session] = [store.create_session() for _ in range(MAX // 2 - 1)]
        for n in range(10 * MAX):
            store.create_session()
            reads.clear()
            for session in used:
                session.rename(f"{n}")
            assert reads == [], n


def test_no_more_are_known_than_the_limit(tmp_path: Path, reads: list[int]) -> None:
    with Store(tmp_path / "work.db", indexing=False) as store:
        sessions = [store.create_session() for _ in range(10 * MAX)]
        reads.clear()
        for session in reversed(sessions):
            session.rename("again")
        assert len(reads) >= 9 * MAX - 1
