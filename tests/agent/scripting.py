"""What a provider of OpenAI's shape answers, and what of a session a test waits for."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from killick import Entry, Session, Store
from killick.model import entries as e
from tests.recorders.saying import answer
from tests.recorders.server import Script, sse


def said(*words: str) -> Script:
    """An answer in words."""
    return answer("openai-chat", list(words))


def begun(*words: str) -> Script:
    """An answer that never comes to its end."""
    return answer("openai-chat", list(words), stalls=True)


def held(free: threading.Event, *words: str) -> Script:
    """An answer whose first word comes at once, and the rest when it is let go."""

    class Held(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            yield self[0]
            free.wait(60)
            yield from self[1:]

    return Script(Held(said(*words).events))


def calling(*calls: tuple[str, dict[str, Any]]) -> Script:
    """An answer that calls tools, all at once."""
    made = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    called = {"index": 0, "delta": {"role": "assistant", "tool_calls": made}, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    return Script([sse({**head, "choices": [one]}) for one in (called, ended)])


def whole(text: str) -> Script:
    """An answer in one piece, to what is asked beside the conversation."""
    message = {"role": "assistant", "content": text}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return Script(body={**head, "choices": [choice]})


def refused(status: int, why: str) -> Script:
    return Script(body={"error": {"message": why, "type": "x"}}, status=status)


def exchange(session: Session, asked: str, answered: str) -> None:
    """A turn that needs no model."""
    with session.turn(asked) as turn, turn.stream() as reply:
        reply.text(answered)


def newest(store: Store) -> Session:
    return store.session(store.sessions()[0].id)


def until(
    session: Session, found: Callable[[e.Body], bool], after: int = 0, times: int = 1
) -> Entry:
    """Wait until the journal has such an entry, or several; the last of them."""
    for item in session.follow(after=after):
        if isinstance(item, Entry) and found(item.body):
            times -= 1
            if not times:
                return item
    raise AssertionError("the store was closed")


def until_printed(session: Session, after: int = 0) -> str:
    """Wait until a tool has printed a line; the line."""
    text = ""
    for item in session.follow(after=after):
        if not isinstance(item, Entry) and item.call_id is not None:
            text += item.text
            if text.endswith("\n"):
                return text
    raise AssertionError("the store was closed")


def until_said(session: Session, what: str, after: int = 0) -> None:
    """Wait until an answer that streams has come this far."""
    text = ""
    for item in session.follow(after=after):
        if not isinstance(item, Entry) and item.delta.type == "text":
            text += item.text
            if what in text:
                return


def ended(body: e.Body) -> bool:
    return isinstance(body, e.TurnEnding)
