"""A call that was started although a person had denied it: told as it happened, by whoever did."""

import msgspec
import pytest

from killick import Message, Store, ToolCall, ToolNotApproved
from killick.model import entries as e
from killick.stores.memory import MemoryDisk


def test_an_import_tells_what_was_done_against_a_refusal() -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [ToolCall("a", "rm", "{}")], id="m"))
            asked = turn.ask_approval("a", "{}")
            session.decide_approval(asked, approved=False)
            with pytest.raises(ToolNotApproved, match="denied") as refused:
                turn.tool("a").__enter__()
            assert (refused.value.denied, refused.value.approval_id) == (True, asked.id)
        entries = session.entries()
        started = e.ToolStarted(turn_id=turn.id, message_id="m", call_id="a")
        done = [*entries[:-1], msgspec.structs.replace(entries[-1], body=started)]
        ended = msgspec.structs.replace(entries[-1], seq=entries[-1].seq + 1)
        store.import_entries("theirs", [*done, ended])
        theirs = store.session("theirs")
        assert [entry.kind for entry in theirs.entries()][-2:] == ["tool_started", "turn_ended"]
        assert store.examine_session("theirs") == []
