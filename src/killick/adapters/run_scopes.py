"""Find by context which turn a framework's run is recorded into, and the agents inside of tools.

For frameworks whose hooks are made once, for all runs: `RunContext.recording` says which turn the
runs inside of its block belong to. A model that is asked inside of a tool is that of an agent that
the tool runs, and is recorded into a session of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, Self, TypeVar

from killick.adapters.shared_store import open_child
from killick.adapters.tool_journal import ToolJournal, undecided
from killick.model.messages import File, Image, Json, Prompt, Text
from killick.session.aio_blocks import AsyncStream, AsyncTurn


class RunScope:
    """One session that is recorded into: the run's own, or that of an agent inside of a tool."""

    def __init__(self, turn: AsyncTurn, *, of: str | None = None) -> None:
        self.turn = turn
        self.of = of
        self.tools = ToolJournal(turn, of=of)
        self.children: dict[str, Self] = {}
        self._failed: tuple[int, str] | None = None

    def stream(self, facts: dict[str, Any]) -> AsyncStream:
        """Return the next request as a block; after one that failed it is a retry."""
        attempt, first = self._failed or (0, None)
        reply = self.turn.stream(**facts, attempt=attempt + 1, retry_of=first)
        self._failed = (attempt + 1, first or reply.model_call_id)
        return reply

    async def end(self, reply: AsyncStream, error: BaseException | None = None) -> None:
        """End an answer, and remember its calls. If interrupted: it is ended."""
        await reply.end(error)
        if error is None:
            self._failed = None
            self.tools.calls.add(reply.tool_calls)

    async def finish(
        self,
        call_id: str,
        text: str,
        *,
        media: Iterable[tuple[bytes, str]] = (),
        is_error: bool = False,
        structured: Json = None,
    ) -> None:
        """Record what a tool returned, with the images and files in it.

        If interrupted: the result is recorded, or its outcome is unknown.
        """
        held: list[Text | Image | File] = []
        for data, media_type in media:
            kind = Image if media_type.startswith("image/") else File
            held.append(kind(await self.turn.put_blob(data), media_type))
        if held:
            parts = [Text(text), *held] if text else held
            await self.tools.finish(call_id, parts, is_error=is_error)
        else:
            await self.tools.finish(call_id, text, is_error=is_error, structured=structured)

    async def end_child(self, call_id: str, error: BaseException | None = None) -> None:
        """End the turn of the agent that a tool ran, if it ran one. If interrupted: it is ended."""
        child = self.children.pop(call_id, None)
        if child is not None:
            await child.turn.end(error)

    async def decide(self, call_id: str, *, approved: bool) -> None:
        """Record what a person answered to the framework, if it is not recorded yet.

        If interrupted: it is recorded or it is not; the same answer again records it once.
        """
        session = self.tools.session
        asked = undecided(await session.entries(), self.of or self.turn.id, call_id)
        if asked is not None:
            await session.decide_approval(asked, approved=approved)

    async def ask(self, call_ids: Iterable[str]) -> None:
        """Record that these calls wait for a person. If interrupted: each is asked about once."""
        asked = {question.call_id for question in await self.tools.session.approvals()}
        made = {call.id: call.arguments for call in self.tools.calls}
        for call_id in call_ids:
            if call_id not in asked:
                await self.turn.ask_approval(call_id, made.get(call_id, ""))


S = TypeVar("S", bound=RunScope)


class RunningTool(NamedTuple, Generic[S]):
    """A tool that runs in this context; `agent` and `given` are the framework's names of it."""

    scope: S
    call_id: str
    agent: Any = None
    given: str = ""
    outer: "RunningTool[S] | None" = None


class RunContext(Generic[S]):
    """Where the runs of this context are recorded."""

    def __init__(self, name: str, make: type[S]) -> None:
        self._make = make
        self._recorded: ContextVar[S | None] = ContextVar(f"killick_{name}_scope", default=None)
        self.inside: ContextVar[RunningTool[S] | None] = ContextVar(
            f"killick_{name}_tool", default=None
        )

    @property
    def outermost(self) -> S | None:
        """The scope of the run itself."""
        return self._recorded.get()

    @contextmanager
    def recording(self, turn: AsyncTurn, *, of: str | None = None) -> Iterator[None]:
        """Record the runs of this block into a turn; `of` is the turn that it continues.

        If interrupted: it writes nothing itself.
        """
        scope = self._recorded.set(self._make(turn, of=of))
        inside = self.inside.set(None)
        try:
            yield
        finally:
            self.inside.reset(inside)
            self._recorded.reset(scope)

    def recorded_turn(self, session_id: str) -> str | None:
        """Return the id of the turn of this session that the runs of this context belong to."""
        scope = self.outermost if self.inside.get() is None else None
        if scope is None or scope.tools.session.id != session_id:
            return None
        return scope.turn.id

    def known(self, around: RunningTool[S] | None) -> S | None:
        """Return where what runs around or inside of a tool is recorded.

        A tool that has asked no model yet has no agent, and nothing of it is recorded.
        """
        return self.outermost if around is None else around.scope.children.get(around.call_id)

    async def scope(
        self, around: RunningTool[S] | None, prompt: Callable[[], Prompt], title: str | None = None
    ) -> S | None:
        """Return the same where a model is asked: an agent inside of a tool may be new.

        `prompt` gives what such an agent was asked.

        If interrupted: the agent's session exists or it does not.
        """
        recording = self.known(around)
        if recording is None and around is not None:
            session = await open_child(around.scope.turn, around.call_id, title=title)
            turn = await session.turn(prompt()).begin()
            recording = around.scope.children[around.call_id] = self._make(turn)
        return recording
