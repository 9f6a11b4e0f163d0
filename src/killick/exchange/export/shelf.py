"""Long texts of a session, put by in a file while a view of the session is made.

A view looks at a text only to see whether it is blank, and joins it with others. So a word stands
for each long text on its way from the journal through the view, and the text comes back into what
the view has made, one message at a time: a session may be larger than memory.

The word holds a number that is drawn for each shelf, so that no text holds it, and where the text
lies. What a view may look for stays as it is: blanks around a text, and a text that is no Unicode.
"""

import re
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex
from tempfile import TemporaryFile
from typing import IO, Final

import msgspec

from killick.exchange.formats.jsonl import every_entry
from killick.journal.kinds import message_of
from killick.journal.redaction import MASK
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.session.sync import Session
from killick.views.transcript import Shown, ShownTool, transcript

PIECE: Final = 256 * 1024
LONG: Final = 400
"""A text with more characters takes more memory than the word that stands for it."""

_NAMES: Final = 1_000
"""Of so many names one is known again: ids come again soon, and others often."""

_CHANGES: Final = frozenset({e.Undone, e.Rewound, e.Compacted, e.Visibility})
_TEXTS: Final = frozenset(
    {e.MessageRecorded, e.MessageEnded, e.ModelCallStarted, e.ToolFinished, e.LateResult}
    | {e.ToolOutput, e.Settled}
)
_replace: Final = msgspec.structs.replace


class JournalFacts:
    """Facts of a whole journal, read before a view of it is made."""

    def __init__(self) -> None:
        self.times = array("q")
        self.late: set[str] = set()
        """Messages that got text, or whose tools printed, after they had ended."""
        self.running = False
        self.history = History()

    @property
    def head(self) -> int:
        return len(self.times)

    def at_us(self, seq: int) -> int:
        return self.times[seq - 1] if 0 < seq <= self.head else 0

    def read(
        self, entries: Iterable[e.Entry], kept: Callable[[e.Entry], e.Entry] = lambda entry: entry
    ) -> None:
        """See every entry; the history has what `kept` returns of those that are changes."""
        self.history = History(map(kept, self._changes(entries)))

    def _changes(self, entries: Iterable[e.Entry]) -> Iterator[e.Entry]:
        for entry in entries:
            self.see(entry)
            if type(entry.body) in _CHANGES:
                yield entry

    def see(self, entry: e.Entry) -> None:
        body, missing = entry.body, entry.seq - 1 - len(self.times)
        if missing:
            self.times.extend([0] * missing)
        self.times.append(entry.at_us)
        if isinstance(body, e.TurnStarted):
            self.running = True
        elif isinstance(body, e.TurnEnding):
            self.running = False
        elif isinstance(body, e.LateText):
            self.late.add(body.message_id)


class Nameless:
    """A file that is in no folder, and gone when this is no longer held."""

    def __init__(self) -> None:
        self._file: IO[bytes] = TemporaryFile(buffering=PIECE)  # noqa: SIM115  (it is closed below)
        self._close = weakref.finalize(self, self._file.close)
        self.size = 0

    def add(self, data: bytes) -> int:
        """Append bytes; return where they begin."""
        offset = self.size
        self.size += self._file.write(data)
        return offset

    def at(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)


class Shelf:
    """The long texts of one session."""

    def __init__(self, longer_than: int = LONG) -> None:
        self._file = Nameless()
        self._longer_than = longer_than
        self._number = token_hex(12)
        self._word = re.compile(f"{self._number}([0-9a-f]{{12}})([0-9a-f]{{12}})")
        self._names: dict[str, str] = {}

    # -- on the way to a view ------------------------------------------------------------------

    def entries(self, session: Session, seen: JournalFacts) -> Iterator[e.Entry]:
        """See the journal of a session as of now; yield its entries with words for their texts.

        In a message that went on late, characters are counted: it stays as it is.
        """
        seen.read(every_entry(session), self._summary)
        return self._entries(session, seen)

    def _entries(self, session: Session, seen: JournalFacts) -> Iterator[e.Entry]:
        for entry in every_entry(session):
            if entry.seq > seen.head:
                return
            body = entry.body
            if type(body) not in _TEXTS or (seen.late and message_of(body) in seen.late):
                yield entry
            else:
                yield e.Entry(entry.seq, entry.at_us, self._body(body))

    def _summary(self, entry: e.Entry) -> e.Entry:
        body = entry.body
        if not isinstance(body, e.Compacted):
            return entry
        return e.Entry(entry.seq, entry.at_us, _replace(body, summary=self._put(body.summary)))

    def _body(self, body: e.Body) -> e.Body:
        match body:
            case e.MessageRecorded():
                call = self._names.get(body.model_call_id or "", body.model_call_id)
                parts = tuple(map(self._part, body.parts))
                return _replace(body, parts=parts, model_call_id=call)
            case e.MessageEnded():
                broke_off = body.state == "partial"
                parts = tuple(self._part(part, broke_off=broke_off) for part in body.parts)
                return _replace(body, parts=parts)
            case e.ModelCallStarted():
                return self._model_call(body)
            case e.ToolFinished() | e.LateResult():
                return _replace(body, result=self._result(body.result), output=None)
            case e.ToolOutput():
                return _replace(body, output=self._put(body.output))
            case e.Settled():
                result, evidence = self._put(body.result or ""), self._put(body.evidence or "")
                return _replace(body, result=result or None, evidence=evidence or None)
            case _:
                return body

    def _model_call(self, body: e.ModelCallStarted) -> e.ModelCallStarted:
        """Return a model call whose names are those of others: a view holds all of them."""
        provider = body.provider and self._same(body.provider)
        model = body.model and self._same(body.model)
        return _replace(body, id=self._same(body.id), provider=provider, model=model)

    def _same(self, name: str) -> str:
        if len(self._names) > _NAMES:
            self._names.clear()
        return self._names.setdefault(name, name)

    def _part(self, part: Part, *, broke_off: bool = False) -> Part:
        match part:
            case Text():
                return Text(self._put(part.text))
            case Reasoning() if MASK not in part.text:
                signed = {"signature": part.signature, "encrypted": part.encrypted}
                held = {name: text and self._put(text) for name, text in signed.items()}
                return _replace(part, text=self._put(part.text), extra=None, **held)
            case ToolCall() if not broke_off:  # else a view looks whether the call is whole
                arguments = self._same(self._put(part.arguments))
                return ToolCall(
                    self._same(part.id), self._same(part.name), arguments, part.tool_type
                )
            case ToolResult():
                return self._result(part)
            case Opaque():
                return Opaque(part.provider, b"")
            case _:
                return part

    def _result(self, result: ToolResult) -> ToolResult:
        """Return a result with words. Its structured content speaks only where no text does."""
        if isinstance(result.content, str):
            content, speaks = self._put(result.content), bool(result.content.strip())
            held = _replace(result, call_id=self._same(result.call_id), content=content)
        else:
            parts = result.content
            speaks = any(isinstance(part, Text) and part.text.strip() for part in parts)
            held = _replace(result, content=tuple(map(self._part, parts)))
        return _replace(held, structured=None) if speaks else held

    def _put(self, text: str) -> str:
        if len(text) <= self._longer_than:
            return text
        inner = text.strip()
        try:
            data = inner.encode()
        except UnicodeEncodeError:
            return text
        if not data:
            return text
        begin = len(text) - len(text.lstrip())
        word = f"{self._number}{self._file.add(data):012x}{len(data):012x}"
        return f"{text[:begin]}{word}{text[begin + len(inner) :]}"

    # -- on the way out ------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a text with those in it that were put by."""
        return self._word.sub(self._found, text) if self._number in text else text

    def _found(self, word: re.Match[str]) -> str:
        return self._file.at(int(word[1], 16), int(word[2], 16)).decode()

    def part(self, part: Part) -> Part:
        """Return a part with its texts."""
        match part:
            case Text():
                return Text(self.text(part.text))
            case Reasoning():
                signed = {"signature": part.signature, "encrypted": part.encrypted}
                whole = {name: text and self.text(text) for name, text in signed.items()}
                return _replace(part, text=self.text(part.text), **whole)
            case ToolCall():
                return _replace(part, arguments=self.text(part.arguments))
            case ToolResult():
                return self.result(part)
            case _:
                return part

    def result(self, result: ToolResult) -> ToolResult:
        if isinstance(result.content, str):
            return _replace(result, content=self.text(result.content))
        return _replace(result, content=tuple(map(self.part, result.content)))

    def shown(self, item: Shown) -> Shown:
        """Return what a person sees with its texts; what is folded in it is left as it is."""
        parts, tools = tuple(map(self.part, item.parts)), tuple(map(self._tool, item.tools))
        return _replace(item, parts=parts, tools=tools)

    def _tool(self, tool: ShownTool) -> ShownTool:
        settled = tool.settled
        if settled is not None:
            result, evidence = self.text(settled.result or ""), self.text(settled.evidence or "")
            settled = _replace(settled, result=result, evidence=evidence)
        return _replace(
            tool,
            arguments=self.text(tool.arguments),
            result=None if tool.result is None else self.result(tool.result),
            output=None if tool.output is None else self.text(tool.output),
            settled=settled,
        )


Words = Callable[[Shown], Shown]
"""Brings the texts of an item that were put by; not of what is folded in it."""


def person_sees(session: Session, longer_than: int = LONG) -> tuple[list[Shown], Words]:
    """Return what a person sees, without long texts, and what brings them.

    While a turn runs it has all texts: what the turn has said so far is in no entry yet.
    """
    seen, shelf = JournalFacts(), Shelf(longer_than)
    entries = shelf.entries(session, seen)
    if seen.running:
        return session.transcript(), lambda item: item
    return transcript(entries, lambda _seq: (), seen.history), shelf.shown
