"""The connection is lost during a commit: what became of it is found out, or said to be unknown."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from killick import Message, OutcomeUnknown, Store, StoreError, Text
from killick.stores.postgres import PostgresDatabase, database
from tests.crash.journals import check_sound, endings
from tests.postgres.proxy import Fate, Proxy
from tests.postgres.test_held_sessions import held
from tests.postgres_fixtures import Shared
from tests.waiting import until

APPEND = b"WITH saved"
AGAIN = b"INSERT INTO"
COMMIT = b"COMMIT"
SOON = 1.0
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@contextmanager
def store_on(server: Shared, wire: Proxy) -> Iterator[Store]:
    url = server.server.url(port=wire.port)
    # Without the index, whose commits would spring a trap that is set for another.
    with Store(PostgresDatabase(url, reconnect_seconds=SOON), indexing=False) as store:
        yield store


@pytest.mark.parametrize("fate", ["lost", "swallowed", "terminated"])
def test_an_append_is_stored_once(server: Shared, wire: Callable[[], Proxy], fate: Fate) -> None:
    """Whether the server has carried it out or never heard of it: the caller's call returns, and
    the entry is there once."""
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("before")]))
            proxy.trap(APPEND, fate)
            receipt = turn.record(Message("assistant", [Text("during")]))
            assert proxy.sprung.is_set()
            assert receipt.seq == turn.record(Message("assistant", [Text("after")])).seq - 1
        said = [message.text for message in session.messages()]
        assert said == ["go", "before", "during", "after"]
        check_sound(session)


@pytest.mark.parametrize("fate", ["lost", "swallowed", "terminated"])
@pytest.mark.parametrize("moment", ["create", "enter", "leave", "tool", "finish"])
def test_every_kind_of_write_happens_once(
    server: Shared, wire: Callable[[], Proxy], fate: Fate, moment: str
) -> None:
    """Beginning a session or a turn, starting and finishing a tool, an ending."""
    proxy = wire()

    def now(at: str) -> None:
        if at == moment:
            proxy.trap(APPEND if at == "tool" else COMMIT, fate)

    with store_on(server, proxy) as store:
        store.create_session()  # the tenant is known then
        now("create")
        session = store.create_session(title="it")
        now("enter")
        with session.turn("go") as turn:
            with turn.stream() as reply:
                reply.tool_call("a", name="shell", arguments="{}")
            now("tool")
            with turn.tool("a") as call:
                now("finish")
                call.finish("done")
            now("leave")
        assert proxy.sprung.is_set()
        assert endings(session) == [("completed", None)]
        assert [m.role for m in session.messages()] == ["user", "assistant", "tool"]
        assert [info.title for info in store.sessions()].count("it") == 1
        assert store.examine_session(session.id) == []
        check_sound(session)


@pytest.mark.parametrize("fate", ["lost", "swallowed", "terminated"])
def test_erasing_happens_once(server: Shared, wire: Callable[[], Proxy], fate: Fate) -> None:
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        session.note("gone", None)
        proxy.trap(COMMIT, fate)
        receipt = store.erase_session(session.id)
        assert proxy.sprung.is_set()
        assert (receipt.sessions, receipt.entries) == ((session.id,), 2)
        assert store.counts()["entries"] == 0


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown(
    server: Shared, wire: Callable[[], Proxy]
) -> None:
    """The server carries it out and is then out of reach: the caller is told within the stated
    time, nobody is told that it failed, and the same id finds it later."""
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("before")]))
            proxy.trap(APPEND, "swallowed", stay_cut=True)
            begun = time.monotonic()
            message = Message("assistant", [Text("during")], id="mine")
            with pytest.raises(OutcomeUnknown, match="may be stored or not"):
                turn.record(message)
            assert time.monotonic() - begun < 10 * SOON
            with pytest.raises(StoreError):
                turn.record(Message("assistant", [Text("meanwhile")]))
            assert store.status == "degraded"
            proxy.heal()
            assert turn.record(message).repeated
            assert store.status == "ok"
        assert [m.text for m in session.messages()] == ["go", "before", "during"]


def test_what_was_said_to_be_lost_does_not_come_later(
    server: Shared, wire: Callable[[], Proxy]
) -> None:
    """A request is held up on its way while its sender gives up. It is refused when it arrives."""
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("before")]))
            proxy.trap(APPEND, "late")
            for _ in range(database._LOSSES_MAX):
                proxy.trap(AGAIN, "lost")
            with pytest.raises(StoreError, match="nothing was acknowledged"):
                turn.record(Message("assistant", [Text("held up")]))
            proxy.deliver()
            turn.record(Message("assistant", [Text("after")]))
        assert [m.text for m in session.messages()] == ["go", "before", "after"]
        check_sound(session)


def test_a_turn_whose_beginning_is_unknown_does_not_keep_the_session(
    server: Shared, wire: Callable[[], Proxy]
) -> None:
    """It was begun, nobody runs it: it is ended as soon as the server answers."""
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        proxy.trap(COMMIT, "swallowed", stay_cut=True)
        with pytest.raises(OutcomeUnknown), session.turn("lost"):
            pass
        proxy.heal()
        with session.turn("next", if_busy="wait", wait_seconds=20):
            pass
        assert endings(session) == [("interrupted", "outcome_unknown"), ("completed", None)]
        check_sound(session)


def test_streamed_text_is_not_lost_with_a_connection(
    server: Shared, wire: Callable[[], Proxy]
) -> None:
    """A flush whose outcome is unknown is made again, and shows once."""
    proxy = wire()
    with store_on(server, proxy) as store:
        session = store.create_session()
        with session.turn("go") as turn, turn.stream() as reply:
            for number in range(40):
                if number % 10 == 5:
                    proxy.trap(b"deltas", "swallowed" if number % 20 == 5 else "lost")
                reply.text(f"{number} ")
                if number % 10 == 5:
                    assert proxy.sprung.wait(10)
        assert session.messages()[-1].text == "".join(f"{number} " for number in range(40))
        assert store.counts()["deltas"] == 0


@pytest.mark.parametrize("fate", ["lost", "swallowed"])
def test_a_second_lost_commit_does_not_make_the_first_be_forgotten(
    server: Shared, wire: Callable[[], Proxy], fate: Fate
) -> None:
    """The first is on its way still, and another process keeps its session locked. Once a later
    write has been settled, whatever became of that, the first does not come any more."""
    proxy = wire()
    with store_on(server, proxy) as store:
        first, second = store.create_session(id="first"), store.create_session(id="second")
        with first.turn("go") as one, second.turn("go") as two:
            for turn in (one, two):
                turn.record(Message("assistant", [Text("before")]))
            proxy.trap(APPEND, "late")
            proxy.refuse()
            with pytest.raises(OutcomeUnknown):
                one.record(Message("assistant", [Text("on its way")]))
            with held(server, "first") as other:
                proxy.heal()
                proxy.trap(APPEND, fate)
                settled = Message("assistant", [Text("settled")])
                thread = threading.Thread(target=two.record, args=(settled,))
                thread.start()
                assert proxy.sprung.wait(20)
                until(lambda: is_waiting(server) or not thread.is_alive())
                other.rollback()
                thread.join(20)
            proxy.deliver()
        assert [message.text for message in first.messages()] == ["go", "before"]
        assert [message.text for message in second.messages()] == ["go", "before", "settled"]
        check_sound(first)


def is_waiting(server: Shared) -> bool:
    """Whether a transaction waits for a row that another has locked."""
    with psycopg.connect(server.server.conninfo()) as asking:
        return bool(asking.execute(WAITING).fetchall())
