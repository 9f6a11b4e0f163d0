"""What makes an entry the same entry: one key for each, unique in its session.

The database refuses a second entry with the same key, so a repeated write cannot add anything.
Keys begin with ids that ascend with time, so that an index of them grows at its end.
"""

from hashlib import blake2b

from holdfast.model import entries as e


def identity(body: e.Body) -> str:
    """The key under which a journal holds this entry at most once."""
    match body:
        case e.MessageRecorded() | e.MessageStarted():
            return f"{body.id}/message"
        case e.MessageEnded():
            return f"{body.id}/message-end"
        case e.ToolCalled() | e.ToolStarted() | e.ToolOutput():
            return _of_call(body.message_id, body.call_id, e.kind_of(body))
        case e.ToolFinished() | e.LateResult():
            # One key for both: a call has one result, whenever it comes.
            return result_identity(body.message_id, body.result.call_id)
        case e.LateText(call_id=str() as call_id):
            return _of_call(body.message_id, call_id, "late-text")
        case e.LateText():
            return f"{body.message_id}/late-text"
        case e.TurnStarted():
            return f"{body.turn_id}/turn"
        case e.TurnEnded():
            return f"{body.turn_id}/turn-end"
        case e.SessionCreated():
            return "session"
        case e.Unknown():
            return f"{blake2b(body.data, digest_size=16).hexdigest()}/{body.name}"
        case _:
            return f"{body.id}/{e.kind_of(body)}"


def result_identity(message_id: str, call_id: str) -> str:
    """The key of a call's one result, recorded in its turn or late."""
    return _of_call(message_id, call_id, "result")


def keyed_id(prefix: str, session_id: str, key: str) -> str:
    """The id that a caller's idempotency key stands for: the same key, the same id."""
    data = f"{len(session_id)}:{session_id}{key}".encode("utf-8", "surrogatepass")
    return f"{prefix}_{blake2b(data, digest_size=16).hexdigest()}"


def digest(data: bytes) -> str:
    """The hash that names a blob, and that tells two prompts or two arguments apart."""
    return "b2:" + blake2b(data, digest_size=32).hexdigest()


def _of_call(message_id: str, call_id: str, name: str) -> str:
    # The length keeps ("a", "b/c") and ("a/b", "c") apart: ids come from outside.
    return f"{message_id}/{len(message_id)}/{name}/{call_id}"


def same_content(stored: e.Body, offered: e.Body) -> bool:
    """Whether a repeated write says what is stored already, fields minted for it aside."""
    match stored, offered:
        case e.TurnStarted(), e.TurnStarted():
            return stored.prompt_hash == offered.prompt_hash
        case ((e.ToolFinished() | e.LateResult()), (e.ToolFinished() | e.LateResult())):
            return stored.result == offered.result
        case ((e.MessageRecorded() | e.PromptQueued()), (e.MessageRecorded() | e.PromptQueued())):
            return stored.role == offered.role and stored.parts == offered.parts
        case _:
            return stored == offered
