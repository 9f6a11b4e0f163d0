"""Codex: `sessions/YYYY/MM/DD/rollout-*.jsonl`, plain or `.zst`, and the archived ones beside them.

A line is `{"timestamp", "type", "payload"}`. In both history modes the `response_item` lines hold
all that the model was sent and said; events beside them say when a turn began, ended or was taken
back. What events repeat of the items is passed over. A fork may hold its own part only and name
the file that it goes on from (`history_base`): it comes in with that part in front.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, chosen, misfits
from killick.exchange.formats import content as c
from killick.exchange.read import SourceLine, newest_us, read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.causes import Cause
from killick.model.messages import Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.sessions import moment

NAME: Final = "codex"

_INJECTED: Final = re.compile(
    r"\s*(# AGENTS\.md instructions\b|<(environment_context|user_instructions|INSTRUCTIONS|skill|"
    r"turn_aborted|user_shell_command|permissions|permissions instructions|collaboration_mode|"
    r"subagent_notification|model_switch|personality_spec|apps_instructions)\b[^>]*>)"
)
"""How texts begin that Codex says to the model on the user's side."""

_TAGGED: Final = re.compile(r"\s*<([A-Za-z][\w-]*)[^>]*>.*</\1>\s*\Z", re.DOTALL)
_REPEATED: Final = {
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "item_completed",
    "context_compacted",
}
"""Events that say again what the items say."""

_TYPED: Final = (b"user_message", b"UserMessage")
"""Words of the events that say what a person typed."""

_CALLS: Final = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
_OUTPUTS: Final = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
_ANSWERS: Final = {"message", "reasoning", "web_search_call", "image_generation_call", *_CALLS}
_TITLE_CHARS: Final = 80
_DETAIL_CHARS: Final = 10_000
_STOPPED: Final = ("interrupted", "replaced")
"""Reasons of a person: Escape, or another prompt."""


def is_codex(record: dict[str, Any]) -> bool:
    """Tell whether this is a line of such a file."""
    kinds = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
    return record.get("type") in kinds and isinstance(record.get("payload"), dict)


def codex(path: Path, *, settled: bool) -> Source:
    """Return the session of a rollout."""
    meta = _meta(path)
    native = meta.get("id") or meta.get("session_id")
    name = native if c.is_id(native) else _stem(path)
    reading = _SessionReader(path, name, meta, settled=settled)
    return Source(NAME, name, str(path), reading.records(), settled)


def _meta(path: Path) -> dict[str, Any]:
    """Return the first session_meta; those behind it are copied from other files."""
    return c.as_dict(c.first_record(path, _is_meta).get("payload"))


def _is_meta(record: dict[str, Any]) -> bool:
    return record.get("type") == "session_meta" and isinstance(record.get("payload"), dict)


class _Answer:
    """The items of one response, until another line comes."""

    def __init__(self, location: SourceLocation, at_us: int | None, *, copied: bool) -> None:
        self.location = location
        self.copied = copied
        self.at_us = at_us
        self.key: str | None = None
        self.parts: list[Part] = []
        self.blobs: dict[str, bytes] = {}
        self.usage: object = None
        self.ids: dict[str, str] = {}


class _SessionReader:
    """The records of one rollout."""

    def __init__(self, path: Path, name: str, meta: dict[str, Any], *, settled: bool) -> None:
        self._path = path
        self._name = name
        self._meta = meta
        self._settled = settled
        self._model: str | None = None
        self._in_turn = False
        self._answer: _Answer | None = None
        self._titled = False
        # A subagent's file may begin with what its parent had said.
        begins = meta.get("subagent_history_start_ordinal")
        self._own_from = begins if isinstance(begins, int) else 0
        self._copied = False
        self._typed = _typed(path)
        self._threads: dict[str, str] = {}
        """The threads of the other files that this one goes on from."""

    def records(self) -> Iterator[r.Record]:
        yield from self._begin()
        for inherited in self._inherited(self._meta, {self._path}):
            if isinstance(inherited, r.ProblemRecord):
                yield inherited
            else:
                yield from c.line_records([inherited], self._read_line, settled=self._settled)
        lines = read_lines(self._path)
        yield from c.line_records(lines, self._read_line, settled=self._settled)
        yield from self._flush(growing=not self._settled)
        title = _index_title(self._path, self._name)
        if title is not None:
            yield r.TitleRecord(location=SourceLocation(str(self._path)), title=title)
        if "archived_sessions" in self._path.parts:
            yield r.ArchiveRecord(location=SourceLocation(str(self._path)))

    def _begin(self) -> Iterator[r.Record]:
        location, meta = SourceLocation(str(self._path), 1), self._meta
        cwd, source = meta.get("cwd"), meta.get("source")
        parent = meta.get("parent_thread_id")
        is_subagent = isinstance(source, dict) and "subagent" in source
        extra = {
            name: meta[name]
            for name in ("originator", "cli_version", "git", "history_mode", "forked_from_id")
            if meta.get(name) is not None
        }
        yield r.BeginRecord(
            location=location,
            at_us=time_us(meta.get("timestamp")) or 0,
            native_id=self._name,
            type="subagent" if is_subagent or c.is_id(parent) else "user",
            project=c.project_of(cwd),
            extra=extra if c.is_json(extra) else {},
            parent=parent if c.is_id(parent) else None,
        )
        mode = meta.get("history_mode", "legacy")
        if mode not in ("legacy", "paginated"):
            what = f"history mode {mode!r} is not known; it was read as the others are"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)

    def _inherited(
        self, meta: dict[str, Any], seen: set[Path]
    ) -> Iterator[SourceLine | r.ProblemRecord]:
        """Yield the lines that this file continues from another file."""
        base = meta.get("history_base")
        if not isinstance(base, dict):
            return
        path, end = _rollout(self._path, base.get("thread_id")), base.get("end_ordinal_exclusive")
        if path is None or path in seen or not isinstance(end, int):
            what = f"the rollout that it goes on from is not there: {base.get('thread_id')!r}"
            yield r.ProblemRecord(location=SourceLocation(str(self._path), 1), reason=what)
            return
        self._threads[str(path)] = str(base["thread_id"])
        yield from self._inherited(_meta(path), seen | {path})
        for number, line in enumerate(read_lines(path)):
            ordinal = (line.record or {}).get("ordinal", number)
            if isinstance(ordinal, int) and ordinal < end:
                yield line

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, payload = record.get("type"), record.get("payload")
        at, ordinal = time_us(record.get("timestamp")), record.get("ordinal")
        self._copied = isinstance(ordinal, int) and ordinal < self._own_from
        if not isinstance(kind, str) or not isinstance(payload, dict):
            yield r.ProblemRecord(location=location, reason="a line that is no record of a rollout")
        elif kind == "response_item":
            yield from self._read_item(location, at, payload)
        elif kind == "event_msg":
            yield from self._read_event(location, at, payload)
        elif kind == "compacted":
            yield from self._flush()
            yield _summary_record(location, at, payload)
        elif kind != "session_meta":
            model = payload.get("model")
            if kind == "turn_context" and isinstance(model, str):
                self._model = model
            yield from self._flush()
            yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=payload)

    # -- events --------------------------------------------------------------------------------

    def _read_event(
        self, location: SourceLocation, at: int | None, event: dict[str, Any]
    ) -> Iterator[r.Record]:
        kind = event.get("type")
        if isinstance(kind, str) and kind in _REPEATED:
            return
        if kind == "token_count" and self._answer is not None:
            info = event.get("info")
            if isinstance(info, dict):  # the response is over
                self._answer.usage = info.get("last_token_usage")
                yield from self._flush()
            return
        yield from self._flush()
        match kind:
            case "task_started" | "turn_started":
                self._in_turn = True
                yield r.TurnStartRecord(location=location, at_us=at, key=str(event.get("turn_id")))
            case "task_complete" | "turn_complete":
                self._in_turn = False
                yield _ending(location, at, event.get("error"))
            case "turn_aborted":
                self._in_turn = False
                reason = event.get("reason")
                why = reason if isinstance(reason, str) and reason else "interrupted"
                cause: Cause = "stopped" if why in _STOPPED else "other"
                yield r.TurnEndRecord(
                    location=location, at_us=at, status="interrupted", reason=why, cause=cause
                )
            case "thread_rolled_back" if isinstance(event.get("num_turns"), int):
                self._in_turn = False
                yield r.RollbackRecord(location=location, at_us=at, turns=event["num_turns"])
            case str():
                yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=event)
            case _:
                yield r.ProblemRecord(
                    location=location, reason="an event that does not say its kind"
                )

    # -- items ---------------------------------------------------------------------------------

    def _read_item(
        self, location: SourceLocation, at: int | None, item: dict[str, Any]
    ) -> Iterator[r.Record]:
        kind = item.get("type")
        if not isinstance(kind, str):
            yield r.ProblemRecord(location=location, reason="an item that does not say its kind")
            return
        if kind in _ANSWERS and (kind != "message" or item.get("role") == "assistant"):
            yield from self._read_answer(location, at, item, kind)
            return
        yield from self._flush()
        if kind == "message":
            yield from self._read_message(location, at, item)
        elif kind in _OUTPUTS:
            yield from _result_records(location, at, item)
        else:
            yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=item)

    def _read_message(
        self, location: SourceLocation, at: int | None, item: dict[str, Any]
    ) -> Iterator[r.Record]:
        role = item.get("role")
        if role not in ("user", "developer", "system"):
            yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
            return
        parsed = c.openai(item.get("content"))
        for what in parsed.bad:
            yield r.ProblemRecord(location=location, reason=what)
        text = "".join(part.text for part in parsed.parts if isinstance(part, Text))
        is_prompt = role == "user" and not self._copied and not self._is_injected(text)
        if is_prompt and not self._titled and text.strip():
            self._titled = True
            yield r.TitleRecord(
                location=location, title=text.strip().splitlines()[0][:_TITLE_CHARS]
            )
        if not parsed.parts and parsed.bad:
            return
        yield r.MessageRecord(
            location=location,
            at_us=at,
            role="user" if role == "user" else "system",
            parts=tuple(parsed.parts),
            key=self._key(item, location),
            blobs=parsed.blobs,
            begins_turn=is_prompt and not self._in_turn,
            person=is_prompt,
        )

    def _key(self, item: dict[str, Any], location: SourceLocation) -> str:
        """Return the item's id, or one from its place; a copy under another name has the same."""
        own = item.get("id")
        thread = self._threads.get(location.file, self._name)
        return own if c.is_id(own) else f"{thread}/{location.line}"

    def _is_injected(self, text: str) -> bool:
        """Tell whether Codex said this; of other tags, events that name the prompts decide."""
        if _INJECTED.match(text):
            return True
        unnamed = bool(self._typed) and hash(text.strip()) not in self._typed
        return unnamed and bool(_TAGGED.match(text))

    def _read_answer(
        self, location: SourceLocation, at: int | None, item: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        parsed = _answer_parts(item, kind)
        for what in parsed.bad:
            yield r.ProblemRecord(location=location, reason=what)
        if not parsed.parts:
            return
        if self._answer is None:
            self._answer = _Answer(location, at, copied=self._copied)
            self._answer.key = self._key(item, location)
        answer = self._answer
        answer.parts += parsed.parts
        answer.blobs |= parsed.blobs
        if c.is_id(item.get("id")):
            answer.ids[kind] = item["id"]

    def _flush(self, *, growing: bool = False) -> Iterator[r.Record]:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        instructions = self._meta.get("base_instructions")
        system = instructions.get("text") if isinstance(instructions, dict) else None
        provider = self._meta.get("model_provider")
        yield r.MessageRecord(
            location=answer.location,
            at_us=answer.at_us,
            role="assistant",
            parts=tuple(answer.parts),
            key=answer.key,
            blobs=answer.blobs,
            growing=growing,
            person=not answer.copied,
            model_call=r.ModelCallRecord(
                provider=provider if isinstance(provider, str) else "openai",
                model=self._model,
                usage=c.usage(answer.usage),
                provider_ids=answer.ids,
                system=system if isinstance(system, str) and system else None,
            ),
        )


def _ending(location: SourceLocation, at: int | None, error: object) -> r.TurnEndRecord:
    """Return the ending of a task; one with an error has failed."""
    if error is None or error is False or error == "":
        return r.TurnEndRecord(location=location, at_us=at, status="completed")
    message = error.get("message") if isinstance(error, dict) else error
    detail = message if isinstance(message, str) else c.compact(error)
    return r.TurnEndRecord(
        location=location, at_us=at, status="failed", reason="error", detail=detail[:_DETAIL_CHARS]
    )


def _typed(path: Path) -> set[int]:
    """Return the texts that events say a person typed, as numbers."""
    texts = set[int]()
    for line in read_lines(path, having=_TYPED):
        payload = (line.record or {}).get("payload")
        if not isinstance(payload, dict) or (line.record or {}).get("type") != "event_msg":
            continue
        item = payload.get("item")
        if payload.get("type") == "user_message" and isinstance(payload.get("message"), str):
            texts.add(hash(payload["message"].strip()))
        elif isinstance(item, dict) and item.get("type") == "UserMessage":
            content = c.openai(item.get("content"))
            typed = (part.text for part in content.parts if isinstance(part, Text))
            texts.add(hash("".join(typed).strip()))
    return texts


def _answer_parts(item: dict[str, Any], kind: str) -> c.Content:
    if kind == "message":
        return c.openai(item.get("content"))
    parsed = c.Content()
    call_id = item.get("call_id") or item.get("id")
    match kind:
        case "reasoning":
            _reasoning(parsed, item)
        case "function_call":
            arguments = item.get("arguments", "")
            text = arguments if isinstance(arguments, str) else c.compact(arguments)
            parsed.call(call_id, item.get("name"), text)
        case "custom_tool_call":
            name, text = item.get("name"), item.get("input", "")
            if c.is_id(call_id) and isinstance(name, str) and isinstance(text, str):
                parsed.parts.append(ToolCall(call_id, name, text, "custom"))
            else:
                parsed.bad.append("a tool call without an id or a name")
        case "local_shell_call":
            parsed.call(call_id, "local_shell", c.compact(item.get("action", {})))
        case "tool_search_call":
            parsed.call(call_id, "tool_search", c.compact(item.get("arguments", {})))
        case _:
            parsed.opaque("codex-item", item)  # a call without an output: kept, never sent
    return parsed


def _reasoning(parsed: c.Content, item: dict[str, Any]) -> None:
    inner = c.openai(item.get("summary") or item.get("content"))
    text = "\n".join(part.text for part in inner.parts if isinstance(part, Text))
    encrypted = item.get("encrypted_content")
    sealed = encrypted if isinstance(encrypted, str) and encrypted else None
    parsed.bad += inner.bad
    if text or sealed is not None:
        parsed.parts.append(Reasoning(text, encrypted=sealed))


def _result_records(
    location: SourceLocation, at: int | None, item: dict[str, Any]
) -> Iterator[r.Record]:
    call_id, output = item.get("call_id"), item.get("output", item.get("tools"))
    if not c.is_id(call_id):
        yield r.ProblemRecord(location=location, reason="an output without the id of its call")
        return
    is_error = False
    if isinstance(output, dict):  # as older versions wrote it
        is_error, output = output.get("success") is False, output.get("content", "")
    if item.get("type") == "tool_search_output":
        output = c.compact(output)
    parsed = c.openai(output)
    for what in parsed.bad:
        yield r.ProblemRecord(location=location, reason=what)
    content = output if isinstance(output, str) else c.inner_parts(parsed.parts)
    result = ToolResult(call_id, content, is_error=is_error)
    yield r.ResultRecord(location=location, at_us=at, result=result, blobs=parsed.blobs)


def _summary_record(
    location: SourceLocation, at: int | None, payload: dict[str, Any]
) -> r.SummaryRecord:
    """Return the summary and the prompts that stay beside it."""
    message, history = payload.get("message"), payload.get("replacement_history")
    texts = [
        "".join(part.text for part in c.openai(item.get("content")).parts if isinstance(part, Text))
        for item in (history if isinstance(history, list) else ())
        if isinstance(item, dict) and item.get("type") == "message" and item.get("role") == "user"
    ]
    words = message if isinstance(message, str) and message.strip() else ""
    if not words and texts:
        words = texts[-1]
    return r.SummaryRecord(location=location, at_us=at, text=words, kept_texts=frozenset(texts))


def _stem(path: Path) -> str:
    """Return the name of a rollout, the same when it is compressed."""
    return path.name.removesuffix(".zst").removesuffix(".jsonl")


# -- the files around it ---------------------------------------------------------------------------


def _home(path: Path) -> Path | None:
    """Return the folder that holds `sessions` and `archived_sessions`."""
    for folder in path.parents:
        if folder.name in ("sessions", "archived_sessions"):
            return folder.parent
    return None


def _rollout(path: Path, rollout_id: object) -> Path | None:
    home = _home(path)
    if home is None or not isinstance(rollout_id, str) or not re.fullmatch(r"[\w-]+", rollout_id):
        return None
    begun = home / "sessions" / _day(rollout_id)
    for folder in (begun, home / "sessions", home / "archived_sessions"):
        files = sorted(folder.rglob(f"rollout-*{rollout_id}.jsonl*"))
        if files:
            return files[0]  # the plain one, where both are there
    return None


def _day(rollout_id: str) -> str:
    """Return the folder in which it began, from the milliseconds at the start of its id.

    It is named by the local day, so it may lie beside this one; then all are looked through.
    """
    try:
        at = int(rollout_id.replace("-", "")[:12], 16)
        return moment(at * 1_000).strftime("%Y/%m/%d")
    except (ValueError, OverflowError):
        return ""


def _index_title(path: Path, name: str) -> str | None:
    """Return the newest title of the rollout in the index."""
    home = _home(path)
    index = None if home is None else home / "session_index.jsonl"
    if index is None or not index.is_file():
        return None
    status = index.stat()
    return _titles(index, status.st_size, status.st_mtime_ns).get(name)


@lru_cache(maxsize=4)
def _titles(index: Path, _size: int, _changed: int) -> dict[str, str]:
    """Read once for all rollouts of a home."""
    titles = {}
    for line in read_lines(index):
        record = line.record or {}
        own, given = record.get("id"), record.get("thread_name")
        if isinstance(own, str) and isinstance(given, str) and given.strip():
            titles[own] = given
    return titles


def _fits(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and isinstance(record.get("payload"), dict)


def _claims(peek: Peek) -> bool:
    return any(is_codex(record) for record in peek.records)


def _plain(path: Path) -> Path:
    """Return the plain file if there are both it and a compressed one."""
    plain = path.with_name(path.name.removesuffix(".zst"))
    return plain if plain.is_file() else path


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    own = chosen(environment, "CODEX_HOME", home / ".codex")
    return [own / "sessions", own / "archived_sessions"]


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [codex(path, settled=reading.settled)],
    unit=_plain,
    places=_places,
    newest_us=newest_us,
    misfits=misfits(_fits),
    commands=("codex",),
)
