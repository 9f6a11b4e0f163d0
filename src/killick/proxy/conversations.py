"""Conversations on their way through the proxy, and what is written down of them.

What is in memory is a cache of the journal: it is read from the store when a conversation is first
met, and nothing is ever written back from it.
"""

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from killick.errors import (
    IdConflict,
    KillickError,
    SessionNotFound,
)
from killick.exchange.compose import session_id_of
from killick.exchange.importer import PROXY_NOTE_KEY
from killick.journal.kinds import keyed_id
from killick.model.limits import TITLE_CHARS_MAX
from killick.model.messages import Message, Part, Text
from killick.model.sessions import Parent, Project, SessionNote
from killick.proxy.history import (
    Comparison,
    Fresh,
    compare,
    conversation,
    purpose_of,
    sort_fresh,
    summary_in,
)
from killick.proxy.request import Brought, ModelRequest, own_words, units_of
from killick.proxy.threads import (
    Batch,
    Exchange,
    Family,
    Thread,
    ThreadCall,
    add_result,
    add_said,
    messages_of,
    parts_of,
)
from killick.proxy.wire import AgentSource
from killick.recorders.model_call import Plan
from killick.recorders.record_pushed import PushedRecording
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncTurn

NOTE: Final = "recorded by the proxy"
"""The note that an import looks for: what the proxy has recorded does not come in again."""

_IDLE_MAX: Final = 256
"""Conversations without a running turn that are remembered; others are read from the store."""
_RESPONSES_MAX: Final = 8_000
_FOUND_MAX: Final = 10_000
"""Sessions that a request without a name can be found to go on with: the newest."""
_CANDIDATES_MAX: Final = 50
_LISTED: Final = 1_000
_FOLDER: Final = re.compile(r"(?:<cwd>|[Ww]orking directory: ?)(/[^\n<]+)")


class Conversations:
    """Every conversation that passes, by what leads to it."""

    def __init__(self, store: AsyncStore, *, abandon_seconds: float) -> None:
        self._store = store
        self._abandon_seconds = abandon_seconds
        self._families: OrderedDict[tuple[str, str], Family] = OrderedDict()
        self._families_max = _IDLE_MAX
        self._responses: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._recent: deque[tuple[str, str]] = deque(maxlen=_CANDIDATES_MAX)
        """The keys of families that were found by content, the newest last."""
        self._listed: OrderedDict[str, list[str]] | None = None

    @property
    def tenant(self) -> str:
        """Whose sessions are recorded."""
        return self._store.tenant

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
        brought = conversation(request)
        for known in reversed(self._recent):  # a summary stands in the place of the first words
            family = self._families.get(known)
            for thread in family.threads if family is not None else ():
                if summary_in(thread.units, brought, thread.answers) is None:
                    continue
                if compare(thread.units, request, thread.answers).relation == "compacts":
                    return known
        return key

    def _family(self, key: tuple[str, str], source: AgentSource | None, name: str | None) -> Family:
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = Family(source, name)
            if key[0] == "content":
                self._recent.append(key)
        self._families.move_to_end(key)
        if len(self._families) > self._families_max:
            self._age(family)
        return family

    def _age(self, used: Family) -> None:
        """Forget conversations in which no turn runs, those that were used longest ago."""
        idle = [
            key for key, other in self._families.items() if other is not used and not other.busy
        ]
        for key in idle[: max(0, len(idle) - _IDLE_MAX // 2)]:
            del self._families[key]
        self._families_max = len(self._families) + _IDLE_MAX // 2  # not at every request

    async def _load(self, family: Family, key: tuple[str, str]) -> None:
        """Find the sessions of this family that are stored already."""
        ids: list[str] = []
        if family.name is not None:
            ids = [family.name]
        elif family.source is not None:
            ids = [session_id_of(family.source.agent, family.source.id)]
        else:
            if self._listed is None:
                self._listed = await self._list()
            ids = self._listed.get(key[1], [])[:_CANDIDATES_MAX]
        ids = [session_id for session_id in ids if await self._store.has_session(session_id)]
        for session_id in list(ids):  # none, for a conversation that is new
            forks = await self._store.sessions(fork_of=session_id, limit=_CANDIDATES_MAX)
            children = await self._store.sessions(parent=session_id, limit=_CANDIDATES_MAX)
            ids += [
                i.id for i in (*forks, *children) if i.about.type != "hidden" and i.id not in ids
            ]
        for session_id in ids:
            await self._add(family, await self._store.session(session_id))
        family.loaded = True

    async def _list(self) -> OrderedDict[str, list[str]]:
        """Return recorded sessions by the hash of how they begin, the newest of each first."""
        listed: OrderedDict[str, list[str]] = OrderedDict()
        for info in await self._store.sessions(limit=_LISTED):
            marks = info.about.extra.get("proxy")
            first = marks.get("first") if isinstance(marks, dict) else None
            if isinstance(first, str) and info.about.type != "hidden":
                listed.setdefault(first, []).append(info.id)
                listed.move_to_end(first, last=False)
        return listed

    async def _add(self, family: Family, session: AsyncSession) -> Thread:
        """Read a session that is stored already; the next request marks it for imports."""
        thread = Thread(session, is_marked=False)
        await thread.load()
        family.threads.append(thread)
        return thread

    async def _take(
        self, family: Family, key: tuple[str, str], request: ModelRequest, parent: str | None
    ) -> Exchange:
        thread, compared = self._choose(family, request)
        batch = self._store.batch()
        agent = family.source.agent if family.source is not None else None
        known = thread is not None and compared.shared > 0 and not thread.offers_tools
        if purpose_of(request, agent=agent, known=known) == "beside":
            return await self._take_beside(batch, family, key, request)
        if thread is None:
            thread = await self._begin_session(batch, family, request, parent)
            compared = Comparison("continues", 0, _everything(request))
        elif compared.relation == "forks":
            thread = await self._fork(family, thread, compared)
        elif compared.relation == "compacts" and compared.summary is not None:
            await self._compact(thread, compared.summary)
            compared = msgspec.structs.replace(compared, shared=len(thread.units))
        thread.offers_tools = thread.offers_tools or request.offers_tools
        thread.touched = time.monotonic()
        try:
            turn, retried = await self._write(batch, thread, sort_fresh(compared.fresh), compared)
        except (IdConflict, SessionNotFound):
            if thread in family.threads:
                raise
            await self._add(family, await self._store.session(thread.session.id))
            return await self._take(family, key, request, parent)  # another process was faster
        if thread not in family.threads:
            self._met(family, thread, request)
        return self._exchange(family, thread, turn, request, retried)

    def _met(self, family: Family, thread: Thread, request: ModelRequest) -> None:
        """Note a session that has just begun."""
        family.threads.append(thread)
        if self._listed is not None and family.name is None and family.source is None:
            first = _first(request)
            ids = self._listed.pop(first, [])  # found again when let go of
            self._listed[first] = [thread.session.id, *ids][:_CANDIDATES_MAX]
            if len(self._listed) > _FOUND_MAX:
                self._listed.popitem(last=False)

    def _exchange(
        self,
        family: Family,
        thread: Thread,
        turn: AsyncTurn,
        request: ModelRequest,
        retried: PushedRecording | None,
    ) -> Exchange:
        plan = Plan(request.shape, request.asked, None, retried, "keep")
        exchange = Exchange(self._store, family, thread, turn, plan)
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

    async def _begin_session(
        self,
        batch: Batch,
        family: Family,
        request: ModelRequest,
        parent: str | None,
    ) -> Thread:
        """Return a session that begins with what the request brings."""
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
        session = batch.create_session(
            id=session_id,
            title=_title(request),
            titled_by="import",
            type=session_type,
            project=await _project_of(request),
            parent=above,
            extra={"proxy": marks},
        )
        return Thread(session)

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
        self,
        batch: Batch,
        family: Family,
        key: tuple[str, str],
        request: ModelRequest,
    ) -> Exchange:
        """Record a call beside the conversation, in a hidden session of its own."""
        thread = family.beside or await self._beside(batch, family, key)
        prompts = [piece for piece in request.units if piece.unit.role == "user"][-1:]
        if thread.open_calls == 0:
            thread.let_go(batch, abandoned=True)
        self._add_first(batch, thread, prompts)
        if thread.turn is not None:  # two at once: the second is another call of the same turn
            turn = thread.turn
            add_said(batch, turn, prompts)
            await batch.write()
        else:
            turn = await self._begin(batch, thread, parts_of(prompts))
        family.beside = thread
        return self._exchange(family, thread, turn, request, None)

    async def _beside(self, batch: Batch, family: Family, key: tuple[str, str]) -> Thread:
        main = family.main
        base = main.session.id if main is not None else session_id_of(*key)
        session_id = keyed_id("ses", base, "beside")
        if await self._store.has_session(session_id):
            return Thread(await self._store.session(session_id))
        session = batch.create_session(
            id=session_id,
            title="calls beside the conversation",
            titled_by="import",
            type="hidden",
            extra={"proxy": {"beside": base if main is not None else None}},
        )
        return Thread(session)

    # -- what is new -------------------------------------------------------------------------------

    async def _write(
        self, batch: Batch, thread: Thread, fresh: Fresh, compared: Comparison
    ) -> tuple[AsyncTurn, PushedRecording | None]:
        """Record what is new, in one commit where it can be.

        Returns the turn that goes on, and the call that it retries.
        """
        await self._notice_ending(thread)
        retried = thread.failed
        self._add_first(batch, thread, (*fresh.unseen, *fresh.results, *fresh.said))
        added = None
        if fresh.unseen:
            thread.let_go(batch, abandoned=True)
            added = batch.add_messages(
                thread.session, unseen_messages(fresh.unseen), source="proxy"
            )
        calls = self._waiting_calls(thread, fresh.results)
        for call_id, call, piece in calls:
            add_result(batch, thread, call_id, call, piece)
        answered = {call.turn_id for _, call, _ in calls}
        if fresh.prompt:
            retried = None
            if thread.turn is not None and thread.turn.id in answered:
                add_said(batch, thread.turn, fresh.said)
                await batch.write()
            else:
                rest = [piece for piece in fresh.said if piece.unit.role == "system"]
                thread.leave(batch)
                await self._begin(batch, thread, parts_of(fresh.prompt), messages_of(rest))
        elif thread.turn is None:
            if added is not None:  # only then is it known which turn is gone on with
                await batch.write()
                assert added.result is not None
                thread.last_turn = (thread.last_turn, *added.result.turns)[-1]
            retry = compared.relation == "retries" and not answered
            await self._begin(
                batch,
                thread,
                None,
                messages_of(fresh.said),
                continues=None if retry else thread.last_turn,
                retry_of=thread.last_turn if retry else None,
            )
        else:
            add_said(batch, thread.turn, fresh.said)
            await batch.write()
        for call_id, _, _ in calls:
            thread.waiting.pop(call_id, None)
        if compared.relation != "retries":
            retried = None
        thread.is_marked, thread.failed = True, None
        thread.units += [piece.unit for piece in compared.fresh if piece.unit.role != "system"]
        assert thread.turn is not None
        return thread.turn, retried

    async def _notice_ending(self, thread: Thread) -> None:
        """Let go of a turn that was stopped, or ended by another process."""
        turn = thread.turn
        if turn is not None and (turn.status != "running" or turn.stop_asked is not None):
            batch = self._store.batch()
            thread.let_go(batch, abandoned=True)
            await batch.write()

    def _add_first(self, batch: Batch, thread: Thread, pieces: Iterable[Brought]) -> None:
        """Write before all else that the session is marked, and blobs."""
        if not thread.is_marked:
            batch.note_all(thread.session, [SessionNote(NOTE, key=PROXY_NOTE_KEY)])
        for piece in pieces:
            for data in piece.blobs.values():
                batch.put_blob(data)

    async def _begin(
        self,
        batch: Batch,
        thread: Thread,
        prompt: tuple[Part, ...] | None,
        also: Sequence[Message] = (),
        *,
        continues: str | None = None,
        retry_of: str | None = None,
    ) -> AsyncTurn:
        """Begin a turn, in one commit with what is written before it."""
        turn = thread.session.turn(
            prompt or None, starts="unseen", continues=continues, retry_of=retry_of
        )
        batch.begin(turn, also)
        await batch.write()
        thread.turn, thread.last_turn = turn, turn.id
        return turn

    def _waiting_calls(
        self, thread: Thread, results: Iterable[Brought]
    ) -> list[tuple[str, ThreadCall, Brought]]:
        """Return the results whose calls have none yet, each with its call."""
        waiting, calls = dict(thread.waiting), list[tuple[str, ThreadCall, Brought]]()
        for piece in results:
            call_id = piece.unit.call_id if piece.unit.call_id in waiting else None
            if call_id is None and piece.unit.name and not piece.unit.call_id:
                named = (i for i, call in waiting.items() if call.name == piece.unit.name)
                call_id = next(named, None)
            if call_id is not None:
                calls.append((call_id, waiting.pop(call_id), piece))
        return calls

    # -- over time ---------------------------------------------------------------------------------

    def answered(self, exchange: Exchange, key_of: str | None = None) -> None:
        """Remember under which of the provider's ids an answer can be followed."""
        for key, family in reversed(self._families.items()):
            if family is exchange.family:
                for value in exchange.recording.provider_ids.values():
                    self._responses[value] = key
                break
        while len(self._responses) > _RESPONSES_MAX:
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
                    batch = self._store.batch()
                    thread.leave(batch)
                    await batch.write()
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


def unseen_messages(pieces: Iterable[Brought]) -> list[Message]:
    """Return what was said elsewhere, results too, as messages."""
    return [
        Message("tool" if piece.unit.role == "result" else piece.unit.role, piece.parts)
        for piece in pieces
    ]


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
