"""Copilot CLI: `session-state/<id>/events.jsonl`, a log of events.

Only some are of the conversation: what the person and the model said, and what tools returned. The
rest is kept in notes.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, chosen, misfits
from killick.exchange.formats import content as c
from killick.exchange.read import newest_us, read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.entries import Usage
from killick.model.messages import Reasoning, ToolResult

NAME: Final = "copilot"

_MARKS: Final = {
    "session.start": "sessionId",
    "user.message": "content",
    "assistant.message": "messageId",
    "tool.execution_complete": "toolCallId",
}
"""Events of the conversation, and what each says of itself."""


def is_copilot(record: dict[str, Any]) -> bool:
    """Tell whether this is an event of the conversation."""
    mark = _MARKS.get(str(record.get("type")))
    return mark is not None and mark in c.as_dict(record.get("data"))


def _fits(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and isinstance(record.get("data"), dict)


def copilot(path: Path, *, settled: bool) -> Source:
    """Return the session of a log."""
    about, at = _about(path)
    own = about.get("sessionId")
    native = own if c.is_id(own) else (path.parent if path.stem == "events" else path).name
    records = _SessionReader(native, about, at, settled=settled).records(path)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


def _about(path: Path) -> tuple[dict[str, Any], int | None]:
    start = c.first_record(path, _is_start)
    return c.as_dict(start.get("data")), time_us(start.get("timestamp"))


def _is_start(record: dict[str, Any]) -> bool:
    return record.get("type") == "session.start" and isinstance(record.get("data"), dict)


class _SessionReader:
    """The records of one log."""

    def __init__(
        self, native: str, about: dict[str, Any], at: int | None, *, settled: bool
    ) -> None:
        self._native = native
        self._about = about
        self._at = at
        self._settled = settled
        self._system: str | None = None
        self._usage: Usage | None = None

    def records(self, path: Path) -> Iterator[r.Record]:
        about = self._about
        yield r.BeginRecord(
            location=SourceLocation(str(path), 1),
            at_us=time_us(about.get("startTime")) or self._at,
            native_id=self._native,
            project=c.project_of(c.as_dict(about.get("context")).get("cwd")),
            extra=c.texts_of(about, "copilotVersion"),
        )
        yield from c.line_records(read_lines(path), self._read_line, settled=self._settled)

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, data, at = record.get("type"), record.get("data"), time_us(record.get("timestamp"))
        if not isinstance(kind, str) or not isinstance(data, dict):
            yield r.ProblemRecord(location=location, reason="a line that is no event")
            return
        key = self._key(location, record, data)
        match kind:
            case "user.message":
                yield from _read_prompt(location, at, data, key)
            case "assistant.message":
                yield from self._read_answer(location, at, data, key)
            case "tool.execution_complete":
                yield from _read_result(location, at, data)
            case "system.message" if isinstance(data.get("content"), str):
                self._system = data["content"]
            case "session.usage_record" | "assistant.usage":
                self._usage = _usage(c.as_dict(data.get("usage")) or data)
                yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=record)
            case _:
                yield from _read_aside(location, at, record, kind, data)

    def _key(self, location: SourceLocation, record: dict[str, Any], data: dict[str, Any]) -> str:
        own = data.get("messageId") or record.get("id")
        return own if c.is_id(own) else f"{self._native}/{location.line}"

    def _read_answer(
        self, location: SourceLocation, at: int | None, data: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        parsed = c.Content()
        thought = data.get("reasoningText")
        sealed = data.get("encryptedContent")
        if isinstance(thought, str) and thought:
            parsed.parts.append(
                Reasoning(thought, encrypted=sealed if c.is_sealed(sealed) else None)
            )
        if data.get("content") is not None:
            parsed.text(data["content"])
        for call in c.as_list(data.get("toolRequests")):
            request = c.as_dict(call)
            arguments = request.get("arguments", {})
            text = arguments if isinstance(arguments, str) else c.compact(arguments)
            parsed.call(request.get("toolCallId"), request.get("name"), text)
        usage, self._usage = self._usage, None
        own = data.get("apiCallId")
        call_ids = {"request": own} if c.is_id(own) else {}
        if parsed.parts or parsed.bad:
            yield from c.message_records(
                location,
                at,
                "assistant",
                parsed,
                key=key,
                model_call=r.ModelCallRecord(
                    model=c.as_text(data.get("model")),
                    usage=usage,
                    provider_ids=call_ids,
                    system=self._system,
                ),
            )


def _read_prompt(
    location: SourceLocation, at: int | None, data: dict[str, Any], key: str
) -> Iterator[r.Record]:
    """Read what the person typed, not the text around it that the model was sent."""
    parsed = c.Content()
    parsed.text(data.get("content"))
    source = data.get("source")
    typed = source in (None, "user") or not isinstance(source, str)
    yield from c.message_records(location, at, "user", parsed, key=key, prompt=typed, person=typed)
    for attachment in c.as_list(data.get("attachments")):
        yield r.OpaqueRecord(location=location, at_us=at, name="attachment", data=attachment)


def _read_result(
    location: SourceLocation, at: int | None, data: dict[str, Any]
) -> Iterator[r.Record]:
    call_id, failed = data.get("toolCallId"), data.get("success") is False
    if not c.is_id(call_id):
        yield r.ProblemRecord(location=location, reason="a result without the id of its call")
        return
    value, error = data.get("result"), c.as_dict(data.get("error"))
    text = c.as_dict(value).get("content") if isinstance(value, dict) else value
    if text is None:
        text = error.get("message")
    content = text if isinstance(text, str) else c.compact(text if text is not None else "")
    result = ToolResult(call_id, content, is_error=failed)
    yield r.ResultRecord(location=location, at_us=at, result=result)


def _read_aside(
    location: SourceLocation,
    at: int | None,
    record: dict[str, Any],
    kind: str,
    data: dict[str, Any],
) -> Iterator[r.Record]:
    match kind:
        case "abort":
            reason = c.as_text(data.get("reason"))
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted",
                reason="abort",
                detail=reason,
                cause="stopped",
            )
        case "session.error":
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="failed",
                reason=c.as_text(data.get("errorType")) or "error",
                detail=c.as_text(data.get("message")),
            )
        case "session.compaction_complete" if isinstance(data.get("summaryContent"), str):
            yield r.SummaryRecord(location=location, at_us=at, text=data["summaryContent"])
        case "session.title_changed" if c.title_of(data.get("title")) is not None:
            title = c.title_of(data["title"])
            assert title is not None
            yield r.TitleRecord(location=location, title=title, by="model")
        case _:
            pass
    yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=record)


def _usage(value: dict[str, Any]) -> Usage | None:
    return c.tokens(value, "inputTokens", "outputTokens", "cacheReadTokens")


def _claims(peek: Peek) -> bool:
    return any(is_copilot(record) for record in peek.records)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return [chosen(environment, "COPILOT_HOME", home / ".copilot") / "session-state"]


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [copilot(path, settled=reading.settled)],
    places=_places,
    newest_us=newest_us,
    misfits=misfits(_fits),
    commands=("copilot",),
)
