"""Makes documents of entries, and indexes them behind the writers.

A document is a message as it is found. It is made by one entry, the one that made the message what
it is: recorded it, ended it, gave a tool's result or a late text. A later one for the same place
replaces it. What still streams has no document yet; a queued prompt has one when a turn takes it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from killick.errors import SessionDamaged
from killick.journal.assembly import assemble
from killick.journal.kinds import message_end_identity, message_identity
from killick.model import entries as e
from killick.model.messages import File, Image, Part, Reasoning, Text, ToolCall, ToolResult
from killick.search.port import (
    SLICE_ENTRIES,
    Batch,
    Document,
    FoundRole,
    SearchedJournal,
    SearchTransaction,
    Unindexed,
)

RESULT_CHARS: Final = 64 * 1024
"""How much of a tool's result can be searched; all of it is kept."""

DOCUMENT_CHARS: Final = 1024 * 1024
"""How much of one message can be searched."""

Lookup = Callable[[str], e.Entry | None]
"""The session's entry with an identity."""


def document(entry: e.Entry, find: Lookup) -> Document | None:
    """Return the document that this entry makes, if it makes one."""
    match entry.body:
        case e.MessageRecorded() as body:
            return _document(entry, entry.seq, body.id, body.turn_id, body.role, body.parts)
        case e.MessageEnded() as body:
            started = _started(find, body.id)
            if started is None:
                return None
            seq, role = started
            return _document(entry, seq, body.id, body.turn_id, role, body.parts, body.state)
        case e.LateText(call_id=None) as body:
            return _late(entry, body, find)
        case e.LateResult(second=second) if second:
            return None  # the first is the message
        case e.ToolFinished() | e.LateResult() as body:
            message_id = f"{body.message_id}/{body.result.call_id}"
            seq = body.started or entry.seq
            return _document(entry, seq, message_id, body.turn_id, "tool", (body.result,))
        case e.Compacted() as body:
            return _document(entry, entry.seq, body.id, None, "summary", (Text(body.summary),))
        case _:
            return None


def _late(entry: e.Entry, body: e.LateText, find: Lookup) -> Document | None:
    started = _started(find, body.message_id)
    if started is None:
        return None
    seq, role = started
    ended = find(message_end_identity(body.message_id))
    stored = ended.body.parts if ended and isinstance(ended.body, e.MessageEnded) else ()
    parts = assemble(body.deltas, onto=stored)
    state: Literal["complete", "partial"] = "complete" if body.whole else "partial"
    return _document(entry, seq, body.message_id, body.turn_id, role, parts, state)


def _started(find: Lookup, message_id: str) -> tuple[int, FoundRole] | None:
    started = find(message_identity(message_id))
    if started is None or not isinstance(started.body, e.MessageStarted):
        return None
    return started.seq, started.body.role


def _document(
    entry: e.Entry,
    began: int,
    message_id: str,
    turn_id: str | None,
    role: FoundRole,
    parts: Iterable[Part],
    state: Literal["complete", "partial"] = "complete",
) -> Document:
    parts = tuple(parts)
    text = "\n".join(piece for part in parts for piece in _pieces(part))
    reasoning = "\n".join(part.text for part in parts if isinstance(part, Reasoning))
    return Document(
        place=began,
        seq=entry.seq,
        at_us=entry.at_us,
        id=message_id,
        turn_id=turn_id or None,
        role=role,
        state=state,
        text=text[:DOCUMENT_CHARS],
        reasoning=reasoning[:DOCUMENT_CHARS],
    )


def _pieces(part: Part | Text | Image | File) -> Iterator[str]:
    """Yield the texts of a part that a person could look for, reasoning aside."""
    match part:
        case Text():
            yield part.text
        case ToolCall():
            yield part.name
            yield from _arguments(part.arguments)
        case ToolResult(content=str() as content):
            yield content[:RESULT_CHARS]
        case ToolResult():
            inside = (piece for inner in part.content for piece in _pieces(inner))  # type: ignore[arg-type]
            yield "\n".join(inside)[:RESULT_CHARS]
        case Image(alt=str() as alt):
            yield alt
        case File(name=str() as name):
            yield name
        case _:
            pass


def _arguments(text: str) -> Iterator[str]:
    """Yield names and values without JSON around them, in which a line break is a letter n."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = text  # cut off, or not JSON at all
    yield " ".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        leaf = waiting.pop()
        if isinstance(leaf, dict):
            waiting += [piece for pair in reversed(leaf.items()) for piece in reversed(pair)]
        elif isinstance(leaf, list):
            waiting += reversed(leaf)
        elif leaf is not None:
            yield str(leaf)


# -- the index ---------------------------------------------------------------------------------


def read_batch(reader: SearchedJournal, limit: int = SLICE_ENTRIES) -> Batch:
    """Read what the next slice indexes. Raises SearchDamaged."""
    waiting = reader.unindexed(limit)
    return Batch(reader.index_mark(), [(entry, _made(reader, entry)) for entry in waiting])


def document_of(reader: SearchedJournal, key: int, seq: int) -> Document | None:
    """Make the document of the entry with this seq again, as it was indexed. Raises SessionDamaged.

    What came after the entry does not count.
    """
    for entry in reader.entries(key, after=seq - 1, through=seq):
        return document(entry, lambda identity: _earlier(reader.find_entry(key, identity), seq))
    return None


def _earlier(entry: e.Entry | None, seq: int) -> e.Entry | None:
    return entry if entry is not None and entry.seq <= seq else None


def _made(reader: SearchedJournal, unindexed: Unindexed) -> Document | None:
    """Make an entry's document; a damaged entry has none, and others are not kept from theirs."""
    entry, key = unindexed.entry, unindexed.key
    if entry is None:
        return None
    try:
        made = document(
            entry, lambda identity: _earlier(reader.find_entry(key, identity), entry.seq)
        )
    except SessionDamaged:
        return None
    return made if made is not None and (made.text or made.reasoning) else None


def index_batch(tx: SearchTransaction, batch: Batch, over: Callable[[], bool]) -> Batch | None:
    """Index what was read, until time is over, and return what is left of it for the next slice.

    None if nothing was indexed: another process was quicker. Raises SearchDamaged.
    """
    ours = tx.take_slice(batch) if batch.entries else ()
    if not ours:
        return None
    done = []
    for entry, made in ours:
        if made is not None:
            tx.put_document(entry.key, made)
        done.append(entry)
        if over():
            break
    tx.index_reached(done)
    return Batch(done[-1].place, ours[len(done) :])
