"""Ctrl+C in the synchronous face, at the places where Python lets a signal handler run.

What leaves is the KeyboardInterrupt. Once nobody holds the turn any more, the same is true as after
a cancellation: what was acknowledged is there, each turn has one ending, nothing stays behind.
"""

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from killick import Message, Session, Text
from killick.recorders import record
from tests.interrupt.driving import Disk
from tests.interrupt.ledger import Ledger, use_again
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)


def a_turn(session: Session, ledger: Ledger) -> None:
    with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        with turn.stream(system="be brief") as reply:
            reply.reasoning("hm", signature="signed")
            ledger.say(reply, "Let me ")
            ledger.say(reply, "look.")
            reply.tool_call("a", name="shell", arguments="{}")
            with turn.tool("a") as call:
                ledger.output(turn, call, "a", "printed")
                call.finish("done")
                ledger.answer(turn, "a", "done")
            ledger.end(reply)
        ledger.left(reply)
        turn.record(Message("assistant", [Text("last")], id="last"))
        ledger.record(session, "last")
        ledger.leave(turn)


def a_recorded_turn(session: Session, ledger: Ledger) -> None:
    deltas: list[dict[str, Any]] = [{"content": "Let me "}, {"content": "look."}, {}]
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
        for delta in deltas
    ]
    with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        reply = record(turn, "openai-chat", iter(chunks))
        for chunk in reply:
            [choice] = chunk["choices"]
            said = ledger.said.get(reply.id, "")
            ledger.said[reply.id] = said + str(choice["delta"].get("content", ""))
            if choice["delta"].get("content") == "look.":
                ledger.end(reply)  # the end marker may be recorded before it is seen here
        ledger.left(reply)
        ledger.leave(turn)


def a_turn_that_runs_tools(session: Session, ledger: Ledger) -> None:
    """The tools run on threads, which no Ctrl+C reaches; a result that is there is kept."""
    with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        with turn.stream() as reply:
            for name in ("a", "b"):
                reply.tool_call(name, name="shell", arguments="{}")
            ledger.end(reply)
        ledger.left(reply)
        with turn.run_tools(reply, {"shell": lambda: "ran"}) as running:
            pass
        for call_id, result in running.results.items():
            ledger.answer(turn, call_id, str(result.content))
        ledger.leave(turn)


Work = Callable[[Session, Ledger], None]
TURNS: list[Work] = [a_turn, a_recorded_turn, a_turn_that_runs_tools]


def interrupt(disk: Disk, at: set[int], work: Work = a_turn) -> Interrupter:
    """Run the turn with Ctrl+C at these places, then look at what is left of it."""
    before = set(threading.enumerate())
    ledger, interrupter = Ledger(exact=False), Interrupter(at, HERE)
    with disk.sync() as store:
        session = store.create_session()
        try:
            interrupter.run(lambda: work(session, ledger))
        except KeyboardInterrupt:
            pass
        else:
            assert not interrupter.fired, "the interruption was swallowed"
        gc.collect()  # a turn that was let go of at the edge of its block ends when it is collected
        use_again(session)
        ledger.began.update({turn.id: session.id for turn in session.turns()[-1:]})
        ledger.leaving.add(session.turns()[-1].id)
        assert not store._core.runtime()._turns
    left = [x for x in threading.enumerate() if x not in before and x.name.startswith("killick")]
    for thread in left:
        thread.join(2)
    assert not [thread.name for thread in left if thread.is_alive()], interrupter.fired
    with disk.sync() as fresh:
        ledger.check(fresh)
        use_again(fresh.session(session.id))
        fresh.delete_session(session.id)
    return interrupter
