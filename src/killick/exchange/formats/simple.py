"""Simple: JSON lines that any program can write in ten lines, for agents that we do not know.

The first line says what it is, `{"simple": 1, "id": …}`. Each further line is something that was
said or done, in order: `{"role": "user", "text": …}`, `{"role": "assistant", "text": …, "thought":
…, "calls": [{"id", "name", "arguments"}]}`, `{"role": "tool", "call": …, "text": …}`,
`{"role": "system", "text": …}`, `{"end": "completed"}`, `{"title": …}`, `{"summary": …}`. The page
on the format says the rest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek
from killick.exchange.formats import content as c
from killick.exchange.read import read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.causes import Cause
from killick.model.messages import Reasoning, Role, ToolResult

NAME: Final = "simple"
VERSION: Final = 1

_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
_STATUSES: Final[dict[str, Literal["completed", "failed", "interrupted"]]] = {
    "completed": "completed",
    "failed": "failed",
    "interrupted": "interrupted",
}
_STOPPED: Final[Cause] = "stopped"


def is_simple(record: dict[str, Any]) -> bool:
    """Tell whether this is the first line of such a file."""
    return type(record.get("simple")) is int


def simple(path: Path, *, settled: bool) -> Source | r.ProblemRecord:
    """Return the session of a file, or that a later version wrote it."""
    about = c.first_record(path, is_simple)
    if about["simple"] != VERSION:
        reason = f"it is Simple {about['simple']}, and only version {VERSION} can be read"
        return r.ProblemRecord(location=SourceLocation(str(path), 1), reason=reason)
    own = about.get("id")
    native = own if c.is_id(own) else str(path.resolve())
    records = _SessionReader(native, about, settled=settled).records(path)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


class _SessionReader:
    """The records of one file."""

    def __init__(self, native: str, about: dict[str, Any], *, settled: bool) -> None:
        self._native = native
        self._about = about
        self._settled = settled

    def records(self, path: Path) -> Iterator[r.Record]:
        about = self._about
        location = SourceLocation(str(path), 1)
        named = about.get("parent")
        parent = named if c.is_id(named) and named != self._native else None
        yield r.BeginRecord(
            location=location,
            at_us=time_us(about.get("at")),
            native_id=self._native,
            type="subagent" if parent else "user",
            project=c.project_of(about.get("cwd")),
            extra=c.texts_of(about, "agent", "version"),
            parent=parent,
        )
        yield from c.line_records(read_lines(path), self._read_line, settled=self._settled)

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        at, role = time_us(record.get("at")), record.get("role")
        title = record.get("title")
        if isinstance(title, str) and title.strip():
            yield r.TitleRecord(location=location, title=title)
        if is_simple(record) or (role is None and "title" in record):
            return
        if role == "tool":
            yield from _read_result(location, at, record)
        elif isinstance(role, str) and role in _ROLES:
            yield from self._read_message(location, at, record, _ROLES[role])
        elif isinstance(record.get("summary"), str):
            yield r.SummaryRecord(location=location, at_us=at, text=record["summary"])
        elif isinstance(record.get("end"), str) and record["end"] in _STATUSES:
            yield _ending(location, at, record)
        else:
            yield r.ProblemRecord(location=location, reason="a line of no kind that is known")

    def _read_message(
        self, location: SourceLocation, at: int | None, record: dict[str, Any], role: Role
    ) -> Iterator[r.Record]:
        parsed = c.Content()
        thought = record.get("thought")
        if isinstance(thought, str) and thought:
            parsed.parts.append(Reasoning(thought))
        if record.get("text") is not None:
            parsed.text(record["text"])
        for image in c.as_list(record.get("images")):
            given = c.as_dict(image)
            if not parsed.picture(given.get("data"), given.get("type")):
                parsed.bad.append("an image that is none")
        for call in c.as_list(record.get("calls")):
            given = c.as_dict(call)
            arguments = given.get("arguments", {})
            text = arguments if isinstance(arguments, str) else c.compact(arguments)
            parsed.call(given.get("id"), given.get("name"), text)
        own = record.get("id")
        partial = record.get("partial") is True and role == "assistant"
        yield from c.message_records(
            location,
            at,
            role,
            parsed,
            key=own if c.is_id(own) else f"{self._native}/{location.line}",
            prompt=role == "user",
            person=record.get("hidden") is not True,
            partial=partial,
            streams=partial,
            model_call=r.ModelCallRecord(
                provider=c.as_text(record.get("provider")),
                model=c.as_text(record.get("model")),
                usage=c.tokens(record.get("tokens"), "input", "output", "cached"),
            ),
        )


def _read_result(
    location: SourceLocation, at: int | None, record: dict[str, Any]
) -> Iterator[r.Record]:
    call_id, text = record.get("call"), record.get("text", "")
    if not c.is_id(call_id):
        yield r.ProblemRecord(location=location, reason="a result without the id of its call")
        return
    content = text if isinstance(text, str) else c.compact(text)
    result = ToolResult(call_id, content, is_error=record.get("error") is True)
    yield r.ResultRecord(location=location, at_us=at, result=result)


def _ending(location: SourceLocation, at: int | None, record: dict[str, Any]) -> r.TurnEndRecord:
    status = _STATUSES[record["end"]]
    reason = c.as_text(record.get("reason"))
    return r.TurnEndRecord(
        location=location,
        at_us=at,
        status=status,
        reason=reason,
        cause=_STOPPED if status == "interrupted" and record.get("stopped") is True else None,
    )


def _fits(record: dict[str, Any]) -> bool:
    return is_simple(record) or any(name in record for name in ("role", "end", "title", "summary"))


def _claims(peek: Peek) -> bool:
    return any(is_simple(record) for record in peek.records[:1])


def _misfits(peek: Peek) -> tuple[int, int]:
    return sum(not _fits(record) for record in peek.records), len(peek.records)


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [simple(path, settled=reading.settled)],
    misfits=_misfits,
)
