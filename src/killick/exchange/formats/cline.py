"""Cline: `sessions/<id>/<id>.messages.json`, and the older `tasks/<id>/` folders.

A session's messages are one document that is written anew on every save. Beside it lie what is
known of the session (`<id>.json`) and its newest compaction (`<id>.compaction.json`), which counts
only as long as it fits the messages. A task's folder has the messages as a plain list, without ids
and times; these are in `ui_messages.json`, as far as anywhere, and so is the range of messages that
the model was not sent any more.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen
from killick.exchange.formats import content as c
from killick.exchange.formats.content import message_records, title_of, words
from killick.exchange.read import SourceDocument, parse, read_document, rows_of, time_us
from killick.exchange.records import Source, SourceLocation
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.model.entries import Usage
from killick.model.messages import Part, Text, ToolCall, ToolResult
from killick.model.sessions import Namer

NAME: Final = "cline"

_MESSAGES: Final = ".messages.json"
_COMPACTION: Final = ".compaction.json"
_TASK: Final = "api_conversation_history.json"
_UI: Final = "ui_messages.json"

_UI_ROW: Final = re.compile(r'\{\s*"ts"\s*:')
_CUT: Final = re.compile(r"\s*\[Response interrupted by (user|API Error)\]\s*\Z")
_WRAPPED: Final = re.compile(r"\s*<(task|user_input|feedback|user_message)[^>]*>(.*?)</\1>", re.S)
_ASKED_FOR: Final = re.compile(
    r"<(task|feedback|answer|user_message|user_input)\b|^\[TASK RESUMPTION\]", re.M
)
_TOOL_TEXT: Final = re.compile(r"\s*\[[\w-]+(?: for [^\]]*)?\] Result:|\s*\[ERROR\]")
_RESULT: Final = re.compile(r"\s*\[([\w-]+)(?: for [^\n]*?)?\] Result:[ \t]*\n?")
_ASIDE: Final = re.compile(r"\s*(<environment_details>|# (TODO|task_progress)\b)")
_FAILED: Final = ("The tool execution failed", "[ERROR]", "Error:")
_ABOUT: Final = (
    "source", "status", "exit_code", "provider", "model", "team_name", "agent_id",
    "conversation_id", "prompt",
)  # fmt: skip


# -- the current files -----------------------------------------------------------------------------


def cline_session(path: Path, *, settled: bool) -> Source:
    """Return the session of a file of messages. Raises OSError."""
    document = read_document(path)
    own = document.value if isinstance(document.value, dict) else {}
    name = path.name.removesuffix(_MESSAGES)
    about = _beside(path.with_name(f"{name}.json"))
    root = own.get("sessionId")
    native = name if name == root or not c.is_id(root) or about else f"{root}/{name}"
    reading = _SessionReader(path, native, own, about, settled=settled)
    return Source(
        NAME,
        native,
        str(path),
        reading.records(document),
        settled or about.get("status") in ("completed", "failed", "cancelled"),
        answer_ends=True,
        changes_late=True,
    )


def _beside(path: Path) -> dict[str, Any]:
    """Return a small document beside the messages; an empty one if it is missing or damaged."""
    try:
        value = read_document(path).value
    except OSError:
        return {}
    return value if isinstance(value, dict) else {}


class _SessionReader:
    """The records of one file of messages."""

    def __init__(
        self,
        path: Path,
        native: str,
        own: dict[str, Any],
        about: dict[str, Any],
        *,
        settled: bool,
    ) -> None:
        self._path = path
        self._native = native
        self._own = own
        self._about = about
        self._settled = settled
        self._compaction = _beside(path.with_name(path.name.removesuffix(_MESSAGES) + _COMPACTION))
        self._system = own.get("system_prompt")
        self._open: set[str] = set()
        self._answered = False

    def records(self, document: SourceDocument) -> Iterator[r.Record]:
        rows = rows_of(document, "messages")
        location = SourceLocation(str(self._path), 1)
        yield from self._begin(location, rows)
        for number, reason in document.problems:
            yield r.ProblemRecord(location=SourceLocation(str(self._path), number), reason=reason)
        for count, (number, message) in enumerate(rows, start=1):
            location = SourceLocation(str(self._path), number)
            if isinstance(message, dict):
                yield from self._read_message(location, message)
            else:
                yield r.ProblemRecord(location=location, reason="not a message: it is no object")
            if count == self._compaction.get("source_message_count"):
                yield from self._compaction_records(location, message, rows[:count])
        yield from self._ending(location)

    def _begin(self, location: SourceLocation, rows: list[tuple[int, Any]]) -> Iterator[r.Record]:
        about, first = self._about, rows[0][1] if rows else None
        cwd, metadata = about.get("cwd"), about.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        extra = {name: about[name] for name in _ABOUT if about.get(name) is not None}
        if isinstance(metadata.get("fork"), dict):
            extra["fork"] = metadata["fork"]
        parent = about.get("parent_session_id")
        root = self._own.get("sessionId")
        if not c.is_id(parent) and self._native.startswith(f"{root}/"):
            parent = root
        at = time_us(about.get("started_at"))
        if at is None and isinstance(first, dict):
            at = time_us(first.get("ts"))
        yield r.BeginRecord(
            location=location,
            at_us=at or 0,
            native_id=self._native,
            type="subagent" if c.is_id(parent) or about.get("is_subagent") else "user",
            project=c.project_of(cwd),
            extra=extra if c.is_json(extra) else {},
            parent=parent if c.is_id(parent) else None,
        )
        title = title_of(metadata.get("title") or about.get("prompt") or _prompt_of(first))
        if title is not None:
            by: Namer = "model" if metadata.get("title") else "import"
            yield r.TitleRecord(location=location, title=title, by=by)

    def _read_message(
        self, location: SourceLocation, message: dict[str, Any]
    ) -> Iterator[r.Record]:
        role, metadata = message.get("role"), message.get("metadata")
        if role not in ("user", "assistant"):
            yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
            return
        metadata = metadata if isinstance(metadata, dict) else {}
        parsed = _content(message.get("content"))
        shown = metadata.get("displayRole") != "system"
        span = metadata.get("userRunSpan")
        prompt = role == "user" and shown and not parsed.results and span != 0
        at = time_us(message.get("ts"))
        yield from message_records(
            location,
            at,
            role,
            parsed,
            key=_key(message, location),
            prompt=prompt,
            person=shown,
            model_call=self._model_call(message),
        )
        more = {name: metadata[name] for name in sorted(metadata) if name != "displayRole"}
        if more and c.is_json(more):
            yield r.OpaqueRecord(location=location, at_us=at, name="metadata", data=more)
        self._follow(role, parsed)

    def _follow(self, role: str, parsed: c.Content) -> None:
        self._open |= {part.id for part in parsed.parts if isinstance(part, ToolCall)}
        self._open -= {result.call_id for result in parsed.results}
        self._answered = role == "assistant" and bool(parsed.parts)

    def _model_call(self, message: dict[str, Any]) -> r.ModelCallRecord:
        model, metrics = message.get("modelInfo"), message.get("metrics")
        model = model if isinstance(model, dict) else {}
        provider, name = model.get("provider"), model.get("id")
        system = self._system
        return r.ModelCallRecord(
            provider=provider if isinstance(provider, str) else None,
            model=name if isinstance(name, str) else None,
            usage=_metrics(metrics),
            system=system if isinstance(system, str) and system else None,
        )

    def _compaction_records(
        self, location: SourceLocation, last: object, before: list[tuple[int, Any]]
    ) -> Iterator[r.Record]:
        """Yield the newest compaction if it is of these messages."""
        compaction = self._compaction
        named = compaction.get("source_last_message_key")
        own = last.get("id") if isinstance(last, dict) else None
        if isinstance(named, str) and named.startswith("id:") and named != f"id:{own}":
            what = "its compaction is of other messages than these; it was left out"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)
            return
        known = {
            _same(message): _key(message, SourceLocation(str(self._path), number))
            for number, message in before
            if isinstance(message, dict)
        }
        texts, kept = list[str](), set[str]()
        messages = compaction.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if not isinstance(message, dict):
                continue
            key = known.get(_same(message))
            if key is not None:
                kept.add(key)
            else:
                texts.append(words(_content(message.get("content")).parts))
        yield r.SummaryRecord(
            location=location,
            late=True,
            text="\n\n".join(text for text in texts if text.strip()),
            kept_keys=frozenset(kept),
        )

    def _ending(self, location: SourceLocation) -> Iterator[r.Record]:
        """Yield the last turn's ending unless an answer ended it."""
        if self._answered and not self._open:
            return
        metadata = self._about.get("metadata")
        marker = metadata.get("terminal_marker") if isinstance(metadata, dict) else None
        at = time_us(self._about.get("ended_at"))
        match self._about.get("status"):
            case "cancelled":
                yield r.TurnEndRecord(
                    location=location,
                    at_us=at,
                    status="interrupted",
                    reason="cancelled",
                    cause="cancelled",
                )
            case "failed":
                why = marker if isinstance(marker, str) and marker else "failed"
                yield r.TurnEndRecord(location=location, at_us=at, status="failed", reason=why)
            case _:
                pass


# -- the older folders -----------------------------------------------------------------------------


class _Ui(msgspec.Struct):
    """Facts from the rows for the screen about the messages for the model."""

    times: dict[int, int] = {}
    usage: dict[int, Usage] = {}
    cancelled: dict[int, str] = {}
    range: tuple[int, int] | None = None
    problems: list[tuple[int | None, str]] = []


def cline_task(path: Path, *, settled: bool) -> Source:
    """Return the session of a task's folder. Raises OSError.

    Older models wrote their calls as text, so an answer without a call may not be the last.
    """
    native = path.name
    source = _TaskReader(path, native, settled=settled)
    return Source(
        NAME,
        native,
        str(path / _TASK),
        source.records(),
        settled,
        changes_late=True,
    )


class _TaskReader:
    """The records of one task."""

    def __init__(self, path: Path, native: str, *, settled: bool) -> None:
        self._path = path
        self._native = native
        self._settled = settled
        self._file = str(path / _TASK)
        self._history = _history_item(path, native)
        self._ui = _ui(path / _UI)
        self._calls: list[ToolCall] = []
        self._model = _model_usage(path / "task_metadata.json")

    def records(self) -> Iterator[r.Record]:
        document = read_document(self._path / _TASK)
        rows = rows_of(document, "")
        location = SourceLocation(self._file, 1)
        yield from self._begin(location, rows)
        for number, reason in document.problems:
            yield r.ProblemRecord(location=SourceLocation(self._file, number), reason=reason)
        for number, reason in self._ui.problems:
            yield r.ProblemRecord(
                location=SourceLocation(str(self._path / _UI), number), reason=reason
            )
        gone = self._deleted(len(rows))
        for index, (number, message) in enumerate(rows):
            location = SourceLocation(self._file, number)
            if isinstance(message, dict):
                last = index == len(rows) - 1
                yield from self._read_message(
                    location, index, message, last=last, model=index not in gone
                )
            else:
                yield r.ProblemRecord(location=location, reason="not a message: it is no object")

    def _begin(self, location: SourceLocation, rows: list[tuple[int, Any]]) -> Iterator[r.Record]:
        item = self._history
        cwd = item.get("cwdOnTaskInitialization")
        names = ("ulid", "totalCost", "size", "isFavorited", "modelId")
        extra = {name: item[name] for name in names if item.get(name) is not None}
        at = time_us(int(self._native)) if self._native.isdigit() else None
        at = at or self._ui.times.get(0) or time_us(item.get("ts"))
        yield r.BeginRecord(
            location=location,
            at_us=at or 0,
            native_id=self._native,
            project=c.project_of(cwd),
            extra=extra if c.is_json(extra) else {},
        )
        title = title_of(item.get("task") or _prompt_of(rows[0][1] if rows else None))
        if title is not None:
            yield r.TitleRecord(location=location, title=title)

    def _deleted(self, count: int) -> range:
        """Return the messages that the model is no longer sent; both ends of the range count."""
        known = self._ui.range or _range(self._history.get("conversationHistoryDeletedRange"))
        if known is None or known[0] < 1 or known[1] < known[0]:
            return range(0)
        return range(known[0], min(known[1] + 1, count))

    def _read_message(
        self,
        location: SourceLocation,
        index: int,
        message: dict[str, Any],
        *,
        last: bool,
        model: bool,
    ) -> Iterator[r.Record]:
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
            return
        parsed, at = _content(message.get("content")), self._ui.times.get(index)
        at = at or time_us(message.get("ts"))
        cut = _cut_off(parsed) if role == "assistant" else None
        if role == "assistant":
            self._calls = [part for part in parsed.parts if isinstance(part, ToolCall)]
        else:
            _pair(parsed, self._calls)
        text = words(parsed.parts)
        prompt = role == "user" and (
            index == 0
            or bool(_ASKED_FOR.search(text))
            or not (parsed.results or _TOOL_TEXT.match(text))
        )
        aside = bool(parsed.results) and _is_aside(parsed)
        for record in message_records(
            location,
            at,
            role,
            parsed,
            key=f"{NAME}/{index}",
            prompt=prompt,
            model_call=self._model_call(index),
            model=model,
            partial=cut is not None,
        ):
            if aside and isinstance(record, r.MessageRecord):
                record.person = False
            yield record
        if cut is None and (role == "assistant" or (last and self._settled)):
            cut = self._ui.cancelled.get(index if role == "user" else index - 1)
        if cut is not None:
            yield _ending_of(location, at, cut)

    def _model_call(self, index: int) -> r.ModelCallRecord:
        provider, model = self._model
        usage = self._ui.usage.get(index - 1)
        return r.ModelCallRecord(provider=provider, model=model, usage=usage)


def _pair(parsed: c.Content, calls: list[ToolCall]) -> None:
    """Take the results that stand as text, one for each native call, in the order of the calls.

    A block names its tool; a result alone on its line stands in the block behind it.
    """
    kept, waits = list[Part](), list[ToolCall]()
    for part in parsed.parts:
        match = _RESULT.match(part.text) if isinstance(part, Text) else None
        call = next((call for call in calls if match is not None and call.name == match[1]), None)
        if call is not None and match is not None and isinstance(part, Text):
            calls.remove(call)
            _answer(parsed, waits, "")
            waits.append(call)
            if part.text[match.end() :].strip():
                _answer(parsed, waits, part.text[match.end() :])
        elif waits and isinstance(part, Text) and not _ASIDE.match(part.text):
            _answer(parsed, waits, part.text)
        else:
            kept.append(part)
    _answer(parsed, waits, "")
    parsed.parts[:] = kept


def _answer(parsed: c.Content, waits: list[ToolCall], text: str) -> None:
    if waits:
        failed = text.lstrip().startswith(_FAILED)
        parsed.results.append(ToolResult(waits.pop().id, text, is_error=failed))


def _is_aside(parsed: c.Content) -> bool:
    """Tell whether all that a message says beside results is what Cline puts there."""
    return all(isinstance(part, Text) and _ASIDE.match(part.text) for part in parsed.parts)


def _ending_of(location: SourceLocation, at: int | None, why: str) -> r.TurnEndRecord:
    if why in ("user", "user_cancelled"):
        return r.TurnEndRecord(
            location=location,
            at_us=at,
            status="interrupted",
            reason="user_cancelled",
            cause="stopped",
        )
    return r.TurnEndRecord(location=location, at_us=at, status="failed", reason="streaming_failed")


def _cut_off(parsed: c.Content) -> str | None:
    """Return who cut an answer off, and remove the words that the agent put behind it."""
    for at in range(len(parsed.parts) - 1, -1, -1):
        part = parsed.parts[at]
        if isinstance(part, Text):
            match = _CUT.search(part.text)
            if match is None:
                return None
            rest = part.text[: match.start()]
            parsed.parts[at : at + 1] = [Text(rest)] if rest else []
            return match[1]
    return None


def _ui(path: Path) -> _Ui:
    ui = _Ui()
    try:
        document = read_document(path, _UI_ROW)
    except FileNotFoundError:
        return ui
    except OSError as error:
        ui.problems.append((None, f"it cannot be read: {error.strerror or error}"))
        return ui
    ui.problems += document.problems
    index = 0
    for number, row in rows_of(document, ""):
        if not isinstance(row, dict):
            ui.problems.append((number, "not a row for the screen: it is no object"))
            continue
        own = row.get("conversationHistoryIndex")
        if isinstance(own, int) and not isinstance(own, bool):
            index = max(own, 0)
        _ui_row(ui, index, row)
    return ui


def _ui_row(ui: _Ui, index: int, row: dict[str, Any]) -> None:
    at = time_us(row.get("ts"))
    if at is not None:
        ui.times.setdefault(index, at)
    ui.range = _range(row.get("conversationHistoryDeletedRange")) or ui.range
    if row.get("say") != "api_req_started" or not isinstance(row.get("text"), str):
        return
    try:
        request = parse(to_bytes(row["text"]))
    except ValueError:
        return
    if isinstance(request, dict):
        used = _metrics(request)
        if used is not None:
            ui.usage[index] = used
        if isinstance(request.get("cancelReason"), str):
            ui.cancelled[index] = request["cancelReason"]


def _range(value: object) -> tuple[int, int] | None:
    match value:
        case [int() as first, int() as last]:
            return first, last
        case _:
            return None


def _history_item(folder: Path, native: str) -> dict[str, Any]:
    """Return the item of this task in the list of tasks."""
    try:
        document = read_document(folder.parent.parent / "state" / "taskHistory.json")
    except OSError:
        return {}
    items = [item for _, item in rows_of(document, "") if isinstance(item, dict)]
    return next((item for item in items if item.get("id") == native), {})


def _model_usage(path: Path) -> tuple[str | None, str | None]:
    """Return the newest provider and model of a task."""
    used = _beside(path).get("model_usage")
    newest = used[-1] if isinstance(used, list) and used else None
    if not isinstance(newest, dict):
        return None, None
    provider, model = newest.get("model_provider_id"), newest.get("model_id")
    return (
        provider if isinstance(provider, str) else None,
        model if isinstance(model, str) else None,
    )


# -- what they have in common ----------------------------------------------------------------------


def _content(content: object) -> c.Content:
    """Parse Anthropic's blocks and Cline's own."""
    if isinstance(content, list):
        content = [_translated(block) if isinstance(block, dict) else block for block in content]
    return c.anthropic(content, NAME)


def _translated(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "image" and "data" in block:
        source = {"type": "base64", "media_type": block.get("mediaType"), "data": block["data"]}
        return {"type": "image", "source": source}
    if kind == "tool_result" and isinstance(block.get("content"), list):
        inner = [
            _translated(inner_block) if isinstance(inner_block, dict) else inner_block
            for inner_block in block["content"]
        ]
        return block | {"content": inner}
    return block


def _metrics(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    cached = _number(value, "cacheReadTokens", "cacheReads")
    cost = value.get("cost")
    return Usage(
        input=_number(value, "inputTokens", "tokensIn"),
        output=_number(value, "outputTokens", "tokensOut"),
        cached=cached,
        cost=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
    )


def _number(value: dict[str, Any], *names: str) -> int:
    return next((n for name in names if (n := c.count(value, name))), 0)


def _prompt_of(message: object) -> str | None:
    """Return the text that the person typed, without its wrapping."""
    if not isinstance(message, dict):
        return None
    text = words(_content(message.get("content")).parts)
    match = _WRAPPED.match(text)
    return match[2] if match is not None else text


def _key(message: dict[str, Any], location: SourceLocation) -> str:
    own = message.get("id")
    return own if c.is_id(own) else f"{NAME}/{location.line}"


def _same(message: dict[str, Any]) -> str:
    """Return a digest of role and content; a compaction changes ids and times."""
    kept = [message.get("role"), message.get("content")]
    return digest(to_bytes(json.dumps(kept, sort_keys=True, default=str)))


# -- which files -----------------------------------------------------------------------------------


def _claims(peek: Peek) -> bool:
    name = peek.path.name
    if name in (_TASK, _UI):
        # Nothing in the list itself says whose it is: the two files together do.
        return all((peek.path.parent / file_name).is_file() for file_name in (_TASK, _UI))
    if not name.endswith(".json"):
        return False
    value = peek.document.value
    if not isinstance(value, dict):
        damaged = name.endswith(_MESSAGES) and not peek.document.whole
        return damaged and any("role" in row for _, row in peek.document.rows)
    if "source_message_count" in value or _is_manifest(value):
        return _unit(peek.path) != peek.path
    messages = value.get("messages")
    if not isinstance(messages, list) or "projectHash" in value:
        return False
    if not messages or (isinstance(messages[0], dict) and "role" in messages[0]):
        return bool({"agent", "origin", "sessionId"} & value.keys())
    return False


def _is_manifest(value: dict[str, Any]) -> bool:
    return isinstance(value.get("session_id"), str) and "messages_path" in value


def _unit(path: Path) -> Path:
    """Return the messages' file of a file beside it, or the folder of a task."""
    if path.name in (_TASK, _UI):
        return path.parent
    name = path.name.removesuffix(_MESSAGES).removesuffix(_COMPACTION).removesuffix(".json")
    messages = path.with_name(name + _MESSAGES)
    return messages if messages.is_file() else path


def _read(path: Path, reading: ReadOptions) -> Iterable[Source]:
    if path.is_dir():
        return [cline_task(path, settled=reading.settled)]
    return [cline_session(path, settled=reading.settled)]


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    own = chosen(environment, "CLINE_DIR", home / ".cline") / "data"
    data = chosen(environment, "CLINE_DATA_DIR", own)
    yield chosen(environment, "CLINE_SESSION_DATA_DIR", data / "sessions")
    yield data / "tasks"
    for code in (home / ".config", home / "Library" / "Application Support"):
        yield code / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev" / "tasks"


FORMAT: Final = Format(
    name=NAME, claims=_claims, read=_read, unit=_unit, places=_places, commands=("cline",)
)
