"""Write a session in another agent's own format, and check it.

A target says of each part what it can hold of it. What it cannot is counted, so that it can be told
before anything is written. Then the file is read back by our own importer: it must give exactly the
messages that were to be written, or nothing is.

A session may be larger than memory. Its messages are put into a file that has no name, one by one,
and its turns hold only where they are; what is written goes into a file of its own until it is
checked.
"""

import re
import shutil
import weakref
from array import array
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, Final, Protocol, TypeVar, cast

import msgspec

from killick.errors import BlobNotFound, KillickError
from killick.exchange.export.shelf import PIECE, JournalFacts
from killick.exchange.formats.jsonl import every_entry
from killick.exchange.importer import entries_of
from killick.exchange.records import Report
from killick.journal.assembly import is_whole_object
from killick.journal.codec import decode, encode
from killick.journal.fold import Messages
from killick.journal.visibility import in_view
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

_LONE: Final = re.compile("[\ud800-\udfff]")
_MEDIA: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
_SPEAK: Final = frozenset({
    e.MessageRecorded, e.MessageStarted, e.MessageEnded, e.ToolStarted, e.ToolFinished,
    e.LateResult, e.LateText, e.TurnEnding, e.Rewound,
})  # fmt: skip
"""What messages are made of; see `journal.fold`."""
_KNOWN_OF: Final = frozenset(
    {e.ModelCallStarted, e.ModelCallEnded, e.Settled, e.Note, e.PromptWaiting, e.ApprovalAsked}
)
_WIDE: Final = b" "
"""How bytes begin that hold what is no Unicode; see `journal.codec`."""

Blobs = Callable[[str], bytes | None]
T = TypeVar("T")


class NotTheSame(KillickError):
    """A file of another agent did not read back as what was written; nothing was exported."""


class NativeCall(msgspec.Struct, frozen=True):
    """The model that was called."""

    provider: str | None = None
    model: str | None = None


class NativeLine(msgspec.Struct):
    """A message as the target holds it, with what is known of its model call."""

    message: Message
    at_us: int
    call: NativeCall | None = None
    usage: e.Usage | None = None
    person: bool = True
    model: bool = True


class NativeLines:
    """The messages of one turn, each read from the file when it is asked for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seqs = array("q")
        self._offsets = array("q")
        self.model: str | None = None
        """The first model that a message is known to be of."""

    def add(self, seq: int, offset: int, model: str | None) -> None:
        self._seqs.append(seq)
        self._offsets.append(offset)
        self.model = self.model or model

    def __iter__(self) -> Iterator[NativeLine]:
        return self.at(lambda _seq: True)

    def at(self, wanted: Callable[[int], bool]) -> Iterator[NativeLine]:
        """Yield the messages that began at these seqs."""
        for seq, offset in zip(self._seqs, self._offsets, strict=True):
            if wanted(seq):
                self._file.seek(offset)
                yield decode(self._file.readline(), NativeLine)


class NativeTalk(msgspec.Struct):
    """The part of a session that the target holds: its turns in order, with their messages."""

    info: SessionInfo
    turns: list[tuple[TurnInfo, NativeLines]]
    summaries: list[tuple[int, e.Compacted]]
    system: str | None
    blobs: Blobs

    def lines(self, wanted: Callable[[int], bool] = lambda _seq: True) -> Iterator[NativeLine]:
        """Yield the messages, or those that began at these seqs."""
        return (line for _, lines in self.turns for line in lines.at(wanted))


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
    data: Iterator[bytes]


class Pieces(Iterator[bytes]):
    """The bytes of a file in a folder; both are gone once they are read, or no longer held."""

    def __init__(self, folder: Path, path: Path) -> None:
        self._file = path.open("rb")
        self._close = weakref.finalize(self, _remove, folder, self._file)

    def __next__(self) -> bytes:
        piece = self._file.read(PIECE) if self._close.alive else b""
        if not piece:
            self._close()
            raise StopIteration
        return piece


def _remove(folder: Path, file: IO[bytes]) -> None:
    file.close()
    shutil.rmtree(folder, ignore_errors=True)


def put_by(
    pieces: Iterable[bytes], name: str, check: Callable[[Path], None] = lambda _path: None
) -> Pieces:
    """Put bytes into a file until they are asked for; `check` may refuse the file.

    If interrupted: the file is left in the system's folder for temporary ones; after an error not.
    """

    def make(path: Path) -> None:
        with path.open("wb", buffering=PIECE) as file:
            file.writelines(pieces)
        check(path)

    return made_by(name, make)


def made_by(name: str, make: Callable[[Path], None]) -> Pieces:
    """Have a file made in a folder of its own, and return its bytes. If interrupted: as above."""
    folder = Path(mkdtemp(prefix="killick-"))
    try:
        path = folder / name
        make(path)
        return Pieces(folder, path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def native(store: Store, session_id: str, target: Target) -> Native:
    """Write a session as another agent would. Raises SessionNotFound, NotTheSame."""
    losses = Losses()
    session = store.session(session_id)
    with TemporaryFile(buffering=PIECE) as file:
        talk = _talk(store, session, target, losses, file)
        name = f"session{target.suffix}"
        data = put_by(target.write(talk), name, lambda path: _check(target, talk, path))
    return Native(losses.summary(), data)


def _check(target: Target, talk: NativeTalk, path: Path) -> None:
    """Read it back, and compare, message by message."""
    report = Report()
    messages = _spoken(entries_of(path, report))
    pairs = zip_longest(target.expected(talk), messages)
    same = 0
    differs = False
    for wanted, read in pairs:
        if wanted != read:
            differs = True
            break
        same += 1
    deque(messages, maxlen=0)  # what is wrong with the file may be told further on
    if report.skipped or differs:
        reason = str(report.skipped[0]) if report.skipped else f"message {same + 1} differs"
        raise NotTheSame(f"what {target.name} would read is not this session: {reason}")


class _PassingMessages(Messages):
    """Folds entries into messages that are given away as soon as they are whole."""

    def release(self, awaited: Container[str]) -> list[Message]:
        """Return the messages that are whole, and hold them no longer: not in order.

        `awaited` are ids of messages that get text later on; `finish` returns those.
        """
        if not self._messages:
            return []
        whole = [
            message
            for message in self._messages.values()
            if message.state != "streaming" and message.id not in awaited
        ]
        for message in whole:
            del self._messages[message.seq]
            self._started.pop(message.id, None)
            self._tools.pop(message.seq, None)
        return whole


def _spoken(entries: Iterable[e.Entry]) -> Iterator[tuple[Role, tuple[Part, ...]]]:
    """Yield the messages of a journal that takes nothing back: a file of ours does not."""
    fold = _PassingMessages()
    for entry in entries:
        if isinstance(entry.body, e.Rewound):
            raise NotTheSame("what was written takes a part of it back")
        if type(entry.body) not in _SPEAK:
            continue
        fold.take(entry)
        for message in fold.release(()):
            yield message.role, tuple(message.parts)
    for message in fold.finish(lambda _seq: ()):
        yield message.role, tuple(message.parts)


# -- out of the journal ----------------------------------------------------------------------------


class _SeenTalk(JournalFacts):
    """Facts of the whole session, read before its messages are."""

    def __init__(self, losses: Losses) -> None:
        super().__init__()
        self.calls: dict[str, NativeCall] = {}
        self.usage: dict[str, e.Usage] = {}
        self.settled: list[tuple[int, e.Settled]] = []
        self._losses = losses
        self._models: dict[NativeCall, NativeCall] = {}

    def see(self, entry: e.Entry) -> None:
        super().see(entry)
        if type(entry.body) not in _KNOWN_OF:
            return
        match entry.body:
            case e.ModelCallStarted():
                body = _unicode(entry.body, self._losses)
                call = NativeCall(body.provider, body.model)
                self.calls[body.id] = self._models.setdefault(call, call)
            case e.ModelCallEnded(usage=e.Usage() as used):
                self.usage[entry.body.id] = used
            case e.Settled() as body:
                self.settled.append((entry.seq, body))
            case e.Note():
                self._losses.add("notes of applications")
            case e.PromptWaiting():
                self._losses.add("prompts that were queued")
            case e.ApprovalAsked():
                self._losses.add("approvals")
            case _:
                pass


class _Written(msgspec.Struct):
    """A message in the file, and the calls that it makes or answers."""

    seq: int
    offset: int
    turn_id: str | None
    model: str | None
    calls: tuple[str, ...]
    answers: str | None


class _Putting:
    """Puts messages into a file, as the target holds them."""

    def __init__(
        self, file: IO[bytes], target: Target, blobs: Blobs, losses: Losses, turn_ids: Iterable[str]
    ) -> None:
        self._file = file
        self._target = target
        self._blobs = blobs
        self._losses = losses
        self._turn_ids = {turn_id: turn_id for turn_id in turn_ids}
        self._size = 0
        self.written: list[_Written] = []

    def put(self, line: NativeLine) -> None:
        held = _held(line, self._target, self._blobs, self._losses)
        if held is None:
            return
        turn_id, first = line.message.turn_id, held.message.parts[0]
        self.written.append(
            _Written(
                line.message.seq,
                self._size,
                self._turn_ids.get(turn_id, turn_id) if turn_id is not None else None,
                None if held.call is None else held.call.model,
                tuple(call.id for call in held.message.tool_calls),
                first.call_id if isinstance(first, ToolResult) else None,
            )
        )
        self._size += self._file.write(encode(held) + b"\n")

    def by_turn(self) -> dict[str | None, NativeLines]:
        """Return the messages of each turn, without results that have no call before them."""
        turns: dict[str | None, list[_Written]] = {}
        for written in self.written:
            turns.setdefault(written.turn_id, []).append(written)
        waiting = set[str]()
        by_turn: dict[str | None, NativeLines] = {}
        for turn_id, lines in turns.items():
            by_turn[turn_id] = NativeLines(self._file)
            for line in lines:
                waiting.update(line.calls)
                if line.answers is not None:
                    if line.answers not in waiting:
                        self._losses.add("results without their calls")
                        continue
                    waiting.discard(line.answers)
                by_turn[turn_id].add(line.seq, line.offset, line.model)
        return by_turn


def _talk(
    store: Store, session: Session, target: Target, losses: Losses, file: IO[bytes]
) -> NativeTalk:
    every_turn = session.turns()
    seen = _SeenTalk(losses)
    seen.read(every_entry(session))
    history = seen.history
    losses.add("what was taken back", len(history.rewinds))
    hidden = history.hides("person").places, history.hides("model").places
    putting = _Putting(
        file, target, lambda name: _blob(store, name), losses, (turn.id for turn in every_turn)
    )
    called = {body.message_id for _, body in seen.settled}
    names = dict[tuple[str, str], str]()
    for message in _messages(session, seen):
        if message.id in called:
            names |= {(message.id, call.id): call.name for call in message.tool_calls}
        line = NativeLine(
            message,
            seen.at_us(message.seq),
            seen.calls.get(message.model_call_id or ""),
            seen.usage.get(message.model_call_id or ""),
            message.seq not in hidden[0],
            message.seq not in hidden[1],
        )
        for single in _apart(line, losses):
            putting.put(single)
    putting.written.sort(key=lambda written: written.seq)
    for note in _settlements(seen, names):
        putting.put(note)
    by_turn = putting.by_turn()
    turns = list[tuple[TurnInfo, NativeLines]]()
    for turn in every_turn:
        if turn.status == "running":
            losses.add("a turn that still runs")
        elif history.is_in_view(turn.seq):
            target.hold_turn(turn, losses)
            turns.append((_unicode(turn, losses), by_turn.get(turn.id) or NativeLines(file)))
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


def _messages(session: Session, seen: _SeenTalk) -> Iterator[Message]:
    """Yield the messages, each once it is whole: not in order."""
    fold = _PassingMessages()
    for entry in in_view(seen.history, every_entry(session)):
        if entry.seq > seen.head:
            break
        if type(entry.body) not in _SPEAK:
            continue
        fold.take(entry)
        yield from fold.release(seen.late)
    rest = fold.finish(lambda _seq: ())
    streaming = [message.seq for message in rest if message.state == "streaming"]
    shown = session.messages(after=streaming[0] - 1) if streaming else []
    by_seq = {message.seq: message for message in shown}
    yield from (by_seq.get(message.seq, message) for message in rest)


def _settlements(seen: _SeenTalk, names: dict[tuple[str, str], str]) -> Iterator[NativeLine]:
    """Yield what was found out about calls, as the words that a model is told: no tool said it."""
    for seq, body in seen.settled:
        name = names.get((body.message_id, body.call_id))
        if name is not None and seen.history.is_in_view(seq):
            text = phrases.settled_since(body, name, body.call_id, "")
            note = Message("user", (Text(text),), body.id, "complete", body.turn_id, seq)
            yield NativeLine(note, seen.at_us(seq))


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


def _held(line: NativeLine, target: Target, blobs: Blobs, losses: Losses) -> NativeLine | None:
    message, parts = line.message, list[Part]()
    for part in message.parts:
        if message.state == "partial" and _is_cut_call(part):
            losses.add("tool calls that were cut off while they were written")
            continue
        there = _present(_unicode(part, losses), blobs, losses)
        held = None if there is None else target.hold(there, message.role, losses)
        if held is not None:  # its JSON may have been unescaped
            parts.append(held if held is there else _unicode(held, losses))
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
    if _is_ascii(value) or encode(value)[:1] != _WIDE:
        return value
    losses.add("characters that are no Unicode")
    return cast("T", _replaced(value))


def _is_ascii(value: object) -> bool:
    """Tell of most texts and results, without encoding them, that they are ASCII."""
    match value:
        case str():
            return value.isascii()
        case Text(extra=None):
            return value.text.isascii()
        case ToolResult(content=str() as content, structured=None):
            return content.isascii() and value.call_id.isascii()
        case _:
            return False


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
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
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
