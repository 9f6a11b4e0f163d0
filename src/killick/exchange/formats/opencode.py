"""opencode and Kilo: their database, the older folders `storage/`, and exported documents.

All three hold the same messages and parts. A call and its result are one part; one that is pending
or running in a session at rest has no result. Messages are in the order of their times and ids,
parts in that of their ids.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen
from killick.exchange.formats import content as c
from killick.exchange.read import (
    SourceDatabase,
    each,
    json_of,
    opened,
    read_document,
    shape,
    time_us,
)
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Reasoning, ToolResult

NAME: Final = "opencode"
KILO: Final = "kilo"

_RESTING_US: Final = 600_000_000
_DATA: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)\Z", re.S)
_SILENT: Final = ("step-start", "step-finish")
_EXTRA: Final = ("slug", "version", "agent", "cost", "project_id", "projectID")
_PLACEHOLDER: Final = re.compile(r"(New|Child) session - \d{4}-")

Part = tuple[SourceLocation, dict[str, Any]]
Message = tuple[SourceLocation, dict[str, Any], list[Part]]


# -- the three sources -----------------------------------------------------------------------------


def database(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield every session of a database, as of one moment; it may be in use. Raises OSError."""
    name = _agent(path)
    with opened(path) as opened_:
        rows = list(opened_.rows("SELECT rowid AS _row, * FROM session ORDER BY rowid"))
        newest = max((time_us(row.get("time_updated")) or 0 for row in rows), default=0)
        for about in rows:
            rests = settled or newest - (time_us(about.get("time_updated")) or 0) > _RESTING_US
            location = SourceLocation(str(path), about["_row"])
            messages = _rows(opened_, str(about.get("id")))
            yield _source(name, str(path), location, about, messages, settled=rests)
        for stray in opened_.strays("message", "session_id", "session"):
            location = SourceLocation(str(path), stray["rowid"])
            yield r.ProblemRecord(
                location=location, reason=f"there is no session {stray['id']!r}", repaired=True
            )
            messages = _rows(opened_, str(stray["id"]))
            yield _source(name, str(path), location, {"id": stray["id"]}, messages, settled=settled)


def _rows(source: SourceDatabase, session_id: str) -> Iterator[Message | r.ProblemRecord]:
    name, location = str(source.path), SourceLocation(str(source.path))
    wanted = ("rowid", "id", "time_created", "data")
    order = "WHERE session_id = ? ORDER BY time_created, id"
    for row in each(source.select("message", wanted, order, session_id)):
        if isinstance(row, str):
            yield r.ProblemRecord(location=location, reason=row)
            return
        location = SourceLocation(name, row["rowid"])
        parts = list[Part]()
        chosen_parts = source.select("part", wanted, "WHERE message_id = ? ORDER BY id", row["id"])
        for part in each(chosen_parts):
            if isinstance(part, str):
                yield r.ProblemRecord(location=location, reason=part)
                break
            where = SourceLocation(name, part["rowid"])
            value = _parsed(part["data"])
            if value is None:
                yield r.ProblemRecord(location=where, reason="a part that cannot be read")
            else:
                parts.append((where, {"id": part["id"]} | value))
        value = _parsed(row["data"])
        if value is None:
            yield r.ProblemRecord(location=location, reason="a message that cannot be read")
            value = {"role": "assistant" if _has_tool(parts) else "user"} if parts else None
        if value is not None:
            yield location, {"id": row["id"], "at": row["time_created"]} | value, parts


def _has_tool(parts: list[Part]) -> bool:
    return any(part.get("type") in ("tool", "reasoning", "step-start") for _, part in parts)


def _parsed(value: object) -> dict[str, Any] | None:
    try:
        decoded = json_of(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


def storage(folder: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield every session of a folder `storage`."""
    name = _agent(folder)
    for path in sorted(folder.glob("session/*/*.json")):
        if path.parent.name in ("message", "part", "share"):
            continue
        about = _document(path)
        if about is None or not c.is_id(about.get("id")):
            yield r.ProblemRecord(
                location=SourceLocation(str(path)), reason="a session that cannot be read"
            )
            continue
        messages = _files(folder, about["id"])
        location = SourceLocation(str(path))
        yield _source(name, str(path), location, about, messages, settled=settled)


def _files(folder: Path, session_id: str) -> Iterator[Message | r.ProblemRecord]:
    """Yield the messages of a session; an older layout has all under `session`."""
    rows = list[tuple[int, str, Path, dict[str, Any]]]()
    for base in (folder / "message", folder / "session" / "message"):
        for path in sorted((base / Path(session_id).name).glob("*.json")):
            value = _document(path)
            if value is None:
                yield _bad(path, "a message that cannot be read")
                value = {"role": "assistant"}
            at = time_us(c.as_dict(value.get("time")).get("created")) or 0
            rows.append((at, path.stem, path, {"id": path.stem} | value))
    for _, stem, path, value in sorted(rows, key=lambda row: row[:2]):
        parts = list[Part]()
        bases = (folder / "part" / stem, folder / "session" / "part" / session_id / stem)
        for part_path in sorted(path for base in bases for path in base.glob("*.json")):
            part = _document(part_path)
            if part is None:
                yield _bad(part_path, "a part that cannot be read")
            else:
                parts.append((SourceLocation(str(part_path)), {"id": part_path.stem} | part))
        yield SourceLocation(str(path)), value, parts


def _bad(path: Path, reason: str) -> r.ProblemRecord:
    return r.ProblemRecord(location=SourceLocation(str(path)), reason=reason)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = read_document(path)
    except OSError:
        return None
    return document.value if isinstance(document.value, dict) else None


def exported(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield the session of a document that `opencode export` wrote."""
    value = _document(path) or {}
    location = SourceLocation(str(path))
    about = c.as_dict(value.get("info"))
    messages = _document_messages(str(path), c.as_list(value.get("messages")))
    yield _source(_agent(path), str(path), location, about, messages, settled=settled)


def _document_messages(name: str, rows: list[Any]) -> Iterator[Message | r.ProblemRecord]:
    for number, row in enumerate(rows, start=1):
        location = SourceLocation(name, number)
        if not isinstance(row, dict) or not isinstance(row.get("info"), dict):
            yield r.ProblemRecord(location=location, reason="not a message: it has no info")
            continue
        parts = [(location, part) for part in c.as_list(row.get("parts")) if isinstance(part, dict)]
        yield location, row["info"], parts


# -- what they have in common ----------------------------------------------------------------------


def _agent(path: Path) -> str:
    """Return whose it is: the two write the same, into folders of their own name."""
    return KILO if any("kilo" in part.lower() for part in path.parts[-4:]) else NAME


def _source(
    name: str,
    origin: str,
    location: SourceLocation,
    about: dict[str, Any],
    messages: Iterable[Message | r.ProblemRecord],
    *,
    settled: bool,
) -> Source:
    own = about.get("id")
    native = own if c.is_id(own) else f"{origin}/{location.line}"
    records = _SessionReader(native, about).records(location, messages)
    return Source(name, native, origin, records, settled, answer_ends=True)


class _SessionReader:
    """The records of one session."""

    def __init__(self, native: str, about: dict[str, Any]) -> None:
        self._native = native
        self._about = about
        self._prompts: list[str] = []

    def records(
        self, location: SourceLocation, messages: Iterable[Message | r.ProblemRecord]
    ) -> Iterator[r.Record]:
        yield from self._begin(location)
        for message in messages:
            if isinstance(message, r.ProblemRecord):
                yield message
            else:
                yield from self._read_message(*message)
        yield from self._reverted(location)

    def _begin(self, location: SourceLocation) -> Iterator[r.Record]:
        about, times = self._about, c.as_dict(self._about.get("time"))
        parent = about.get("parent_id") or about.get("parentID")
        folder = about.get("directory")
        extra = {name: about[name] for name in _EXTRA if about.get(name) is not None}
        yield r.BeginRecord(
            location=location,
            at_us=time_us(about.get("time_created")) or time_us(times.get("created")) or 0,
            native_id=self._native,
            type="subagent" if c.is_id(parent) else "user",
            project=c.project_of(folder),
            extra=extra if c.is_json(extra) else {},
            parent=parent if c.is_id(parent) else None,
        )
        title = about.get("title")
        if isinstance(title, str) and title.strip() and not _PLACEHOLDER.match(title):
            yield r.TitleRecord(location=location, title=title, by="model")
        if about.get("time_archived") or times.get("archived"):
            yield r.ArchiveRecord(location=location)

    def _read_message(
        self, location: SourceLocation, message: dict[str, Any], parts: list[Part]
    ) -> Iterator[r.Record]:
        at = time_us(c.as_dict(message.get("time")).get("created")) or time_us(message.get("at"))
        match message.get("role"):
            case "user":
                yield from self._read_prompt(location, at, message, parts)
            case "assistant":
                yield from self._read_answer(location, at, message, parts)
            case role:
                yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
                yield from _notes(parts)

    def _key(self, location: SourceLocation, message: dict[str, Any]) -> str:
        own = message.get("id")
        return own if c.is_id(own) else f"{self._native}/{location.line}"

    # -- prompts -------------------------------------------------------------------------------

    def _read_prompt(
        self, location: SourceLocation, at: int | None, message: dict[str, Any], parts: list[Part]
    ) -> Iterator[r.Record]:
        """Read what the person said, and apart from it what opencode put beside it."""
        typed, injected, key = c.Content(), c.Content(), self._key(location, message)
        for where, part in parts:
            match part.get("type"):
                case "text":
                    (injected if part.get("synthetic") is True else typed).text(part.get("text"))
                case "file" if _file(typed, part):
                    pass
                case _:
                    yield from _note(where, part)
        self._prompts.append(key)
        if typed.parts or typed.bad:
            yield from c.message_records(location, at, "user", typed, key=key, prompt=True)
        if injected.parts or injected.bad:
            own = f"{key}/injected" if typed.parts else key
            yield from c.message_records(location, at, "user", injected, key=own, person=False)

    # -- answers -------------------------------------------------------------------------------

    def _read_answer(
        self, location: SourceLocation, at: int | None, message: dict[str, Any], parts: list[Part]
    ) -> Iterator[r.Record]:
        done = time_us(c.as_dict(message.get("time")).get("completed"))
        error = message.get("error")
        steps = list(_steps(parts))
        if message.get("summary") is True:
            text = c.words(part for step in steps for part in _content(step).parts)
            yield r.SummaryRecord(location=location, at_us=at, text=text)
            return
        key = self._key(location, message)
        for number, step in enumerate(steps):
            parsed, last = _content(step), number == len(steps) - 1
            for where, part in step:
                if part.get("type") not in (*_SILENT, "text", "reasoning", "tool"):
                    yield from _note(where, part)
            yield from _said_first(
                c.message_records(
                    location,
                    at,
                    "assistant",
                    parsed,
                    key=key if not number else f"{key}/{number}",
                    model_call=_model_call(message, last=last),
                    partial=last and (done is None or error is not None) and _is_cut(step),
                    streams=last and done is None and error is None,
                )
                if parsed.parts or parsed.bad
                else ()
            )
        if error is not None:
            yield _ending(location, done, error)

    def _reverted(self, location: SourceLocation) -> Iterator[r.Record]:
        """Take back what the person has undone, as long as it is still there."""
        revert = self._about.get("revert")
        value = _parsed(revert) if isinstance(revert, str | bytes) else c.as_dict(revert)
        if not value:
            return
        yield r.OpaqueRecord(location=location, name="revert", data=value)
        if value.get("messageID") in self._prompts:
            count = len(self._prompts) - self._prompts.index(value["messageID"])
            yield r.RollbackRecord(location=location, turns=count)


def _steps(parts: list[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each request to the model; an older message holds several."""
    step = list[Part]()
    for where, part in parts:
        if part.get("type") == "step-start" and any(
            earlier.get("type") == "tool" for _, earlier in step
        ):
            yield step
            step = []
        step.append((where, part))
    if step:
        yield step


def _content(step: list[Part]) -> c.Content:
    parsed = c.Content()
    for _, part in step:
        match part.get("type"):
            case "text":
                parsed.text(part.get("text"))
            case "reasoning":
                text = part.get("text")
                if isinstance(text, str) and text:
                    parsed.parts.append(Reasoning(text, signature=_signature(part)))
            case "tool":
                _tool(parsed, part)
            case _:
                pass
    return parsed


def _signature(part: dict[str, Any]) -> str | None:
    given = c.as_dict(c.as_dict(part.get("metadata")).get("anthropic")).get("signature")
    return given if c.is_sealed(given) else None


def _tool(parsed: c.Content, part: dict[str, Any]) -> None:
    call_id, state = part.get("callID") or part.get("id"), c.as_dict(part.get("state"))
    given = state.get("input", {})
    parsed.call(call_id, part.get("tool"), c.compact(given if isinstance(given, dict) else {}))
    if not c.is_id(call_id):
        return
    match state.get("status"):
        case "completed":
            output = state.get("output", "")
            text = output if isinstance(output, str) else c.compact(output)
            parsed.results.append(ToolResult(call_id, text))
        case "error":
            parsed.results.append(ToolResult(call_id, str(state.get("error", "")), is_error=True))
        case _:
            pass  # pending or running: its outcome is unknown


def _is_cut(step: list[Part]) -> bool:
    """Tell whether a step has not ended, and runs no tool."""
    kinds = [part.get("type") for _, part in step]
    return "step-finish" not in kinds and "tool" not in kinds


def _said_first(records: Iterable[r.Record]) -> Iterator[r.Record]:
    """Yield the message before the results of its own calls."""
    results = list[r.Record]()
    for record in records:
        if isinstance(record, r.ResultRecord):
            results.append(record)
        else:
            yield record
    yield from results


def _model_call(message: dict[str, Any], *, last: bool) -> r.ModelCallRecord:
    tokens = c.as_dict(message.get("tokens"))
    counts = tokens | {"read": c.as_dict(tokens.get("cache")).get("read")}
    return r.ModelCallRecord(
        provider=c.as_text(message.get("providerID")),
        model=c.as_text(message.get("modelID")),
        usage=c.tokens(
            counts, "input", "output", "read", "reasoning", message.get("cost"), apart=True
        )
        if last and tokens
        else None,
        finish_reason=c.as_text(message.get("finish")) if last else None,
    )


def _ending(location: SourceLocation, at: int | None, error: object) -> r.TurnEndRecord:
    value = c.as_dict(error)
    name = c.as_text(value.get("name")) or "error"
    detail = c.as_text(c.as_dict(value.get("data")).get("message"))
    if name == "MessageAbortedError":
        return r.TurnEndRecord(
            location=location,
            at_us=at,
            status="interrupted",
            reason="aborted",
            detail=detail,
            cause="stopped",
        )
    return r.TurnEndRecord(location=location, at_us=at, status="failed", reason=name, detail=detail)


def _file(parsed: c.Content, part: dict[str, Any]) -> bool:
    match = _DATA.match(part["url"]) if isinstance(part.get("url"), str) else None
    if match is None:
        return False
    if match[1].startswith("image/"):
        return parsed.picture(match[2], match[1])
    return parsed.file(match[2], match[1], part.get("filename"))


def _notes(parts: list[Part]) -> Iterator[r.Record]:
    for where, part in parts:
        yield from _note(where, part)


def _note(location: SourceLocation, part: dict[str, Any]) -> Iterator[r.Record]:
    kind = part.get("type")
    if kind not in _SILENT:
        name = kind if isinstance(kind, str) and kind else "part"
        yield r.OpaqueRecord(location=location, name=name, data=part)


# -- where they are --------------------------------------------------------------------------------


def _claims(peek: Peek) -> bool:
    has = peek.tables
    if has:
        return "session" in has and all("data" in has.get(name, ()) for name in ("message", "part"))
    if not peek.path.name.endswith(".json"):
        return False
    if _storage_of(peek.path) is not None:
        return True
    value = peek.document.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    return str(c.as_dict(value.get("info")).get("id", "")).startswith("ses_")


def _storage_of(path: Path) -> Path | None:
    """Return the folder `storage` that a file of a session, message or part lies in."""
    for folder in path.parents:
        if folder.name == "storage" and (folder / "session").is_dir():
            kind = path.relative_to(folder).parts[0]
            return folder if kind in ("session", "message", "part") else None
    return None


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    if path.is_dir():
        return storage(path, settled=reading.settled)
    if shape(path):
        return database(path, settled=reading.settled)
    return exported(path, settled=reading.settled)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    shared = chosen(environment, "XDG_DATA_HOME", home / ".local" / "share")
    if environment.get("OPENCODE_DB"):
        yield Path(environment["OPENCODE_DB"])
    yield from (shared / NAME, shared / KILO)


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=_read,
    unit=lambda path: _storage_of(path) or path,
    places=_places,
    commands=(NAME, KILO),
)
