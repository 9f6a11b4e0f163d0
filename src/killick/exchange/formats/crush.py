"""Crush, and opencode before it was written anew: `crush.db`, `opencode.db` in a project's folder.

A message's parts are one column of JSON: a type and its data each. Times are in seconds. Most of it
is often in the log beside the database, which is read with it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions
from killick.exchange.formats import content as c
from killick.exchange.read import SourceDatabase, each, json_of, opened, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Reasoning, ToolResult
from killick.model.sessions import Project

NAME: Final = "crush"

_ROLES: Final = ("user", "assistant", "tool", "system")
_COLUMNS: Final = (
    "rowid", "id", "role", "parts", "model", "provider", "created_at", "finished_at",
    "is_summary_message",
)  # fmt: skip
_RESTING_US: Final = 600_000_000


def crush(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield every session of a database, as of one moment; it may be in use. Raises OSError."""
    with opened(path) as database:
        rows = list(database.rows("SELECT rowid AS _row, * FROM sessions ORDER BY rowid"))
        newest = max((time_us(row.get("updated_at")) or 0 for row in rows), default=0)
        for about in rows:
            rests = settled or newest - (time_us(about.get("updated_at")) or 0) > _RESTING_US
            yield _source(database, path, about, settled=rests)
        for stray in database.strays("messages", "session_id", "sessions"):
            location = SourceLocation(str(path), stray["rowid"])
            yield r.ProblemRecord(
                location=location, reason=f"there is no session {stray['id']!r}", repaired=True
            )
            about = {"id": stray["id"], "_row": stray["rowid"]}
            yield _source(database, path, about, settled=settled)


def _source(
    database: SourceDatabase, path: Path, about: dict[str, Any], *, settled: bool
) -> Source:
    own = about.get("id")
    native = own if c.is_id(own) else f"{path}/{about['_row']}"
    records = _records(database, path, native, about)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


def _records(
    database: SourceDatabase, path: Path, native: str, about: dict[str, Any]
) -> Iterator[r.Record]:
    location = SourceLocation(str(path), about["_row"])
    parent = about.get("parent_session_id")
    kept = ("prompt_tokens", "completion_tokens", "cost")
    extra = {name: about[name] for name in kept if isinstance(about.get(name), int | float)}
    yield r.BeginRecord(
        location=location,
        at_us=time_us(about.get("created_at")),
        native_id=native,
        type="subagent" if c.is_id(parent) else "user",
        project=Project(str(path.resolve().parent.parent)),
        extra=extra if c.is_json(extra) else {},
        parent=parent if c.is_id(parent) else None,
    )
    title = c.title_of(about.get("title"))
    if title is not None:
        yield r.TitleRecord(location=location, title=title, by="model")
    order = "WHERE session_id = ? ORDER BY created_at, rowid"
    for row in each(database.select("messages", _COLUMNS, order, about.get("id"))):
        if isinstance(row, str):
            yield r.ProblemRecord(location=location, reason=row)
            return
        location = SourceLocation(str(path), row["rowid"])
        try:
            parts = json_of(row["parts"])
        except ValueError as error:
            yield r.ProblemRecord(
                location=location, reason=f"a message that cannot be read: {error}"
            )
            continue
        summary = bool(row["is_summary_message"]) or (
            row["id"] is not None and row["id"] == about.get("summary_message_id")
        )
        yield from _read_message(location, native, row, parts, summary=summary)


def _read_message(
    location: SourceLocation, native: str, row: dict[str, Any], parts: object, *, summary: bool
) -> Iterator[r.Record]:
    role, at = row["role"], time_us(row["created_at"])
    if role not in _ROLES:
        yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
        return
    parsed, finish = c.Content(), dict[str, Any]()
    for part in c.blocks(parsed, parts):
        data = c.as_dict(part.get("data"))
        if part.get("type") == "finish":
            finish = data
        else:
            _part(parsed, part.get("type"), data)
    if summary:
        yield r.SummaryRecord(location=location, at_us=at, text=c.words(parsed.parts))
        return
    own, reason = row["id"], finish.get("reason")
    cut = role == "assistant" and reason in ("canceled", "error")
    if parsed.parts or parsed.results or parsed.bad:
        yield from c.message_records(
            location,
            at,
            "user" if role == "tool" else role,
            parsed,
            key=own if c.is_id(own) else f"{native}/{location.line}",
            prompt=role == "user",
            model_call=r.ModelCallRecord(
                provider=c.as_text(row["provider"]),
                model=c.as_text(row["model"]),
                usage=None,
                finish_reason=c.as_text(reason),
            ),
            partial=cut,
            streams=role == "assistant" and not finish,
        )
    if role == "assistant":
        yield from _ending(location, finish)


def _ending(location: SourceLocation, finish: dict[str, Any]) -> Iterator[r.Record]:
    at, detail = time_us(finish.get("time")), c.as_text(finish.get("details"))
    detail = detail or c.as_text(finish.get("message"))
    match finish.get("reason"):
        case "canceled":
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted",
                reason="canceled",
                detail=detail,
                cause="stopped",
            )
        case "error":
            yield r.TurnEndRecord(
                location=location, at_us=at, status="failed", reason="error", detail=detail
            )
        case _:
            pass


def _part(parsed: c.Content, kind: object, data: dict[str, Any]) -> None:
    match kind:
        case "text":
            if data.get("text") != "":
                parsed.text(data.get("text"))
        case "reasoning":
            text, signature = data.get("thinking"), data.get("signature")
            sealed = signature if c.is_sealed(signature) else None
            if (isinstance(text, str) and text) or sealed:
                words = text if isinstance(text, str) else ""
                parsed.parts.append(Reasoning(words, signature=sealed))
        case "tool_call":
            given = data.get("input", "")
            text = given if isinstance(given, str) else c.compact(given)
            parsed.call(data.get("id"), data.get("name"), text or "{}")
        case "tool_result":
            call_id, content = data.get("tool_call_id"), data.get("content", "")
            if not c.is_id(call_id):
                parsed.bad.append("a tool result without the id of its call")
                return
            text = content if isinstance(content, str) else c.compact(content)
            failed = data.get("is_error") is True
            parsed.results.append(ToolResult(call_id, text, is_error=failed))
        case "binary" if parsed.picture(data.get("Data"), data.get("MIMEType")):
            pass
        case _:
            parsed.opaque("crush-part", {"type": kind, "data": data})  # kept, never sent


def _claims(peek: Peek) -> bool:
    has = peek.tables
    return "parts" in has.get("messages", ()) and "message_count" in has.get("sessions", ())


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    return crush(path, settled=reading.settled)


FORMAT: Final = Format(name=NAME, claims=_claims, read=_read, commands=("crush",))
