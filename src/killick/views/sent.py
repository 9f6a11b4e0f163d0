"""The canonical form of a request to a model, its hash, and what made its messages.

Rule 1: the canonical form is a JSON object with `format`, `messages`, `model`, `settings`, `system`
        and `tools`; keys sorted, no spaces, everything but ASCII escaped. `system` and `tools` are
        the names of their blobs. Headers, keys of the API and flags of streaming are not in it.
Rule 2: instructions that stand as messages before all others are the system prompt and not in
        `messages`.
Rule 3: beside the hash of all of it stand short hashes of the last messages, to name a difference.
Rule 4: all but the messages stands in the entry itself. They are computed from the journal again;
        `VIEW_VERSION` is raised with every change that makes other messages of the same journal,
        `BUDGET_VERSION` if it does so within a budget alone.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from killick.errors import InvalidEntry
from killick.model import entries as e
from killick.views.budget import Budget

VIEW_VERSION: Final = 1
BUDGET_VERSION: Final = 2
_KEPT: Final = 32
_SHORT: Final = 8
_LEADING: Final = ("system", "developer")
_FLAGS: Final = frozenset({"stream", "stream_options"})
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_MESSAGES: Final = {"messages": "openai-chat", "input": "openai-responses", "contents": "gemini"}


def _canonical(value: Any) -> bytes:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(f"this request cannot be recorded, it is no JSON: {error}") from error
    return text.encode("ascii")


def messages_of(request: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the messages of a request and the format that its keys tell. Raises InvalidEntry."""
    if not isinstance(request, Mapping):
        raise InvalidEntry(f"a request is a dict, and this is a {type(request).__name__}")
    for name, format_ in _MESSAGES.items():
        messages = request.get(name)
        if isinstance(messages, str):
            messages = [messages]
        if isinstance(messages, Sequence) and not isinstance(messages, bytes | bytearray):
            sent = list(messages)
            while sent and isinstance(sent[0], Mapping) and sent[0].get("role") in _LEADING:
                del sent[0]
            return format_, sent
    raise InvalidEntry("a request has a list of messages: messages, input or contents")


def hash_request(call: e.ModelCallStarted, format_: str, messages: Sequence[Any]) -> str:
    """Return the hash of the canonical form."""
    form = {
        "format": format_,
        "messages": list(messages),
        "model": call.model,
        "settings": {key: call.settings[key] for key in call.settings.keys() - _FLAGS},
        "system": call.system,
        "tools": call.tools,
    }
    return sha256(_canonical(form)).hexdigest()


def with_request(
    call: e.ModelCallStarted, request: Mapping[str, Any], made: "Made | None"
) -> e.ModelCallStarted:
    """Return a model call with the hash of its request, and with what made its messages.

    `made` is the newest context: it made them if they are the same.
    """
    format_, messages = messages_of(request)
    view = None
    if made is not None and made.print == fingerprint(messages):
        view, format_ = made.view, made.format
    sent = e.SentRequest(
        hash=hash_request(call, format_, messages),
        format=format_,
        messages=len(messages),
        tail="".join(map(_short, messages[-_KEPT:])),
        view=view,
    )
    return msgspec.structs.replace(call, request=sent)


class Made(msgspec.Struct, frozen=True):
    """The messages of a context, and how they were made."""

    format: str
    print: bytes
    """Of the messages as they were made: callers change theirs."""
    view: e.SentView


def fingerprint(messages: Sequence[Any]) -> bytes:
    """Return a hash by which messages are known again, much sooner than by their canonical form."""
    try:
        data = _ENCODER.encode(messages)
    except (TypeError, ValueError, RecursionError):
        data = _canonical(messages)
    return sha256(data).digest()


def _short(message: Any) -> str:
    return sha256(_canonical(message)).hexdigest()[:_SHORT]


def version_of(budget: Budget) -> int:
    """Return the version of the view that makes messages within this budget."""
    return BUDGET_VERSION if budget.is_given else VIEW_VERSION


def first_difference(sent: e.SentRequest, messages: Sequence[Any]) -> str:
    """Name the first message that is another than was sent."""
    kept = [sent.tail[at : at + _SHORT] for at in range(0, len(sent.tail), _SHORT)]
    before = sent.messages - len(kept)
    for number, (then, now) in enumerate(
        zip(kept, map(_short, messages[before:]), strict=False), before + 1
    ):
        if then != now:
            at = number if number > before + 1 or not before else f"{number} or one before it"
            return f"message {at} of {sent.messages} is another"
    if sent.messages != len(messages):
        return f"{sent.messages} messages were sent, and {len(messages)} are computed"
    return f"one of the first {before} messages is another" if before else "its settings are others"
