"""What makes an entry the same entry: one key for each, unique in its session.

The database refuses a second entry with the same key, so a repeated write cannot add anything.
Keys begin with ids that ascend with time, so that an index of them grows at its end.
"""

from hashlib import blake2b

from killick.errors import InvalidEntry
from killick.model import entries as e
from killick.model.messages import BLOB_PARTS, Part, Text, ToolResult
from killick.model.sessions import Fork


def identity(body: e.Body) -> str:
    """The key under which a journal holds this entry at most once."""
    match body:
        case e.MessageRecorded() | e.MessageStarted():
            return message_identity(body.id)
        case e.MessageEnded():
            return message_end_identity(body.id)
        case e.ToolCalled() | e.ToolStarted() | e.ToolOutput():
            return _of_call(body.message_id, body.call_id, e.kind_of(body))
        case e.ToolFinished() | e.LateResult():
            # One key for both: a call has one result, whenever it comes.
            return result_identity(body.message_id, body.result.call_id)
        case e.LateText(call_id=str() as call_id):
            return _of_call(body.message_id, call_id, "late_text")
        case e.LateText():
            return late_text_identity(body.message_id)
        case e.TurnStarted():
            return turn_identity(body.turn_id)
        case e.TurnEnding():
            return ending_identity(body.turn_id)
        case e.SessionCreated(fork=Fork() as fork):
            # Not the key of the beginning that it inherits.
            return f"{_safe(fork.session_id)}/fork/{fork.at}"
        case e.SessionCreated():
            return "session"
        case e.Unknown():
            return f"{blake2b(body.data, digest_size=16).hexdigest()}/{_safe(body.name)}"
        case _:
            return named_identity(body.id, e.kind_of(body))


def turn_identity(turn_id: str) -> str:
    return f"{_safe(turn_id)}/turn"


def ending_identity(turn_id: str) -> str:
    return f"{_safe(turn_id)}/turn-end"


def message_identity(message_id: str) -> str:
    return f"{_safe(message_id)}/message"


def message_end_identity(message_id: str) -> str:
    return f"{_safe(message_id)}/message-end"


def late_text_identity(message_id: str) -> str:
    return f"{_safe(message_id)}/late_text"


def result_identity(message_id: str, call_id: str) -> str:
    """The key of a call's one result, recorded in its turn or late."""
    return _of_call(message_id, call_id, "result")


def named_identity(entry_id: str, kind: str) -> str:
    """The key of an entry that has an id of its own."""
    return f"{_safe(entry_id)}/{kind}"


def subject(body: e.Body) -> str:
    """What a person would call the thing that an entry is about."""
    match body:
        case e.ToolFinished() | e.LateResult():
            return body.result.call_id
        case e.ToolCalled() | e.ToolStarted() | e.ToolOutput():
            return body.call_id
        case e.TurnStarted() | e.TurnEnding():
            return body.turn_id
        case e.LateText():
            return body.message_id
        case e.SessionCreated() | e.Unknown():
            return e.kind_of(body)
        case _:
            return body.id


def keyed_id(prefix: str, session_id: str, key: str) -> str:
    """The id that a caller's idempotency key stands for: the same key, the same id."""
    data = f"{len(session_id)}:{session_id}{key}".encode("utf-8", "surrogatepass")
    return f"{prefix}_{blake2b(data, digest_size=16).hexdigest()}"


def digest(data: bytes) -> str:
    """The hash that names a blob, and that tells two prompts or two arguments apart."""
    return "b2:" + blake2b(data, digest_size=32).hexdigest()


def same_content(stored: e.Body, offered: e.Body) -> bool:
    """Whether a repeated write says what is stored already, fields minted for it aside."""
    match stored, offered:
        case e.TurnStarted(), e.TurnStarted():
            return stored.prompt_hash == offered.prompt_hash
        case ((e.ToolFinished() | e.LateResult()), (e.ToolFinished() | e.LateResult())):
            return stored.result == offered.result
        case ((e.MessageRecorded() | e.PromptWaiting()), (e.MessageRecorded() | e.PromptWaiting())):
            return stored.role == offered.role and stored.parts == offered.parts
        case _:
            return stored == offered


def _of_call(message_id: str, call_id: str, name: str) -> str:
    return f"{_safe(message_id)}/{name}/{_safe(call_id)}"


def _safe(text: str) -> str:
    """An id that cannot be taken for more than one part of a key: ids come from outside."""
    try:
        if "/" in text or "%" in text:
            return text.replace("%", "%25").replace("/", "%2F")
    except (TypeError, AttributeError):
        raise InvalidEntry(f"an id is text, and this is a {type(text).__name__}") from None
    return text


def blobs_of(body: e.Body) -> list[str]:
    """The blobs that an entry names."""
    match body:
        case e.MessageRecorded() | e.MessageEnded() | e.PromptWaiting():
            names: list[str] = []
            for part in body.parts:
                if type(part) is not Text:
                    names += _blobs_of_part(part)
            return names
        case e.ToolFinished() | e.LateResult():
            return _blobs_of_part(body.result)
        case e.ModelCallStarted():
            return [name for name in (body.system, body.tools) if name is not None]
        case _:
            return []


def _blobs_of_part(part: Part) -> list[str]:
    if isinstance(part, BLOB_PARTS):
        return [part.blob]
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return [inner.blob for inner in part.content if isinstance(inner, BLOB_PARTS)]
    return []
