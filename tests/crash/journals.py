"""What must be true of every journal, whatever has happened to the processes that wrote it."""

from collections import Counter

import apsw

from killick import Message, Session, Store
from killick.model import entries as e


def check_sound(session: Session) -> None:
    """Dense seqs, one ending for each turn, none running, no message or result twice."""
    entries = session.entries()
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    started = [x.body.turn_id for x in entries if isinstance(x.body, e.TurnStarted)]
    ended = [x.body.turn_id for x in entries if isinstance(x.body, e.TurnEnding)]
    assert len(set(started)) == len(started)
    assert Counter(ended) == Counter(started), "every turn has exactly one ending"
    for turn in session.turns():
        assert turn.status in ("completed", "failed", "interrupted")
        assert (turn.reason is None) == (turn.status == "completed")
    messages = session.messages()
    assert all(message.state != "streaming" for message in messages)
    ids = [message.id for message in messages]
    assert len(set(ids)) == len(ids)


def check_store(store: Store) -> None:
    """Every session is sound once it was opened, its links fit, and no delta is left behind."""
    for info in store.sessions(limit=100_000):
        check_sound(store.session(info.id))
        assert store.verify_session(info.id).findings == []
    assert store.counts()["deltas"] == 0


def check_file(path: str) -> None:
    """SQLite itself finds nothing wrong with the file, if it is one."""
    if "://" in path:
        return
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5_000)  # whoever wrote last may be closing still
    try:
        assert connection.pragma("integrity_check") == "ok"
    finally:
        connection.close()


def kinds(session: Session) -> list[str]:
    return [entry.kind for entry in session.entries()]


def endings(session: Session) -> list[tuple[str, str | None]]:
    """Status and reason of every ending there is, in order."""
    return [
        (entry.body.status, entry.body.reason)
        for entry in session.entries()
        if isinstance(entry.body, e.TurnEnding)
    ]


def answers(session: Session) -> list[Message]:
    return [message for message in session.messages() if message.role == "assistant"]
