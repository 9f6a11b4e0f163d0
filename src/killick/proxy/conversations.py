"""Conversations on their way through the proxy, and what is written down of them.

What is in memory is a cache of the journal: it is read from the store when a conversation is first
met, and nothing is ever written back from it.
"""

import asyncio
import contextlib
import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.errors import CallNotFound, ConflictError, InvalidEntry, KillickError, TurnNotFound
from killick.exchange.compose import session_id_of
from killick.exchange.importer import PROXY_NOTE_KEY
from killick.journal.kinds import keyed_id
from killick.model.limits import TITLE_CHARS_MAX
from killick.model.messages import Message, Part, Role, Text, ToolCall, ToolResult
from killick.model.sessions import Parent, Project
from killick.proxy.history import (
    Comparison,
    Fresh,
    compare,
    conversation,
    purpose_of,
    sort_fresh,
)
from killick.proxy.request import Brought, ModelRequest, RequestUnit, own_words, unit_of, units_of
from killick.proxy.wire import AgentSource
from killick.recorders.model_call import Plan
from killick.recorders.record_pushed import PushedRecording
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncTurn

NOTE: Final = "recorded by the proxy"
"""The note that an import looks for: what the proxy has recorded does not come in again."""

_FAMILIES_MAX: Final = 2_000
_CANDIDATES_MAX: Final = 50
_LISTED: Final = 1_000
_FOLDER: Final = re.compile(r"(?:<cwd>|[Ww]orking directory: ?)(/[^\n<]+)")


class ThreadCall(msgspec.Struct):
    """A tool call that waits for its result."""

    turn_id: str
    name: str


class Thread:
    """One stored session as a request is compared with it."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.units: list[RequestUnit] = []
        self.waiting: dict[str, ThreadCall] = {}
        self.answers: deque[str] = deque(maxlen=2)
        self.turn: AsyncTurn | None = None
        self.last_turn: str | None = None
        self.open_calls = 0
        """Model calls that are being answered now."""
        self.failed: PushedRecording | None = None
        """The newest call, if no whole answer came of it."""
        self.offers_tools = False
        self.touched = time.monotonic()

    @property
    def delivered(self) -> bool:
        """Tell whether the newest prompt has a whole answer."""
        return bool(self.units) and self.units[-1].role == "assistant" and self.failed is None

    async def load(self) -> None:
        """Read what the store has of it."""
        messages = await self.session.messages()
        self.units = [unit for _, unit in units_of(messages)]
        self.waiting = {}
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall) and message.turn_id is not None:
                    self.waiting[part.id] = ThreadCall(message.turn_id, part.name)
                elif isinstance(part, ToolResult):
                    self.waiting.pop(part.call_id, None)
        self.answers.extend(m.text for m in messages[-4:] if m.role == "assistant")
        turns = await self.session.turns()
        self.last_turn = turns[-1].id if turns else None

    async def end_turn(
        self, error: BaseException | None = None, *, abandoned: bool = False
    ) -> None:
        """End the running turn, if there is one: completed, failed, or as abandoned.

        If interrupted: the ending is written all the same.
        """
        turn, self.turn = self.turn, None
        if turn is None:
            return
        with contextlib.suppress(ConflictError):  # another process has ended it
            await turn.end(error, "abandoned" if abandoned else None)


class Family:
    """The sessions that one key leads to: a conversation, its forks, its subagents."""

    def __init__(self, source: AgentSource | None, name: str | None) -> None:
        self.source = source
        self.name = name
        self.lock = asyncio.Lock()
        self.threads: list[Thread] = []
        self.beside: Thread | None = None
        self.loaded = False

    @property
    def main(self) -> Thread | None:
        return self.threads[0] if self.threads else None

    @property
    def busy(self) -> bool:
        return self.lock.locked() or any(
            thread.turn is not None or thread.open_calls for thread in self._all()
        )

    def _all(self) -> Iterable[Thread]:
        return [*self.threads, *([self.beside] if self.beside else [])]


class Exchange:
    """One request that is recorded, from its prompt to the end of its answer."""

    def __init__(self, family: Family, thread: Thread, turn: AsyncTurn, plan: Plan) -> None:
        self.family = family
        self.thread = thread
        self.turn = turn
        self.recording = PushedRecording(turn, plan)
        self.beside = thread is family.beside
        self._begun: asyncio.Task[None] | None = None
        self._ready = self._over = False

    def begin(self) -> None:
        """Begin the model call beside the request, which does not wait for it."""
        self._begun = asyncio.ensure_future(self.recording.begin())

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def has_begun(self) -> bool:
        """Return True once the model call is recorded, or could not be."""
        return self._begun is not None and self._begun.done()

    async def until_ready(self) -> None:
        """Wait until the model call has begun. Raises KillickError."""
        if not self._ready:
            assert self._begun is not None
            await asyncio.shield(self._begun)
            self._ready = True

    @property
    def ended(self) -> bool:
        return self.recording.ended

    async def finish(self, error: BaseException | None = None, why: str | None = None) -> None:
        """Make the message durable, and the turn's ending if the answer calls no tool.

        If interrupted: what came is written all the same.
        """
        if self._over:
            return
        self._over = True
        thread, recording = self.thread, self.recording
        try:
            await self.until_ready()
            await recording.end(error, why)
            await self._finished()
        finally:
            thread.open_calls -= 1
            thread.touched = time.monotonic()

    async def _finished(self) -> None:
        thread, recording = self.thread, self.recording
        answer = recording.answer
        if recording.complete:
            thread.failed = None
            unit = unit_of("assistant", answer.parts)
            thread.units.append(unit)
            thread.answers.append(answer.text)
            for call in answer.tool_calls:
                if call.tool_type in ("function", "custom"):
                    thread.waiting[call.id] = ThreadCall(self.turn.id, call.name)
            calls = [c for c in answer.tool_calls if c.tool_type in ("function", "custom")]
            goes_on = bool(calls) or recording.finish_reason == "pause_turn"
            if not goes_on and thread.turn is self.turn and thread.open_calls <= 1:
                await thread.end_turn()
        else:
            thread.failed = recording
            if any(isinstance(part, Text | ToolCall) for part in answer.parts):
                thread.units.append(unit_of("assistant", answer.parts))
        if self.beside and thread.turn is self.turn:
            failed = None if recording.complete else AnswerBroken(recording.error or "no answer")
            await thread.end_turn(failed)


class AnswerBroken(KillickError):
    """The model gave no whole answer."""


class Conversations:
    """Every conversation that passes, by what leads to it."""

    def __init__(self, store: AsyncStore, *, abandon_seconds: float) -> None:
        self._store = store
        self._abandon_seconds = abandon_seconds
        self._families: OrderedDict[tuple[str, str], Family] = OrderedDict()
        self._responses: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._recent: deque[tuple[str, str]] = deque(maxlen=_CANDIDATES_MAX)
        """The keys of families that were found by content, the newest last."""
        self._listed: dict[str, list[str]] | None = None

    # -- one request -----------------------------------------------------------------------------

    async def take(
        self,
        request: ModelRequest,
        source: AgentSource | None,
        name: str | None,
        parent: str | None,
    ) -> Exchange:
        """Record what a request brings; durable on return. Raises KillickError.

        If interrupted: what was recorded stays; the same request again records nothing twice.
        """
        key = self._key(request, source, name)
        family = self._family(key, source, name)
        async with family.lock:
            if not family.loaded:
                await self._load(family, key)
            return await self._take(family, key, request, parent)

    def _key(
        self, request: ModelRequest, source: AgentSource | None, name: str | None
    ) -> tuple[str, str]:
        if name is not None:
            return ("/s", name)
        if source is not None:
            return (source.agent, source.id)
        if request.after is not None and request.after in self._responses:
            return self._responses[request.after]
        first = _first(request)
        key = ("content", first)
        if key in self._families:
            return key
        for known in reversed(self._recent):  # a summary stands in the place of the first words
            family = self._families.get(known)
            for thread in family.threads if family is not None else ():
                compared = compare(thread.units, request, thread.answers)
                if compared.relation == "compacts":
                    return known
        return key

    def _family(self, key: tuple[str, str], source: AgentSource | None, name: str | None) -> Family:
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = Family(source, name)
            if key[0] == "content":
                self._recent.append(key)
        self._families.move_to_end(key)
        if len(self._families) > _FAMILIES_MAX:
            for old, idle in list(self._families.items())[: _FAMILIES_MAX // 10]:
                if not idle.busy and idle is not family:
                    del self._families[old]
        return family

    async def _load(self, family: Family, key: tuple[str, str]) -> None:
        """Find the sessions of this family that are stored already."""
        ids: list[str] = []
        if family.name is not None:
            ids = await self._existing([family.name])
        elif family.source is not None:
            ids = await self._existing([session_id_of(family.source.agent, family.source.id)])
        else:
            if self._listed is None:
                self._listed = await self._list()
            ids = self._listed.get(key[1], [])[:_CANDIDATES_MAX]
        for session_id in list(ids):  # none, for a conversation that is new
            forks = await self._store.sessions(fork_of=session_id, limit=_CANDIDATES_MAX)
            children = await self._store.sessions(parent=session_id, limit=_CANDIDATES_MAX)
            ids += [
                i.id for i in (*forks, *children) if i.about.type != "hidden" and i.id not in ids
            ]
        for session_id in ids:
            await self._add(family, await self._store.session(session_id))
        family.loaded = True

    async def _existing(self, ids: list[str]) -> list[str]:
        from killick.errors import SessionNotFound

        existing = []
        for session_id in ids:
            try:
                await self._store.session(session_id)
            except SessionNotFound:
                continue
            existing.append(session_id)
        return existing

    async def _list(self) -> dict[str, list[str]]:
        """Return recorded sessions by the hash of how they begin, the newest first."""
        listed: dict[str, list[str]] = {}
        for info in await self._store.sessions(limit=_LISTED):
            marks = info.about.extra.get("proxy")
            first = marks.get("first") if isinstance(marks, dict) else None
            if isinstance(first, str) and info.about.type != "hidden":
                listed.setdefault(first, []).append(info.id)
        return listed

    async def _add(self, family: Family, session: AsyncSession) -> Thread:
        """Read a session that is stored already, and mark it for imports."""
        thread = Thread(session)
        await thread.load()
        await session.note(NOTE, key=PROXY_NOTE_KEY)
        family.threads.append(thread)
        return thread

    async def _take(
        self, family: Family, key: tuple[str, str], request: ModelRequest, parent: str | None
    ) -> Exchange:
        thread, compared = self._choose(family, request)
        agent = family.source.agent if family.source is not None else None
        known = thread is not None and compared.shared > 0 and not thread.offers_tools
        if purpose_of(request, agent=agent, known=known) == "beside":
            return await self._take_beside(family, key, request)
        if thread is None:
            thread = await self._create(family, key, request, parent)
            compared = Comparison("continues", 0, _everything(request))
        elif compared.relation == "forks":
            thread = await self._fork(family, thread, compared)
        elif compared.relation == "compacts" and compared.summary is not None:
            await self._compact(thread, compared.summary)
            compared = msgspec.structs.replace(compared, shared=len(thread.units))
        thread.offers_tools = thread.offers_tools or request.offers_tools
        thread.touched = time.monotonic()
        turn, retried = await self._write(thread, sort_fresh(compared.fresh), compared)
        return self._exchange(family, thread, turn, request, retried)

    def _exchange(
        self,
        family: Family,
        thread: Thread,
        turn: AsyncTurn,
        request: ModelRequest,
        retried: PushedRecording | None,
    ) -> Exchange:
        plan = Plan(request.shape, request.asked, None, retried, "keep")
        exchange = Exchange(family, thread, turn, plan)
        thread.open_calls += 1
        return exchange

    def _choose(self, family: Family, request: ModelRequest) -> tuple[Thread | None, Comparison]:
        """Choose the session that a request goes on with, and how."""
        compared = [(t, compare(t.units, request, t.answers)) for t in family.threads]
        by_content = family.name is None and family.source is None
        if by_content and not any(p.unit.role == "assistant" for p in conversation(request)):
            # A first request like others: a new conversation, unless one still waits for it.
            compared = [(t, c) for t, c in compared if not t.delivered or c.relation == "compacts"]
        ranks = {"continues": 4, "retries": 3, "compacts": 2, "forks": 1, "new": 0}
        compared.sort(key=lambda pair: (ranks[pair[1].relation], pair[1].shared), reverse=True)
        if compared and compared[0][1].relation != "new":
            return compared[0]
        if compared and family.name is not None:  # its name says that it is this one
            thread, comparison = compared[0]
            return thread, msgspec.structs.replace(comparison, relation="continues")
        return None, Comparison("new", 0)

    # -- sessions ----------------------------------------------------------------------------------

    async def _create(
        self, family: Family, key: tuple[str, str], request: ModelRequest, parent: str | None
    ) -> Thread:
        first, main = _first(request), family.main
        marks: dict[str, object] = {"first": first}
        if family.source is not None:
            marks |= {"agent": family.source.agent, "id": family.source.id}
        session_type, above, session_id = "user", None, None
        if main is not None and family.source is not None:
            session_id = keyed_id("ses", main.session.id, f"{first}/{len(family.threads)}")
            if main.turn is not None:
                session_type, above = "subagent", Parent(main.session.id, main.turn.id)
        elif family.source is not None:
            session_id = session_id_of(family.source.agent, family.source.id)
            over = self._families.get((family.source.agent, parent or ""))
            if over is not None and over.main is not None and over.main.turn is not None:
                session_type = "subagent"
                above = Parent(over.main.session.id, over.main.turn.id)
        elif family.name is not None:
            session_id = family.name
        about: dict[str, Any] = {
            "title": _title(request),
            "type": session_type,
            "project": await _project_of(request),
            "parent": above,
        }
        extra: dict[str, object] = {"proxy": marks}
        if session_id is None:
            session = await self._store.create_session(titled_by="import", extra=extra, **about)
        else:
            session = await self._store.open_session(
                session_id, titled_by="import", extra=extra, **about
            )
        if session.head > 1:  # another process was faster
            return await self._add(family, session)
        if self._listed is not None and family.name is None and family.source is None:
            self._listed.setdefault(first, []).insert(0, session.id)  # found again when let go of
        thread = Thread(session)
        family.threads.append(thread)
        return thread

    async def _fork(self, family: Family, thread: Thread, compared: Comparison) -> Thread:
        """Begin a session with what a request has in common with a stored one."""
        seqs = [seq for seq, _ in units_of(await thread.session.messages())]
        at = seqs[min(compared.shared, len(seqs)) - 1] if compared.shared and seqs else 0
        forked = await thread.session.fork(at, title=thread.session.title, titled_by="import")
        return await self._add(family, forked)

    async def _compact(self, thread: Thread, summary: str) -> None:
        through = thread.session.head
        if through:
            await thread.session.compact(summary, through)

    async def _take_beside(
        self, family: Family, key: tuple[str, str], request: ModelRequest
    ) -> Exchange:
        """Record a call beside the conversation, in a hidden session of its own."""
        thread = family.beside
        if thread is None:
            main = family.main
            base = main.session.id if main is not None else session_id_of(*key)
            session = await self._store.open_session(
                keyed_id("ses", base, "beside"),
                title="calls beside the conversation",
                titled_by="import",
                type="hidden",
                extra={"proxy": {"beside": base if main is not None else None}},
            )
            thread = family.beside = Thread(session)
        prompts = [piece for piece in request.units if piece.unit.role == "user"][-1:]
        if thread.turn is not None and thread.open_calls == 0:
            await thread.end_turn(abandoned=True)
        if thread.turn is not None:  # two at once: the second is another call of the same turn
            turn = thread.turn
            if prompts:
                await turn.record(Message("user", await self._stored_parts(prompts)))
        else:
            turn = await self._begin(thread, await self._stored_parts(prompts))
        return self._exchange(family, thread, turn, request, None)

    # -- what is new -------------------------------------------------------------------------------

    async def _write(
        self, thread: Thread, fresh: Fresh, compared: Comparison
    ) -> tuple[AsyncTurn, PushedRecording | None]:
        """Record what is new and return the turn that goes on, and the call that it retries."""
        await self._notice_ending(thread)
        retried = thread.failed
        if fresh.unseen:
            await thread.end_turn(abandoned=True)
            await self._add_unseen(thread, fresh.unseen)
        answered = await self._record_results(thread, fresh.results)
        if fresh.prompt:
            retried = None
            if thread.turn is not None and thread.turn.id in answered:
                await self._record_said(thread, thread.turn, fresh.said)
            else:
                await self._leave_turn(thread)
                await self._begin_with(thread, fresh)
        elif thread.turn is None:
            retry = compared.relation == "retries" and not answered
            continues = None if retry else thread.last_turn
            turn = await self._begin(
                thread, None, continues=continues, retry_of=thread.last_turn if retry else None
            )
            await self._record_said(thread, turn, fresh.said)
        elif fresh.said:
            await self._record_said(thread, thread.turn, fresh.said)
        if compared.relation != "retries":
            retried = None
        thread.failed = None
        thread.units += [piece.unit for piece in compared.fresh if piece.unit.role != "system"]
        assert thread.turn is not None
        return thread.turn, retried

    async def _notice_ending(self, thread: Thread) -> None:
        """Let go of a turn that was stopped, or ended by another process."""
        turn = thread.turn
        if turn is not None and (turn.status != "running" or turn._core.stop_asked is not None):
            await thread.end_turn(abandoned=True)

    async def _leave_turn(self, thread: Thread) -> None:
        """End a turn that a new prompt leaves behind."""
        if thread.failed is not None and thread.failed.error is not None:
            await thread.end_turn(AnswerBroken(thread.failed.error))
        else:
            await thread.end_turn(abandoned=True)

    async def _begin_with(self, thread: Thread, fresh: Fresh) -> None:
        turn = await self._begin(thread, await self._stored_parts(fresh.prompt))
        rest = [piece for piece in fresh.said if piece.unit.role == "system"]
        await self._record_said(thread, turn, rest)

    async def _begin(
        self,
        thread: Thread,
        prompt: tuple[Part, ...] | None,
        *,
        continues: str | None = None,
        retry_of: str | None = None,
    ) -> AsyncTurn:
        turn = thread.session.turn(
            prompt or None, starts="unseen", continues=continues, retry_of=retry_of
        )
        await turn.begin()
        thread.turn, thread.last_turn = turn, turn.id
        return turn

    async def _record_said(
        self, thread: Thread, turn: AsyncTurn, pieces: Iterable[Brought]
    ) -> None:
        messages = [
            Message("system" if piece.unit.role == "system" else "user", piece.parts)
            for piece in pieces
        ]
        for piece in pieces:
            await self._put_blobs(piece)
        if messages:
            await turn.record_all(messages)

    async def _record_results(self, thread: Thread, results: Iterable[Brought]) -> set[str]:
        """Record results of tools; returns the turns that they belong to."""
        turns: set[str] = set()
        writes = []
        for piece in results:
            (result,) = piece.parts
            assert isinstance(result, ToolResult)
            call_id = self._waiting_call(thread, piece)
            if call_id is None:
                continue
            call = thread.waiting.pop(call_id)
            turns.add(call.turn_id)
            writes.append(self._finish_tool(thread, call, call_id, result, piece))
        await asyncio.gather(*writes)
        return turns

    def _waiting_call(self, thread: Thread, piece: Brought) -> str | None:
        if piece.unit.call_id in thread.waiting:
            return piece.unit.call_id
        if piece.unit.call_id or not piece.unit.name:
            return None
        named = (i for i, call in thread.waiting.items() if call.name == piece.unit.name)
        return next(named, None)

    async def _finish_tool(
        self, thread: Thread, call: ThreadCall, call_id: str, result: ToolResult, piece: Brought
    ) -> None:
        await self._put_blobs(piece)
        # It has a result, or was cut off in its arguments: the first is the result.
        with contextlib.suppress(CallNotFound, TurnNotFound, ConflictError, InvalidEntry):
            await thread.session.finish_tool(
                call.turn_id,
                call_id,
                result.content,
                is_error=result.is_error,
                structured=result.structured,
            )

    async def _add_unseen(self, thread: Thread, unseen: Iterable[Brought]) -> None:
        """Append what was said elsewhere, as turns that are over."""
        messages: list[Message] = []
        for piece in unseen:
            await self._put_blobs(piece)
            role: Role = "tool" if piece.unit.role == "result" else piece.unit.role
            messages.append(Message(role, piece.parts))
        await thread.session.add_messages(messages, source="proxy")
        turns = await thread.session.turns()
        thread.last_turn = turns[-1].id if turns else None

    async def _stored_parts(self, pieces: Iterable[Brought]) -> tuple[Part, ...]:
        parts: list[Part] = []
        for piece in pieces:
            await self._put_blobs(piece)
            parts += piece.parts
        return tuple(parts)

    async def _put_blobs(self, piece: Brought) -> None:
        await asyncio.gather(*(self._store.put_blob(data) for data in piece.blobs.values()))

    # -- over time ---------------------------------------------------------------------------------

    def answered(self, exchange: Exchange, key_of: str | None = None) -> None:
        """Remember under which of the provider's ids an answer can be followed."""
        ended = exchange.recording._core.ended
        for key, family in reversed(self._families.items()):
            if family is exchange.family:
                for value in ended.provider_ids.values():
                    self._responses[value] = key
                break
        while len(self._responses) > _FAMILIES_MAX * 4:
            self._responses.popitem(last=False)

    def running(self) -> int:
        return sum(t.turn is not None for f in self._families.values() for t in f._all())

    async def shut_down(self) -> None:
        """End the turns that still run, because the proxy ends. If interrupted: some of them."""
        for family in list(self._families.values()):
            for thread in family._all():
                turn, thread.turn = thread.turn, None
                if turn is not None:
                    try:
                        await turn.end(None, "shut_down")
                    except KillickError:
                        continue  # the store's closing ends it

    async def end_abandoned(self, *, after: float | None = None) -> int:
        """End turns that no request has come for; how many. If interrupted: some of them."""
        limit = self._abandon_seconds if after is None else after
        count = 0
        for family in list(self._families.values()):
            for thread in family._all():
                idle = time.monotonic() - thread.touched
                if thread.turn is None or thread.open_calls or idle < limit:
                    continue
                async with family.lock:
                    await self._leave_turn(thread)
                    count += 1
        return count


# -- what a request says of its session ------------------------------------------------------------


def _first(request: ModelRequest) -> str:
    """Return the hash of how a conversation begins."""
    for piece in conversation(request):
        return piece.unit.own or piece.unit.text
    return ""


def _everything(request: ModelRequest) -> tuple[Brought, ...]:
    return request.units


def _title(request: ModelRequest) -> str | None:
    """Return the first line of the prompt, without what the agent put around it."""
    for piece in reversed(conversation(request)):
        for part in reversed(piece.parts if piece.unit.role == "user" else ()):
            words = own_words(part.text) if isinstance(part, Text) else ""
            if words and not words.startswith("# AGENTS.md"):
                return words.splitlines()[0][: min(80, TITLE_CHARS_MAX)]
    return None


def _folder(request: ModelRequest) -> str | None:
    """Return the folder that the agent says it works in."""
    texts = [str(request.asked.get("system") or ""), str(request.asked.get("instructions") or "")]
    for message in request.asked.get("messages") or ():
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            texts.append(str(message.get("content")))
    texts += [piece.text for piece in request.units[:3]]
    for text in texts:
        match = _FOLDER.search(text.replace("\\n", "\n"))
        if match is not None:
            return match.group(1).strip()
    return None


async def _project_of(request: ModelRequest) -> Project | None:
    folder = _folder(request)
    return None if folder is None else await asyncio.to_thread(_project, folder)


def _project(folder: str) -> Project:
    """Return the project of a folder: the nearest above it that git knows."""
    directory = Path(folder)
    for above in (directory, *directory.parents):
        if (above / ".git").exists():
            return Project(str(above), folder)
    return Project(folder, folder)
