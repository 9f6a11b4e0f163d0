"""Repeated starts, second results, settlements and work go out and come in as they are."""

from pathlib import Path

from killick import Message, Store, Text, ToolCall
from killick.exchange import export_session
from killick.exchange.copy import copy_sessions
from killick.exchange.formats.jsonl import export_lines
from killick.exchange.importer import import_paths
from killick.session.sync import Session


def make(store: Store) -> Session:
    session = store.create_session(id="ses_run", title="Pay")
    first = session.turn("Pay.", resume=3).begin()
    calls = [ToolCall("a", "look", "{}"), ToolCall("b", "pay", '{"n": 1}')]
    first.record(Message("assistant", [Text("So."), *calls]))
    zombie = first.tool("a", effect="none").begin()
    first.tool("b").begin()
    first.end(cause="shut_down")
    session.settle(first.id, "b", "did_not_run", evidence="no such payment")
    (work,) = store.take_due()
    with session.turn(None, work=work.token) as second:
        with second.tool("a", of=first.id) as call:
            call.finish("from the second start")
        with second.tool("b", of=first.id) as call:
            call.finish("paid")
        second.record(Message("assistant", [Text("Done.")]))
    zombie.finish("from the first start")
    session.pause("enough")
    return session


def test_our_own_lines_come_back_the_same(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store, Store(tmp_path / "b.db") as other:
        session = make(store)
        path = tmp_path / "session.jsonl"
        path.write_bytes(b"".join(export_lines(store, session.id)))
        report = import_paths(other, [path])
        assert report.problems == []
        there = other.session(session.id)
        mine = [entry.body for entry in session.entries()]
        assert [entry.body for entry in there.entries()][: len(mine)] == mine
        assert other.examine_session(session.id) == []
        assert there.transcript() == session.transcript()


def test_a_copy_is_the_same_and_no_work(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store, Store(tmp_path / "b.db") as other:
        session = make(store)
        session.unpause()
        session.turn("Again.", resume=1).begin().end(cause="shut_down")
        assert [each.action for each in copy_sessions(store, other)] == ["copied"]
        assert other.session(session.id).entries() == session.entries()
        assert other.examine_session(session.id) == []
        assert list(other.take_due(limit=10)) == []
        assert [work.session_id for work in store.take_due(limit=10)] == [session.id]


def test_other_agents_are_told_what_was_found_out(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        session = store.create_session(id="ses_run")
        turn = session.turn("Pay.").begin()
        turn.record(Message("assistant", [ToolCall("b", "pay", "{}")]))
        turn.tool("b").begin()
        turn.end(cause="shut_down")
        session.settle(turn.id, "b", "ran", evidence="the bank says so")
        for format_ in ("codex", "goose", "anthropic", "openai-chat", "markdown", "html"):
            pieces = b"".join(export_session(store, session.id, format_))
            assert b"found out" in pieces, format_
            assert b"the bank says so" in pieces, format_
