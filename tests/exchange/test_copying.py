"""Copies between stores: the same bytes, whatever the stores are, however often it broke off."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from killick import Image, Message, Store, Text, ToolCall
from killick.cli.argv import make_group
from killick.exchange.copy import copy_sessions
from killick.exchange.formats.jsonl import export_lines
from tests.crash.processes import Channel, Nursery
from tests.postgres_fixtures import shared


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def url() -> str:
    server = shared("18")
    server.empty()
    return server.server.url()


@pytest.fixture
def filled(file: str) -> Iterator[Store]:
    """Everything that a store may hold: forks, blobs, late results, text that UTF-8 has not."""
    with Store(file) as store:
        session = store.create_session(title="it\0 \ud800", tags=("a", "b"))
        image = store.put_blob(b"\x89PNG" * 100)
        with session.turn([Text("look"), Image(image, "image/png")]) as turn:
            with turn.stream(model="m", system="be brief") as reply:
                reply.text("half \udfff")
                reply.tool_call("a", name="shell", arguments="{}")
            with turn.tool("a") as call:
                call.finish("done")
        try:
            with session.turn("again") as turn:
                turn.record(Message("assistant", [ToolCall("b", "shell", "{}")]))
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        session.finish_tool(turn.id, "b", "late")
        fork = session.fork(title="fork")
        with fork.turn("on its own"):
            pass
        session.compact("short", through=session.head)
        session.note("large", "x" * 2_000_000)
        gone = store.create_session(title="gone")
        store.delete_session(gone.id)
        for number in range(5):
            with store.create_session(title=str(number)).turn("go"):
                pass
        yield store


def exports(store: Store) -> dict[str, bytes]:
    return {
        info.id: b"".join(export_lines(store, info.id))
        for info in store.sessions(archived=None, limit=1_000)
    }


def test_a_store_goes_to_a_server_and_back(filled: Store, url: str, tmp_path: Path) -> None:
    """Exports of all three have the same bytes; deleted sessions stay deleted."""
    with Store(url) as server, Store(tmp_path / "back.db") as back:
        there = list(copy_sessions(filled, server))
        assert {one.action for one in there} == {"copied"}, there
        assert {one.action for one in copy_sessions(server, back)} == {"copied"}
        assert exports(filled) == exports(server) == exports(back)
        assert len(exports(filled)) == 7
        assert set(server.session_ids()) == set(filled.session_ids())
        for session_id in server.session_ids():
            assert server.examine_session(session_id) == []
        assert {one.action for one in copy_sessions(filled, server)} == {"unchanged"}


def test_a_copy_goes_on_where_it_broke_off(filled: Store, url: str) -> None:
    with Store(url) as server:
        copying = copy_sessions(filled, server)
        for _ in range(3):
            next(copying)
        copying.close()
        counts = [one.action for one in copy_sessions(filled, server)]
        assert counts == ["unchanged"] * 3 + ["copied"] * (len(counts) - 3)
        info = filled.sessions(limit=1)[0]
        with filled.session(info.id).turn("more"):
            pass
        (grown,) = [one for one in copy_sessions(filled, server) if one.action != "unchanged"]
        assert (grown.session_id, grown.action) == (info.id, "grown")
        assert exports(filled) == exports(server)


def test_a_turn_that_runs_is_left_out(filled: Store, url: str) -> None:
    with Store(url) as server:
        session = filled.create_session(title="busy")
        with session.turn("go"):
            (one,) = copy_sessions(filled, server, [session.id])
            assert one.action == "copied"
            assert "runs" in (one.why or "")
            assert server.session(session.id).turns() == []
        (one,) = copy_sessions(filled, server, [session.id])
        assert (one.action, one.why) == ("grown", None)
        assert exports(filled)[session.id] == exports(server)[session.id]


def test_a_session_that_went_on_elsewhere_is_not_touched(filled: Store, url: str) -> None:
    with Store(url) as server:
        session = filled.create_session(title="both")
        list(copy_sessions(filled, server, [session.id]))
        filled.session(session.id).note("here", 1)
        server.session(session.id).note("there", 2)
        before = exports(server)[session.id]
        (one,) = copy_sessions(filled, server, [session.id])
        assert one.action == "failed"
        assert "differ at seq 2" in (one.why or "")
        assert exports(server)[session.id] == before


def test_the_command_copies_and_says_what_it_did(filled: Store, file: str, url: str) -> None:
    run = CliRunner()
    done = run.invoke(make_group(), ["copy", file, url, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {one["action"] for one in told["sessions"]} == {"copied"}
    again = run.invoke(make_group(), ["copy", file, url])
    assert again.stdout.strip() == "8 sessions, 0 entries copied; all were compared"
    nowhere = run.invoke(make_group(), ["copy", f"{file}x", url])
    assert nowhere.exit_code != 0
    with Store(url) as server:
        assert exports(filled) == exports(server)


def copy_until_killed(parent: Channel, source: str, target: str) -> None:
    with Store(source) as there, Store(target) as here:
        for number, _ in enumerate(copy_sessions(there, here)):
            parent.send(number)


@pytest.mark.crash
def test_a_copy_that_was_killed_goes_on(filled: Store, file: str, url: str) -> None:
    """kill -9 at moments of its own: nothing is there twice or half, and the next one ends it."""
    nursery = Nursery(shared("18").end_lease)
    try:
        for number in range(4):
            child = nursery.start(copy_until_killed, file, url)
            child.expect(0)
            time.sleep(number * 0.01)
            child.kill()
    finally:
        nursery.close()
    with Store(url) as server:
        assert {one.action for one in copy_sessions(filled, server)} <= {"copied", "unchanged"}
        assert exports(filled) == exports(server)


# -- links -----------------------------------------------------------------------------------------


def links(store: Store, session_id: str) -> list[bytes | None]:
    return [entry.link for entry in store.linked_entries(session_id, limit=10_000)]


def talk(store: Store, session_id: str) -> None:
    session = store.create_session(id=session_id)
    for word in ("one", "two"):
        with session.turn(word) as turn:
            turn.record(Message("assistant", [Text(word * 3)]))


def test_a_copy_keeps_its_links_also_of_forks(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        talk(source, "s")
        fork = source.session("s").fork(at=5, id="f").fork(at=6, id="g")
        with fork.turn("more"):
            pass
        assert [one.why for one in copy_sessions(source, target)] == [None] * 3
        for name in ("s", "f", "g"):
            assert links(target, name) == links(source, name)
            assert target.verify_session(name).findings == []
        with source.session("s").turn("later"):
            pass
        assert [one.action for one in copy_sessions(source, target, ["s"])] == ["grown"]
        assert links(target, "s") == links(source, "s")


def test_a_broken_chain_is_copied_as_it_is_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path) as source:
        talk(source, "s")
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE entries SET at_us = at_us + 1 WHERE seq = 4")
    with Store(path) as source, Store(tmp_path / "b.db") as target:
        (copied,) = copy_sessions(source, target)
        assert copied.action == "copied"
        assert copied.why is not None
        assert "seq 4" in copied.why
        assert [one.seq for one in target.verify_session("s").findings] == [4]


def test_entries_from_before_there_were_links_are_copied_without(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path) as source:
        talk(source, "s")
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE entries SET link = NULL; UPDATE sessions SET link = NULL")
    with Store(path) as source, Store(tmp_path / "b.db") as target:
        with source.session("s").turn("new"):
            pass
        list(copy_sessions(source, target))
        assert links(target, "s") == links(source, "s")
        assert target.verify_session("s").findings == []


def test_a_store_that_takes_secrets_out_begins_a_chain_of_its_own(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db", redact="secrets") as target:
        session = source.create_session(id="s")
        with session.turn("my key is sk-ant-api03-" + "x" * 30):
            pass
        list(copy_sessions(source, target))
        assert links(target, "s")[:2] == links(source, "s")[:2]
        assert links(target, "s")[2:] != links(source, "s")[2:]
        assert target.verify_session("s").findings == []
