"""The entries of a message: whole, cut off, or still being written.

A message that an agent writes as its model says it streams here as long as its turn is held. When
the holder is gone it ends as partial; what it has beyond that is a message of its own in the turn
that continues. Parts are compared as they are, not by their places: an agent may write a call
before the text that stands in front of it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from killick.exchange import records as r
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest, keyed_id
from killick.model import entries as e
from killick.model.messages import Part, Reasoning, Role, Text, ToolCall


def message_bodies(
    record: r.MessageRecord, message_id: str, turn_id: str, call_id: str | None
) -> Iterator[e.MessageRecorded | e.MessageStarted | e.MessageEnded]:
    """Yield the one entry of a whole message, or the two of a partial one."""
    role, parts = record.role, record.parts
    if not record.partial:
        yield e.MessageRecorded(
            id=message_id, turn_id=turn_id, role=role, parts=parts, model_call_id=call_id
        )
        return
    yield e.MessageStarted(id=message_id, turn_id=turn_id, role=role, model_call_id=call_id)
    yield e.MessageEnded(id=message_id, turn_id=turn_id, state="partial", parts=parts)


def call_started(call_id: str, turn_id: str, call: r.ModelCallRecord) -> e.ModelCallStarted:
    """Return the beginning of a model call."""
    return e.ModelCallStarted(
        id=call_id,
        turn_id=turn_id,
        provider=call.provider,
        model=call.model,
        system=digest(to_bytes(call.system)) if call.system else None,
    )


def call_ended(call_id: str, turn_id: str, call: r.ModelCallRecord) -> e.ModelCallEnded:
    """Return the end of a model call."""
    return e.ModelCallEnded(
        id=call_id,
        turn_id=turn_id,
        finish_reason=call.finish_reason,
        usage=call.usage,
        provider_ids=call.provider_ids,
        error=call.error,
    )


# -- a message that is still being written ---------------------------------------------------------

_NONE_YET: Final = ("", "{}")
"""Arguments that may not have come yet: opencode writes a call before it knows them."""


def grown(
    streamed: Sequence[Part], parts: Sequence[Part]
) -> tuple[list[e.Delta], tuple[Part, ...]]:
    """Return what parts have more than those that streamed, and these with it, in that order.

    Nothing, when a part that streamed was written anew: then the whole message tells.
    """
    deltas, now = list[e.Delta](), list(streamed)
    taken = set[int]()
    for part in parts:
        if isinstance(part, ToolCall) and part.arguments in _NONE_YET:
            continue
        number = _place_of(part, streamed, taken)
        if number is None:
            number = len(now)
            now.append(part)
        elif now[number] == part:
            taken.add(number)
            continue
        else:
            taken.add(number)
        had = streamed[number] if number < len(streamed) else None
        delta = _delta(number, part, had)
        if delta is None:
            return [], tuple(streamed)
        now[number] = part
        deltas.append(delta)
    return (deltas, tuple(now)) if len(taken) == len(streamed) else ([], tuple(streamed))


def _place_of(part: Part, among: Sequence[Part], taken: set[int]) -> int | None:
    """Return the number of the first part, not taken yet, that this one goes on with."""
    left = (number for number in range(len(among)) if number not in taken)
    return next((number for number in left if _goes_on(part, among[number])), None)


def _goes_on(part: Part, had: Part) -> bool:
    for kind in (Text, Reasoning):
        if isinstance(part, kind) and isinstance(had, kind):
            return part.text.startswith(had.text)
    return part == had


def _delta(number: int, part: Part, had: Part | None) -> e.Delta | None:
    match part:
        case Text() | Reasoning():
            offset = len(had.text) if isinstance(had, Text | Reasoning) else 0
            text = part.text[offset:]
            if isinstance(part, Text):
                return e.Delta(number, offset, "text", text)
            return e.Delta(number, offset, "reasoning", text)
        case ToolCall():
            head = msgspec.structs.replace(part, arguments="")
            return e.Delta(number, 0, "arguments", part.arguments, head)
        case _:
            return None


def beyond(parts: Sequence[Part], cut: Sequence[Part]) -> tuple[Part, ...]:
    """Return what parts have beyond those of a message that was cut off."""
    rest, taken = list[Part](), set[int]()
    for part in parts:
        number = _place_of(part, cut, taken)
        if number is None:
            rest.append(part)
            continue
        taken.add(number)
        had = cut[number]
        if isinstance(part, Text | Reasoning) and isinstance(had, Text | Reasoning):
            more = part.text[len(had.text) :]
            rest += [msgspec.structs.replace(part, text=more)] if more else []
    return tuple(rest)


def begun(whole: e.MessageRecorded) -> e.MessageStarted:
    """Return the beginning of a message that streamed and is whole now."""
    return e.MessageStarted(
        id=whole.id, turn_id=whole.turn_id, role=whole.role, model_call_id=whole.model_call_id
    )


def ended(whole: e.Body) -> e.Body:
    """Return the end of such a message; any other entry as it is."""
    if not isinstance(whole, e.MessageRecorded):
        return whole
    return e.MessageEnded(id=whole.id, turn_id=whole.turn_id, state="complete", parts=whole.parts)


def rest_id(message_id: str) -> str:
    """Return the id of the message that has the rest of one that was cut off."""
    return keyed_id("msg", message_id, "rest")


def rest_of_message(body: e.Body, cut: Sequence[Part], turn_id: str) -> list[e.Body]:
    """Return what a message has beyond what was cut off, as a message of its own."""
    if not isinstance(body, e.MessageRecorded | e.MessageEnded):
        return []
    parts, own = beyond(body.parts, cut), rest_id(body.id)
    role: Role = body.role if isinstance(body, e.MessageRecorded) else "assistant"
    if not parts:
        return []
    if isinstance(body, e.MessageEnded) and body.state == "partial":
        return [
            e.MessageStarted(id=own, turn_id=turn_id, role=role),
            e.MessageEnded(id=own, turn_id=turn_id, state="partial", parts=parts),
        ]
    return [e.MessageRecorded(id=own, turn_id=turn_id, role=role, parts=parts)]
