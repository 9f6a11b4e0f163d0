"""Gemini CLI: `tmp/*/chats/session-*.jsonl`, the older `.json`, and saved checkpoints.

Since 0.61 a file is lines: a header, messages, and `{"$set": …}` with what has changed. A message
that was written again takes the place of the first. Before, the whole document was written anew on
each save. A call and its result are in one message; the results come again as the user's parts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek
from killick.exchange.formats import content as c
from killick.exchange.read import read_document, read_lines, rows_of, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Reasoning, ToolResult

NAME: Final = "gemini"

_ROW: Final = re.compile(r'\{\s*"(?:id|role|content|timestamp)"\s*:')
_INJECTED: Final = re.compile(r"\s*<session_context>|\s*This is the Gemini CLI\. We are setting up")
_TYPES: Final = ("user", "gemini", "info", "error", "warning")
_FAILED: Final = ("error", "cancelled")

Row = tuple[SourceLocation, dict[str, Any]]


class _Chat(msgspec.Struct):
    """The content of a file: what it says of itself, its messages, and what is bad."""

    about: dict[str, Any] = {}
    rows: list[Row] = []
    problems: list[r.ProblemRecord] = []


def gemini(path: Path, *, settled: bool) -> Source:
    """Return the session of a file. Raises OSError."""
    chat = _read(path, settled=settled)
    own = chat.about.get("sessionId")
    native = own if c.is_id(own) else path.stem
    if path.stem.startswith("checkpoint"):
        native = str(path.resolve())
    records = _SessionReader(native, chat).records(path)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


def _read(path: Path, *, settled: bool) -> _Chat:
    """Read it as what its first line says it is; where that says nothing, as its name says."""
    first = next(read_lines(path), None)
    record = c.as_dict(first.record if first is not None else None)
    is_document = "messages" in record if "projectHash" in record else path.name.endswith(".json")
    return _document(path) if is_document else _lines(path, settled=settled)


def _document(path: Path) -> _Chat:
    document = read_document(path, _ROW)
    chat = _Chat(c.as_dict(document.value))
    for number, reason in document.problems:
        location = SourceLocation(str(path), number)
        chat.problems.append(r.ProblemRecord(location=location, reason=reason))
    for number, row in rows_of(document, "messages"):
        location = SourceLocation(str(path), number)
        if isinstance(row, dict):
            chat.rows.append((location, row))
        else:
            what = "not a message: it is no object"
            chat.problems.append(r.ProblemRecord(location=location, reason=what))
    return chat


def _lines(path: Path, *, settled: bool) -> _Chat:
    """Fold the lines: what was written last of each message is what it says."""
    chat = _Chat()
    by_id: dict[str, Row] = {}
    for line in read_lines(path):
        record, location = line.record, line.location
        if record is None:
            if settled or not line.torn:
                what = line.problem or "not a record"
                chat.problems.append(r.ProblemRecord(location=location, reason=what))
        elif isinstance(record.get("$set"), dict):
            changed = dict(record["$set"])
            messages = changed.pop("messages", None)
            chat.about |= changed
            for row in messages if isinstance(messages, list) else ():
                if isinstance(row, dict):
                    _put(by_id, location, row)
        elif "projectHash" in record and "type" not in record:
            chat.about = record | chat.about
        elif record.get("type") in _TYPES or "content" in record:
            _put(by_id, location, record)
        elif "$rewindTo" in record:
            _rewind(by_id, record["$rewindTo"])
        else:
            what = "a line of no kind that is known"
            chat.problems.append(r.ProblemRecord(location=location, reason=what))
    chat.rows = list(by_id.values())
    return chat


def _put(by_id: dict[str, Row], location: SourceLocation, row: dict[str, Any]) -> None:
    own = row.get("id")
    name = own if c.is_id(own) else f"{location.line}/{len(by_id)}"
    before = by_id[name][1] if name in by_id else row
    if before.get("type") != "gemini" and before != row:  # only an answer is written again
        name = f"{name}#{len(by_id)}"
    by_id[name] = (by_id[name][0] if name in by_id else location, row)


def _rewind(by_id: dict[str, Row], name: object) -> None:
    names = list(by_id)
    if isinstance(name, str) and name in by_id:
        for gone in names[names.index(name) :]:
            del by_id[gone]


class _SessionReader:
    """The records of one session."""

    def __init__(self, native: str, chat: _Chat) -> None:
        self._native = native
        self._chat = chat
        self._answered: dict[str, ToolResult] = {}
        self._growing = False
        """An answer is written again, with its calls, until something stands behind it."""

    def records(self, path: Path) -> Iterator[r.Record]:
        chat, location = self._chat, SourceLocation(str(path), 1)
        about = chat.about
        is_agent = about.get("kind") == "subagent"
        yield r.BeginRecord(
            location=location,
            at_us=time_us(about.get("startTime")),
            native_id=self._native,
            type="subagent" if is_agent else "user",
            extra=c.texts_of(about, "projectHash", "kind"),
        )
        title = c.title_of(about.get("summary"))
        if title is not None:
            yield r.TitleRecord(location=location, title=title, by="model")
        yield from chat.problems
        last = chat.rows[-1] if chat.rows else None
        for location, row in chat.rows:
            self._growing = row is chat.rows[-1][1]
            yield from self._read_row(location, row)
        if last is not None and last[1].get("type") == "error":
            yield r.TurnEndRecord(
                location=last[0],
                status="failed",
                reason="error",
                detail=c.words(c.gemini(last[1].get("content")).parts) or None,
            )

    def _read_row(self, location: SourceLocation, row: dict[str, Any]) -> Iterator[r.Record]:
        kind, at = row.get("type"), time_us(row.get("timestamp"))
        own = row.get("id")
        key = own if c.is_id(own) else f"{self._native}/{location.line}"
        if kind == "user" or (kind is None and row.get("role") == "user"):
            yield from self._read_user(location, at, row, key)
        elif kind == "gemini" or (kind is None and row.get("role") == "model"):
            yield from self._read_answer(location, at, row, key)
        elif isinstance(kind, str):
            yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=row)
        else:
            yield r.ProblemRecord(location=location, reason="a message that does not say its kind")

    def _read_user(
        self, location: SourceLocation, at: int | None, row: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        parsed = c.gemini(row.get("content", row.get("parts")))
        # They were in the message of their calls already, there perhaps as errors.
        parsed.results = [
            result
            for result in parsed.results
            if (known := self._answered.get(result.call_id)) is None
            or known.content != result.content
        ]
        if not parsed.parts and not parsed.results and not parsed.bad:
            return
        injected = bool(_INJECTED.match(c.words(parsed.parts)))
        yield from c.message_records(
            location,
            at,
            "user",
            parsed,
            key=key,
            prompt=not injected and not parsed.results,
            person=not injected,
        )

    def _read_answer(
        self, location: SourceLocation, at: int | None, row: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        parsed = c.gemini(row.get("content", row.get("parts")))
        thoughts = [_thought(thought) for thought in c.as_list(row.get("thoughts"))]
        parsed.parts[:0] = [Reasoning(text) for text in thoughts if text]
        for number, call in enumerate(c.as_list(row.get("toolCalls"))):
            if isinstance(call, dict):
                self._read_call(parsed, call, f"{key}/{number}")
            else:
                parsed.bad.append("a tool call that is none")
        if not parsed.parts and not parsed.bad:
            return
        results, parsed.results = parsed.results, []
        yield from c.message_records(
            location,
            at,
            "assistant",
            parsed,
            key=key,
            model_call=_model_call(row),
            growing=self._growing,
        )
        for result in results:
            yield r.ResultRecord(location=location, at_us=at, result=result)

    def _read_call(self, parsed: c.Content, call: dict[str, Any], otherwise: str) -> None:
        own = call.get("id")
        call_id = own if c.is_id(own) else otherwise
        parsed.call(call_id, call.get("name"), c.compact(c.as_dict(call.get("args"))))
        failed = call.get("status") in _FAILED
        results = call.get("result")
        for part in c.as_list(results):
            response = c.as_dict(part).get("functionResponse")
            if isinstance(response, dict) and call_id not in self._answered:
                c.gemini_result(parsed, response, call_id, failed=failed)
                self._answered[call_id] = parsed.results[-1]
        shown = call.get("resultDisplay")
        if call_id not in self._answered and isinstance(shown, str) and call.get("status"):
            c.gemini_result(parsed, {"response": shown}, call_id, failed=failed)
            self._answered[call_id] = parsed.results[-1]


def _thought(value: object) -> str:
    thought = c.as_dict(value)
    words = [thought.get("subject"), thought.get("description")]
    return "\n".join(text for text in words if isinstance(text, str) and text)


def _model_call(row: dict[str, Any]) -> r.ModelCallRecord:
    return r.ModelCallRecord(
        provider="gemini",
        model=c.as_text(row.get("model")),
        usage=c.tokens(row.get("tokens"), "input", "output", "cached", "thoughts"),
    )


def _claims(peek: Peek) -> bool:
    if peek.tables:
        return False
    if any("projectHash" in record and "sessionId" in record for record in peek.records):
        return True
    if not peek.path.name.endswith(".json"):
        return _is_headless(peek.records)
    value = peek.document.value
    if isinstance(value, dict):
        return "projectHash" in value and isinstance(value.get("messages"), list)
    rows = value if isinstance(value, list) else [row for _, row in peek.document.rows]
    return _is_contents(rows) or (
        not peek.document.whole and peek.path.name.startswith("session-") and _is_headless(rows)
    )


def _is_contents(rows: list[Any]) -> bool:
    """Tell whether these are Gemini's contents: a role and parts."""
    return bool(rows) and all(
        isinstance(row, dict)
        and row.get("role") in ("user", "model")
        and isinstance(row.get("parts"), list)
        for row in rows
    )


def _is_headless(rows: list[dict[str, Any]]) -> bool:
    """Tell whether these are messages of a file whose beginning was lost."""
    messages = [row for row in rows if isinstance(row, dict) and "$set" not in row]
    return any(row.get("type") == "gemini" and "content" in row for row in messages)


def _misfits(peek: Peek) -> tuple[int, int]:
    if len(peek.records) > 1:
        strange = sum(
            not ("$set" in record or "$rewindTo" in record or "projectHash" in record)
            and record.get("type") not in _TYPES
            for record in peek.records
        )
        return strange, len(peek.records)
    return 0, 1


def _newest_us(path: Path) -> int | None:
    """Return the time of the last message."""
    chat = _read(path, settled=True)
    times = [time_us(row.get("timestamp")) for _, row in chat.rows]
    return max((at for at in times if at is not None), default=None)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return [Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"]


def _works_in(path: Path) -> str | None:
    """Return the folder that Gemini CLI notes above its chats."""
    try:
        return (path.resolve().parent.parent / ".project_root").read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [gemini(path, settled=reading.settled)],
    places=_places,
    newest_us=_newest_us,
    misfits=_misfits,
    commands=("gemini", "gemini-cli"),
    works_in=_works_in,
)
