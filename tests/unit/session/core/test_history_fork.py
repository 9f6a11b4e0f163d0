"""What a fork knows of the session it was made of."""

import pytest

from killick import InvalidEntry, Message, Session, Store, Text, ToolCall, ToolResult
from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from tests.unit.views.talking import stopped


def ask(session: Session, system: str | None) -> None:
    with session.turn("Why?") as turn, turn.stream(model="m", system=system) as reply:
        reply.text("Because.")


def compact_all(session: Session) -> None:
    session.compact("They talked.", through=session.messages()[-1].seq)


def system_of(session: Session) -> str | None:
    return session.context("openai-chat").system


def test_the_system_prompt_of_calls_that_a_summary_stands_for() -> None:
    """A fork's row knows its own calls only; the context must not lose the prompt for that."""
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        ask(session, "Be brief.")
        compact_all(session)
        fork = session.fork()
        ask(session, "Be long.")
        again = fork.fork()
        assert system_of(fork) == system_of(again) == "Be brief."
        assert system_of(session) == "Be long."
        ask(again, "Be kind.")
        compact_all(again)
        assert system_of(again) == "Be kind."
        assert system_of(again.fork(at=again.head - 1)) == "Be kind."


def test_a_fork_of_a_session_that_never_had_one() -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with session.turn("Why?") as turn:
            turn.record(Message("assistant", [Text("Because.")]))
        compact_all(session)
        assert system_of(session.fork()) is None


def test_a_result_that_came_late_is_known_to_a_fork_in_the_middle_of_its_turn() -> None:
    """As one that came in time is: what had begun is there as far as it is known."""
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with stopped(session) as turn:
            turn.record(Message("assistant", [ToolCall("c1", "shell", "{}")]))
            at = session.messages()[-1].seq
            with turn.tool("c1"):
                raise KeyboardInterrupt
        ask(session, None)
        session.finish_tool(turn.id, "c1", "done")
        fork = session.fork(at=at)
        assert [message.parts for message in fork.messages()][-1] == (ToolResult("c1", "done"),)
        assert len(fork.messages()) == 3
        assert store.examine_session(fork.id) == []


@pytest.mark.parametrize("began", [False, True], ids=["before it began", "when it had begun"])
def test_what_was_found_out_is_known_to_a_fork_in_the_middle_of_its_turn(*, began: bool) -> None:
    """Else the fork says that the outcome is unknown, and a model or a person does it again."""
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with stopped(session) as turn:
            turn.record(Message("assistant", [ToolCall("c1", "shell", "{}")]))
            at = session.head
            with turn.tool("c1"):
                at = session.head if began else at
                raise KeyboardInterrupt
        first = session.settle(turn.id, "c1", "did_not_run")
        ask(session, None)
        settled = session.entries(after=first.seq - 1, limit=1)[0].body
        assert isinstance(settled, e.Settled)
        session.settle(turn.id, "c1", "ran", result="paid", replaces=settled.id)
        fork = session.fork(at=at)
        (sent,) = [m for m in fork.context("openai-chat").messages if m["role"] == "tool"]
        assert "A person found out that it ran" in sent["content"]
        assert [entry.kind for entry in fork.entries()][-2:] == ["settled", "settled"]
        assert store.examine_session(fork.id) == []


def test_an_empty_id_is_refused() -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with pytest.raises(InvalidEntry, match="is empty"):
            session.fork(id="")
