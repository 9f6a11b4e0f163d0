"""Write a session in another agent's own format, and check it.

A target says of each part what it can hold of it. What it cannot is counted, so that it can be told
before anything is written. Then the file is read back by our own importer: it must give exactly the
messages that were to be written, or nothing is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol, TypeVar, cast

import msgspec

from killick.errors import BlobNotFound, KillickError
from killick.exchange.importer import import_paths
from killick.journal.assembly import is_whole_object
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import (
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from killick.model.sessions import SessionInfo, TurnInfo
from killick.session.sync import Session, Store
from killick.views import phrases

_PAGE: Final = 200
_LONE: Final = re.compile("[\ud800-\udfff]")
_MEDIA: Final = re.compile(r"[\w.+-]+/[\w.+-]+")

Blobs = Callable[[str], bytes | None]
T = TypeVar("T")


class NotTheSame(KillickError):
    """A file of another agent did not read back as what was written; nothing was exported."""


class NativeLine(msgspec.Struct):
    """A message as the target holds it, with what is known of its model call."""

    message: Message
    at_us: int
    call: e.ModelCallStarted | None = None
    usage: e.Usage | None = None
    person: bool = True
    model: bool = True


class NativeTalk(msgspec.Struct):
    """The part of a session that the target holds: its turns in order, with their messages."""

    info: SessionInfo
    turns: list[tuple[TurnInfo, list[NativeLine]]]
    summaries: list[tuple[int, e.Compacted]]
    system: str | None
    blobs: Blobs

    def lines(self) -> Iterator[NativeLine]:
        return (line for _, lines in self.turns for line in lines)


class Losses:
    """Counts what the target cannot hold, in words."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter()

    def add(self, what: str, count: int = 1) -> None:
        if count:
            self._counted[what] += count

    def summary(self) -> list[str]:
        return [f"{what} ({count})" for what, count in sorted(self._counted.items())]


class Target(Protocol):
    """An agent's format."""

    name: str
    suffix: str

    def hold(self, part: Part, role: Role, losses: Losses) -> Part | None:
        """Return the part as it can be written; None when it cannot."""

    def hold_turn(self, turn: TurnInfo, losses: Losses) -> None:
        """Count what is lost of a turn itself."""

    def hold_line(self, line: NativeLine, losses: Losses) -> NativeLine | None:
        """Return the message, but for its parts, as it can be written; None when it cannot."""

    def expected(self, talk: NativeTalk) -> Iterator[tuple[Role, tuple[Part, ...]]]:
        """Yield the messages that must be read back."""

    def write(self, talk: NativeTalk) -> Iterator[bytes]: ...


class Native(msgspec.Struct):
    """A session in another agent's format, checked, and what it does not hold."""

    losses: list[str]
    data: list[bytes]


def native(store: Store, session_id: str, target: Target) -> Native:
    """Write a session as another agent would. Raises SessionNotFound, NotTheSame."""
    losses = Losses()
    talk = _talk(store, store.session(session_id), target, losses)
    data = list(target.write(talk))
    _check(target, talk, data)
    return Native(losses.summary(), data)


def _check(target: Target, talk: NativeTalk, data: Sequence[bytes]) -> None:
    """Read it back, and compare."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"session{target.suffix}"
        path.write_bytes(b"".join(data))
        with Store(Path(folder) / "check.db") as store:
            report = import_paths(store, [path], clock=lambda: 1 << 52, as_is=True, empty=True)
            sessions = [store.session(session.session_id) for session in report.sessions]
            messages = [
                (m.role, tuple(m.parts)) for session in sessions for m in session.messages()
            ]
    wanted = list(target.expected(talk))
    same = 0
    while same < min(len(messages), len(wanted)) and messages[same] == wanted[same]:
        same += 1
    if report.skipped or len(messages) != len(wanted) or same < len(messages):
        reason = str(report.skipped[0]) if report.skipped else f"message {same + 1} differs"
        raise NotTheSame(f"what {target.name} would read is not this session: {reason}")


# -- out of the journal ----------------------------------------------------------------------------


def _entries(session: Session) -> Iterator[e.Entry]:
    after = 0
    while page := session.entries(after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def _talk(store: Store, session: Session, target: Target, losses: Losses) -> NativeTalk:
    history = History(_entries(session))
    calls, usage, times = dict[str, e.ModelCallStarted](), dict[str, e.Usage](), dict[int, int]()
    for entry in _entries(session):
        _see(entry, calls, usage, times, losses)
    losses.add("what was taken back", len(history.rewinds))
    hidden = history.hides("person").places, history.hides("model").places
    by_turn: dict[str | None, list[NativeLine]] = {}
    for message in session.messages():
        call = calls.get(message.model_call_id or "")
        line = NativeLine(
            message,
            times.get(message.seq, 0),
            call,
            usage.get(message.model_call_id or ""),
            message.seq not in hidden[0],
            message.seq not in hidden[1],
        )
        for single in _apart(line, losses):
            held = _held(single, target, lambda name: _blob(store, name), losses)
            if held is not None:
                by_turn.setdefault(message.turn_id, []).append(held)
    for note in _settlements(session, history, times):
        held = _held(note, target, lambda name: _blob(store, name), losses)
        if held is not None:
            by_turn.setdefault(note.message.turn_id, []).append(held)
    _drop_strays(by_turn, losses)
    turns = list[tuple[TurnInfo, list[NativeLine]]]()
    for turn in session.turns():
        if turn.status == "running":
            losses.add("a turn that still runs")
        elif history.is_in_view(turn.seq):
            target.hold_turn(turn, losses)
            turns.append((_unicode(turn, losses), by_turn.get(turn.id, [])))
    info = session.info()
    losses.add("tags", len(info.tags))
    name = info.about.system
    system = _blob(store, name) if name is not None else None
    return NativeTalk(
        _unicode(info, losses),
        turns,
        [(entry.seq, _unicode(entry.body, losses)) for entry in history.summaries()],
        None if system is None else system.decode("utf-8", "replace"),
        lambda blob: _blob(store, blob),
    )


def _settlements(session: Session, history: History, times: dict[int, int]) -> Iterator[NativeLine]:
    """Yield what was found out about calls, as the words that a model is told: no tool said it."""
    calls = ((m.id, call) for m in session.messages() for call in m.tool_calls)
    names = {(message_id, call.id): call.name for message_id, call in calls}
    for entry in _entries(session):
        body = entry.body
        if not isinstance(body, e.Settled) or not history.is_in_view(entry.seq):
            continue
        name = names.get((body.message_id, body.call_id))
        if name is not None:
            text = phrases.settled_since(body, name, body.call_id, "")
            note = Message("user", (Text(text),), body.id, "complete", body.turn_id, entry.seq)
            yield NativeLine(note, times.get(entry.seq, 0))


def _see(
    entry: e.Entry,
    calls: dict[str, e.ModelCallStarted],
    usage: dict[str, e.Usage],
    times: dict[int, int],
    losses: Losses,
) -> None:
    times[entry.seq] = entry.at_us
    match entry.body:
        case e.ModelCallStarted():
            calls[entry.body.id] = _unicode(entry.body, losses)
        case e.ModelCallEnded(usage=e.Usage() as used):
            usage[entry.body.id] = used
        case e.Note():
            losses.add("notes of applications")
        case e.PromptWaiting():
            losses.add("prompts that were queued")
        case e.ApprovalAsked():
            losses.add("approvals")
        case _:
            pass


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


def _apart(line: NativeLine, losses: Losses) -> Iterator[NativeLine]:
    """Yield each result as a message of its own, as other agents store them."""
    replace = msgspec.structs.replace
    parts, calls = list[Part](), set[str]()
    for part in line.message.parts:
        if isinstance(part, ToolResult):
            continue
        if line.message.role == "tool":
            losses.add("what is no result in a tool's message")
        elif line.message.role != "assistant" and isinstance(part, Reasoning | ToolCall):
            losses.add("reasoning and calls that are not a model's")
        elif isinstance(part, ToolCall) and part.id in calls:
            losses.add("calls that are twice in one message")
        else:
            calls |= {part.id} if isinstance(part, ToolCall) else set()
            parts.append(part)
    if parts:
        yield replace(line, message=replace(line.message, parts=tuple(parts)))
    for part in line.message.parts:
        if isinstance(part, ToolResult):
            own = replace(line.message, role="tool", parts=(part,), model_call_id=None)
            yield replace(line, message=own, call=None, usage=None)


def _drop_strays(by_turn: dict[str | None, list[NativeLine]], losses: Losses) -> None:
    """Drop results whose call is not written or has its result already."""
    waiting = set[str]()
    for lines in by_turn.values():
        for line in list(lines):
            waiting |= {call.id for call in line.message.tool_calls}
            result = line.message.parts[0]
            if isinstance(result, ToolResult):
                if result.call_id in waiting:
                    waiting.discard(result.call_id)
                else:
                    losses.add("results without their calls")
                    lines.remove(line)


def _held(line: NativeLine, target: Target, blobs: Blobs, losses: Losses) -> NativeLine | None:
    message, parts = line.message, list[Part]()
    for part in message.parts:
        if message.state == "partial" and _is_cut_call(part):
            losses.add("tool calls that were cut off while they were written")
            continue
        there = _present(_unicode(part, losses), blobs, losses)
        held = None if there is None else target.hold(there, message.role, losses)
        if held is not None:
            parts.append(_unicode(held, losses))  # its JSON may have been unescaped
    if message.state == "partial" and parts:
        losses.add("that an answer was cut off")
    if not parts:
        return None
    message_id = _unicode(message.id, losses)
    message = msgspec.structs.replace(message, id=message_id, parts=tuple(parts))
    return target.hold_line(msgspec.structs.replace(line, message=message), losses)


def _present(part: Part, blobs: Blobs, losses: Losses) -> Part | None:
    """Return the part without images whose bytes are missing."""
    if isinstance(part, Image) and not blobs(part.blob):
        losses.add("images whose bytes are missing")
        return None
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        held = (_present(inner, blobs, losses) for inner in part.content)
        kept = tuple(inner for inner in held if isinstance(inner, Text | Image | File | Opaque))
        return msgspec.structs.replace(part, content=kept)
    return part


def _is_cut_call(part: Part) -> bool:
    return isinstance(part, ToolCall) and not is_whole_object(part.arguments)


def _unicode(value: T, losses: Losses) -> T:
    """Replace characters that are no Unicode, which other programs refuse."""
    clean = _replaced(value)
    if clean != value:
        losses.add("characters that are no Unicode")
    return cast("T", clean)


def _replaced(value: object) -> object:
    match value:
        case str():
            return _LONE.sub("\ufffd", value)
        case tuple() | list():
            return type(value)(_replaced(item) for item in value)
        case dict():
            return {_replaced(key): _replaced(item) for key, item in value.items()}
        case msgspec.Struct():
            fields = {name: _replaced(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        case _:
            return value


# -- what targets share ----------------------------------------------------------------------------


def utf8(text: str) -> bytes:
    """Return text as another program reads it: what is no Unicode is replaced."""
    return _LONE.sub("\ufffd", text).encode("utf-8")


def hold_image(part: Image, losses: Losses) -> Image | None:
    """Return an image without its words."""
    if not _MEDIA.fullmatch(part.media_type):
        losses.add("images of an unknown kind")
        return None
    if part.alt:
        losses.add("what images are called")
    return Image(part.blob, part.media_type)


def hold_result(result: ToolResult, losses: Losses) -> ToolResult:
    """Return a result without files and without a provider's own data."""
    if isinstance(result.content, str):
        return result
    kept = list[Text | Image | File | Opaque]()
    for part in result.content:
        if isinstance(part, Text):
            if part.text:
                kept.append(part)
        elif isinstance(part, Image):
            image = hold_image(part, losses)
            kept += [image] if image is not None else []
        else:
            losses.add("files and a provider's own data in results")
    return msgspec.structs.replace(result, content=tuple(kept))
