"""Hand a session over to another agent: it is given what a model would be sent now.

It is the context, so it is true of every tool, and it says once what became of an interrupted turn.
An agent's format writes it down in that agent's own records; see `agents`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.export.native import Losses, utf8
from killick.exchange.export.shelf import LONG, JournalFacts, Nameless, Shelf
from killick.exchange.native_ids import as_uuid, mint
from killick.journal.kinds import digest
from killick.model import entries as e
from killick.model.messages import Image, Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.sessions import moment
from killick.session.sync import Store
from killick.views import phrases
from killick.views.context import for_model
from killick.views.neutral import Gone, Neutral, build

_INSTRUCTIONS: Final = "instructions of the program that ran it: that agent has its own"
_ABOUT: Final = (e.Note, e.Renamed, e.Archived, e.Pinned, e.Tagged, e.Moved, e.Imported)
"""Entries that never change what a model is sent."""

_LONE: Final = re.compile("[\ud800-\udfff]")


class Holds(msgspec.Struct, frozen=True):
    """The parts that an agent's format can hold beside text, calls and results."""

    images: bool = False
    reasoning: Callable[[Reasoning, str | None], bool] = lambda _part, _provider: False


class Spoken(msgspec.Struct, tag=True, omit_defaults=True):
    """A message on its way out. Results are apart: each follows the message of its call."""

    role: str
    text: str = ""
    images: list[tuple[str, bytes]] = []
    reasoning: list[Reasoning] = []
    calls: list[ToolCall] = []
    at_us: int = 0
    synthetic: bool = False
    """Killick says it, and no person."""
    model: str | None = None


class Answered(msgspec.Struct, tag=True, omit_defaults=True):
    """The result of a call, real or made up."""

    call_id: str
    name: str
    text: str
    images: list[tuple[str, bytes]] = []
    is_error: bool = False
    at_us: int = 0
    synthetic: bool = False


_decoder: Final = msgspec.msgpack.Decoder(Spoken | Answered)
_HEAD: Final = 8
"""Bytes that say how long an item is."""


class Items:
    """Messages and results in order, each read from a file when it is asked for."""

    def __init__(self) -> None:
        self._file = Nameless()
        self.spoken = self.answered = 0

    def __len__(self) -> int:
        return self.spoken + self.answered

    def add(self, item: Spoken | Answered) -> None:
        data = msgspec.msgpack.encode(item)
        self._file.add(len(data).to_bytes(_HEAD, "big") + data)
        self.spoken += isinstance(item, Spoken)
        self.answered += isinstance(item, Answered)

    def __iter__(self) -> Iterator[Spoken | Answered]:
        offset = 0
        while offset < self._file.size:
            size = int.from_bytes(self._file.at(offset, _HEAD), "big")
            yield _decoder.decode(self._file.at(offset + _HEAD, size))
            offset += _HEAD + size

    def with_answers(self) -> Iterator[tuple[int, Spoken, dict[str, Answered]]]:
        """Yield each message, its number among all, and the results behind it by their calls."""
        number, spoken, answers = 0, None, dict[str, Answered]()
        for count, item in enumerate(self):
            if isinstance(item, Answered):
                answers[item.call_id] = item
                continue
            if spoken is not None:
                yield number, spoken, answers
            number, spoken, answers = count, item, {}
        if spoken is not None:
            yield number, spoken, answers


class Handover(msgspec.Struct):
    """A session as another agent is to have it."""

    session_id: str
    native_id: str
    title: str
    folder: str
    created_us: int
    updated_us: int
    through: int
    """The last entry that it tells of."""
    items: Items
    losses: list[str]

    def uuid(self, number: int) -> str:
        """Return an id for the record of that number, the same each time."""
        name = f"{self.native_id}/{number}".encode()
        return as_uuid(int(digest(name)[-32:], 16) & ~(0xF << 76) | 4 << 76)


class _Told(JournalFacts):
    """Beside the facts of a journal, the last entry that may change what a model is sent."""

    through = 0

    def see(self, entry: e.Entry) -> None:
        super().see(entry)
        if not isinstance(entry.body, _ABOUT):
            self.through = entry.seq


def hand_over(
    store: Store, session_id: str, holds: Holds, folder: Path, longer_than: int = LONG
) -> Handover:
    """Return what an agent is given of a session. Raises SessionNotFound.

    Texts that are `longer_than` so many characters are in files meanwhile; so is all that it holds.
    """
    session = store.session(session_id)
    losses, gone, seen, shelf = Losses(), Gone(), _Told(), Shelf(longer_than)
    entries = shelf.entries(session, seen)
    builder = build(for_model(seen.history, entries, gone), gone=gone)
    taking = _Taking(holds, lambda name: _blob(store, name), losses, shelf)
    injected = seen.history.hides("person").places
    for message in builder.finish():
        if message.role == "user" and not message.synthetic and injected.issuperset(message.seqs):
            losses.add(_INSTRUCTIONS)
            continue
        taking.take(message, seen.at_us(message.seqs[0]) if message.seqs else 0)
    if builder.system or session.info().about.system:
        losses.add("the system prompt: that agent has its own")
    info = session.info()
    updated = seen.at_us(seen.through) if seen.through else info.created_at_us
    return Handover(
        session_id,
        mint(session_id, seen.through, updated),
        _clean(info.title or taking.first_words or "Untitled session"),
        str(folder),
        info.created_at_us,
        updated,
        seen.through,
        taking.items,
        losses.summary(),
    )


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


class _Taking:
    """Takes the messages of a context; counts what cannot be held."""

    def __init__(
        self, holds: Holds, blobs: Callable[[str], bytes | None], losses: Losses, shelf: Shelf
    ) -> None:
        self._holds = holds
        self._blobs = blobs
        self._losses = losses
        self._shelf = shelf
        self._names: dict[str, str] = {}
        """The tools that the message before has called: results follow directly."""
        self.items = Items()
        self.first_words: str | None = None

    def take(self, message: Neutral, at_us: int) -> None:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.items.add(self._answered(part, message, at_us))
            return
        self._names.clear()
        if message.role == "system":
            self._losses.add(_INSTRUCTIONS)
            return
        role = "assistant" if message.role == "assistant" else "user"
        model = message.model and _clean(message.model)
        spoken = Spoken(role, at_us=at_us, synthetic=message.synthetic, model=model)
        words = list[str]()
        for part in message.parts:
            self._part(self._shelf.part(part), message, spoken, words)
        spoken.text = _clean("\n\n".join(words))
        if spoken.text or spoken.calls or spoken.images:
            self.items.add(spoken)
            if role == "user" and self.first_words is None:
                self.first_words = spoken.text.strip().split("\n")[0][:80]

    def _part(self, part: Part, message: Neutral, spoken: Spoken, words: list[str]) -> None:
        match part:
            case Text():
                words.append(part.text)
            case ToolCall(tool_type="function" | "custom"):
                held = ToolCall(part.id, _clean(part.name), _arguments(part, self._losses))
                self._names[held.id] = held.name
                spoken.calls.append(held)
            case Image():
                self._image(part, spoken.images, words)
            case Reasoning():
                if self._holds.reasoning(part, message.provider):
                    spoken.reasoning.append(_clean_thought(part))
                else:
                    self._losses.add("thoughts of the model")
            case ToolCall():
                self._losses.add("runs of a provider's own tools")
            case _:
                self._losses.add("files, and a provider's own data")

    def _answered(self, put_by: ToolResult, message: Neutral, at_us: int) -> Answered:
        part = self._shelf.result(put_by)
        words, images = list[str](), list[tuple[str, bytes]]()
        for inner in (Text(part.content),) if isinstance(part.content, str) else part.content:
            if isinstance(inner, Text):
                words.append(inner.text)
            elif isinstance(inner, Image):
                self._image(inner, images, words)
            else:
                self._losses.add("files, and a provider's own data")
        name = self._names.get(part.call_id, "tool")
        made_up = part.call_id in message.made_up
        text = _clean("\n".join(words))
        return Answered(part.call_id, name, text, images, part.is_error, at_us, made_up)

    def _image(self, part: Image, images: list[tuple[str, bytes]], words: list[str]) -> None:
        data = self._blobs(part.blob)
        if data and self._holds.images:
            images.append((_clean(part.media_type), data))
        else:
            words.append(phrases.left_out(f"An image ({part.media_type})"))
            self._losses.add("images")


def _arguments(part: ToolCall, losses: Losses) -> str:
    """Return arguments that are a JSON object, as every agent needs them."""
    try:
        value = json.loads(part.arguments) if part.arguments.strip() else {}
    except ValueError:
        value = part.arguments
    if not isinstance(value, dict):
        if part.tool_type == "function":
            losses.add("arguments that are no JSON object: they become one")
        value = {"input": value}
    return _clean(json.dumps(value, ensure_ascii=False))


def _clean_thought(part: Reasoning) -> Reasoning:
    signature = part.signature and _clean(part.signature)
    return Reasoning(_clean(part.text), signature, part.encrypted and _clean(part.encrypted))


def _clean(text: str) -> str:
    return text if text.isascii() else _LONE.sub("\ufffd", text)


# -- what formats share ----------------------------------------------------------------------------


def iso(at_us: int) -> str:
    """Return a time as JavaScript writes it."""
    return moment(at_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_document(
    about: dict[str, Any],
    name: str,
    rows: Iterable[dict[str, Any]],
    *,
    indent: int,
    escaped: bool = False,
) -> Iterator[bytes]:
    """Yield an object whose last field is a list, row by row, as `json.dumps` writes all of it."""
    write = partial(json.dumps, ensure_ascii=escaped, indent=indent)
    yield utf8(write(about | {name: []}).removesuffix("]\n}"))
    margin, comma = "\n" + " " * 2 * indent, ""
    for row in rows:
        yield utf8(comma + margin + write(row).replace("\n", margin))
        comma = ","
    yield utf8(f"\n{' ' * indent}]\n}}\n" if comma else "]\n}\n")


def json_line(record: dict[str, Any]) -> bytes:
    """Return a record as one line; its floats are in `raw_object_of` alone."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        return _compact(record) + b"\n"


def _compact(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, default=_decoded, ensure_ascii=False, separators=(",", ":"))
    return utf8(text)


def _decoded(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))


def base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def object_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments, decoded."""
    value: dict[str, Any] = json.loads(call.arguments)
    return value


def raw_object_of(call: ToolCall) -> msgspec.Raw:
    """Return a call's arguments for a line, as Python writes numbers."""
    return msgspec.Raw(_compact(object_of(call)))
