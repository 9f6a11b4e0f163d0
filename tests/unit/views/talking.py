"""Conversations that break, and contexts in a notation that a test can be read in."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from killick import Message, Session, Stream, Text, ToolCall, Turn
from killick.model import entries as e
from killick.views.context import Context, compute

STOPPED = "[The turn above was interrupted before it was complete: it was cancelled.]"
DID_NOT_RUN = "[This tool call did not run.]"
UNKNOWN = (
    "[The outcome of this tool call is unknown: it was started and left no result. Check what it "
    "did before repeating it.]"
)
RUNNING = "[This tool call is still running and has no result yet.]"
CUT_OFF = "[The answer above was cut off before it was complete.]"


@contextmanager
def stopped(session: Session, prompt: str = "Go.") -> Iterator[Turn]:
    """A turn that Ctrl+C ends, after this block or inside it."""
    with suppress(KeyboardInterrupt), session.turn(prompt) as turn:
        yield turn
        raise KeyboardInterrupt


@contextmanager
def dropped(turn: Turn) -> Iterator[Stream]:
    """An answer whose connection breaks, in a turn that goes on."""
    with suppress(ConnectionError), turn.stream() as reply:
        yield reply
        raise ConnectionError


def asks(turn: Turn, *call_ids: str) -> None:
    """The model calls the tool `shell` with these ids."""
    calls = [ToolCall(call_id, "shell", "{}") for call_id in call_ids]
    turn.record(Message(role="assistant", parts=calls))


def send(session: Session, prompt: str = "Next.", answer: str = "Yes.") -> None:
    """A turn in which a model is sent everything so far."""
    with session.turn(prompt) as turn, turn.stream() as reply:
        reply.text(answer)


def lines(context: Context | Session) -> list[str]:
    """A line for each part of the neutral list."""
    found = context.context("neutral") if isinstance(context, Session) else context
    return [line(one["role"], part) for one in found.messages for part in one["parts"]]


def line(role: str, part: dict[str, Any]) -> str:
    match part["type"]:
        case "text":
            return f"{role}: {part['text']}"
        case "tool_call":
            return f"call {part['id']} {part['name']} {part.get('arguments', '')}"
        case "tool_result":
            failed = " failed" if part.get("is_error") else ""
            return f"result {part['call_id']}{failed}: {part['content']}"
        case kind:
            return f"{role} {kind}"


def repairs(session: Session) -> list[tuple[str, str]]:
    return [(one.action, one.reason) for one in session.context("neutral").repairs]


def by_hand(*bodies: e.Body, format_: str = "neutral") -> Context:
    """The context of a journal that no store would write: one that was imported, say."""
    journal = [e.Entry(seq, seq, body) for seq, body in enumerate(bodies, 1)]
    return compute(journal, format_, blobs=lambda _: None)


def said(text: str) -> Message:
    return Message(role="assistant", parts=[Text(text)])
