"""The chat agent for editors: sessions of a store over the Agent Client Protocol.

An editor is shown what the journal has, as it comes: nothing that it is shown can be lost, and a
session that it loads is the one that it saw.
"""

import asyncio
import contextlib
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import acp
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    RequestPermissionRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionNotification,
    SessionResumeCapabilities,
    StopReason,
)

from killick.agent.agent import Agent
from killick.agent.approvals import allow_always, decide_allowed
from killick.errors import KillickError, SessionNotFound, TurnStopped
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.messages import Part, ToolCall, ToolResult
from killick.model.sessions import Project
from killick.proxy.acp_turns import prompt_parts, replay
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncTurn
from killick.session.parts import PartEvent
from killick.views.formats.common import result_text

OpenAgent = Callable[[Path], contextlib.AbstractAsyncContextManager[Agent]]
"""Opens the agent whose tools work in this folder."""

_VERSION: Final = 1
_LISTED: Final = 100
_LEAVE_SECONDS: Final = 3.0
_KINDS: Final = {
    "read_file": "read",
    "list_files": "read",
    "search_files": "search",
    "write_file": "edit",
    "run_command": "execute",
}
_OPTIONS: Final = (
    PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always, exactly this call", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)


class _Prompt:
    """A prompt of the editor's that is being answered."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.turn: AsyncTurn | None = None
        self.begun = asyncio.Event()
        self.task: asyncio.Task[StopReason] | None = None


class EditorAgent:
    """The requests of an editor. A session's id is the store's.

    A prompt that comes while one is answered is said to the running turn.
    """

    def __init__(
        self, store: AsyncStore, open_agent: OpenAgent, project_of: Callable[[Path], Project]
    ) -> None:
        self._store = store
        self._open_agent = open_agent
        self._project_of = project_of
        self._agents: dict[Path, Agent] = {}
        self._opening = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._folders: dict[str, Path] = {}
        self._prompts: dict[str, _Prompt] = {}
        self._editor: Any = None

    def on_connect(self, conn: Client) -> None:
        self._editor = conn

    async def initialize(self, protocol_version: int, **_rest: Any) -> InitializeResponse:
        """Say what this agent can."""
        sessions = SessionCapabilities(
            list=SessionListCapabilities(), resume=SessionResumeCapabilities()
        )
        can = AgentCapabilities(
            load_session=True,
            prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
            session_capabilities=sessions,
        )
        return InitializeResponse(
            protocol_version=min(protocol_version, _VERSION),
            agent_capabilities=can,
            agent_info=Implementation(name="killick", title="Killick", version="1"),
        )

    # -- sessions ------------------------------------------------------------------------------

    async def new_session(self, cwd: str, **_rest: Any) -> NewSessionResponse:
        """Begin a session in a folder. If interrupted: it exists or it does not."""
        session = await self._store.create_session(project=self._project_of(Path(cwd)))
        self._folders[session.id] = Path(cwd)
        return NewSessionResponse(session_id=session.id)

    async def load_session(self, cwd: str, session_id: str, **_rest: Any) -> LoadSessionResponse:
        """Open a session, and show the editor what was said in it."""
        session = await self._open(session_id, cwd)
        for update in replay(await session.transcript()):
            await self._show(session_id, update)
        return LoadSessionResponse()

    async def resume_session(
        self, session_id: str, cwd: str, **_rest: Any
    ) -> ResumeSessionResponse:
        """Open a session that the editor still shows."""
        await self._open(session_id, cwd)
        return ResumeSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_rest: Any
    ) -> ListSessionsResponse:
        """Return the sessions of a person, of one folder or of all, the newest first."""
        before = None
        if cursor is not None:
            with contextlib.suppress(SessionNotFound):
                before = await self._store.session_info(cursor)
        infos = await self._store.sessions(type="user", limit=_LISTED, before=before)
        openings = await self._store.openings([info.id for info in infos if info.title is None])
        listed = []
        for info in infos:
            folder = info.project.directory or info.project.root if info.project else None
            if folder and cwd in (None, folder):
                title = info.title or openings.get(info.id)
                at = info.updated_at.isoformat()
                shown = SessionInfo(session_id=info.id, cwd=folder, title=title, updated_at=at)
                listed.append(shown)
        more = infos[-1].id if len(infos) == _LISTED else None
        return ListSessionsResponse(sessions=listed, next_cursor=more)

    async def _open(self, session_id: str, cwd: str | None = None) -> AsyncSession:
        try:
            session = await self._store.session(session_id)
        except SessionNotFound as error:
            raise acp.RequestError(-32002, str(error)) from error
        except KillickError as error:
            raise acp.RequestError.internal_error({"details": str(error)}) from error
        if cwd is not None:
            self._folders[session_id] = Path(cwd)
        return session

    # -- prompts -------------------------------------------------------------------------------

    async def prompt(self, prompt: Sequence[Any], session_id: str, **_rest: Any) -> PromptResponse:
        """Answer a prompt; returns when the turn's ending is durable and was shown.

        If interrupted: the turn goes on until the editor cancels it or is gone.
        """
        session = await self._open(session_id)
        parts = await self._parts(prompt)
        running = self._prompts.get(session_id)
        if running is not None and running.task is not None:
            await session.steer(parts)
        else:
            running = self._prompts[session_id] = _Prompt(session)
            running.task = asyncio.create_task(self._answer(running, parts))
        assert running.task is not None
        try:
            return PromptResponse(stop_reason=await asyncio.shield(running.task))
        except KillickError as error:
            raise acp.RequestError.internal_error({"details": str(error)}) from error

    async def cancel(self, session_id: str, **_rest: Any) -> None:
        """Stop what is answered in a session; durable on return. If interrupted: asked or not."""
        running = self._prompts.get(session_id)
        if running is not None:
            await self._stop(running, "the editor cancelled it", "stopped")

    async def _stop(self, running: _Prompt, reason: str, cause: Cause) -> None:
        await running.begun.wait()
        if running.turn is not None:
            await running.session.stop(running.turn.id, reason, cause)

    async def leave(self, cause: Cause = "client_gone") -> None:
        """Stop everything that runs, and close the models: the editor is gone, or this ends."""
        running = list(self._prompts.values())
        for prompt in running:
            with contextlib.suppress(KillickError):
                await self._stop(prompt, "the editor is gone", cause)
        tasks = [prompt.task for prompt in running if prompt.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_LEAVE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _parts(self, blocks: Sequence[Any]) -> list[Part]:
        given = [block.model_dump(by_alias=True, mode="json") for block in blocks]
        names: dict[bytes, str] = {}
        for block in given:
            if block.get("type") == "image":
                with contextlib.suppress(ValueError):
                    data = b64decode(block["data"])
                    names[data] = await self._store.put_blob(data)
        return list(prompt_parts(given, names.__getitem__))

    async def _answer(self, running: _Prompt, parts: Sequence[Part] | None) -> StopReason:
        """Run turns until nothing waits: the prompt's, and of what came too late for that one."""
        try:
            while True:
                turn = await self._run(running, parts)
                if turn.status != "completed":
                    return "cancelled"
                if not await running.session.queued():
                    return "end_turn"
                parts = None
        finally:
            running.begun.set()
            self._prompts.pop(running.session.id, None)

    async def _run(self, running: _Prompt, parts: Sequence[Part] | None) -> AsyncTurn:
        """Answer in one turn. Raises what a turn that failed raised."""
        session = running.session
        agent = await self._agent(session.id)
        turn = session.turn(parts)
        showing: asyncio.Task[None] | None = None
        try:
            async with turn:
                running.turn = turn
                running.begun.set()
                showing = asyncio.create_task(self._follow(session, turn.id))
                await agent.answer(session, turn)
        except TurnStopped:
            pass
        except KillickError:
            raise
        except Exception as error:
            raise AnswerFailed(turn.reason or str(error)) from error
        finally:
            if showing is not None:
                with contextlib.suppress(Exception):  # the editor is gone: the journal has it
                    await showing
        return turn

    async def _agent(self, session_id: str) -> Agent:
        folder = self._folders.get(session_id) or Path.cwd()
        async with self._opening:
            if folder not in self._agents:
                opened = await self._stack.enter_async_context(self._open_agent(folder))
                self._agents[folder] = opened
        return self._agents[folder]

    # -- what the editor is shown --------------------------------------------------------------

    async def _follow(self, session: AsyncSession, turn_id: str) -> None:
        """Show a turn until its ending was seen, and ask what it asks."""
        asking: set[asyncio.Task[None]] = set()
        try:
            async for update in _updates(session, turn_id):
                if isinstance(update, e.ApprovalAsked):
                    asking.add(asyncio.create_task(self._ask(session, update)))
                else:
                    await self._show(session.id, update)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _show(self, session_id: str, update: dict[str, Any]) -> None:
        shown = SessionNotification.model_validate({"sessionId": session_id, "update": update})
        await self._editor.session_update(session_id=session_id, update=shown.update)

    async def _ask(self, session: AsyncSession, asked: e.ApprovalAsked) -> None:
        """Ask the person, and record the decision; one that was made elsewhere stays."""
        waiting = await decide_allowed(session)
        pending = next((each for each in waiting if each.asked.id == asked.id), None)
        if pending is None:
            return
        call_id = f"{asked.message_id}/{asked.call_id}"
        about = {"toolCallId": call_id, **_about(pending.call)}
        request = RequestPermissionRequest.model_validate(
            {"sessionId": session.id, "toolCall": about, "options": list(_OPTIONS)}
        )
        answer = await self._editor.request_permission(
            session_id=session.id, tool_call=request.tool_call, options=request.options
        )
        if isinstance(answer.outcome, AllowedOutcome):
            with contextlib.suppress(KillickError):  # another person was faster, or it is over
                chosen = answer.outcome.option_id
                if chosen == "always":
                    await allow_always(session, pending, "editor")
                approved = chosen in ("allow", "always")
                await session.decide_approval(asked, approved=approved, by="editor")


class AnswerFailed(KillickError):
    """The model or the agent failed; the turn is recorded as failed."""


async def _updates(
    session: AsyncSession, turn_id: str
) -> AsyncIterator[dict[str, Any] | e.ApprovalAsked]:
    """Yield what an editor is shown of a turn, and what it is to ask, until the turn has ended."""
    began = next(turn.seq for turn in await session.turns() if turn.id == turn_id)
    parts = session.part_events(after=began - 1)
    entries = session.follow(after=began - 1)
    shown: dict[str, str] = {}
    try:
        while True:
            seen = [await anext(entries)]
            seen += [more.item for more in await entries.now()]
            bodies = [item.body for item in seen if isinstance(item, e.Entry)]
            while page := await parts._page():
                for item in page:
                    if item.item.turn_id == turn_id and not item.item.late:
                        for update in _of_part(item.item, shown):
                            yield update
            for body in bodies:
                match body:
                    case e.ToolStarted(turn_id=of) if of == turn_id:
                        call_id = f"{body.message_id}/{body.call_id}"
                        yield _progress(call_id, status="in_progress")
                    case e.ApprovalAsked(turn_id=of) if of == turn_id:
                        yield body
                    case e.TurnEnding(turn_id=of) if of == turn_id:
                        return
                    case _:
                        pass
    except StopAsyncIteration:
        return  # the store is closing
    finally:
        await parts.aclose()
        await entries.aclose()


def _of_part(event: PartEvent, shown: dict[str, str]) -> Iterable[dict[str, Any]]:
    """Return the updates for a piece of a part. The prompt is the editor's own.

    `shown` are the newest calls by the ids that the model gave them, with the editor's ids.
    """
    match event.type, event.kind:
        case "text", "delta" if event.role == "assistant":
            yield _chunk("agent_message_chunk", event.text)
        case "reasoning", "delta":
            yield _chunk("agent_thought_chunk", event.text)
        case "tool_call", "end" if isinstance(event.part, ToolCall):
            call_id = shown[event.part.id] = f"{event.message_id}/{event.call_id}"
            about = {"toolCallId": call_id, "status": "pending", **_about(event.part)}
            yield {"sessionUpdate": "tool_call", **about}
        case "tool_result", "end" if isinstance(event.part, ToolResult):
            status = "failed" if event.part.is_error else "completed"
            # A result that was not a tool's, of a call that was refused, is a message like others.
            call_id = event.message_id
            if call_id not in shown.values():
                call_id = shown.get(event.part.call_id, call_id)
            yield _progress(call_id, result_text(event.part), status=status)
        case _:
            pass


def _chunk(kind: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def _progress(call_id: str, text: str | None = None, **fields: str) -> dict[str, Any]:
    update: dict[str, Any] = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}
    if text is not None:
        update["content"] = [{"type": "content", "content": {"type": "text", "text": text}}]
    return update


def _about(call: ToolCall) -> dict[str, Any]:
    """Return what an editor shows of a call: the command or the file, where there is one."""
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        given = {}
    given = given if isinstance(given, dict) else {}
    what = given.get("command") or given.get("path") or given.get("pattern")
    title = f"{call.name}: {what}" if isinstance(what, str) and what else call.name
    return {"title": title, "kind": _KINDS.get(call.name, "other"), "rawInput": given}


async def serve_editor(
    store: AsyncStore, open_agent: OpenAgent, project_of: Callable[[Path], Project]
) -> None:
    """Serve the editor on standard input and output until it is gone.

    If interrupted: the turns that run are stopped, and what came is kept.
    """
    agent: Any = EditorAgent(store, open_agent, project_of)
    cause: Cause = "terminated"
    try:
        await acp.run_agent(agent, use_unstable_protocol=True)
        cause = "client_gone"
    finally:
        await agent.leave(cause)
