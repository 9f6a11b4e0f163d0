"""Claude Code: `projects/*/*.jsonl`, one file for each session.

A line is a message or something beside it, and names the line before it (`parentUuid`). An answer
comes as several lines with one message id; results of tools that run while it streams may stand
between them, even before their calls. Going back and saying something else leaves the old
branch in the file: here it is a rewind. Lines of a sidechain are a subagent's session; newer
versions have a file of its own for it, `agent-*.jsonl`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen, misfits
from killick.exchange.formats import content as c
from killick.exchange.read import SourceLine, newest_us, read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Part, Text, ToolCall, ToolResult
from killick.model.sessions import Namer, Project

NAME: Final = "claude-code"

_STOPPED: Final = "[Request interrupted by user"
_PRINTED: Final = ("<bash-stdout>", "<bash-stderr>")
"""What a command that the person ran has printed; `<bash-input>` is the command."""
_ASIDE: Final = ("<command-name>", "<local-command-", "<task-notification>", *_PRINTED)
"""How texts begin that are no prompts.

The text of a command that goes to the model begins with `<command-message>` instead.
"""
_TEAMMATE: Final = "<teammate-message"
_BESIDE: Final = ("<ide_", "<system-reminder>")
"""How blocks begin that an editor or the agent puts beside what was typed."""
_ENDS: Final = ("end_turn", "stop_sequence", "max_tokens", "refusal")
_SYNTHETIC: Final = "<synthetic>"
_ALL_TURNS: Final = 1 << 40

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_SLASH: Final = re.compile(r"/[\w:-]+(\s|\Z)")
_COMMAND: Final = re.compile(
    r"<command-name>(.*?)</command-name>\s*(?:<command-args>(.*?)</command-args>)?", re.S
)
_OWN: Final = ("custom-title", "ai-title", "file-history-snapshot", "queue-operation")
_MARKS: Final = ("uuid", "parentUuid", "sessionId", "leafUuid", "messageId")

Belongs = Callable[[dict[str, Any]], bool]


def is_claude_code(record: dict[str, Any]) -> bool:
    """Tell whether this is a line of such a file."""
    kind = record.get("type")
    if kind in ("user", "assistant", "system"):
        return "uuid" in record and "parentUuid" in record and not _is_of_another(record)
    return (kind == "summary" and "leafUuid" in record) or kind in _OWN


def _fits(record: dict[str, Any]) -> bool:
    """Tell whether this can be a line of such a file, of whatever kind."""
    named = isinstance(record.get("type"), str) and any(name in record for name in _MARKS)
    return named and not _is_of_another(record)


def _is_of_another(record: dict[str, Any]) -> bool:
    """Tell whether it is a line of Qwen Code, which has the same envelope."""
    message = record.get("message")
    return "systemPayload" in record or (isinstance(message, dict) and "parts" in message)


def claude_code(path: Path, *, settled: bool, quiet: bool = False) -> Iterator[Source]:
    """Yield the session of a file, and the subagents' sessions in it."""
    reading = ReadOptions(0, settled, quiet)
    index = _Index(path)
    main = index.main
    is_agent = path.stem.startswith("agent-")
    own = path.stem if _UUID.fullmatch(path.stem) else index.session_id
    native = f"{index.session_id}/{path.stem}" if is_agent else own
    parent = index.session_id if is_agent else None
    if is_agent:
        yield _source(path, native, parent, index, _everything, reading)
        return
    yield _source(path, native, None, index, main, reading)
    for root in index.roots:
        belongs = index.sidechain(root)
        yield _source(path, f"{native}/{root}", native, index, belongs, reading)


def _source(
    path: Path,
    native: str,
    parent: str | None,
    index: "_Index",
    belongs: Belongs,
    reading: ReadOptions,
) -> Source:
    reader = _SessionReader(native, parent, index, belongs, reading)
    return Source(NAME, native, str(path), reader.records(path), reading.settled)


def _everything(_: dict[str, Any]) -> bool:
    return True


class _Index:
    """Facts of a file that its reader needs first: where its sidechains begin."""

    def __init__(self, path: Path) -> None:
        self.session_id = path.stem
        self.cwd: str | None = None
        self.extra: dict[str, Any] = {}
        self.at_us: int | None = None
        self.roots: list[str] = []
        self._root_of: dict[str, str] = {}
        for line in read_lines(path):
            if line.record is not None:
                self._index_line(line.record)

    def _index_line(self, record: dict[str, Any]) -> None:
        if self.at_us is None:
            self.at_us = time_us(record.get("timestamp"))
        cwd, native = record.get("cwd"), record.get("sessionId")
        if self.cwd is None and isinstance(cwd, str) and cwd:
            self.cwd = cwd
            self.extra = c.texts_of(record, "version", "gitBranch", "entrypoint")
        if c.is_id(native) and not self.extra.get("sessionId"):
            self.session_id = self.extra["sessionId"] = native
        if record.get("isSidechain") is True:
            self._index_sidechain(record)

    def _index_sidechain(self, record: dict[str, Any]) -> None:
        own, parent, agent = record.get("uuid"), record.get("parentUuid"), record.get("agentId")
        if not c.is_id(own):
            return
        known = self._root_of.get(parent) if isinstance(parent, str) else None
        # As the file of this agent is called, so a copy of it is the same session.
        root = f"agent-{agent}" if c.is_id(agent) else known or own
        self._root_of[own] = root
        if root not in self.roots:
            self.roots.append(root)

    def main(self, record: dict[str, Any]) -> bool:
        return record.get("isSidechain") is not True or not c.is_id(record.get("uuid"))

    def sidechain(self, root: str) -> Belongs:
        return lambda record: (
            record.get("isSidechain") is True and self._root_of.get(str(record.get("uuid"))) == root
        )


class _Answer:
    """The lines of one answer, until something else comes."""

    def __init__(
        self, location: SourceLocation, key: str, message: dict[str, Any], at_us: int | None
    ) -> None:
        self.location = location
        self.key = key
        self.at_us = self.last_us = at_us
        self.message_id = message.get("id")
        self.message = message
        self.parts: list[Part] = []
        self.blobs: dict[str, bytes] = {}
        self.request_id: object = None


class _SessionReader:
    """The records of one session of a file."""

    def __init__(
        self,
        native: str,
        parent: str | None,
        index: _Index,
        belongs: Belongs,
        reading: ReadOptions,
    ) -> None:
        self._settled = reading.settled
        self._rests = reading.rests
        self._reports = parent is None or belongs is _everything
        self._native = native
        self._parent = parent
        self._index = index
        self._belongs = belongs
        self._answer: _Answer | None = None
        self._counted: set[str] = set()
        self._alias: dict[str, str | None] = {}
        self._path: list[str] = []
        self._callers: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._summaries: list[tuple[SourceLocation, dict[str, Any]]] = []
        self._behind: list[r.Record] = []
        self._queue: list[str] = []
        self._typed: list[str] = []

    def records(self, path: Path) -> Iterator[r.Record]:
        index = self._index
        yield r.BeginRecord(
            location=SourceLocation(str(path), 1),
            at_us=index.at_us or 0,
            native_id=self._native,
            type="user" if self._parent is None else "subagent",
            project=Project(index.cwd) if index.cwd is not None else None,
            extra=index.extra,
            parent=self._parent,
        )
        for line in read_lines(path):
            if line.record is None:
                yield from self._report_line(line)
            elif self._belongs(line.record):
                yield from self._read_line(line.location, line.record)
        yield from self._flush(last=True)
        for location, record in self._summaries:
            # A file may begin with summaries of other sessions; each names the last line it is of.
            leaf = record.get("leafUuid")
            if not isinstance(leaf, str) or leaf in self._alias:
                yield from self._read_title(location, record, "summary")

    def _report_line(self, line: SourceLine) -> Iterator[r.Record]:
        """Report an unreadable line in the main session, unless it may still be written."""
        if self._reports and (self._settled or not line.torn):
            yield r.ProblemRecord(location=line.location, reason=line.problem or "not a record")

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, message = record.get("type"), record.get("message")
        if kind == "assistant" and isinstance(message, dict):
            yield from self._read_answer(location, record, message)
            return
        if kind == "user" and isinstance(message, dict):
            yield from self._read_user(location, record, message)
            return
        if kind not in ("attachment", "progress"):  # these come between the lines of an answer
            yield from self._flush()
        if kind == "queue-operation":
            yield from self._read_queue(location, record)
        elif kind == "attachment":
            yield from self._read_attachment(location, record)
        elif kind in ("user", "assistant"):
            yield r.ProblemRecord(
                location=location, reason=f"a line of kind {kind} without a message"
            )
        elif kind == "summary":
            self._summaries.append((location, record))
        elif kind in ("custom-title", "ai-title"):
            yield from self._read_title(location, record, str(kind))
        elif not isinstance(kind, str):
            yield r.ProblemRecord(location=location, reason="a line that does not say its kind")
        else:
            yield from self._read_aside(location, record, kind)

    def _read_aside(
        self, location: SourceLocation, record: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        """Read a line that is no message."""
        self._follow(record)
        at = time_us(record.get("timestamp"))
        aside = r.OpaqueRecord(location=location, at_us=at, name=kind, data=record)
        if self._answer is not None:
            self._behind.append(aside)  # the answer is said first, whole
        else:
            yield aside
        if kind == "system" and record.get("subtype") == "turn_duration":
            yield r.TurnEndRecord(location=location, at_us=at, status="completed")

    # -- what a person types while the agent works ----------------------------------------------

    def _read_queue(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        """Read what was typed meanwhile; what is taken off the queue is said at once.

        What is dequeued instead comes again as a prompt of its own.
        """
        yield from self._read_aside(location, record, "queue-operation")
        text = record.get("content")
        match record.get("operation"):
            case "enqueue" if isinstance(text, str):
                self._queue.append(text)
            case "remove" | "dequeue" as operation if self._queue:
                typed = text if text in self._queue else self._queue[0]
                self._queue.remove(typed)
                if operation == "remove":
                    yield from self._say_typed(location, record, typed)
            case "popAll":
                self._queue.clear()
            case _:
                pass

    def _read_attachment(
        self, location: SourceLocation, record: dict[str, Any]
    ) -> Iterator[r.Record]:
        attachment = record.get("attachment")
        yield from self._read_aside(location, record, "attachment")
        if isinstance(attachment, dict) and attachment.get("type") == "queued_command":
            prompt = attachment.get("prompt")
            text = prompt if isinstance(prompt, str) else _text({"content": prompt})
            yield from self._say_typed(location, record, text)

    def _say_typed(
        self, location: SourceLocation, record: dict[str, Any], text: str
    ) -> Iterator[r.Record]:
        """Say it once: the queue and the attachment both tell of it."""
        if text in self._typed:
            self._typed.remove(text)
            return
        self._typed.append(text)
        if not text.strip() or _SLASH.match(text):
            return
        yield from self._flush()
        yield r.MessageRecord(
            location=location,
            at_us=time_us(record.get("timestamp")),
            role="user",
            parts=(Text(text),),
            key=f"{self._native}/typed/{location.line}",
            person=not text.lstrip().startswith("<"),
        )

    # -- answers -------------------------------------------------------------------------------

    def _read_answer(
        self, location: SourceLocation, record: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[r.Record]:
        if message.get("model") == _SYNTHETIC or record.get("isApiErrorMessage") is True:
            yield from self._flush()
            yield from self._read_synthetic(location, record, message)
            return
        answer = self._answer
        if answer is None or message.get("id") is None or answer.message_id != message.get("id"):
            yield from self._flush()
            key = self._key(location, record)
            answer = _Answer(location, key, message, time_us(record.get("timestamp")))
            self._answer = answer
            self._path.append(key)
        self._set_alias(record, answer.key)
        parsed = c.anthropic(message.get("content"))
        for what in parsed.bad:
            yield r.ProblemRecord(location=location, reason=what)
        answer.message = message
        answer.request_id = record.get("requestId")
        answer.parts += parsed.parts
        answer.blobs |= parsed.blobs
        answer.last_us = time_us(record.get("timestamp"))

    def _flush(self, *, last: bool = False) -> Iterator[r.Record]:
        behind, self._behind = self._behind, []
        answer, self._answer = self._answer, None
        if answer is not None:
            # More lines of the last one may be on their way until it says why it stopped, and they
            # are written at once then.
            stopped = self._rests and answer.message.get("stop_reason") is not None
            growing = last and not (self._settled or stopped)
            results = any(isinstance(record, r.ResultRecord) for record in behind)
            yield from self._flush_answer(answer, growing=growing, ends=not (growing or results))
        yield from behind

    def _flush_answer(self, answer: _Answer, *, growing: bool, ends: bool) -> Iterator[r.Record]:
        for part in answer.parts:
            if isinstance(part, ToolCall):
                self._callers[part.id] = answer.key
        if answer.parts:
            yield r.MessageRecord(
                location=answer.location,
                at_us=answer.at_us,
                role="assistant",
                parts=tuple(answer.parts),
                key=answer.key,
                blobs=answer.blobs,
                growing=growing,
                model_call=self._model_call(answer),
            )
        if ends and answer.message.get("stop_reason") in _ENDS:
            yield r.TurnEndRecord(
                location=answer.location, at_us=answer.last_us, status="completed"
            )

    def _model_call(self, answer: _Answer) -> r.ModelCallRecord:
        """Return the answer's model call. Every line repeats the usage; it is counted once."""
        message, request_id = answer.message, answer.request_id
        ids = {}
        if c.is_id(answer.message_id):
            ids["message"] = answer.message_id
        if c.is_id(request_id):
            ids["request"] = request_id
        again = ids.get("message") in self._counted
        self._counted.add(ids.get("message", answer.key))
        model, reason = message.get("model"), message.get("stop_reason")
        return r.ModelCallRecord(
            provider="anthropic",
            model=model if isinstance(model, str) else None,
            usage=None if again else c.usage(message.get("usage")),
            finish_reason=reason if isinstance(reason, str) else None,
            provider_ids=ids,
        )

    def _read_synthetic(
        self, location: SourceLocation, record: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[r.Record]:
        """Read a line that the agent wrote for the model: an error ends the turn."""
        self._follow(record)
        text = _text(message)
        if record.get("isApiErrorMessage") is True:
            at = time_us(record.get("timestamp"))
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="failed",
                reason="api_error",
                detail=text or None,
            )
        else:
            yield r.OpaqueRecord(location=location, name="synthetic", data=record)

    # -- what the user's side says -------------------------------------------------------------

    def _read_user(
        self, location: SourceLocation, record: dict[str, Any], message: dict[str, Any]
    ) -> Iterator[r.Record]:
        at = time_us(record.get("timestamp"))
        parsed = c.anthropic(message.get("content"))
        for what in parsed.bad:
            yield r.ProblemRecord(location=location, reason=what)
        text = "".join(part.text for part in parsed.parts if isinstance(part, Text))
        results = [
            self._result_record(location, at, record, result, parsed.blobs, len(parsed.results))
            for result in parsed.results
        ]
        if results and not parsed.parts:
            if self._answer is None:
                yield from results
            else:
                self._behind += results
            caller = self._callers.get(parsed.results[0].call_id)
            if caller is None and self._answer is not None:
                caller = self._answer.key
            self._set_alias(record, caller)
            return
        yield from self._flush()
        yield from results
        if text.startswith(_STOPPED):
            self._follow(record)
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted",
                reason="user",
                detail=text,
                cause="stopped",
            )
        elif record.get("isCompactSummary") is True:
            self._follow(record)
            yield r.SummaryRecord(location=location, at_us=at, text=text)
        elif parsed.parts:
            yield from self._read_prompt(location, record, parsed, text)

    def _result_record(
        self,
        location: SourceLocation,
        at: int | None,
        record: dict[str, Any],
        result: ToolResult,
        blobs: dict[str, bytes],
        count: int,
    ) -> r.ResultRecord:
        beside = record.get("toolUseResult")
        if count == 1 and isinstance(beside, dict | list):
            result = c.with_structured(result, beside)
        return r.ResultRecord(
            location=location, at_us=at, result=result, blobs=c.blobs_in(result, blobs)
        )

    def _read_prompt(
        self, location: SourceLocation, record: dict[str, Any], parsed: c.Content, text: str
    ) -> Iterator[r.Record]:
        beside = [part for part in parsed.parts if _is_beside(part)]
        typed = [part for part in parsed.parts if not _is_beside(part)] or beside
        is_prompt = not (
            record.get("isMeta") is True
            or parsed.results
            or typed is beside
            or text.startswith(_ASIDE)
            or (text.startswith(_TEAMMATE) and self._parent is None)
        )
        if is_prompt:
            yield from self._branch(location, record)
        key, at = self._key(location, record), time_us(record.get("timestamp"))
        self._set_alias(record, key)
        self._path.append(key)
        printed = text.startswith(_PRINTED)
        message = r.MessageRecord(
            location=location,
            at_us=at,
            role="user",
            parts=tuple(typed),
            key=key,
            blobs=parsed.blobs,
            begins_turn=is_prompt,
            person=is_prompt or printed or bool(parsed.results),
            called=_name_of(text),
        )
        yield message
        if beside and typed is not beside:
            yield msgspec.structs.replace(
                message,
                parts=tuple(beside),
                key=f"{key}/beside",
                blobs={},
                begins_turn=False,
                person=False,
            )
        if printed:
            yield r.TurnEndRecord(location=location, at_us=at, status="completed")

    # -- branches ------------------------------------------------------------------------------

    def _branch(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        """Go back when a prompt does not follow the newest message."""
        parent = record.get("parentUuid")
        if not self._path or record.get("logicalParentUuid") is not None:
            return
        if parent is None:
            self._path = []
            yield r.RollbackRecord(location=location, turns=_ALL_TURNS)
            return
        key = self._alias.get(parent) if isinstance(parent, str) else None
        if key is None or key == self._path[-1]:
            return
        if key in self._path:
            del self._path[self._path.index(key) + 1 :]
            yield r.BranchRecord(location=location, key=key)
        else:
            what = "it goes on from a branch that was left before, which stays out of view"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)

    def _key(self, location: SourceLocation, record: dict[str, Any]) -> str:
        own = record.get("uuid")
        return own if c.is_id(own) else f"{NAME}/{location.line}"

    def _set_alias(self, record: dict[str, Any], key: str | None) -> None:
        own = record.get("uuid")
        if isinstance(own, str):
            self._alias.setdefault(own, key)

    def _follow(self, record: dict[str, Any]) -> None:
        """Let a line that is no message stand for the message before it."""
        tip = self._path[-1] if self._path else None
        parent = record.get("parentUuid")
        self._set_alias(record, self._alias.get(parent, tip) if isinstance(parent, str) else tip)

    def _read_title(
        self, location: SourceLocation, record: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        """Read a title: a person's goes before a generated one, that before a summary."""
        names = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
        title = record.get(names[kind])
        if not isinstance(title, str) or not title.strip():
            yield r.ProblemRecord(
                location=location, reason=f"a line of kind {kind} without a title"
            )
            return
        self._titles[kind] = title
        best = next(name for name in names if name in self._titles)
        by: Namer = "person" if best == "custom-title" else "model"
        yield r.TitleRecord(location=location, title=self._titles[best], by=by)


def _text(message: dict[str, Any]) -> str:
    parsed = c.anthropic(message.get("content"))
    return "".join(part.text for part in parsed.parts if isinstance(part, Text))


def _is_beside(part: Part) -> bool:
    return isinstance(part, Text) and part.text.startswith(_BESIDE)


def _name_of(text: str) -> str | None:
    """Return what a command is called by in a title; None for a text that is no command."""
    if text.startswith("<bash-input>"):
        return ""
    name = _COMMAND.search(text) if text.startswith("<command-message>") else None
    return f"{name[1]} {name[2] or ''}".strip() if name is not None else None


def _claims(peek: Peek) -> bool:
    return any(is_claude_code(record) for record in peek.records)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return [chosen(environment, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects"]


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: claude_code(path, settled=reading.settled, quiet=reading.quiet),
    places=_places,
    newest_us=newest_us,
    misfits=misfits(_fits),
    commands=("claude", "claude-code"),
)
