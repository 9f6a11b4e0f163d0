"""The SDK's session store: each line of a transcript is a note, and what was said a message.

The notes give the SDK exactly what it handed over. The messages are for people, for a search and
for other models; both are recognised by the line's own id when it comes again.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from claude_agent_sdk import fold_session_summary

from killick.errors import IdConflict, SessionNotFound
from killick.model.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from killick.model.sessions import Project, SessionInfo, SessionNote
from killick.session.aio import AsyncSession, AsyncStore

LINE: Final = "claude.line"
DELETED: Final = "claude.deleted"
SOURCE: Final = "claude-agent-sdk"
_PAGE: Final = 200

Key = Any
Line = dict[str, Any]


def session_options(store: AsyncStore) -> dict[str, Any]:
    """Return the options that keep sessions in this store: `ClaudeAgentOptions(**…)`.

    Lines are handed over as they are written. The SDK's own default hands them over when a turn is
    over: killed in its first turn, a session would leave nothing.
    """
    return {"session_store": KillickSessionStore(store), "session_store_flush": "eager"}


class KillickSessionStore:
    """Keeps the SDK's transcripts; give it as `session_store`.

    A transcript is a session, a subagent's one of type `subagent`. What is deleted is out of every
    answer here, and stays in the journal until the session is erased.
    """

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def append(self, key: Key, entries: Sequence[Line]) -> None:
        """Add lines to a transcript; one with an id is there once.

        If interrupted: all lines are there or none; the SDK hands them over again.
        """
        if not entries:
            return
        session = await self._opened(key)
        if any(note.name == DELETED for note in await session.notes(DELETED, last=1)):
            known = {line.get("uuid") for line in await _lines(session)}
        else:
            known = None
        notes = [_note(line, known) for line in entries]
        try:
            await session.note_all(notes)
        except IdConflict:  # one of them came before with another content: the first stays
            for note in notes:
                await _note_once(session, note)
        await session.add_messages(list(as_messages(entries)), source=SOURCE)

    async def load(self, key: Key) -> list[Line] | None:
        """Return a transcript's lines in order; None if there are none."""
        session = await self._existing(_name(key))
        return (await _lines(session) or None) if session is not None else None

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """List the sessions of a project, with the time of their last change."""
        return [
            {"session_id": info.extra["session_id"], "mtime": info.updated_at_us // 1000}
            async for info, _ in self._of_project(project_key, "user")
        ]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """List summaries as the SDK makes them, folded from the lines."""
        summaries: list[dict[str, Any]] = []
        async for info, lines in self._of_project(project_key, "user"):
            key: Any = {"project_key": project_key, "session_id": info.extra["session_id"]}
            summary = fold_session_summary(None, key, lines)  # type: ignore[arg-type]
            summaries.append({**summary, "mtime": info.updated_at_us // 1000})
        return summaries

    async def delete(self, key: Key) -> None:
        """Take a transcript out of every answer, and with a session those of its subagents.

        If interrupted: call it again.
        """
        paths = [key.get("subpath")]
        if key.get("subpath") is None:
            paths += await self.list_subkeys(key)
        for path in paths:
            session = await self._existing(_name({**key, "subpath": path}))
            if session is not None:
                await session.note(DELETED)
                await session.archive()

    async def list_subkeys(self, key: Key) -> list[str]:
        """List the transcripts of a session's subagents."""
        return [
            info.extra["subpath"]
            async for info, _ in self._of_project(key["project_key"], "subagent")
            if info.extra["session_id"] == key["session_id"]
        ]

    # -- sessions --------------------------------------------------------------------------------

    async def _opened(self, key: Key) -> AsyncSession:
        path = key.get("subpath")
        about = {"session_id": key["session_id"], "subpath": path, "claude": True}
        session = await self._store.open_session(
            _name(key),
            type="user" if path is None else "subagent",
            project=Project(key["project_key"]),
            extra=about,
        )
        if (await session.info()).about.archived:
            await session.archive(archived=False)
        return session

    async def _existing(self, name: str) -> AsyncSession | None:
        try:
            return await self._store.session(name)
        except SessionNotFound:
            return None

    async def _of_project(
        self, project_key: str, kind: str
    ) -> AsyncIterator[tuple[SessionInfo, list[Line]]]:
        last: SessionInfo | None = None
        while True:
            page = await self._store.sessions(
                type=kind, project=project_key, archived=None, limit=_PAGE, before=last
            )
            for info in page:
                if info.extra.get("claude"):
                    lines = await _lines(await self._store.session(info.id))
                    if lines:
                        yield info, lines
            if len(page) < _PAGE:
                return
            last = page[-1]


def _name(key: Key) -> str:
    path = key.get("subpath")
    name = f"{key['project_key']}/{key['session_id']}"
    return name if path is None else f"{name}/{path}"


def _note(line: Line, known: set[Any] | None) -> SessionNote:
    """Return a line as a note; its id is the note's key, unless a line of that id was deleted."""
    line_id = line.get("uuid")
    if not isinstance(line_id, str) or (known is not None and line_id not in known):
        return SessionNote(LINE, line)
    return SessionNote(LINE, line, key=f"{LINE}:{line_id}")


async def _note_once(session: AsyncSession, note: SessionNote) -> None:
    try:
        await session.note_all([note])
    except IdConflict:
        return  # the first of an id stays


async def _lines(session: AsyncSession) -> list[Line]:
    """Return the lines that were not deleted, each once."""
    lines: list[Line] = []
    for note in await session.notes():
        if note.name == DELETED:
            lines = []
        elif note.name == LINE and isinstance(note.data, dict):
            lines.append(note.data)
    return lines


# -- messages ------------------------------------------------------------------------------------


def as_messages(lines: Sequence[Line]) -> Iterator[Message]:
    """Yield what was said in these lines; results come behind the calls of the same lines."""
    messages = [message for line in lines if (message := _message(line)) is not None]
    messages.sort(key=lambda message: message.role == "tool")
    yield from messages


def _message(line: Line) -> Message | None:
    kind, inner = line.get("type"), line.get("message")
    if kind not in ("user", "assistant") or not isinstance(inner, dict) or line.get("isMeta"):
        return None
    content = inner.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts = [part for block in blocks if (part := _part(block)) is not None]
    if not parts:
        return None
    role: Role = "assistant" if kind == "assistant" else "user"
    if all(isinstance(part, ToolResult) for part in parts):
        role = "tool"
    line_id = line.get("uuid")
    return Message(role=role, parts=parts, id=line_id if isinstance(line_id, str) else "")


def _part(block: Any) -> Part | None:
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text" if block.get("text"):
            return Text(str(block["text"]))
        case "thinking" if block.get("thinking"):
            signature = block.get("signature")
            return Reasoning(str(block["thinking"]), signature=signature or None)
        case "tool_use" if block.get("id"):
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            return ToolCall(str(block["id"]), str(block.get("name") or "tool"), arguments)
        case "tool_result" if block.get("tool_use_id"):
            content = block.get("content")
            text = content if isinstance(content, str) else _joined(content)
            failed = bool(block.get("is_error"))
            return ToolResult(str(block["tool_use_id"]), text, is_error=failed)
        case _:
            return None


def _joined(content: Any) -> str:
    texts = [inner.get("text") for inner in content or () if isinstance(inner, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
