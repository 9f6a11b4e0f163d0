"""Content checks: each refuses a value over a limit or of the wrong type, and says what to do.

They need no journal. The caller's thread runs them before it hands anything to the writer thread;
the writer thread runs `check_claim`.
"""

import re
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime
from math import isfinite
from types import NoneType
from typing import Any, Final, TypeGuard, TypeVar, get_args

from killick.errors import InvalidEntry, SessionDeleted, StaleFence, TurnEnded
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.limits import (
    BODY_BYTES_MAX,
    ID_BYTES_MAX,
    JSON_DEPTH_MAX,
    OPAQUE_DEPTH_MAX,
    PARTS_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    TITLE_CHARS_MAX,
    TOKENS_MAX,
)
from killick.model.messages import Json, Opaque, Part, Role, Text, ToolCall, ToolResult
from killick.model.sessions import Limits

T = TypeVar("T")

_JSON_MARKS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)


def check_content(body: e.Body) -> None:
    """Refuse content over a limit. Raises InvalidEntry, which says what to do instead."""
    match body:
        case e.MessageRecorded() | e.MessageEnded() | e.PromptWaiting():
            check_parts(body.parts)
            check_id(body.id, "message id")
        case e.Note():
            check_json(body.data, "note")
            for name in body.blobs:
                check_text(name, "the name of a blob")
        case e.ToolFinished() | e.LateResult():
            check_result(body.result)
        case e.ModelCallStarted():
            check_json(body.settings, "settings of a model call")
        case e.ModelCallEnded():
            check_usage(body.usage)
        case e.Imported():
            check_json(body.report, "report of an import")
        case e.Renamed() | e.SessionCreated():
            if isinstance(body, e.SessionCreated):
                check_limits(body.limits)
                check_json(body.extra, "extra data of a session")
                check_tags(body.tags)
            if isinstance(body.title, str) and len(body.title) > TITLE_CHARS_MAX:
                raise InvalidEntry(
                    f"the title has {len(body.title)} characters; at most {TITLE_CHARS_MAX} fit"
                )
        case e.Tagged():
            check_tags((*body.add, *body.remove))
            if not body.add and not body.remove:
                raise InvalidEntry("there is no tag to put on or take off")
        case e.Compacted():
            check_text(body.summary, "the summary")
            if not body.summary.strip():
                raise InvalidEntry("the summary is empty; nothing may stand for messages but words")
            check_usage(body.usage)
        case e.TurnStarted(key=str() as key):
            check_id(key, "key")
        case e.LimitsSet():
            check_limits(body.limits)
        case _:
            pass


def as_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags as they are kept; refuse one string."""
    if isinstance(tags, str):
        raise InvalidEntry(f"tags are several strings; write [{tags!r}] for one")
    return tuple(tags)


def as_blob_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a note's blobs as they are kept; refuse one string."""
    if isinstance(names, str):
        raise InvalidEntry(f"blobs are several names; write [{names!r}] for one")
    return tuple(names)


def check_tags(tags: tuple[str, ...]) -> None:
    """Refuse tags that are no words, too long or too many."""
    if len(tags) > TAGS_MAX:
        raise InvalidEntry(f"the session would have {len(tags)} tags; at most {TAGS_MAX} fit")
    for tag in tags:
        check_text(tag, "a tag")
        if not tag.strip():
            raise InvalidEntry("a tag is empty")
        if len(tag) > TAG_CHARS_MAX:
            raise InvalidEntry(
                f"a tag has {len(tag)} characters; at most {TAG_CHARS_MAX} are kept in one"
            )


def as_parts(parts: Iterable[T], what: str) -> tuple[T, ...]:
    """Return parts as they are kept; refuse a text, bytes or a mapping."""
    if isinstance(parts, list | tuple):
        return tuple(parts)
    if isinstance(parts, _NO_LISTS) or not isinstance(parts, Iterable):
        raise _no_parts(parts, what)
    return tuple(parts)


def _no_parts(value: object, what: str) -> InvalidEntry:
    return InvalidEntry(f"{what}, and this is a {type(value).__name__}")


def check_parts(parts: tuple[Part, ...]) -> None:
    """Refuse too many parts, and ids in them that are too long."""
    if len(parts) > PARTS_MAX:
        raise InvalidEntry(
            f"the message has {len(parts)} parts; at most {PARTS_MAX} are kept in one message, "
            "so record it as several"
        )
    for part in parts:
        if isinstance(part, ToolCall):
            check_id(part.id, "tool call id")
        elif isinstance(part, ToolResult):
            check_result(part)
        elif isinstance(part, Opaque):
            check_opaque(part)


_ROLES: Final = frozenset(get_args(Role))
_NAMES: Final = (str, NoneType)


def is_plain(body: e.Body) -> TypeGuard[e.MessageRecorded]:
    """Tell whether a body is a message of words whose fields are all of their own types.

    What it is encoded as is read back as it is, and no rule applies to it but that its turn runs.
    """
    return (
        type(body) is e.MessageRecorded
        and type(body.id) is type(body.turn_id) is type(body.role) is str
        and body.role in _ROLES
        and type(body.model_call_id) in _NAMES
        and type(body.provider) in _NAMES
        and type(body.v) is type(body.redacted) is int
        and not body.redacted
        and type(body.parts) is tuple
        and not [part for part in body.parts if not _is_text(part)]
    )


def _is_text(part: Part) -> bool:
    return type(part) is Text and type(part.text) is str and part.extra is None


def check_prompt(parts: Iterable[Part]) -> None:
    """Refuse a prompt in which nothing is asked: providers refuse empty messages."""
    if isinstance(parts, list | tuple) and all(
        isinstance(part, Text) and isinstance(part.text, str) and not part.text.strip()
        for part in parts
    ):
        raise InvalidEntry("the prompt is empty; give None to go on without one")


def check_opaque(part: Opaque) -> None:
    """Refuse JSON that nests so deeply that no reader could send it back."""
    data = bytes(part.data) if isinstance(part.data, bytes | bytearray | memoryview) else b""
    if data[:1] not in (b"{", b"[") or data.count(b"[") + data.count(b"{") <= OPAQUE_DEPTH_MAX:
        return
    depth = 0
    for mark in _JSON_MARKS.finditer(data):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(mark[0], 0)
        if depth > OPAQUE_DEPTH_MAX:
            raise InvalidEntry(f"opaque data nests more than {OPAQUE_DEPTH_MAX} levels deep")


def check_result(result: ToolResult) -> None:
    """Refuse a tool's result over a limit."""
    check_id(result.call_id, "tool call id")
    if not isinstance(result.content, str | list | tuple):
        raise _no_parts(result.content, "a tool's result is text, or a list of parts")
    if not isinstance(result.content, str) and len(result.content) > PARTS_MAX:
        raise InvalidEntry(
            f"the result has {len(result.content)} parts; at most {PARTS_MAX} are kept in one"
        )
    for part in () if isinstance(result.content, str) else result.content:
        if isinstance(part, Opaque):
            check_opaque(part)
    check_json(result.structured, "structured content of a result")


def check_usage(usage: e.Usage | None) -> None:
    """Refuse usage that cannot be added up."""
    if not isinstance(usage, e.Usage):
        return
    for name in ("input", "output", "cached", "reasoning"):
        count = getattr(usage, name)
        if isinstance(count, int) and abs(count) > TOKENS_MAX:
            raise InvalidEntry(f"usage.{name} is {count}; at most {TOKENS_MAX} tokens are counted")
    cost = usage.cost
    if isinstance(cost, int | float) and not (isfinite(cost) and abs(cost) <= TOKENS_MAX):
        raise InvalidEntry(f"usage.cost is {cost}, which is no amount of money")


def check_text(text: str, what: str) -> None:
    """Refuse a value that is no text when it is handed over, not when it is written."""
    if not isinstance(text, str):
        raise InvalidEntry(f"{what} must be a string, and this is a {type(text).__name__}")


def check_json(value: Json, what: str, depth: int = 0) -> None:
    """Refuse data that JSON cannot hold exactly, or that nests too deeply to be read anywhere."""
    if depth > JSON_DEPTH_MAX:
        raise InvalidEntry(f"the {what} nests more than {JSON_DEPTH_MAX} levels deep")
    if isinstance(value, float) and not isfinite(value):
        raise InvalidEntry(f"the {what} holds {value}, which JSON does not have")
    if isinstance(value, dict):
        for key, inner in value.items():
            check_text(key, f"a key in the {what}")
            check_json(inner, what, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_json(inner, what, depth + 1)


def check_id(text: str, what: str) -> None:
    """Refuse an id or key from outside that is empty or far too long."""
    check_text(text, f"the {what}")
    if not text:
        raise InvalidEntry(f"the {what} is empty")
    # A character has at most four bytes, so most ids need not be encoded to be measured.
    if len(text) * 4 > ID_BYTES_MAX and len(text.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
        raise InvalidEntry(f"the {what} is longer than {ID_BYTES_MAX} bytes")


def check_blob(data: bytes) -> None:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidEntry(f"a blob is bytes, and this is a {type(data).__name__}")
    if len(data) > BODY_BYTES_MAX:
        raise InvalidEntry(f"the blob has {len(data)} bytes; at most {BODY_BYTES_MAX} are stored")


def session_deleted(session_id: str) -> SessionDeleted:
    """Return the error with which a deleted session refuses anything but its restoring."""
    return SessionDeleted(
        f"session {session_id!r} was deleted; restore it with store.restore_session()"
    )


def check_claim(turn: TurnState | None, turn_id: str, fence: int, newest_fence: int) -> TurnState:
    """Return the running turn, if the writer holds it. Raises TurnEnded or StaleFence."""
    if turn is not None and turn.id == turn_id and turn.fence == fence and turn.ended is None:
        return turn
    if newest_fence > fence:
        raise StaleFence(
            f"turn {turn_id!r} has ended and another turn has begun (fence {newest_fence}, "
            f"this holder has {fence}); start a new turn"
        )
    raise TurnEnded(f"turn {turn_id!r} has ended; start a new turn")


# -- parameters ----------------------------------------------------------------------------------

_SEQ_MAX: Final = 2**63 - 1
"""No database counts further."""


def check_kinds(call: str, kind: type, **given: Any) -> None:
    """Refuse filters that are not of this kind; None is one that was not given."""
    for name, value in given.items():
        exact = kind is bool or not isinstance(value, bool)
        exact = exact and not (kind is date and isinstance(value, datetime))
        if value is not None and not (exact and isinstance(value, kind)):
            raise ValueError(f"{name} of {call} is a {kind.__name__}, and this is {value!r}")


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number from zero on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, and this is {value!r}")
    if not 0 <= value <= _SEQ_MAX:
        raise ValueError(f"{name}={value}; it counts from zero")


def check_counts(**given: Any) -> None:
    """The same of several; None is one that was not given."""
    for name, value in given.items():
        if value is not None:
            check_count(name, value)


def check_numbers(**given: float) -> None:
    """Refuse what is no number from zero on, or is without end."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is a number, and this is {value!r}")
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value}; it is a number from zero on")


def check_is(value: object, wanted: type, what: str) -> None:
    """Refuse an object of another class. Raises TypeError."""
    if not isinstance(value, wanted):
        raise TypeError(f"{what} is a {wanted.__name__}, and this is a {type(value).__name__}")


def check_limits(limits: Limits | None) -> None:
    """Refuse limits that are no numbers, or below zero. Raises InvalidEntry, TypeError."""
    if limits is None:
        return
    check_is(limits, Limits, "limits")
    for name in ("tokens", "calls", "seconds", "cost"):
        value = getattr(limits, name)
        whole = name in ("tokens", "calls")
        wanted = int if whole else int | float
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise TypeError(f"{name}={value!r}; a limit is a number")
        if not 0 <= value <= TOKENS_MAX:
            raise InvalidEntry(f"{name}={value!r}; a limit is from 0 to {TOKENS_MAX}")
