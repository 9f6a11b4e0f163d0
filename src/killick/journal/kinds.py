"""One table with the facts of each kind of entry, and the functions that read it.

An entry's identity is its key, unique in its session: the database refuses a second entry with the
same key, so a repeated write cannot add anything. Keys begin with ids that ascend with time, so
that an index of them grows at its end. Keys are stored: a row of the table never changes its own.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, NamedTuple

from killick.errors import InvalidEntry
from killick.model import entries as e
from killick.model.messages import BLOB_PARTS, Part, Text, ToolResult, plain

TURNS: Final = 1
"""The lookup class of entries that begin and end a turn."""

HISTORY: Final = 2
"""The lookup class of entries that change which entries are in view."""

Reader = Callable[[Any], str]
"""Reads a name out of a body."""

_ID: Final[Reader] = attrgetter("id")
_TURN: Final[Reader] = attrgetter("turn_id")
_MESSAGE: Final[Reader] = attrgetter("message_id")
_CALL: Final[Reader] = attrgetter("call_id")
_RESULT: Final[Reader] = attrgetter("result.call_id")


class Kind(NamedTuple):
    """The facts of one kind of entry.

    identity    makes the key under which a journal holds the entry at most once
    subject     reads the name by which an error message calls what the entry is about
    message     reads the id of the message that the entry is a part of
    fenced      only the holder of the running turn writes it
    lookup      TURNS or HISTORY, for entries that are found without reading those around them
    in_summary  it changes what `journal.summary` keeps of its session
    in_news     it adds a line to the feed over all sessions, or answers one (`journal.news`)
    in_usage    it begins or ends a model call, whose cost is added up
    redacts     the fields with text from outside, which a redaction changes
    blobs       reads the names of the blobs that the entry refers to
    compares    the fields that tell a repeated write from a conflict; () is the whole body
    """

    identity: Reader
    subject: Reader = _ID
    message: Reader | None = None
    fenced: bool = False
    lookup: int | None = None
    in_summary: bool = False
    in_news: bool = False
    in_usage: bool = False
    redacts: tuple[str, ...] = ()
    blobs: Callable[[Any], list[str]] | None = None
    compares: tuple[str, ...] = ()


# -- identities --------------------------------------------------------------------------------


def _safe(text: str) -> str:
    """Escape an id, which comes from outside, so that it is one part of a key."""
    try:
        if "/" in text or "%" in text:
            return plain(text).replace("%", "%25").replace("/", "%2F")
    except (TypeError, AttributeError):
        raise InvalidEntry(f"an id is text, and this is a {type(text).__name__}") from None
    return text if type(text) is str else plain(text)


def _key(suffix: str, of: Reader = _ID) -> Reader:
    def read(body: Any) -> str:
        text = of(body)
        if type(text) is not str or "/" in text or "%" in text:
            text = _safe(text)
        return f"{text}/{suffix}"

    return read


def _call_key(name: str, of: Reader = _CALL) -> Reader:
    return lambda body: f"{_safe(body.message_id)}/{name}/{_safe(of(body))}"


def _start_key(body: e.ToolStarted) -> str:
    """The first start of a call has the key that it had before calls could be started again."""
    first = f"{_safe(body.message_id)}/tool_started/{_safe(body.call_id)}"
    return first if body.number == 1 else f"{first}/{body.number}"


def _result_key(body: e.ToolFinished | e.LateResult) -> str:
    first = result_identity(body.message_id, body.result.call_id)
    second = body.second if isinstance(body, e.LateResult) else 0
    return f"{first}/{second}" if second else first


def _session_key(body: e.SessionCreated) -> str:
    if body.fork is None:
        return "session"
    # Not the key of the beginning that it inherits.
    return f"{_safe(body.fork.session_id)}/fork/{body.fork.at}"


def _late_text_key(body: e.LateText) -> str:
    call = "" if body.call_id is None else f"/{_safe(body.call_id)}"
    return f"{_safe(body.message_id)}/late_text{call}"


def _unknown_key(body: e.Unknown) -> str:
    return f"{blake2b(body.data, digest_size=16).hexdigest()}/{_safe(body.name)}"


# -- blobs -------------------------------------------------------------------------------------


def _blobs_of_parts(body: e.MessageRecorded | e.MessageEnded | e.PromptWaiting) -> list[str]:
    names: list[str] = []
    for part in body.parts:
        if type(part) is not Text:
            names += _blobs_of_part(part)
    return names


def _blobs_of_part(part: Part) -> list[str]:
    if isinstance(part, BLOB_PARTS):
        return [part.blob]
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return [inner.blob for inner in part.content if isinstance(inner, BLOB_PARTS)]
    return []


# -- the table ---------------------------------------------------------------------------------

_WHOLE_MESSAGE: Final[dict[str, Any]] = {
    "redacts": ("parts",),
    "blobs": _blobs_of_parts,
}

# One row for both: a call has one result, whenever it comes.
_TOOL_RESULT: Final = Kind(
    _result_key,
    subject=_RESULT,
    message=_MESSAGE,
    redacts=("result", "output"),
    blobs=lambda body: _blobs_of_part(body.result),
    compares=("result",),
)

KINDS: Final[dict[type, Kind]] = {
    e.SessionCreated: Kind(
        _session_key, e.kind_of, in_summary=True, redacts=("title", "extra", "tags")
    ),
    e.Renamed: Kind(_key("renamed"), in_summary=True, redacts=("title",)),
    e.LimitsSet: Kind(_key("limits"), in_summary=True),
    e.LimitHit: Kind(_key("limit_reached"), fenced=True),
    e.Archived: Kind(_key("archived"), in_summary=True),
    e.Pinned: Kind(_key("pinned"), in_summary=True),
    e.Tagged: Kind(_key("tagged"), in_summary=True, redacts=("add", "remove")),
    e.Moved: Kind(_key("moved"), in_summary=True),
    e.Deleted: Kind(_key("deleted"), in_summary=True, in_news=True, redacts=("reason",)),
    e.Restored: Kind(_key("restored"), in_summary=True),
    # Without the key, which is in the id: notes were stored without it before.
    e.Note: Kind(
        _key("note"),
        in_summary=True,
        redacts=("data",),
        blobs=lambda body: list(body.blobs),
        compares=("name", "data", "blobs"),
    ),
    e.WorkTaken: Kind(_key("work_taken"), in_summary=True),
    e.AttemptsUsed: Kind(_key("attempts_used", _TURN), _TURN, in_summary=True, in_news=True),
    e.ResumeAt: Kind(_key("resume_at"), in_summary=True),
    e.Paused: Kind(_key("paused"), in_summary=True, in_news=True, redacts=("why",)),
    e.Imported: Kind(_key("imported"), in_summary=True, redacts=("report",)),
    e.TurnStarted: Kind(
        _key("turn", _TURN),
        _TURN,
        lookup=TURNS,
        in_summary=True,
        in_news=True,
        compares=("prompt_hash",),
    ),
    # Without the causes: a source that is imported again may know more of them than it did.
    e.StopAsked: Kind(
        _key("stop_asked"), in_summary=True, redacts=("reason",), compares=("turn_id", "reason")
    ),
    e.TurnEnding: Kind(
        _key("turn-end", _TURN),
        _TURN,
        fenced=True,
        compares=("turn_id", "status", "reason", "detail"),
        lookup=TURNS,
        in_summary=True,
        in_news=True,
        redacts=("reason", "detail"),
    ),
    e.PromptWaiting: Kind(
        _key("prompt_queued"), in_summary=True, compares=("role", "parts"), **_WHOLE_MESSAGE
    ),
    e.PromptTaken: Kind(_key("prompt_taken")),
    e.PromptWithdrawn: Kind(_key("prompt_withdrawn")),
    e.ModelCallStarted: Kind(
        _key("model_call_started"),
        fenced=True,
        in_summary=True,
        in_usage=True,
        redacts=("settings",),
        blobs=lambda body: [name for name in (body.system, body.tools) if name is not None],
    ),
    e.ModelCallEnded: Kind(
        _key("model_call_ended"), fenced=True, in_usage=True, redacts=("error",)
    ),
    e.MessageRecorded: Kind(
        _key("message"), message=_ID, fenced=True, compares=("role", "parts"), **_WHOLE_MESSAGE
    ),
    e.MessageStarted: Kind(_key("message"), message=_ID, fenced=True),
    e.MessageEnded: Kind(_key("message-end"), message=_ID, fenced=True, **_WHOLE_MESSAGE),
    e.ToolCalled: Kind(_call_key("tool_called"), _CALL, _MESSAGE, fenced=True),
    e.ToolStarted: Kind(_start_key, _CALL, _MESSAGE, fenced=True),
    e.ToolOutput: Kind(_call_key("tool_output"), _CALL, _MESSAGE, fenced=True, redacts=("output",)),
    e.ToolFinished: _TOOL_RESULT,
    # Finding out the same again, whether by a person or a check, changes nothing.
    e.Settled: Kind(
        _key("settled"),
        _CALL,
        _MESSAGE,
        in_news=True,
        redacts=("result", "evidence"),
        compares=("outcome", "result", "replaces"),
    ),
    e.ApprovalAsked: Kind(_key("approval_asked"), message=_MESSAGE, fenced=True, in_news=True),
    e.ApprovalDecided: Kind(_key("approval_decided"), in_news=True, redacts=("reason",)),
    e.Compacted: Kind(
        _key("compaction"), lookup=HISTORY, in_summary=True, in_usage=True, redacts=("summary",)
    ),
    e.Rewound: Kind(_key("rewind"), lookup=HISTORY, in_summary=True),
    e.Undone: Kind(_key("undone"), lookup=HISTORY, in_summary=True),
    e.Visibility: Kind(_key("visibility"), lookup=HISTORY, in_summary=True),
    e.LateResult: _TOOL_RESULT._replace(in_news=True),
    e.LateText: Kind(_late_text_key, _MESSAGE, _MESSAGE, redacts=("deltas",)),
    e.Unknown: Kind(_unknown_key, e.kind_of),
}


TAGS: Final[dict[type, str]] = {
    kind: str(kind.__struct_config__.tag) for kind in e.KnownBody.__args__
}
"""The name of each kind that is known, as a body has it."""


def identity(body: e.Body) -> str:
    """Return the key under which a journal holds this entry at most once."""
    return KINDS[type(body)].identity(body)


def identity_names(body: e.Body, data: bytes) -> list[str]:
    """Return the keys that an entry may be stored under: its own, and one from before its kind.

    Newer versions write kinds that are unknown here, and such entries may be imported; once the
    kind is known, an entry still has the key of an unknown one.
    """
    if isinstance(body, e.Unknown):
        return [identity(body)]
    return [identity(body), _unknown_key(e.Unknown(name=e.kind_of(body), version=1, data=data))]


def subject(body: e.Body) -> str:
    """Return the name by which an error message calls what an entry is about."""
    return KINDS[type(body)].subject(body)


def message_of(body: e.Body) -> str | None:
    """Return the id of the message that an entry is a part of."""
    read = KINDS[type(body)].message
    return None if read is None else read(body)


def lookup_class(body: e.Body) -> int | None:
    """Return TURNS or HISTORY for an entry that is found by it."""
    return KINDS[type(body)].lookup


def blobs_of(body: e.Body) -> Sequence[str]:
    """Return the names of the blobs that an entry refers to."""
    read = KINDS[type(body)].blobs
    return () if read is None else read(body)


def same_content(stored: e.Body, offered: e.Body) -> bool:
    """Compare a repeated write with what is stored, fields minted for it aside."""
    compares = KINDS[type(stored)].compares
    if compares and compares == KINDS[type(offered)].compares:
        return all(getattr(stored, name) == getattr(offered, name) for name in compares)
    return stored == offered


# -- identities and names made here ------------------------------------------------------------


def _named(suffix: str) -> Callable[[str], str]:
    return lambda name: f"{_safe(name)}/{suffix}"


turn_identity: Final = _named("turn")
ending_identity: Final = _named("turn-end")
message_identity: Final = _named("message")
message_end_identity: Final = _named("message-end")
late_text_identity: Final = _named("late_text")


def result_identity(message_id: str, call_id: str) -> str:
    """Return the key of a call's one result, recorded in its turn or late."""
    return f"{_safe(message_id)}/result/{_safe(call_id)}"


def start_identity(message_id: str, call_id: str, number: int) -> str:
    """Return the key of a call's start of this number."""
    return _start_key(
        e.ToolStarted(turn_id="", message_id=message_id, call_id=call_id, number=number)
    )


def settlement_id(message_id: str, call_id: str, number: int, replaces: str | None) -> str:
    """Return the id of the settlement of a call after so many starts, or of the next after one.

    There is one at each place, so that two who settle at once find each other.
    """
    named = f"{len(call_id)}:{plain(call_id)}/{number}/{replaces or ''}"
    return keyed_id("ent", message_id, named)


def call_key(turn_id: str, message_id: str, call_id: str) -> str:
    """Return the key for the outside of a call that was given none: the same for each start."""
    return keyed_id("key", turn_id, f"{len(message_id)}:{plain(message_id)}{plain(call_id)}")


def named_identity(entry_id: str, kind: str) -> str:
    """Return the key of an entry that has an id of its own."""
    return f"{_safe(entry_id)}/{kind}"


def keyed_id(prefix: str, session_id: str, key: str) -> str:
    """Return the id that a caller's idempotency key stands for: the same key, the same id."""
    data = f"{len(session_id)}:{plain(session_id)}{plain(key)}".encode("utf-8", "surrogatepass")
    return f"{prefix}_{blake2b(data, digest_size=16).hexdigest()}"


def digest(data: bytes) -> str:
    """Return the hash that names a blob, and that tells two prompts or two arguments apart."""
    return "b2:" + blake2b(data, digest_size=32).hexdigest()
