"""goose: `sessions.db` of every schema version, the JSON lines before it, and exported JSON.

The three hold the same messages. A message may be hidden from the person, from the model, or from
both, and compaction hides old ones long after they were said. Rows are taken in the order in which
they were written: goose itself sorts by a clock that some rows have in seconds and some in ms.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen
from killick.exchange.formats import content as c
from killick.exchange.read import (
    BYTES_MAX,
    SourceDatabase,
    SourceLine,
    as_bytes,
    each,
    json_of,
    opened,
    parse_object,
    read_document,
    read_lines,
    read_listed,
    shape,
    time_us,
)
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Opaque, Reasoning, ToolResult

NAME: Final = "goose"

_TYPES: Final = {"sub_agent": "subagent"}
_EXTRA: Final = (
    "goose_mode", "schedule_id", "recipe_json", "recipe", "user_recipe_values_json",
    "user_recipe_values", "extension_data", "total_tokens", "input_tokens", "output_tokens",
    "accumulated_total_tokens", "accumulated_input_tokens", "accumulated_output_tokens",
)  # fmt: skip
_LOOKED_AT: Final = 20
_RESTING_US: Final = 600_000_000
"""A session that is so far behind the newest of its database is not being written to."""

_COLUMNS: Final = (
    "id", "role", "content_json", "created_timestamp", "message_id", "metadata_json",
)  # fmt: skip

Row = tuple[SourceLocation, dict[str, Any] | None, str | None]
"""A message as it stands, or why there is none."""


# -- the three sources -----------------------------------------------------------------------------


def is_goose(record: dict[str, Any]) -> bool:
    """Tell whether this is an exported session, or the first of JSON lines."""
    return "working_dir" in record and "role" not in record


def goose_database(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield every session of a database, as of one moment; it may be in use.

    Each is read while it is taken over, so the next is asked for afterwards. Raises OSError.
    """
    with opened(path) as database:
        newest = max(
            (
                time_us(row["updated_at"]) or 0
                for row in database.rows("SELECT max(updated_at) AS updated_at FROM sessions")
            ),
            default=0,
        )
        for about in database.rows("SELECT rowid AS _row, * FROM sessions ORDER BY rowid"):
            location = SourceLocation(str(path), about["_row"])
            rows = _database_rows(database, about.get("id"))
            behind = newest - (time_us(about.get("updated_at")) or 0)
            rests = settled or behind > _RESTING_US
            yield _source(path, location, about, rows, settled=rests)
        for stray in database.strays("messages", "session_id", "sessions"):
            location = SourceLocation(str(path), stray["rowid"])
            yield r.ProblemRecord(
                location=location, reason=f"there is no session {stray['id']!r}", repaired=True
            )
            rows = _database_rows(database, stray["id"])
            yield _source(path, location, {"id": stray["id"]}, rows, settled=settled)


def goose_file(path: Path, *, settled: bool) -> Source:
    """Return an exported session, or that of JSON lines, whose id is the file's name."""
    location = SourceLocation(str(path), 1)
    listed = read_listed(path, "conversation")
    if listed is not None and is_goose(listed.about):
        rows = _document_rows(path, listed.rows())
        return _source(path, location, listed.about, rows, settled=settled)
    if path.stat().st_size <= BYTES_MAX:
        about = read_document(path).value
        if isinstance(about, dict) and is_goose(about) and "conversation" in about:
            messages = about["conversation"]
            rows = _document_rows(path, messages if isinstance(messages, list) else ())
            return _source(path, location, about, rows, settled=settled)
    about, lines = {"id": path.stem}, read_lines(path)
    for line in islice(read_lines(path), _LOOKED_AT):
        if line.record is not None and is_goose(line.record):
            about |= line.record
            location = line.location
            break
    return _source(path, location, about, _line_rows(lines, settled=settled), settled=settled)


def _document_rows(path: Path, messages: Iterable[Any]) -> Iterator[Row]:
    for number, message in enumerate(messages, start=1):
        location = SourceLocation(str(path), number)
        if isinstance(message, dict):
            yield location, message, None
        else:
            yield location, None, "not a message: it is no object"


def _database_rows(database: SourceDatabase, session_id: object) -> Iterator[Row]:
    """Yield the rows; missing columns get the values that a newer goose would fill in."""
    name = str(database.path)
    location = SourceLocation(name)
    rows = database.select("messages", _COLUMNS, "WHERE session_id = ? ORDER BY id", session_id)
    for row in each(rows):
        if isinstance(row, str):
            yield location, None, row
            continue
        location = SourceLocation(name, row["id"])
        try:
            yield location, {
                "id": row["message_id"] or f"msg_{session_id}_{row['id']}",
                "role": row["role"],
                "created": row["created_timestamp"],
                "content": json_of(row["content_json"]),
                "metadata": json_of(row["metadata_json"]),
            }, None  # fmt: skip
        except ValueError as error:
            yield location, None, f"a message that cannot be read: {error}"


def _line_rows(lines: Iterable[SourceLine], *, settled: bool) -> Iterator[Row]:
    known = False
    for line in lines:
        if line.record is not None and is_goose(line.record) and not known:
            known = True  # what it says of the session
        elif line.record is not None or settled or not line.torn:
            yield line.location, line.record, line.problem


# -- what they have in common ----------------------------------------------------------------------


def _source(
    path: Path,
    location: SourceLocation,
    about: dict[str, Any],
    rows: Iterable[Row],
    *,
    settled: bool,
) -> Source:
    native = about.get("id")
    name = native if c.is_id(native) else path.stem
    records = _SessionReader(name, about).records(location, rows)
    return Source(NAME, name, str(path), records, settled, answer_ends=True, changes_late=True)


class _SessionReader:
    """The records of one session."""

    def __init__(self, name: str, about: dict[str, Any]) -> None:
        self._name = name
        self._about = about
        self._model_call = _model_call(about)
        self._seen: dict[str, int] = {}

    def records(self, location: SourceLocation, rows: Iterable[Row]) -> Iterator[r.Record]:
        about, folder = self._about, self._about.get("working_dir")
        kind = about.get("session_type")
        extra = {name: about[name] for name in _EXTRA if about.get(name) not in (None, "", "{}")}
        yield r.BeginRecord(
            location=location,
            at_us=time_us(about.get("created_at")) or 0,
            native_id=self._name,
            type=_TYPES.get(kind, kind) if isinstance(kind, str) and kind else "user",
            project=c.project_of(folder),
            extra=extra if c.is_json(extra) else {},
        )
        title = about.get("name") or about.get("description")
        if isinstance(title, str) and title.strip():
            by_person = bool(about.get("user_set_name"))
            yield r.TitleRecord(
                location=location, title=title, by="person" if by_person else "model"
            )
        for where, message, problem in rows:
            if message is None:
                yield r.ProblemRecord(location=where, reason=problem or "not a message")
            else:
                yield from self._read_message(where, message)

    def _read_message(
        self, location: SourceLocation, message: dict[str, Any]
    ) -> Iterator[r.Record]:
        role, blocks = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
            return
        parsed = c.Content()
        for block in c.blocks(parsed, blocks):
            _block(parsed, block)
        for what in parsed.bad:
            yield r.ProblemRecord(location=location, reason=what)
        at, (person, model) = time_us(message.get("created")), _visible(message)
        for result in parsed.results:
            yield r.ResultRecord(
                location=location,
                at_us=at,
                result=result,
                blobs=c.blobs_in(result, parsed.blobs),
                person=person,
                model=model,
            )
        if parsed.parts or (not parsed.results and not parsed.bad):
            speaks = any(not isinstance(part, Opaque) for part in parsed.parts)
            yield r.MessageRecord(
                location=location,
                at_us=at,
                role=role,
                parts=tuple(parsed.parts),
                key=self._key(location, message),
                blobs=parsed.blobs,
                begins_turn=role == "user" and person and speaks and not parsed.results,
                model_call=self._model_call if role == "assistant" and speaks else None,
                person=person,
                model=model,
            )

    def _key(self, location: SourceLocation, message: dict[str, Any]) -> str:
        """Return a key of its own for each row; the rows of one answer share an id."""
        own = message.get("id")
        name = own if c.is_id(own) else f"{NAME}/{location.line}"
        count = self._seen[name] = self._seen.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _model_call(about: dict[str, Any]) -> r.ModelCallRecord | None:
    provider, config = about.get("provider_name"), about.get("model_config")
    if isinstance(about.get("model_config_json"), str):
        try:
            config = parse_object(as_bytes(about["model_config_json"]))
        except ValueError:
            config = None
    model = config.get("model_name") if isinstance(config, dict) else None
    if not isinstance(provider, str) and not isinstance(model, str):
        return None
    return r.ModelCallRecord(
        provider=provider if isinstance(provider, str) else None,
        model=model if isinstance(model, str) else None,
    )


def _visible(message: dict[str, Any]) -> tuple[bool, bool]:
    """Tell whether the person and the model are shown it; without metadata both are."""
    metadata = message.get("metadata")
    if not isinstance(metadata, dict):
        return True, True
    return metadata.get("userVisible") is not False, metadata.get("agentVisible") is not False


def _block(parsed: c.Content, block: dict[str, Any]) -> None:
    match block.get("type"):
        case "text":
            parsed.text(block.get("text"))
        case "image" if parsed.picture(block.get("data"), block.get("mimeType")):
            pass
        case "thinking" | "reasoning":
            text, signature = block.get("thinking", block.get("text")), block.get("signature")
            signed = signature if isinstance(signature, str) and signature else None
            if isinstance(text, str) and (text or signed):
                parsed.parts.append(Reasoning(text, signature=signed))
        case "redactedThinking" if c.is_sealed(block.get("data")):
            parsed.opaque("anthropic", {"type": "redacted_thinking", "data": block["data"]})
        case "toolRequest" | "frontendToolRequest" if _call(parsed, block):
            pass
        case "toolResponse":
            _result(parsed, block)
        case _:
            parsed.opaque("goose-block", block)  # kept, never sent


def _call(parsed: c.Content, block: dict[str, Any]) -> bool:
    """Add a call; False for one that the model wrote wrongly."""
    call = block.get("toolCall")
    if not isinstance(call, dict) or call.get("status") != "success":
        return False
    value = call.get("value")
    if not isinstance(value, dict):
        return False
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"value": arguments}
    parsed.call(block.get("id"), value.get("name"), c.compact(arguments))
    return True


def _result(parsed: c.Content, block: dict[str, Any]) -> None:
    call_id, outcome = block.get("id"), block.get("toolResult")
    if not c.is_id(call_id) or not isinstance(outcome, dict):
        parsed.bad.append("a tool's response without the id of its call")
        return
    if outcome.get("status") == "error":
        parsed.results.append(ToolResult(call_id, str(outcome.get("error", "")), is_error=True))
        return
    value = outcome.get("value")
    inner = c.Content()
    is_error, structured = False, None
    if isinstance(value, dict):
        is_error, structured = value.get("isError") is True, value.get("structuredContent")
        value = value.get("content", [])
    for inner_block in c.blocks(inner, value):
        _block(inner, inner_block)
    parsed.bad += inner.bad
    parsed.blobs |= inner.blobs
    content = c.plain_or_parts(inner.parts)
    parsed.results.append(ToolResult(call_id, content, is_error=is_error, structured=structured))


# -- where they are --------------------------------------------------------------------------------


def _claims(peek: Peek) -> bool:
    if peek.tables:
        has = peek.tables
        return "messages" in has and "working_dir" in has.get("sessions", ())
    if any(_is_message(record) for record in peek.records):
        return True
    value = peek.document.value
    return isinstance(value, dict) and is_goose(value) and "conversation" in value


def _is_message(record: dict[str, Any]) -> bool:
    """Tell whether this is a message's line; other programs' first lines have folders, too."""
    return {"role", "created"} <= record.keys() and isinstance(record.get("content"), list)


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    if shape(path):
        return goose_database(path, settled=reading.settled)
    return [goose_file(path, settled=reading.settled)]


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    root = environment.get("GOOSE_PATH_ROOT")
    shared = chosen(environment, "XDG_DATA_HOME", home / ".local" / "share")
    return [(Path(root) / "data" if root else shared / "goose") / "sessions"]


FORMAT: Final = Format(
    name=NAME, claims=_claims, read=_read, places=_places, commands=("goose", "goosed")
)
