"""Record starts and results of a turn's tools as a framework reports them.

A framework tells of a tool by the id of its call. Some models give none, and then the framework
mints one, or tells an empty one: the call is found by its name and arguments among those that are
still open. Some models give one id to several calls of an answer: all but the first are recorded as
that id with an underscore and more behind it, and are told apart by names and arguments, too.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from killick.adapters.shared_store import session_of
from killick.errors import ToolAlreadyStarted, TurnEnded
from killick.model import entries as e
from killick.model.messages import Json, Message, ToolCall, ToolResult
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTool, AsyncTurn
from killick.session.core.session import Content
from killick.session.sync_blocks import plain


class OpenCalls:
    """The calls of a turn that have no result yet, by their own ids and by those of others."""

    def __init__(self) -> None:
        self._open: dict[str, ToolCall] = {}
        self._begun: set[str] = set()
        self._known_as: dict[str, str] = {}

    def add(self, calls: Iterable[ToolCall]) -> None:
        """Remember the calls of an answer that is over; a provider may use an id again."""
        for call in calls:
            self._open[call.id] = call
            self._begun.discard(call.id)

    def find(self, call_id: str, name: str = "", arguments: Any = None) -> str | None:
        """Return the id under which an open call was recorded; None if there is none."""
        if call_id in self._open:
            return call_id
        known = self._known_as.get(call_id) if call_id else None
        if known is not None:
            return known if known in self._open else None
        for call in self._open.values():
            if call.id in self._begun or call.name != name:
                continue
            if arguments is None or _same(call.arguments, arguments):
                if call_id:
                    self._known_as[call_id] = call.id
                return call.id
        return None

    def find_to_start(self, call_id: str, name: str = "", arguments: Any = None) -> str | None:
        """Return the id under which the call is recorded that a tool now starts for."""
        sharing = [
            call
            for call in self._open.values()
            if call_id
            and (call.id == call_id or call.id.startswith(f"{call_id}_"))
            and call.id not in self._begun
            and name in ("", call.name)
        ]
        for call in sharing:
            if arguments is not None and _same(call.arguments, arguments):
                return call.id
        if sharing:  # a middleware may have changed the arguments
            return sharing[0].id
        return self.find(call_id, name, arguments)

    def begin(self, call_id: str) -> None:
        self._begun.add(call_id)

    def close(self, call_id: str) -> None:
        self._open.pop(call_id, None)
        self._begun.discard(call_id)

    def is_running(self, call_id: str) -> bool:
        return call_id in self._begun

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(list(self._open.values()))

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._open


def _same(text: str, arguments: Any) -> bool:
    """Return whether both are the same arguments; a framework may have parsed them."""
    try:
        mine = json.loads(text or "{}")
        theirs = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except ValueError:
        return bool(text == arguments)
    return bool(mine == theirs)


def content_of(value: Any) -> tuple[str, Json]:
    """Return a tool's value as text, and as JSON if it is not text."""
    if isinstance(value, str):
        return str(value), None
    structured = plain(value)
    if structured is None:
        return ("" if value is None else str(value)), None
    return json.dumps(structured, ensure_ascii=False), structured


def undecided(entries: list[e.Entry], turn_id: str, call_id: str) -> e.ApprovalAsked | None:
    """Return what a turn asked about a call, if it is not decided yet. Pure."""
    asked: e.ApprovalAsked | None = None
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked() as body if (body.turn_id, body.call_id) == (turn_id, call_id):
                asked = body
            case e.ApprovalDecided(id=name) if asked is not None and name == asked.id:
                asked = None
            case _:
                pass
    return asked


class ToolJournal:
    """Starts and results of one turn.

    `of` is the turn that this one continues: its calls may be started here.

    If interrupted: a tool that was started has its result, or its outcome is unknown.
    """

    def __init__(self, turn: AsyncTurn, *, of: str | None = None) -> None:
        self.turn = turn
        self.calls = OpenCalls()
        self._of = of
        self._running: dict[str, AsyncTool] = {}
        self._resumed: set[str] = set()

    @property
    def session(self) -> AsyncSession:
        return session_of(self.turn)

    async def start(self, call_id: str, name: str = "", arguments: Any = None) -> str:
        """Record that a tool starts, durably; returns the id under which its call is recorded.

        Raises CallNotFound if the model made no such call.
        """
        made_here = self.calls.find_to_start(call_id, name, arguments)
        own = made_here or call_id
        if made_here is not None and not self.calls.is_running(own):
            self.calls.begin(own)  # before it is durable: another one like it may start meanwhile
        tool = self.turn.tool(own, of=None if made_here is not None else self._of)
        try:
            await tool.begin()
        except ToolAlreadyStarted:
            if made_here is not None or self._of is None:
                raise
            self._resumed.add(own)  # it waited for a person in the middle, and runs again
            return own
        self._running[own] = tool
        return own

    async def finish(
        self, call_id: str, content: Content, *, is_error: bool = False, structured: Json = None
    ) -> None:
        """Record the result of a tool that was started; of one that was not, as an answer."""
        own = self.calls.find(call_id) or call_id
        tool = self._running.pop(own, None)
        if own in self._resumed and self._of is not None:
            self._resumed.discard(own)
            await self.session.finish_tool(
                self._of, own, content, is_error=is_error, structured=structured
            )
            return
        if tool is None:
            await self.answer(own, content, is_error=is_error)
            return
        self.calls.close(own)
        await tool.finish(content, is_error=is_error, structured=structured)
        await tool.end()

    async def leave(self, call_id: str, error: BaseException) -> None:
        """Record that an exception left a tool: a failure is its result, a cancellation is not."""
        own = self.calls.find(call_id) or call_id
        tool = self._running.pop(own, None)
        if tool is not None:
            self.calls.close(own)
            await tool.end(error)

    async def answer(self, call_id: str, content: Content, *, is_error: bool = False) -> None:
        """Record what the model is told of a call that no tool ran for."""
        if call_id not in self.calls or self.calls.is_running(call_id):
            return
        self.calls.close(call_id)
        kept = content if isinstance(content, str) else tuple(content)
        result = ToolResult(call_id, kept, is_error=is_error)
        try:
            await self.turn.record(Message(role="tool", parts=(result,)))
        except TurnEnded:
            await self.session.finish_tool(self.turn.id, call_id, content, is_error=is_error)
