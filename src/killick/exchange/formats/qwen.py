"""Qwen Code: `projects/*/chats/*.jsonl`, one file for each session.

The envelope of a line is Claude Code's, but a message is Gemini's: `message.parts`. Its lines name
the line before them, so going back is seen. An answer that was cut off is written like a whole one,
or in the line of telemetry before it alone. A server counts tokens at an answer's end, so one that
is not counted was cut off, unless an earlier one was not either: then the server counts none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, chosen, misfits
from killick.exchange.formats import content as c
from killick.exchange.formats.tree import Tree
from killick.exchange.read import newest_us, read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Text, ToolCall

NAME: Final = "qwen"

_FAILED: Final = ("error", "cancelled")
_API_ERROR: Final = "qwen-code.api_error"
_API_RESPONSE: Final = "qwen-code.api_response"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)


def is_qwen(record: dict[str, Any]) -> bool:
    """Tell whether this is a line of such a file."""
    if not _fits(record):
        return False
    message = record.get("message")
    return "systemPayload" in record or (isinstance(message, dict) and "parts" in message)


def _fits(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and "uuid" in record and "sessionId" in record


def qwen(path: Path, *, settled: bool) -> Source:
    """Return the session of a file."""
    first = c.first_record(path, lambda _record: True)
    session_id = first.get("sessionId")
    native = path.stem if _UUID.fullmatch(path.stem) or not c.is_id(session_id) else session_id
    records = _SessionReader(native, first, settled=settled).records(path)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


class _SessionReader:
    """The records of one file."""

    def __init__(self, native: str, first: dict[str, Any], *, settled: bool) -> None:
        self._native = native
        self._first = first
        self._settled = settled
        self._tree = Tree()
        self._callers: dict[str, str] = {}
        self._awaits_answer = False
        self._failure: r.TurnEndRecord | None = None
        self._uncounted: r.MessageRecord | None = None
        """The answer of which telemetry tells no tokens, until its own line comes."""
        self._counts: bool | None = None
        """Whether the newest answer was counted."""

    def records(self, path: Path) -> Iterator[r.Record]:
        first = self._first
        yield r.BeginRecord(
            location=SourceLocation(str(path), 1),
            at_us=time_us(first.get("timestamp")),
            native_id=self._native,
            project=c.project_of(first.get("cwd")),
            extra=c.texts_of(first, "version", "gitBranch"),
        )
        yield from c.line_records(read_lines(path), self._read_line, settled=self._settled)
        if self._settled:
            yield from self._cut_off()

    def _cut_off(self) -> Iterator[r.Record]:
        """Yield what came of an answer that has no line of its own: its words, or its failure."""
        if self._uncounted is not None and self._uncounted.parts:
            yield self._uncounted
        if self._failure is not None:
            yield self._failure

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, message = record.get("type"), record.get("message")
        if kind in ("user", "assistant", "tool_result") and isinstance(message, dict):
            yield from self._read_message(location, record, message, str(kind))
        elif not isinstance(kind, str):
            yield r.ProblemRecord(location=location, reason="a line that does not say its kind")
        elif kind in ("user", "assistant", "tool_result"):
            yield r.ProblemRecord(
                location=location, reason=f"a line of kind {kind} without a message"
            )
        else:
            self._tree.pass_by(record.get("uuid"), record.get("parentUuid"))
            yield from self._read_aside(location, record, kind)

    def _read_message(
        self, location: SourceLocation, record: dict[str, Any], message: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        parsed = c.gemini(message.get("parts"))
        outcome = c.as_dict(record.get("toolCallResult"))
        if outcome.get("status") in _FAILED:
            parsed.results = [_failed(result) for result in parsed.results]
        prompt = kind == "user" and not parsed.results
        if prompt:
            yield from self._cut_off()
        partial = kind == "assistant" and self._is_cut_off(record, parsed)
        self._uncounted = self._failure = None  # an answer came after all: the agent asked again
        self._awaits_answer = kind != "assistant"
        own = record.get("uuid")
        if prompt:
            yield from self._tree.go_to(location, record.get("parentUuid"))
        key = own if c.is_id(own) else f"{self._native}/{location.line}"
        if parsed.results and not parsed.parts:
            self._tree.pass_by(own, record.get("parentUuid"))
        else:
            self._tree.add(own, key)
        yield from c.message_records(
            location,
            time_us(record.get("timestamp")),
            "assistant" if kind == "assistant" else "user",
            parsed,
            key=key,
            prompt=prompt,
            model_call=_model_call(record),
            partial=partial,
        )

    def _is_cut_off(self, record: dict[str, Any], parsed: c.Content) -> bool:
        """Tell whether an answer broke off: its server counts tokens, and counted none of it."""
        before, self._counts = self._counts, isinstance(record.get("usageMetadata"), dict)
        called = any(isinstance(part, ToolCall) for part in parsed.parts)
        uncounted = self._uncounted is not None and not self._counts
        return uncounted and before is not False and not called

    def _read_aside(
        self, location: SourceLocation, record: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        at, payload = time_us(record.get("timestamp")), c.as_dict(record.get("systemPayload"))
        event = c.as_dict(payload.get("uiEvent"))
        if event.get("event.name") == _API_ERROR and self._awaits_answer:
            detail = c.as_text(event.get("error_message"))
            self._failure = r.TurnEndRecord(
                location=location, at_us=at, status="failed", reason="error", detail=detail
            )
        if event.get("event.name") == _API_RESPONSE and self._awaits_answer:
            self._uncounted = (
                None
                if c.count(event, "total_token_count")
                else _unwritten(location, at, event, f"{self._native}/{location.line}")
            )
        history = payload.get("compressedHistory")
        if record.get("subtype") == "chat_compression" and isinstance(history, list):
            texts = [
                c.words(c.gemini(c.as_dict(content).get("parts")).parts) for content in history[:1]
            ]
            yield r.SummaryRecord(location=location, at_us=at, text="\n".join(texts))
        title = payload.get("customTitle") or payload.get("title")
        if isinstance(title, str) and title.strip() and "title" in str(record.get("subtype")):
            yield r.TitleRecord(location=location, title=title)
        yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=record)


def _unwritten(
    location: SourceLocation, at_us: int | None, event: dict[str, Any], key: str
) -> r.MessageRecord:
    text = c.as_text(event.get("response_text"))
    return r.MessageRecord(
        location=location,
        at_us=at_us,
        role="assistant",
        parts=(Text(text),) if text else (),
        key=key,
        partial=True,
        model_call=r.ModelCallRecord(model=c.as_text(event.get("model"))),
    )


def _failed(result: Any) -> Any:
    return type(result)(result.call_id, result.content, is_error=True)


def _model_call(record: dict[str, Any]) -> r.ModelCallRecord:
    return r.ModelCallRecord(
        provider=None,
        model=c.as_text(record.get("model")),
        usage=c.tokens(
            record.get("usageMetadata"),
            "promptTokenCount",
            "candidatesTokenCount",
            "cachedContentTokenCount",
            "thoughtsTokenCount",
        ),
    )


def _claims(peek: Peek) -> bool:
    return any(is_qwen(record) for record in peek.records)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return [chosen(environment, "QWEN_HOME", home / ".qwen") / "projects"]


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [qwen(path, settled=reading.settled)],
    places=_places,
    newest_us=newest_us,
    misfits=misfits(_fits),
    commands=("qwen", "qwen-code"),
)
