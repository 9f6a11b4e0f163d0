"""Views as they were at a seq: the same as those of a journal that ends there."""

from pathlib import Path

import pytest

from killick import Message, SeqNotFound, Store, Text


def test_a_view_of_the_past_is_what_it_was_then(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        then = []

        def note() -> None:
            made = session.context("openai-chat")
            then.append((session.head, session.transcript(), made.messages))

        with session.turn("one") as turn:
            note()
            with turn.stream() as reply:
                reply.text("Let me look.")
                reply.tool_call("c1", name="make", arguments="{}")
            note()
            with turn.tool("c1") as call:
                note()
                call.finish("made")
            note()
            turn.record(Message("assistant", [Text("Done.")]))
        note()
        session.compact("All of it.", through=session.head)
        note()
        session.rewind(through=2)
        note()
        session.undo()
        session.rename("Named")
        note()
        for seq, shown, messages in then:
            assert session.transcript(at=seq) == shown
            assert session.context("openai-chat", at=seq).messages == messages
        assert session.transcript(at=0) == []
        for view in (session.transcript, lambda at: session.context("anthropic", at=at)):
            with pytest.raises(SeqNotFound, match=f"head is {session.head}") as refused:
                view(at=session.head + 1)
            assert refused.value.head == session.head


def test_a_timeline_names_tools_and_waits_and_the_silence_before_a_recovery(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with session.turn("one") as turn:
            with turn.stream() as reply:
                reply.tool_call("c1", name="make", arguments="{}")
            asked = turn.ask_approval("c1", "{}")
            session.decide_approval(asked, approved=True, by="test")
            with turn.tool("c1") as call:
                call.finish("made")
        [timed] = session.timeline()
    [tool], [wait] = timed.tools, timed.waits
    assert (tool.name, wait.call_id, wait.approved) == ("make", "c1", True)
    assert timed.ended_seq == session.head
    assert timed.last_at_us is not None
    assert timed.last_at_us <= timed.started_at_us + (timed.seconds or 0) * 1e6
