"""A holder that sleeps is alive: it is stopped or taken over on request, never expired."""

import signal

import pytest

from killick import SessionBusy, StaleFence, Store
from tests.crash.journals import answers, check_sound, endings, kinds
from tests.crash.processes import Channel, Nursery

pytestmark = pytest.mark.crash

LEASE = 120.0
"""On a server a sleeper keeps its turn for as long as its lease lasts. With ten seconds a busy
machine took longer than that; ten more go by if it was stopped inside of a transaction."""


def hold(parent: Channel, path: str) -> None:
    """Streams half an answer; goes on with it when it is told to."""
    store = Store(path, lease_seconds=LEASE)
    session = store.create_session(id="s")
    raised, said = "nothing", "half "
    try:
        with session.turn("prompt") as turn, turn.stream() as reply:
            reply.text("half ")
            reply.tool_call("call", name="shell", arguments="{}")
            with turn.tool("call") as call:
                call.finish("done")
            parent.send(turn.id)
            parent.receive()
            reply.text("and half")
            said += "and half"  # a delta that raises was not taken
    except StaleFence:
        raised = "StaleFence"
    parent.send([raised, said])
    store.close()


def test_a_stopped_process_keeps_its_turn(nursery: Nursery, path: str) -> None:
    """While the holder is stopped, opening the session leaves its turn alone, and a turn is
    refused with the holder's name; when it goes on, it completes as if nothing had been."""
    holder = nursery.start(hold, path)
    turn_id = holder.receive()
    holder.signal(signal.SIGSTOP)
    for _ in range(3):
        with Store(path) as store:
            session = store.session("s")
            assert [(t.id, t.status) for t in session.turns()] == [(turn_id, "running")]
            with pytest.raises(SessionBusy, match=str(holder.pid)) as refused, session.turn("me"):
                pass
            assert refused.value.turn_id == turn_id
            assert f"/{holder.pid}/" in refused.value.holder
            with pytest.raises(SessionBusy), session.turn("me", if_busy="wait", wait_seconds=0.1):
                pass
            assert "turn_ended" not in kinds(session)
    holder.signal(signal.SIGCONT)
    holder.send("go on")
    holder.expect(["nothing", "half and half"])
    assert holder.wait() == 0
    with Store(path) as store:
        session = store.session("s")
        assert endings(session) == [("completed", None)]
        assert [reply.text for reply in answers(session)] == ["half and half"]


def test_a_stopped_process_is_taken_over(nursery: Nursery, path: str) -> None:
    """A take-over ends the sleeper's turn and begins another; the sleeper, awake again, gets
    StaleFence, and what it had said is in its own turn, once."""
    holder = nursery.start(hold, path)
    turn_id = holder.receive()
    holder.signal(signal.SIGSTOP)
    with Store(path) as store:
        session = store.session("s")
        with session.turn("mine", if_busy="take_over") as turn, turn.stream() as reply:
            reply.text("my answer")
            holder.signal(signal.SIGCONT)
            holder.send("go on")
            raised, said = holder.receive()
            assert raised == "StaleFence"
            reply.text(", whole")
        assert holder.wait() == 0
        check_sound(session)
        assert endings(session) == [("interrupted", "taken_over"), ("completed", None)]
        assert [(reply.turn_id == turn_id, reply.text) for reply in answers(session)] == [
            (True, said),
            (False, "my answer, whole"),
        ]
        assert store.counts()["deltas"] == 0


def test_a_stopped_process_dies_in_its_sleep(nursery: Nursery, path: str) -> None:
    """A sleeper that is killed is dead at once: the next opening closes its turn as crashed."""
    holder = nursery.start(hold, path)
    holder.receive()
    holder.signal(signal.SIGSTOP)
    with Store(path) as store:
        assert endings(store.session("s")) == []
        holder.kill()
        assert endings(store.session("s")) == [("interrupted", "crashed")]
