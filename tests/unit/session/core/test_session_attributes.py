"""`title` and `head` of a session are those of the last read or write through that object."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from killick import Message, Session, Store, ToolCall, TurnStopped

READS: list[Callable[[Session], object]] = [
    Session.info,
    Session.turns,
    Session.queued,
    Session.approvals,
    Session.entries,
    Session.messages,
    Session.transcript,
    Session.timeline,
    lambda session: session.context("neutral"),
    lambda session: session.messages(last=1),
    lambda session: session.changes(after=0),
]


@pytest.mark.parametrize("read", READS)
def test_a_read_knows_what_others_have_changed(
    tmp_path: Path, read: Callable[[Session], object]
) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session(title="before")
        store.session(session.id).rename("after")
        read(session)
        assert (session.title, session.head) == ("after", 2)


def test_every_write_is_known_to_the_session_that_it_was_made_with(tmp_path: Path) -> None:
    def written(session: Session) -> int:
        return store.session(session.id).entries()[-1].seq

    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with suppress(TurnStopped), session.turn("go") as turn:
            turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
            asked = turn.ask_approval("a", "{}")
            assert session.head == written(session)
            session.decide_approval(asked, approved=True)
            assert session.head == written(session)
            session.queue("next")
            assert session.head == written(session)
            with turn.stream() as reply:
                reply.text("half")
                session.stop()
                assert session.head == written(session)
                reply.text("more")
        session.add_late_text(turn.id, reply.id, "half of it")
        assert session.head == written(session)
