"""Hand a session over to another agent: it is given what a model would be sent now.

It is the context, so it is true of every tool, and it says once what became of an interrupted turn.
An agent's format writes it down in that agent's own records; see `agents`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.export.native import Losses, utf8
from killick.exchange.native_ids import as_uuid, mint
from killick.journal.kinds import digest
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import Image, Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.sessions import moment
from killick.session.sync import Session, Store
from killick.views import phrases
from killick.views.context import for_model
from killick.views.neutral import Gone, Neutral, build

_PAGE: Final = 200
_INSTRUCTIONS: Final = "instructions of the program that ran it: that agent has its own"
_LONE: Final = re.compile("[\ud800-\udfff]")


class Holds(msgspec.Struct, frozen=True):
    """The parts that an agent's format can hold beside text, calls and results."""

    images: bool = False
    reasoning: Callable[[Reasoning, str | None], bool] = lambda _part, _provider: False


class Spoken(msgspec.Struct):
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


class Answered(msgspec.Struct):
    """The result of a call, real or made up."""

    call: ToolCall
    text: str
    images: list[tuple[str, bytes]] = []
    is_error: bool = False
    at_us: int = 0
    synthetic: bool = False


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
    items: list[Spoken | Answered]
    losses: list[str]

    def uuid(self, number: int) -> str:
        """Return an id for the record of that number, the same each time."""
        name = f"{self.native_id}/{number}".encode()
        return as_uuid(int(digest(name)[-32:], 16) & ~(0xF << 76) | 4 << 76)


def hand_over(store: Store, session_id: str, holds: Holds, folder: Path) -> Handover:
    """Return what an agent is given of a session. Raises SessionNotFound."""
    session = store.session(session_id)
    entries = list(_entries(session))
    times = {entry.seq: entry.at_us for entry in entries}
    last = max((entry.seq for entry in entries if _tells(entry.body)), default=0)
    losses, gone = Losses(), Gone()
    history = History(iter(entries))
    builder = build(for_model(history, entries, gone), gone=gone)
    taking = _Taking(holds, lambda name: _blob(store, name), losses)
    injected = history.hides("person").places
    for message in builder.finish():
        if message.role == "user" and not message.synthetic and injected.issuperset(message.seqs):
            losses.add(_INSTRUCTIONS)
            continue
        taking.take(message, times.get(message.seqs[0], 0) if message.seqs else 0)
    if builder.system or session.info().about.system:
        losses.add("the system prompt: that agent has its own")
    info = session.info()
    updated = times.get(last, info.created_at_us)
    return Handover(
        session_id,
        mint(session_id, last, updated),
        _clean(info.title or _first_words(taking.items)),
        str(folder),
        info.created_at_us,
        updated,
        last,
        taking.items,
        losses.summary(),
    )


def _tells(body: e.Body) -> bool:
    """Tell whether an entry may change what a model is sent."""
    about = (
        e.Note, e.Renamed, e.Archived, e.Pinned, e.Tagged, e.Moved, e.Imported,
    )  # fmt: skip
    return not isinstance(body, about)


def _entries(session: Session) -> Iterator[e.Entry]:
    after = 0
    while page := session.entries(after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


def _first_words(items: list[Spoken | Answered]) -> str:
    prompts = (each.text for each in items if isinstance(each, Spoken) and each.role == "user")
    return next(prompts, "").strip().split("\n")[0][:80] or "Untitled session"


class _Taking:
    """Takes the messages of a context; counts what cannot be held."""

    def __init__(self, holds: Holds, blobs: Callable[[str], bytes | None], losses: Losses) -> None:
        self._holds = holds
        self._blobs = blobs
        self._losses = losses
        self._calls: dict[str, ToolCall] = {}
        self.items: list[Spoken | Answered] = []

    def take(self, message: Neutral, at_us: int) -> None:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.items.append(self._answered(part, message, at_us))
            return
        if message.role == "system":
            self._losses.add(_INSTRUCTIONS)
            return
        role = "assistant" if message.role == "assistant" else "user"
        spoken = Spoken(role, at_us=at_us, synthetic=message.synthetic, model=message.model)
        words = list[str]()
        for part in message.parts:
            self._part(part, message, spoken, words)
        spoken.text = _clean("\n\n".join(words))
        if spoken.text or spoken.calls or spoken.images:
            self.items.append(spoken)

    def _part(self, part: Part, message: Neutral, spoken: Spoken, words: list[str]) -> None:
        match part:
            case Text():
                words.append(part.text)
            case ToolCall(tool_type="function" | "custom"):
                held = ToolCall(part.id, _clean(part.name), _arguments(part, self._losses))
                self._calls[part.id] = held
                spoken.calls.append(held)
            case Image():
                self._image(part, spoken.images, words)
            case Reasoning():
                if self._holds.reasoning(part, message.provider):
                    spoken.reasoning.append(part)
                else:
                    self._losses.add("thoughts of the model")
            case ToolCall():
                self._losses.add("runs of a provider's own tools")
            case _:
                self._losses.add("files, and a provider's own data")

    def _answered(self, part: ToolResult, message: Neutral, at_us: int) -> Answered:
        words, images = list[str](), list[tuple[str, bytes]]()
        for inner in (Text(part.content),) if isinstance(part.content, str) else part.content:
            if isinstance(inner, Text):
                words.append(inner.text)
            elif isinstance(inner, Image):
                self._image(inner, images, words)
            else:
                self._losses.add("files, and a provider's own data")
        call = self._calls.get(part.call_id) or ToolCall(part.call_id, "tool", "{}")
        made_up = part.call_id in message.made_up
        text = _clean("\n".join(words))
        return Answered(call, text, images, part.is_error, at_us, made_up)

    def _image(self, part: Image, images: list[tuple[str, bytes]], words: list[str]) -> None:
        data = self._blobs(part.blob)
        if data and self._holds.images:
            images.append((part.media_type, data))
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


def _clean(text: str) -> str:
    return _LONE.sub("\ufffd", text)


# -- what formats share ----------------------------------------------------------------------------


def iso(at_us: int) -> str:
    """Return a time as JavaScript writes it."""
    return moment(at_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_line(record: dict[str, Any]) -> bytes:
    """Return a record as one line."""
    return utf8(json.dumps(record, ensure_ascii=False, separators=(",", ":"))) + b"\n"


def base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def object_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments, decoded."""
    value: dict[str, Any] = json.loads(call.arguments)
    return value
