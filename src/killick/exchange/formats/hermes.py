"""hermes-agent: `state.db` of every schema version, exported JSON lines, and older transcripts.

A conversation is a chain of sessions: compressing one may close it and go on in a child. Here the
chain is one session. Rows are live, archived by a compaction, or rewound; a compaction writes the
rows that it keeps once more, with new ids, so a row is known by what is in it. Times are part of
that: who says the same thing twice says it at two moments. Which columns there are depends on the
version, so they are asked for. That a model refused a request is in no row: hermes leaves the
request and the error beside the database, as `sessions/request_dump_*.json`.
"""

from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions, chosen
from killick.exchange.formats import content as c
from killick.exchange.formats.content import message_records, title_of, words
from killick.exchange.read import (
    SourceDatabase,
    each,
    json_of,
    opened,
    parse,
    read_document,
    read_lines,
    shape,
    text_of,
    time_us,
)
from killick.exchange.records import Source, SourceLocation
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.model.entries import Usage
from killick.model.messages import Reasoning, ToolResult
from killick.model.sessions import Namer, Project

NAME: Final = "hermes"

_ENCODED: Final = "\0json:"
_STOPPED: Final = "Operation interrupted"
_RESTING_US: Final = 600_000_000
_CHAIN_MAX: Final = 1_000
_ROLES: Final = ("user", "assistant", "tool", "system")

_SESSION: Final = (
    "id", "source", "user_id", "session_key", "chat_id", "display_name", "model", "model_config",
    "system_prompt", "system_prompt_hash", "parent_session_id", "started_at", "ended_at",
    "end_reason", "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens",
    "estimated_cost_usd", "actual_cost_usd", "cwd", "git_branch", "git_repo_root",
    "billing_provider", "title", "title_source", "last_activity_at", "archived", "hidden",
)  # fmt: skip
_EXTRA: Final = (
    "source", "user_id", "session_key", "chat_id", "display_name", "end_reason", "input_tokens",
    "output_tokens", "cache_read_tokens", "reasoning_tokens", "estimated_cost_usd",
    "actual_cost_usd", "git_branch",
)  # fmt: skip
_MESSAGE: Final = (
    "id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "effect_disposition",
    "timestamp", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id",
    "observed", "_compressed_summary", "active", "compacted", "display_kind", "display_metadata",
    "message_uid", "absorbed_message_uids",
)  # fmt: skip
_JSON: Final = (
    "tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items",
    "display_metadata", "absorbed_message_uids",
)  # fmt: skip
_KEPT: Final = (
    "effect_disposition", "token_count", "reasoning_details", "codex_message_items",
    "platform_message_id", "display_kind", "display_metadata",
)  # fmt: skip
_TITLED: Final[dict[str, Namer]] = {"derived": "import", "llm": "model"}
_MARKERS: Final = ("_branched_from", "_delegate_from", "_reset_from")

Row = tuple[SourceLocation, dict[str, Any] | None, str | None]
"""A message as it stands, or why there is none."""


# -- the database ----------------------------------------------------------------------------------


class _Chain(msgspec.Struct):
    """A conversation: its sessions from the first to the newest."""

    sessions: list[dict[str, Any]]
    parent: str | None = None

    @property
    def first(self) -> dict[str, Any]:
        return self.sessions[0]

    @property
    def newest(self) -> dict[str, Any]:
        return self.sessions[-1]


def hermes_database(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield every conversation of a database, as of one moment. Raises OSError."""
    with opened(path) as database:
        sessions = list(
            database.select("sessions", ("rowid", *_SESSION), "ORDER BY started_at, rowid")
        )
        newest = max((_active_us(session) for session in sessions), default=0)
        for chain in _chains(sessions):
            rests = settled or newest - _active_us(chain.newest) > _RESTING_US
            location = SourceLocation(str(path), chain.first["rowid"])
            system = _system(database, chain.newest)
            rows = _database_rows(database, chain)
            refusals = _refusals(path.parent, chain)
            yield _source(path, location, chain, rows, system, refusals, settled=rests)
        for stray in database.strays("messages", "session_id", "sessions"):
            location = SourceLocation(str(path), stray["rowid"])
            yield r.ProblemRecord(
                location=location, reason=f"there is no session {stray['id']!r}", repaired=True
            )
            chain = _Chain([stray])
            rows = _database_rows(database, chain)
            yield _source(path, location, chain, rows, None, settled=settled)


def _active_us(session: dict[str, Any]) -> int:
    names = ("last_activity_at", "ended_at", "started_at")
    return max(time_us(session.get(name)) or 0 for name in names)


def _chains(sessions: list[dict[str, Any]]) -> Iterator[_Chain]:
    """Yield the chains: a session goes on in the first child that a compression made."""
    by_id = {session["id"]: session for session in sessions}
    child: dict[object, dict[str, Any]] = {}
    for session in sessions:
        parent = by_id.get(session.get("parent_session_id"))
        if (
            parent is not None
            and parent is not session
            and _was_compressed(parent)
            and not _aside(session)
        ):
            child.setdefault(parent["id"], session)
    goes_on = {session["id"] for session in child.values()}
    taken = set[object]()
    # A circle has no beginning: what was not reached from one is taken as it stands.
    for session in [*(s for s in sessions if s["id"] not in goes_on), *sessions]:
        if session["id"] in taken or not c.is_id(session["id"]):
            continue
        chain, at = _Chain([], _parent(session, by_id)), session
        while at["id"] not in taken and len(chain.sessions) < _CHAIN_MAX:
            taken.add(at["id"])
            chain.sessions.append(at)
            at = child.get(at["id"], at)
        yield chain


def _was_compressed(session: dict[str, Any]) -> bool:
    return session.get("end_reason") == "compression"


def _aside(session: dict[str, Any]) -> bool:
    """Tell whether it branched off or was delegated, instead of going on."""
    return any(_config(session).get(name) for name in _MARKERS)


def _config(session: dict[str, Any]) -> dict[str, Any]:
    value = session.get("model_config")
    if not isinstance(value, dict):
        try:
            value = json_of(value)
        except ValueError:
            value = None
    return value if isinstance(value, dict) else {}


def _parent(session: dict[str, Any], by_id: dict[Any, dict[str, Any]]) -> str | None:
    """Return the first session of the conversation that a subagent works for."""
    at = by_id.get(session.get("parent_session_id"))
    if at is None or not _config(session).get("_delegate_from"):
        return None
    seen = set[object]()
    while at["id"] not in seen:
        seen.add(at["id"])
        before = by_id.get(at.get("parent_session_id"))
        if before is None or not _was_compressed(before) or _aside(at):
            break
        at = before
    return str(at["id"])


def _system(database: SourceDatabase, session: dict[str, Any]) -> str | None:
    own, name = text_of(session.get("system_prompt")), session.get("system_prompt_hash")
    if own or name is None or not database.columns("system_prompts"):
        return own or None
    rows = database.rows("SELECT prompt FROM system_prompts WHERE hash = ?", name)
    return next((text_of(row["prompt"]) for row in rows), None)


def _database_rows(database: SourceDatabase, chain: _Chain) -> Iterator[Row]:
    name = str(database.path)
    location = SourceLocation(name)
    for session in chain.sessions:
        rows = database.select(
            "messages", _MESSAGE, "WHERE session_id = ? ORDER BY id", session["id"]
        )
        for row in each(rows):
            if isinstance(row, str):
                yield location, None, row
                continue
            location = SourceLocation(name, row["id"])
            try:
                yield location, _decoded(row), None
            except ValueError as error:
                yield location, None, f"a message that cannot be read: {error}"


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as an export would show it."""
    decoded = {
        name: text_of(value) if isinstance(value, bytes) else value for name, value in row.items()
    }
    decoded["content"] = _content_of(text_of(row["content"]))
    for name in _JSON:
        decoded[name] = json_of(row[name])
    return decoded


def _refusals(folder: Path, chain: _Chain) -> dict[tuple[str, str], str]:
    """Return the errors of refused requests, by the role and text of each one's last message."""
    errors: dict[tuple[str, str], str] = {}
    for session in chain.sessions:
        names = f"request_dump_{escape(str(session['id']))}_*.json"
        for path in sorted((folder / "sessions").glob(names)):
            try:
                dump = c.as_dict(read_document(path).value)
            except OSError:
                continue
            body = c.as_dict(c.as_dict(dump.get("request")).get("body"))
            last = c.as_dict((c.as_list(body.get("messages")) or [None])[-1])
            error = c.as_text(c.as_dict(dump.get("error")).get("message"))
            if error is not None:
                errors[str(last.get("role")), _text(last.get("content"))] = error
    return errors


def _content_of(content: object) -> object:
    """Decode content that is no plain text: JSON behind a mark."""
    if isinstance(content, str) and content.startswith(_ENCODED):
        return parse(to_bytes(content[len(_ENCODED) :]))
    return content


# -- the files -------------------------------------------------------------------------------------


def hermes_file(path: Path, *, settled: bool) -> Iterator[Source | r.ProblemRecord]:
    """Yield exported sessions, one on each line, or a transcript with a message on each."""
    lines = read_lines(path)
    for line in lines:
        if line.record is None:
            if settled or not line.torn:
                yield r.ProblemRecord(location=line.location, reason=line.problem or "not a record")
        elif _is_export(line.record):
            about = line.record
            rows = _exported_rows(line.location, about.get("messages"))
            chain = _Chain([about | {"id": _name_of(about, path.stem)}])
            system = about.get("system_prompt")
            yield _source(path, line.location, chain, rows, system, settled=True)
        else:
            lines.close()  # type: ignore[attr-defined]
            yield _transcript(path, settled=settled)
            return


def _name_of(about: dict[str, Any], otherwise: str) -> str:
    return about["id"] if c.is_id(about.get("id")) else otherwise


def _exported_rows(location: SourceLocation, messages: object) -> Iterator[Row]:
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            yield location, None, "not a message: it is no object"
            continue
        try:
            yield location, message | {"content": _content_of(message.get("content"))}, None
        except ValueError as error:
            yield location, None, f"a message that cannot be read: {error}"


def _transcript(path: Path, *, settled: bool) -> Source:
    chain = _Chain([{"id": path.stem}])
    location = SourceLocation(str(path), 1)
    return _source(path, location, chain, _lines_of(path, settled=settled), None, settled=settled)


def _lines_of(path: Path, *, settled: bool) -> Iterator[Row]:
    for line in read_lines(path):
        if line.record is None:
            if settled or not line.torn:
                yield line.location, None, line.problem
        else:
            yield from _exported_rows(line.location, [line.record])


# -- what they have in common ----------------------------------------------------------------------


def _source(
    path: Path,
    location: SourceLocation,
    chain: _Chain,
    rows: Iterable[Row],
    system: object,
    refusals: Mapping[tuple[str, str], str] | None = None,
    *,
    settled: bool,
) -> Source:
    native = str(chain.first["id"])
    reading = _SessionReader(chain, c.as_text(system), refusals or {})
    return Source(
        NAME,
        native,
        str(path),
        reading.records(location, rows),
        settled or _ended(chain.newest),
        answer_ends=True,
        changes_late=True,
    )


def _ended(session: dict[str, Any]) -> bool:
    return session.get("ended_at") is not None and not _was_compressed(session)


class _SessionReader:
    """The records of one conversation."""

    def __init__(
        self, chain: _Chain, system: str | None, refusals: Mapping[tuple[str, str], str]
    ) -> None:
        self._chain = chain
        self._system = system
        self._refusals = refusals
        self._last = ("", "")
        self._model = chain.newest.get("model")
        self._keys: set[str] = set()
        self._absorbed: set[str] = set()
        self._undone = 0
        self._summary: r.SummaryRecord | None = None
        self._titled = False

    def records(self, location: SourceLocation, rows: Iterable[Row]) -> Iterator[r.Record]:
        yield from self._begin(location)
        for where, row, problem in rows:
            location = where
            if row is None:
                yield r.ProblemRecord(location=where, reason=problem or "not a message")
            else:
                yield from self._read_row(where, row)
        yield from self._refused(location)
        yield from self._resume(location)
        if self._chain.newest.get("archived"):
            yield r.ArchiveRecord(location=location)

    def _begin(self, location: SourceLocation) -> Iterator[r.Record]:
        first, newest = self._chain.first, self._chain.newest
        cwd, root = text_of(newest.get("cwd")), text_of(newest.get("git_repo_root"))
        extra = {name: first[name] for name in _EXTRA if first.get(name) is not None}
        extra |= {name: _config(first)[name] for name in _MARKERS if _config(first).get(name)}
        if len(self._chain.sessions) > 1:
            extra["chain"] = [str(session["id"]) for session in self._chain.sessions]
        yield r.BeginRecord(
            location=location,
            at_us=time_us(first.get("started_at")) or 0,
            native_id=str(first["id"]),
            type=self._type(),
            project=Project(root or cwd or "", cwd if root and cwd else None) if cwd else None,
            extra=extra if c.is_json(extra) else {},
            parent=self._chain.parent,
        )
        title = title_of(text_of(newest.get("title")), 1_000)
        if title is not None:
            self._titled = True
            by = _TITLED.get(str(newest.get("title_source")), "person")
            yield r.TitleRecord(location=location, title=title, by=by)

    def _type(self) -> str:
        if self._chain.parent is not None:
            return "subagent"
        if self._chain.first.get("source") == "cron":
            return "scheduled"
        return "hidden" if self._chain.first.get("hidden") else "user"

    def _read_row(self, location: SourceLocation, row: dict[str, Any]) -> Iterator[r.Record]:
        role = row.get("role")
        if role == "session_meta":
            yield from self._resume(location)
            self._learn(row)
            yield r.OpaqueRecord(
                location=location, at_us=_at(row), name="session_meta", data=_meta(row)
            )
            return
        if role not in _ROLES:
            yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")
            return
        key = _identity(row)
        if key in self._keys:
            if self._summary is not None:  # the tail that a compaction has kept
                kept = self._summary.kept_keys | {key}
                self._summary = msgspec.structs.replace(self._summary, kept_keys=kept)
            return
        self._keys.add(key)
        if str(row.get("message_uid")) in self._absorbed:
            what = "it is part of a message before it, which hermes had merged it into"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)
            return
        absorbed = row.get("absorbed_message_uids")
        if isinstance(absorbed, list) and _flag(row, "active", 1):
            self._absorbed |= {uid for uid in absorbed if isinstance(uid, str)}
        yield from self._read_message_row(location, row, key)

    def _read_message_row(
        self, location: SourceLocation, row: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        """Yield a row; undone rows are recorded first and taken back afterwards."""
        gone = _flag(row, "active", 1) == 0 and _flag(row, "compacted", 0) == 0
        if _flag(row, "_compressed_summary", 0):
            yield from self._resume(location)
            text = _text(row.get("content"))
            self._summary = r.SummaryRecord(location=location, at_us=_at(row), text=text)
            return
        if gone and row["role"] == "user" and not row.get("observed"):
            yield from self._flush_summary()
            self._undone += 1
        elif not gone:
            yield from self._resume(location)
        # One that went alone, without the prompt before it, is hidden and no more.
        yield from self._read_message(location, row, key, hidden=gone and not self._undone)

    def _resume(self, location: SourceLocation) -> Iterator[r.Record]:
        """End a kept tail and take back the undone rows, before a live row."""
        yield from self._flush_summary()
        if self._undone:
            yield r.RollbackRecord(location=location, turns=self._undone)
            self._undone = 0

    def _refused(self, location: SourceLocation) -> Iterator[r.Record]:
        """End the turn whose last message was in a request that the model refused."""
        error = self._refusals.get(self._last)
        if error is not None:
            yield r.TurnEndRecord(location=location, status="failed", reason="error", detail=error)

    def _flush_summary(self) -> Iterator[r.Record]:
        summary, self._summary = self._summary, None
        if summary is not None:
            yield summary

    def _read_message(
        self, location: SourceLocation, row: dict[str, Any], key: str, *, hidden: bool
    ) -> Iterator[r.Record]:
        at, role, seen = _at(row), row["role"], not hidden
        if role == "assistant" and _is_stop(row):
            text = _text(row.get("content"))
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted",
                reason="user",
                detail=text,
                cause="stopped",
            )
            return
        parsed = _content(row.get("content"))
        if role == "tool":
            _result(parsed, row)
        elif role == "assistant":
            _answer(parsed, row)
        prompt = role == "user" and not row.get("observed")
        if prompt:
            yield from self._refused(location)
        self._last = (role, _text(row.get("content")))
        if prompt and not self._titled:
            title = title_of(words(parsed.parts))
            if title is not None:
                self._titled = True
                yield r.TitleRecord(location=location, title=title)
        yield from message_records(
            location,
            at,
            role if role != "tool" else "user",
            parsed,
            key=key,
            prompt=prompt,
            model_call=self._model_call(row),
            person=seen,
            model=seen,
        )
        more = {name: row[name] for name in _KEPT if row.get(name) not in (None, "", "none")}
        if more and c.is_json(more):
            yield r.OpaqueRecord(
                location=location, at_us=at, name="row", data=more | {"message": key}
            )

    def _learn(self, row: dict[str, Any]) -> None:
        if isinstance(row.get("model"), str):
            self._model = row["model"]

    def _model_call(self, row: dict[str, Any]) -> r.ModelCallRecord:
        provider, reason = self._chain.newest.get("billing_provider"), row.get("finish_reason")
        count = row.get("token_count")
        used = isinstance(count, int) and not isinstance(count, bool) and 0 < count < 1 << 40
        return r.ModelCallRecord(
            provider=provider if isinstance(provider, str) else None,
            model=self._model if isinstance(self._model, str) else None,
            usage=Usage(output=count) if used and isinstance(count, int) else None,
            finish_reason=reason if isinstance(reason, str) else None,
            system=self._system,
        )


def _at(row: dict[str, Any]) -> int | None:
    return time_us(row.get("timestamp"))


def _flag(row: dict[str, Any], name: str, otherwise: int) -> int:
    """Return a flag; exports and some versions lack it for live rows."""
    value = row.get(name)
    return otherwise if value is None else int(bool(value))


def _identity(row: dict[str, Any]) -> str:
    """Return an identity that stays when a compaction writes the row anew."""
    names = ("role", "content", "timestamp", "tool_call_id", "tool_calls", "tool_name")
    return f"{NAME}/{digest(to_bytes(c.compact([row.get(name) for name in names])))[-32:]}"


def _meta(row: dict[str, Any]) -> Any:
    """Return the content of such a row, without flags that may change."""
    names = ("content", "model", "tools", "platform")
    meta = {name: row[name] for name in names if row.get(name) is not None}
    return meta if c.is_json(meta) else c.compact(meta)


def _is_stop(row: dict[str, Any]) -> bool:
    """Tell whether the agent wrote this sentence, because it was stopped."""
    content = row.get("content")
    return isinstance(content, str) and content.startswith(_STOPPED) and not row.get("tool_calls")


def _content(content: object) -> c.Content:
    if isinstance(content, dict):
        content = [content]
    return c.openai(content)


def _text(content: object) -> str:
    return words(_content(content).parts)


def _answer(parsed: c.Content, row: dict[str, Any]) -> None:
    """Put reasoning before the text and calls behind it."""
    thought = row.get("reasoning_content") or row.get("reasoning")
    sealed = row.get("codex_reasoning_items")
    before: list[Any] = [Reasoning(thought)] if isinstance(thought, str) and thought else []
    for item in sealed if isinstance(sealed, list) else ():
        encrypted = item.get("encrypted_content") if isinstance(item, dict) else None
        if isinstance(encrypted, str) and encrypted:
            before.append(Reasoning("", encrypted=encrypted))
    parsed.parts[:0] = before
    c.openai_calls(parsed, row.get("tool_calls"))


def _result(parsed: c.Content, row: dict[str, Any]) -> None:
    call_id = row.get("tool_call_id")
    if not c.is_id(call_id):
        parsed.bad.append("a tool's message without the id of its call")
    else:
        parsed.results.append(ToolResult(call_id, c.plain_or_parts(parsed.parts)))
    parsed.parts = []


# -- which files -----------------------------------------------------------------------------------


def _is_export(record: dict[str, Any]) -> bool:
    return isinstance(record.get("messages"), list) and "started_at" in record


def _claims(peek: Peek) -> bool:
    if peek.tables:
        sessions, messages = peek.tables.get("sessions", set()), peek.tables.get("messages", set())
        return {"started_at", "source"} <= sessions and {"tool_calls", "timestamp"} <= messages
    # Of a transcript: other programs write roles and times, too.
    return any(
        _is_export(record) or record.get("role") == "session_meta" for record in peek.records
    )


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    if shape(path):
        return hermes_database(path, settled=reading.settled)
    return hermes_file(path, settled=reading.settled)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    own = chosen(environment, "HERMES_HOME", home / ".hermes")
    yield own / "state.db"
    yield from sorted(own.glob("profiles/*/state.db"))
    yield own / "sessions"


FORMAT: Final = Format(name=NAME, claims=_claims, read=_read, places=_places, commands=("hermes",))
