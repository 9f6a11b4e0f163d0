"""DeerFlow: the table `run_events` of its database, and `threads/<id>/runs/*.jsonl`.

A thread is a session and a run is a turn; the table `runs` knows how each run ended. Events have a
place in their thread (`seq`). In files, a batch is written into the file of its first event's run,
so an event may lie in the file of another; and what was written behind a torn line is in the same
line. Events that are no messages are kept as notes.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen
from killick.exchange.formats import content as c
from killick.exchange.formats.content import message_records, title_of, words
from killick.exchange.read import (
    SourceDatabase,
    SourceLine,
    as_bytes,
    each,
    json_of,
    open_file,
    opened,
    parse,
    records_in,
    shape,
    split,
    text_of,
    time_us,
)
from killick.exchange.records import Source, SourceLocation
from killick.model.entries import Usage
from killick.model.messages import Reasoning, Role, ToolCall, ToolResult

NAME: Final = "deerflow"

_EVENT: Final = (
    "id", "run_id", "event_type", "category", "content", "event_metadata", "seq", "created_at",
)  # fmt: skip
_RUN: Final = (
    "run_id", "status", "error", "stop_reason", "model_name", "metadata_json", "created_at",
    "updated_at", "operation_kind",
)  # fmt: skip
_KINDS: Final = {
    "llm.human.input": "human",
    "llm.ai.response": "ai",
    "ai_message": "ai",
    "llm.ai.partial": "partial",
    "llm.tool.result": "tool",
}
_ROLLED_BACK: Final = "Rolled back by user"
_OPEN: Final = {"pending", "running"}
_FILES_OPEN: Final = 64

Row = tuple[SourceLocation, dict[str, Any] | None, str | None]
"""An event as it stands, or why there is none."""


class _Run(msgspec.Struct):
    """A run's row, beside its events."""

    status: str | None = None
    error: str | None = None
    reason: str | None = None
    model: str | None = None
    replaces: str | None = None
    is_edit: bool = False


# -- the database ----------------------------------------------------------------------------------


def deerflow_database(path: Path, *, settled: bool) -> Iterator[Source]:
    """Yield every thread of a database, as of one moment; it may be in use. Raises OSError."""
    with opened(path) as database:
        tables = database.tables()
        threads = database.rows(
            "SELECT thread_id, min(id) AS first FROM run_events GROUP BY thread_id ORDER BY first"
        )
        for thread in [row["thread_id"] for row in threads]:
            if not c.is_id(thread):
                continue
            about = _about(database, thread, tables)
            runs = _runs(database, thread) if "runs" in tables else {}
            rows = _database_rows(database, thread)
            yield _source(path, thread, rows, about, runs, settled=settled)


def _about(database: SourceDatabase, thread: str, tables: Mapping[str, set[str]]) -> dict[str, Any]:
    if "threads_meta" not in tables:
        return {}
    wanted = ("display_name", "assistant_id", "user_id", "metadata_json", "created_at")
    rows = database.select("threads_meta", wanted, "WHERE thread_id = ?", thread)
    return next(rows, {})


def _runs(database: SourceDatabase, thread: str) -> dict[str, _Run]:
    runs = {}
    for row in database.select("runs", _RUN, "WHERE thread_id = ? ORDER BY rowid", thread):
        try:
            metadata = json_of(row["metadata_json"])
        except ValueError:
            metadata = None
        metadata = metadata if isinstance(metadata, dict) else {}
        replaces = metadata.get("regenerate_from_run_id")
        runs[str(row["run_id"])] = _Run(
            text_of(row["status"]),
            text_of(row["error"]),
            text_of(row["stop_reason"]),
            text_of(row["model_name"]),
            replaces if isinstance(replaces, str) else None,
            is_edit=metadata.get("replay_kind") == "edit",
        )
    return runs


def _database_rows(database: SourceDatabase, thread: str) -> Iterator[Row]:
    name = str(database.path)
    location = SourceLocation(name)
    rows = database.select("run_events", _EVENT, "WHERE thread_id = ? ORDER BY seq, id", thread)
    for row in each(rows):
        if isinstance(row, str):
            yield location, None, row
            continue
        location = SourceLocation(name, row["id"])
        try:
            metadata = json_of(row["event_metadata"])
            content: Any = text_of(row["content"])
            flags = metadata if isinstance(metadata, dict) else {}
            if flags.get("content_is_json") or flags.get("content_is_dict"):
                content = parse(as_bytes(row["content"]))
            yield location, row | {"content": content, "metadata": metadata}, None
        except ValueError as error:
            yield location, None, f"an event that cannot be read: {error}"


# -- the files -------------------------------------------------------------------------------------


class _Index:
    """An index of the events in a folder's files, in the order of their threads.

    Events are read when their turn comes: a folder may hold more than memory does.
    """

    def __init__(self, folder: Path, *, settled: bool) -> None:
        self.problems: list[r.ProblemRecord] = []
        self._files = [folder] if folder.is_file() else sorted(folder.glob("*.jsonl"))
        self._settled = settled
        self._threads: dict[str, array[int]] = {}
        for number, path in enumerate(self._files):
            self._read(number, path)

    def threads(self) -> list[str]:
        return list(self._threads)

    def _read(self, number: int, path: Path) -> None:
        offset = 0
        with open_file(path) as file:
            for line_number, data in enumerate(split(file), start=1):
                for line in records_in(SourceLocation(str(path), line_number), data):
                    self._index_line(number, line_number, offset, line)
                offset = file.tell()

    def _index_line(self, number: int, line_number: int, offset: int, line: SourceLine) -> None:
        record = line.record
        if record is None:
            if self._settled or not line.torn:
                self.problems.append(
                    r.ProblemRecord(location=line.location, reason=line.problem or "no record")
                )
            return
        thread, seq = record.get("thread_id"), record.get("seq")
        if not c.is_id(thread) or not isinstance(record.get("event_type"), str):
            self.problems.append(
                r.ProblemRecord(location=line.location, reason="a line that is no event of a run")
            )
            return
        position = seq if isinstance(seq, int) and 0 <= seq < 1 << 62 else self._last(thread)
        positions = self._threads.setdefault(thread, array("q"))
        positions.extend((int(position), number, line_number, offset))

    def _last(self, thread: str) -> int:
        """Return the seq of the event before, for an event that has none."""
        positions = self._threads.get(thread)
        return positions[-4] if positions else 0

    def rows(self, thread: str) -> Iterator[Row]:
        flat = self._threads[thread]
        order = sorted(range(0, len(flat), 4), key=flat.__getitem__)
        with _Files(self._files) as files:
            for at in order:
                _, number, line_number, offset = flat[at : at + 4]
                file = files.at(number)
                file.seek(offset)
                location = SourceLocation(str(self._files[number]), line_number)
                for line in records_in(location, next(split(file), b"")):
                    if line.record is not None:
                        yield location, line.record, None


class _Files(ExitStack):
    """The files of a folder, a few of them open at a time."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self._paths = paths
        self._open: dict[int, BinaryIO] = {}

    def at(self, number: int) -> BinaryIO:
        file = self._open.get(number)
        if file is None:
            if len(self._open) >= _FILES_OPEN:
                self._open.clear()
                self.close()
            file = self._open[number] = self.enter_context(open_file(self._paths[number]))
        return file


def deerflow_files(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield the threads whose events lie in a folder's files, or in one. Raises OSError."""
    index = _Index(path, settled=settled)
    yield from index.problems
    for thread in index.threads():
        yield _source(path, thread, index.rows(thread), {}, {}, settled=settled)


# -- what they have in common ----------------------------------------------------------------------


def _source(
    path: Path,
    thread: str,
    rows: Iterable[Row],
    about: dict[str, Any],
    runs: dict[str, _Run],
    *,
    settled: bool,
) -> Source:
    reading = _SessionReader(path, thread, about, runs)
    return Source(NAME, thread, str(path), reading.records(rows), settled)


class _SessionReader:
    """The records of one thread."""

    def __init__(
        self, path: Path, thread: str, about: dict[str, Any], runs: dict[str, _Run]
    ) -> None:
        self._path = path
        self._thread = thread
        self._about = about
        self._runs = runs
        self._run: str | None = None
        self._over = True
        self._prompted: list[str] = []
        self._titled = False

    def records(self, rows: Iterable[Row]) -> Iterator[r.Record]:
        location = SourceLocation(str(self._path), 1)
        begun = False
        for where, row, problem in rows:
            location = where
            if row is None:
                yield r.ProblemRecord(location=where, reason=problem or "not an event")
                continue
            if not begun:
                begun = True
                yield from self._begin(where, row)
            yield from self._read_event(where, row)
        if begun:
            yield from self._end_run(location, None)

    def _begin(self, location: SourceLocation, row: dict[str, Any]) -> Iterator[r.Record]:
        about = self._about
        kept = {name: about[name] for name in ("assistant_id", "user_id") if about.get(name)}
        metadata = row.get("metadata")
        if isinstance(metadata, dict):
            names = ("branch_seed", "branch_parent_thread_id", "checkpoint_history_seed")
            kept |= {name: metadata[name] for name in names if metadata.get(name) is not None}
        yield r.BeginRecord(
            location=location,
            at_us=time_us(about.get("created_at")) or time_us(row.get("created_at")) or 0,
            native_id=self._thread,
            extra=kept if c.is_json(kept) else {},
        )
        title = title_of(text_of(about.get("display_name")), 1_000)
        if title is not None:
            self._titled = True
            yield r.TitleRecord(location=location, title=title, by="model")

    def _read_event(self, location: SourceLocation, row: dict[str, Any]) -> Iterator[r.Record]:
        kind, run = row.get("event_type"), row.get("run_id")
        at = time_us(row.get("created_at"))
        if not isinstance(kind, str) or not c.is_id(run):
            yield r.ProblemRecord(location=location, reason="an event without a kind or a run")
            return
        if self._path.is_dir() and Path(location.file).stem != run:
            what = f"it was written into the file of another run; it is of run {run!r}"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)
        if run != self._run:
            yield from self._end_run(location, None)
            yield from self._begin_run(location, at, run)
        metadata = row.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        content = row.get("content")
        caller = str(metadata.get("caller", ""))
        if kind in _KINDS and isinstance(content, dict) and not caller.startswith("middleware:"):
            yield from self._read_message(location, at, _KINDS[kind], content, metadata)
        elif kind in ("run.end", "run.error"):
            yield from self._end_run(location, at, kind, content)
        else:
            data = {"event_type": kind, "content": content, "metadata": metadata}
            yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=data)

    # -- runs ----------------------------------------------------------------------------------

    def _begin_run(self, location: SourceLocation, at: int | None, run: str) -> Iterator[r.Record]:
        replaced = self._runs.get(run, _Run()).replaces
        done = self._runs.get(run, _Run()).status == "success"
        if done and replaced in self._prompted:
            first = self._prompted.index(replaced)
            yield r.RollbackRecord(location=location, at_us=at, turns=len(self._prompted) - first)
            del self._prompted[first:]
        self._run, self._over = run, False
        yield r.TurnStartRecord(location=location, at_us=at, key=run)

    def _end_run(
        self,
        location: SourceLocation,
        at: int | None,
        kind: str | None = None,
        content: object = None,
    ) -> Iterator[r.Record]:
        """End the run as the table says, or else as its last event says."""
        if self._over or self._run is None:
            return
        run = self._runs.get(self._run)
        if run is not None and run.status in _OPEN:
            return
        over = _ending(location, at, run, kind, content)
        if over is None:
            return
        self._over = True
        yield over
        undone = over.reason == "rollback" or (run is not None and run.is_edit)
        if undone and over.status != "completed" and self._run in self._prompted:
            self._prompted.remove(self._run)
            yield r.RollbackRecord(location=location, at_us=at, turns=1)

    # -- messages ------------------------------------------------------------------------------

    def _read_message(
        self,
        location: SourceLocation,
        at: int | None,
        kind: str,
        message: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Iterator[r.Record]:
        assert self._run is not None
        more = message.get("additional_kwargs")
        more = more if isinstance(more, dict) else {}
        parsed = _content(message.get("content"))
        role: Role = "assistant" if kind in ("ai", "partial") else "user"
        hidden = bool(more.get("hide_from_ui"))
        if kind == "tool":
            _result(parsed, message)
        elif role == "assistant":
            _answer(parsed, message, more)
        elif not hidden:
            if self._run not in self._prompted:
                self._prompted.append(self._run)
            title = None if self._titled else title_of(words(parsed.parts))
            if title is not None:
                self._titled = True
                yield r.TitleRecord(location=location, title=title)
        yield from message_records(
            location,
            at,
            role,
            parsed,
            key=self._key(location, message),
            model_call=self._model_call(message, metadata),
            person=not hidden,
            partial=kind == "partial",
        )

    def _key(self, location: SourceLocation, message: dict[str, Any]) -> str:
        own = message.get("id")
        return own if c.is_id(own) else f"{NAME}/{self._run}/{location.line}"

    def _model_call(self, message: dict[str, Any], metadata: dict[str, Any]) -> r.ModelCallRecord:
        more = message.get("response_metadata")
        more = more if isinstance(more, dict) else {}
        model = more.get("model_name") or self._runs.get(self._run or "", _Run()).model
        reason, own = more.get("finish_reason") or more.get("stop_reason"), message.get("id")
        return r.ModelCallRecord(
            provider=more["model_provider"]
            if isinstance(more.get("model_provider"), str)
            else None,
            model=model if isinstance(model, str) else None,
            usage=_usage(message.get("usage_metadata") or metadata.get("usage")),
            finish_reason=reason if isinstance(reason, str) else None,
            provider_ids={"message": own} if c.is_id(own) else {},
        )


def _ending(
    location: SourceLocation, at: int | None, run: _Run | None, kind: str | None, content: object
) -> r.TurnEndRecord | None:
    status = run.status if run is not None else None
    why = run.reason if run is not None else None
    detail = run.error if run is not None else None
    if status is None:
        status = {"run.end": "success", "run.error": "error"}.get(kind or "")
        detail = content if isinstance(content, str) else None
    match status:
        case "success":
            return r.TurnEndRecord(location=location, at_us=at, status="completed")
        case "interrupted":
            return r.TurnEndRecord(
                location=location, at_us=at, status="interrupted", reason=why or status
            )
        case "error" if detail == _ROLLED_BACK:
            return r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted",
                reason="rollback",
                cause="stopped",
            )
        case "error" | "timeout":
            return r.TurnEndRecord(
                location=location,
                at_us=at,
                status="failed",
                reason=why or status,
                detail=detail or None,
                cause="timed_out" if status == "timeout" else "failed",
            )
        case _:
            return None


def _content(content: object) -> c.Content:
    """Parse text, or a provider's blocks: most are Anthropic's or OpenAI's."""
    if not isinstance(content, list):
        return c.openai(content)
    theirs = ("thinking", "redacted_thinking", "tool_use", "image", "document")
    if any(isinstance(block, dict) and block.get("type") in theirs for block in content):
        return c.anthropic(content, NAME)
    return c.openai(content)


def _answer(parsed: c.Content, message: dict[str, Any], more: dict[str, Any]) -> None:
    """Parse reasoning and calls; some providers have the calls in the content too."""
    thought = more.get("reasoning_content")
    if isinstance(thought, str) and thought:
        parsed.parts.insert(0, Reasoning(thought))
    known = {part.id for part in parsed.parts if isinstance(part, ToolCall)}
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict):
            parsed.bad.append("a tool call that is none")
        elif str(call.get("id")) not in known:
            parsed.call(call.get("id"), call.get("name"), c.compact(call.get("args", {})))
    broken = message.get("invalid_tool_calls")
    for call in broken if isinstance(broken, list) else ():
        if isinstance(call, dict) and str(call.get("id")) not in known:
            parsed.opaque("deerflow-call", call)  # what the model wrote is no call


def _result(parsed: c.Content, message: dict[str, Any]) -> None:
    call_id = message.get("tool_call_id")
    if not c.is_id(call_id):
        parsed.bad.append("a tool's message without the id of its call")
    else:
        result = ToolResult(
            call_id, c.plain_or_parts(parsed.parts), is_error=message.get("status") == "error"
        )
        beside = message.get("artifact")
        if beside is not None and c.is_json(beside):
            result = c.with_structured(result, beside)
        parsed.results.append(result)
    parsed.parts = []


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    read, thought = value.get("input_token_details"), value.get("output_token_details")
    return Usage(
        input=c.count(value, "input_tokens"),
        output=c.count(value, "output_tokens"),
        cached=c.count(read, "cache_read") if isinstance(read, dict) else 0,
        reasoning=c.count(thought, "reasoning") if isinstance(thought, dict) else 0,
    )


# -- which files -----------------------------------------------------------------------------------


def _is_event(record: dict[str, Any]) -> bool:
    return {"thread_id", "run_id", "event_type", "seq"} <= record.keys()


def _claims(peek: Peek) -> bool:
    if peek.tables:
        return {"thread_id", "run_id", "event_type"} <= peek.tables.get("run_events", set())
    return any(_is_event(record) for record in peek.records)


def _unit(path: Path) -> Path:
    """Return the folder of a thread's runs, which belong together."""
    return path.parent if path.parent.name == "runs" else path


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    if path.is_file() and shape(path):
        return deerflow_database(path, settled=reading.settled)
    return deerflow_files(path, settled=reading.settled)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    yield chosen(environment, "DEER_FLOW_HOME", home / ".deer-flow")


FORMAT: Final = Format(name=NAME, claims=_claims, read=_read, unit=_unit, places=_places)
