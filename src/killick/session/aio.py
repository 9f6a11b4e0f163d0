"""The asynchronous face: the same names as `killick.session.sync`, awaited where they wait.

Works under asyncio and trio. Every method hands the same flow to `settle` that the synchronous face
hands to `run`; handing a delta over is a plain call here too.
"""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from killick.journal.summary import Total
from killick.maintenance.faces import AsyncUpkeep
from killick.model import entries as e
from killick.model.messages import Json, Message, Part, Prompt
from killick.model.sessions import Namer, Project, SessionInfo, TurnInfo
from killick.search.results import Hits
from killick.session.aio_blocks import AsyncTurn
from killick.session.aio_feeds import AsyncFollowing
from killick.session.core.history import CompactSettings, ForkSettings
from killick.session.core.session import Content, ContextSettings, SessionCore, StoreCore
from killick.session.core.stream import StreamCore, ToolCore
from killick.session.drive.drive_async import in_thread, settle
from killick.session.drive.steps import Flow
from killick.session.open import StoreOptions, Url, opener
from killick.session.options import (
    CreateSettings,
    ListFilters,
    OpenSettings,
    SearchFilters,
    TurnSettings,
    UsageBy,
    UsageFilters,
    decision,
    list_filters,
    session_created,
    turn_options,
    usage_filters,
)
from killick.session.sync import Store
from killick.stores.engine.state import Receipt

if TYPE_CHECKING:  # the views are loaded when one is asked for
    from killick.session.core.queries import Changes
    from killick.views.context import Context, Format
    from killick.views.timeline import TimedTurn
    from killick.views.transcript import Shown

T = TypeVar("T")
C = TypeVar("C", StreamCore, ToolCore)


class AsyncStore(AsyncUpkeep):
    """Sessions that survive. Opened by `async with`, or by the first call that needs it."""

    def __init__(self, url: Url = None, **settings: Unpack[OpenSettings]) -> None:
        options = StoreOptions(**settings)
        self._core = StoreCore(opener(url, options))
        self._care = self._core.care

    async def __aenter__(self) -> Self:
        try:
            await in_thread(self._core.runtime)
        except BaseException:
            await self.close()  # interrupted while it was being opened: nobody will leave the block
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End turns that still run, wait a bounded time for what was handed over, let go.

        If interrupted: the store is closed all the same before the cancellation goes on.
        """
        runtime = self._core.opened()
        if runtime is not None:
            await in_thread(runtime.close)

    @property
    def status(self) -> str:
        """`ok`, or `degraded` while writes fail; a write that succeeds makes it ok again."""
        return self._core.runtime().writer.status

    async def create_session(self, **settings: Unpack[CreateSettings]) -> "AsyncSession":
        """Begin a session. If interrupted: it exists or it does not; a given `id` tells which."""
        return AsyncSession(await self._run(self._core.create_session(*session_created(settings))))

    async def session(self, session_id: str) -> "AsyncSession":
        """Open a session; a turn whose process died is closed first. Raises SessionNotFound."""
        return AsyncSession(await self._run(self._core.session(session_id)))

    async def sessions(self, **filters: Unpack[ListFilters]) -> list[SessionInfo]:
        """Sessions, newest first, 100 of them or `limit`.

        Filters: `type`, `project` (its root), `tag`, `model`, `interrupted`, `archived` (False if
        not given, None for both), `pinned`, `deleted`, `title` (a text in it), `since`, `until`,
        `parent` and `fork_of` (ids). `before` the last session of a page gives the next page.
        """
        return await self._run(self._core.sessions(list_filters(filters)))

    async def usage(self, by: UsageBy = "model", **filters: Unpack[UsageFilters]) -> list[Total]:
        """Tokens and cost of all model calls, added up by session, model, project, day or all.

        Interrupted and retried calls count; what a fork has inherited does not count twice.
        Filters: `session`, `project`, `model`, `since` and `until` (days).
        """
        return await self._run(self._core.usage(by, usage_filters(filters)))

    async def search(self, words: str, **filters: Unpack[SearchFilters]) -> Hits:
        """Messages in which these words are, newest first, 20 of them or `limit`.

        Words stand for all of them; `"a phrase"`, `begin*`, AND, OR, NOT and parentheses are
        understood. `.behind` of what is returned says how many entries could not be looked at yet.
        Filters: `session` (an id), `role`, `state`, `project` (its root), `interrupted`, `since`,
        `until`; `reasoning=False` leaves reasoning out, `order="best"` ranks, `substring=True`
        looks inside of words where the store has an index for that. `wait_seconds` is how long an
        index that is behind may catch up first. Raises InvalidQuery, SearchDamaged.
        """
        return await self._run(self._core.search(words, filters))

    async def delete_session(self, session_id: str, *, reason: str | None = None) -> Receipt:
        """Take a session out of every list, ending what runs in it; it can be restored.

        If interrupted: it is deleted or it is not.
        """
        return await self._run(self._core.delete_session(session_id, reason))

    async def restore_session(self, session_id: str) -> "AsyncSession":
        """Bring a deleted session back. If interrupted: it is restored or it is not."""
        return AsyncSession(await self._run(self._core.restore_session(session_id)))

    async def put_blob(self, data: bytes) -> str:
        """Keep bytes once for this tenant; returns the name that images and files carry.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return await self._run(self._core.put_blob(data))

    async def blob(self, name: str) -> bytes:
        """The bytes of a blob. Raises BlobNotFound."""
        return await self._run(self._core.blob(name))

    async def collect_blobs(self) -> int:
        """Remove blobs that nothing refers to; how many. If interrupted: all of them or none."""
        return await self._run(self._core.collect_blobs())

    async def counts(self) -> dict[str, int]:
        """Rows by table."""
        return await self._run(self._core.counts())

    async def _run(self, flow: Flow[T]) -> T:
        runtime = self._core.opened()
        if runtime is None:
            runtime = await in_thread(self._core.runtime)
        return await settle(runtime, flow)


def blocking(store: AsyncStore) -> Store:
    """The same opening of a store with the synchronous face, for threads of this process."""
    shared = Store.__new__(Store)
    shared._core, shared._care = store._core, store._care
    return shared


class AsyncSession:
    """One session. `id` is fixed; `title` and `head` are as of the last read or write here."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id!r} head={self.head}>"

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def title(self) -> str | None:
        return self._core.title

    @property
    def head(self) -> int:
        return self._core.head

    def turn(self, prompt: Prompt = None, **settings: Unpack[TurnSettings]) -> "AsyncTurn":
        """A turn, as a block: the prompt is durable when it is entered, the ending when it is left.

        When somebody stops the turn, what the block awaits is cancelled and the block raises
        TurnStopped. The settings are those of the synchronous face.
        """
        return AsyncTurn(self._core.turn(prompt, turn_options(settings)))

    async def messages(
        self, *, after: int = 0, last: int | None = None, limit: int | None = None
    ) -> list[Message]:
        """Messages in order: those that start after a seq, the last few, or the first few."""
        return await self._run(self._core.messages(after, last, limit))

    async def turns(self) -> list[TurnInfo]:
        """All turns in order, with how they ended."""
        return await self._run(self._core.turns())

    async def changes(self, *, after: int) -> "Changes":
        """Messages that began, grew, ended or got a result after a seq; also what streams now."""
        return await self._run(self._core.changes(after))

    async def queued(self) -> list[Message]:
        """Prompts that wait for the next turn, in order."""
        return await self._run(self._core.queued())

    async def blob(self, name: str) -> bytes:
        """The bytes of an image or a file of this session. Raises BlobNotFound."""
        return await self._run(self._core.blob(name))

    async def approvals(self) -> list[e.ApprovalAsked]:
        """What waits for a person: in the turn that runs, or in one whose process ended waiting."""
        return await self._run(self._core.approvals())

    async def context(
        self,
        format: "Format",  # noqa: A002  (the contract's name)
        **settings: Unpack[ContextSettings],
    ) -> "Context":
        """What a model would be sent now, repaired, in one provider's shape.

        `max_messages` and `max_tokens` keep the newest; `partial` is "note", "plain" or "omit";
        `reasoning=False` leaves reasoning out.
        """
        return await self._run(self._core.context(format, settings))

    async def transcript(self) -> "list[Shown]":
        """What a person saw, with partial messages, tools and their state, and interruptions."""
        return await self._run(self._core.transcript())

    async def timeline(self) -> "list[TimedTurn]":
        """Turns with durations, model calls, attempts, tools and tokens."""
        return await self._run(self._core.timeline())

    async def entries(self, *, after: int = 0, limit: int | None = None) -> list[e.Entry]:
        """The journal itself."""
        return await self._run(self._core.entries(after, limit))

    def follow(self, *, after: int | str = 0) -> AsyncFollowing:
        """Entries and deltas as they come, from any process; ends when the store is closed.

        `after` is a seq, or the `cursor` of what a `follow` before has given, mid-message too.
        """
        return AsyncFollowing(self._core, after)

    async def stop(self, turn_id: str | None = None, reason: str = "stopped") -> bool:
        """Ask whoever runs the turn to stop, in whatever process; False when none runs.

        If interrupted: the request is recorded or it is not.
        """
        return await self._run(self._core.stop(turn_id, reason))

    async def queue(self, prompt: str | Sequence[Part] | Message, *, key: str | None = None) -> str:
        """Keep a prompt for the next turn; its id. If interrupted: kept or not, the `key` tells."""
        return await self._run(self._core.queue(prompt, key))

    async def withdraw(self, prompt_id: str) -> Receipt:
        """Take a prompt that waits out of the queue. If interrupted: it waits or it does not."""
        return await self._run(self._core.withdraw(prompt_id))

    async def finish_tool(
        self,
        turn_id: str,
        call_id: str,
        content: Content,
        *,
        is_error: bool = False,
        structured: Json = None,
    ) -> Receipt:
        """Record a tool's result from elsewhere, also after its turn has ended, as late.

        If interrupted: it is recorded or it is not; the same content again changes nothing.
        """
        flow = self._core.finish_tool(
            turn_id, call_id, content, is_error=is_error, structured=structured
        )
        return await self._run(flow)

    async def add_late_text(self, turn_id: str, message_id: str, text: str) -> Receipt:
        """Give the whole text of an answer that was cut off; what is new in it is kept as late.

        If interrupted: it is recorded or it is not.
        """
        return await self._run(self._core.add_late_text(turn_id, message_id, text))

    async def decide_approval(
        self,
        asked: e.ApprovalAsked,
        *,
        approved: bool,
        by: str | None = None,
        reason: str | None = None,
    ) -> Receipt:
        """Decide on exactly what was asked. If interrupted: it is recorded or it is not."""
        body = decision(asked, approved=approved, by=by, reason=reason)
        return await self._run(self._core.decide_approval(body))

    async def rename(self, title: str | None, *, by: Namer = "person") -> Receipt:
        """Give the session a title; a person's is never replaced by a generated one.

        If interrupted: it is renamed or it is not.
        """
        return await self._run(self._core.rename(title, by))

    async def archive(self, *, archived: bool = True) -> Receipt:
        """Put the session away, or bring it back. If interrupted: done or not."""
        return await self._run(self._core.archive(archived=archived))

    async def pin(self, *, pinned: bool = True) -> Receipt:
        """Keep the session from every rule that removes. If interrupted: done or not."""
        return await self._run(self._core.pin(pinned=pinned))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> Receipt:
        """Put tags on the session and take others off. If interrupted: done or not."""
        return await self._run(self._core.tag(add, remove))

    async def move(self, project: Project | None) -> Receipt:
        """Say where the work lies from now on. If interrupted: done or not."""
        return await self._run(self._core.move(project))

    async def compact(
        self, summary: str, through: int, **settings: Unpack[CompactSettings]
    ) -> Receipt:
        """Put a summary in place of the messages up to `through`, in what a model is sent.

        `first` begins the range elsewhere, `keep` names messages that stay; so does, in a turn that
        still runs, what was not finished at `through`. Give `as_of`, the head when the summary was
        begun, if a turn may have ended since: what was not finished then stays. `model`,
        `provider`, `usage`, `tokens_before` and `tokens_after` tell how the summary was made.
        `undo` takes it back.

        If interrupted: it is compacted or it is not.
        """
        return await self._run(self._core.history.compact(summary, through, settings))

    async def rewind(self, through: int) -> Receipt:
        """Take what began after `through` out of every view; it stays in the journal.

        What began by then is kept whole, a call with its result too. Raises SessionBusy while a
        turn runs. If interrupted: it is rewound or it is not.
        """
        return await self._run(self._core.history.rewind(through))

    async def clear(self) -> Receipt:
        """Begin anew: a rewind to before the first message. If interrupted: done or not."""
        return await self._run(self._core.history.rewind(0))

    async def undo(self, seq: int | None = None) -> Receipt:
        """Undo the compaction or rewind at this seq, or the newest one that is in effect.

        A rewind can be undone until something was said since; afterwards UndoRefused is raised.
        If interrupted: it is undone or it is not.
        """
        return await self._run(self._core.history.undo(seq))

    async def hide(
        self, message: int | Message, *, person: bool = True, model: bool = True
    ) -> Receipt:
        """Hide a message from the person and the model, or one of them, until it is shown again.

        If interrupted: it is hidden or it is not.
        """
        see = self._core.history.see(
            message, person=False if person else None, model=False if model else None
        )
        return await self._run(see)

    async def show(
        self, message: int | Message, *, person: bool = True, model: bool = True
    ) -> Receipt:
        """Show a message again, to the person and the model, or to one of them.

        If interrupted: it is shown or it is not.
        """
        see = self._core.history.see(message, person=person or None, model=model or None)
        return await self._run(see)

    async def fork(self, at: int | None = None, **settings: Unpack[ForkSettings]) -> "AsyncSession":
        """A session of its own that begins with this one's entries up to `at`; none is copied.

        What began by then is there whole. Without `at`, everything so far. A title is not
        inherited. If interrupted: it exists or it does not; a given `id` tells which.
        """
        return AsyncSession(await self._run(self._core.fork(at, settings)))

    async def info(self) -> SessionInfo:
        """What is known of the session now: title, tags, project, status, lineage."""
        return await self._run(self._core.info())

    async def note(self, name: str, data: Json = None, *, key: str | None = None) -> Receipt:
        """Keep something beside the conversation. If interrupted: kept or not."""
        return await self._run(self._core.note(name, data, key))

    def _run(self, flow: Flow[T]) -> Coroutine[Any, Any, T]:
        return settle(self._core.runtime(), flow)
