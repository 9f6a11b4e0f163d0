"""Ctrl+C in a call that hands something over, caught in its block by a caller who goes on.

What was being handed over then is there or it is not; what is handed over afterwards is there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from killick import Message, Session, Store, Stream, ToolCall, ToolResult
from killick.model.messages import Opaque
from killick.stores.memory import MemoryDisk
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)

SAYING: dict[str, tuple[Callable[[Stream], None], list[str]]] = {
    "text": (lambda reply: reply.text("and so "), ["so far, and so on", "so far, on"]),
    "reasoning": (lambda reply: reply.reasoning("hm"), ["so far, |hm|on", "so far, |on"]),
    "tool_call": (
        lambda reply: reply.tool_call("c", name="f", arguments='{"a": '),
        ['so far, |{"a": |on', "so far, |on"],
    ),
    "part": (lambda reply: reply.part(Opaque("p", b"?")), ["so far, |p|on", "so far, |on"]),
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Store(MemoryDisk().open()) as store:
        yield store.create_session()


@pytest.mark.parametrize("kind", SAYING)
def test_what_is_said_after_an_interruption_is_kept(session: Session, kind: str) -> None:
    say, allowed = SAYING[kind]
    place = 0
    while True:
        place += 1
        key = Interrupter({place}, HERE)
        with session.turn("go") as turn, turn.stream() as reply:
            reply.text("so far, ")
            interrupted(key, lambda reply=reply: say(reply))  # type: ignore[misc]
            reply.text("o")
            reply.text("n")
        if not key.fired:
            break
        said = "|".join(_text(part) for part in session.messages()[-1].parts)
        assert said in (*allowed, "so far, on"), (said, key.fired)
    assert place > 10


def test_what_is_printed_after_an_interruption_is_kept(session: Session) -> None:
    place = 0
    while True:
        place += 1
        key = Interrupter({place}, HERE)
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall("c", "f", "{}")]))
            with turn.tool("c") as call:
                call.output("so far, ")
                interrupted(key, lambda call=call: call.output("and so "))  # type: ignore[misc]
                call.output("o")
                call.output("n")
                call.finish()
        if not key.fired:
            break
        result = session.messages()[-1].parts[0]
        assert isinstance(result, ToolResult)
        assert result.content in ("so far, and so on", "so far, on"), key.fired
    assert place > 10


def test_a_stream_that_was_interrupted_is_still_written_within_its_window() -> None:
    disk = MemoryDisk()
    with Store(disk.open()) as store, Store(disk.open()) as other:
        place = 0
        while True:
            place += 1
            key = Interrupter({place}, HERE)
            session = store.create_session()
            with session.turn("go") as turn, turn.stream() as reply:
                interrupted(key, lambda reply=reply: reply.text("?"))  # type: ignore[misc]
                reply.text("there")
                for item in other.session(session.id).follow(after=session.head):
                    if "there" in getattr(getattr(item, "delta", None), "text", ""):
                        break
            if not key.fired:
                break
        assert place > 10


def interrupted(key: Interrupter, work: Callable[[], None]) -> None:
    try:
        key.run(work)
    except KeyboardInterrupt:
        assert key.fired


def _text(part: object) -> str:
    if isinstance(part, ToolCall):
        return part.arguments
    return part.provider if isinstance(part, Opaque) else str(getattr(part, "text", part))
