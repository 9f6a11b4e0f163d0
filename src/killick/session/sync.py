"""The synchronous face: Store and Session; `blocks` has the turns, streams and tools.

Every method hands a flow to `run`; nothing is decided here. `killick.session.aio` is the same face
with `await`, and a test holds the two together.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from killick.journal.redaction import Redact
from killick.journal.summary import Total
from killick.maintenance.erase import CareCore
from killick.maintenance.faces import Upkeep
from killick.model import entries as e
from killick.model import limits as bounds
from killick.model.causes import Cause
from killick.model.effects import Outcome, SettledBy
from killick.model.messages import Json, Message, Part, Prompt
from killick.model.sessions import (
    Limits,
    Namer,
    Parent,
    Project,
    SessionInfo,
    Starts,
    TurnInfo,
)
from killick.search.port import Order
from killick.search.results import Hits
from killick.session.amend import Amend
from killick.session.core import figures, queries, work
from killick.session.core.history import HistoryCore
from killick.session.core.session import (
    AddedMessages,
    Content,
    SessionCore,
    Steer,
    open_session,
    read_blob,
)
from killick.session.core.store import StoreCore
from killick.session.core.turn import TurnCore, TurnOptions
from killick.session.core.work import ClosedTurn, TakenWork
from killick.session.drive.steps import Flow, run
from killick.session.feeds import Feed, Following, PartEvents, StoreFollowing
from killick.session.open import Durability, StoreOptions, Url, opener
from killick.session.runtime import Clock, IdSource, random_ids, system_clock
from killick.session.sync_blocks import Turn, WriteBatch
from killick.stores.engine.state import Receipt
from killick.stores.engine.turn_ops import IfBusy

if TYPE_CHECKING:  # the views are loaded when one is asked for
    from killick.views.budget import CountTokens
    from killick.views.context import Context, Format
    from killick.views.neutral import Errors, Partial
    from killick.views.timeline import TimedTurn
    from killick.views.transcript import Shown

T = TypeVar("T")


class StoreAttributes:
    """Properties of a store, the same on both faces."""

    _core: StoreCore

    @property
    def tenant(self) -> str:
        """Whose sessions these are."""
        return self._core.runtime().tenant

    @property
    def status(self) -> str:
        """`ok`, or `degraded` while writes fail; a write that succeeds makes it ok again."""
        return self._core.runtime().writer.status


class Store(StoreAttributes, Upkeep):
    """Sessions that survive. A file path, `sqlite:///…`, or nothing for the default store."""

    def __init__(
        self,
        url: Url = None,
        *,
        tenant: str | None = None,
        durability: Durability = "full",
        window_seconds: float = bounds.WINDOW_SECONDS,
        buffer_bytes: int = bounds.STREAM_BUFFER_BYTES,
        flush_bytes: int = bounds.FLUSH_BYTES,
        lock_wait_seconds: float = bounds.LOCK_WAIT_SECONDS,
        lease_seconds: float = bounds.LEASE_SECONDS,
        answer_seconds: float = bounds.ANSWER_SECONDS,
        network: bool = False,
        indexing: bool = True,
        clock: Clock = system_clock,
        ids: IdSource = random_ids,
        redact: Redact | Literal["secrets"] | None = None,
    ) -> None:
        options = StoreOptions(
            tenant=tenant,
            durability=durability,
            window_seconds=window_seconds,
            buffer_bytes=buffer_bytes,
            flush_bytes=flush_bytes,
            lock_wait_seconds=lock_wait_seconds,
            lease_seconds=lease_seconds,
            answer_seconds=answer_seconds,
            network=network,
            indexing=indexing,
            clock=clock,
            ids=ids,
            redact=redact,
        )
        self._core = StoreCore(opener(url, options))
        self._care = CareCore(self._core)
        self._core.runtime()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End turns that still run, wait a bounded time for what was handed over, let go.

        If interrupted: what was handed over is still written; call again to wait for it.
        """
        runtime = self._core.opened()
        if runtime is not None:
            runtime.close()

    def create_session(
        self,
        *,
        id: str | None = None,
        title: str | None = None,
        titled_by: Namer = "person",
        type: str = "user",
        project: Project | None = None,
        tags: Sequence[str] = (),
        extra: dict[str, Any] | None = None,
        parent: Parent | None = None,
        limits: Limits | None = None,
    ) -> "Session":
        """Begin a session. If interrupted: it exists or it does not; a given `id` tells which."""
        flow = self._core.create_session(
            id,
            title=title,
            titled_by=titled_by,
            session_type=type,
            project=project,
            tags=tags,
            extra=extra,
            parent=parent,
            limits=limits,
        )
        return Session(self._run(flow))

    def session(self, session_id: str) -> "Session":
        """Open a session; a turn whose process died is closed first. Raises SessionNotFound."""
        return Session(self._run(open_session(self._core, session_id)))

    def has_session(self, session_id: str) -> bool:
        """Tell whether there is a session of this id that is not deleted."""
        return self._run(self._core.has_session(session_id))

    def open_session(
        self,
        id: str,
        *,
        title: str | None = None,
        titled_by: Namer = "person",
        type: str = "user",
        project: Project | None = None,
        tags: Sequence[str] = (),
        extra: dict[str, Any] | None = None,
        parent: Parent | None = None,
        limits: Limits | None = None,
    ) -> "Session":
        """Open a session as `session` does, or begin it: the other parameters are for a new one.

        For programs that name their sessions and are started again. Raises SessionDeleted.

        If interrupted: it exists or it does not; call it again.
        """
        flow = self._core.open_session(
            id,
            title=title,
            titled_by=titled_by,
            session_type=type,
            project=project,
            tags=tags,
            extra=extra,
            parent=parent,
            limits=limits,
        )
        return Session(self._run(flow))

    def sessions(
        self,
        *,
        type: str | None = None,
        project: str | None = None,
        tag: str | None = None,
        model: str | None = None,
        interrupted: bool | None = None,
        archived: bool | None = False,
        pinned: bool | None = None,
        deleted: bool = False,
        title: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        parent: str | None = None,
        fork_of: str | None = None,
        limit: int = 100,
        before: SessionInfo | None = None,
    ) -> list[SessionInfo]:
        """List sessions, newest first, 100 of them or `limit`.

        `project` is a root, `title` a text in it, `since` and `until` are about the last change,
        `archived=None` shows both kinds. `before` the last of a page gives the next page.
        """
        flow = self._core.sessions(
            type=type,
            project=project,
            tag=tag,
            model=model,
            interrupted=interrupted,
            archived=archived,
            pinned=pinned,
            deleted=deleted,
            title=title,
            since=since,
            until=until,
            parent=parent,
            fork_of=fork_of,
            limit=limit,
            before=before,
        )
        return self._run(flow)

    def usage(
        self,
        by: figures.UsageBy = "model",
        *,
        session: str | None = None,
        project: str | None = None,
        model: str | None = None,
        since: date | None = None,
        until: date | None = None,
    ) -> figures.Totals[Total]:
        """Add up tokens and cost of all model calls, by session, model, project, day or all.

        Interrupted and retried calls count; what a fork has inherited does not count twice.
        Days are those of UTC, both ends included. `behind` counts sessions that it lacks.
        """
        flow = self._core.usage(
            by, session=session, project=project, model=model, since=since, until=until
        )
        return self._run(flow)

    def search(
        self,
        words: str,
        *,
        session: str | None = None,
        role: str | None = None,
        state: str | None = None,
        project: str | None = None,
        interrupted: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reasoning: bool = True,
        substring: bool = False,
        order: Order = "newest",
        limit: int = 20,
        wait_seconds: float | None = None,
    ) -> Hits:
        """Find messages with these words, newest first, 20 of them or `limit`.

        Words stand for all of them; `"a phrase"`, `begin*`, AND, OR, NOT and parentheses are
        understood. `session` is an id, `project` a root, `role` may be `summary` too.
        `substring=True` looks inside of words where the store has an index for that, `order="best"`
        ranks the newest 10,000, `wait_seconds` is how long an index may catch up first, `.behind`
        of the hits counts what it has not seen yet. Raises InvalidQuery, SearchDamaged.
        """
        flow = queries.search(
            self._core,
            words,
            session=session,
            role=role,
            state=state,
            project=project,
            interrupted=interrupted,
            since=since,
            until=until,
            reasoning=reasoning,
            substring=substring,
            order=order,
            limit=limit,
            wait_seconds=wait_seconds,
        )
        return self._run(flow)

    def batch(self) -> WriteBatch["Session"]:
        """Return an empty batch: what it is given is made durable by one commit."""
        return WriteBatch(self._core, Session)

    def take_due(self, limit: int = 1, lease_seconds: float = 60.0) -> TakenWork:
        """Take turns that broke by accident and may be continued, at most `limit` of them.

        Each is given to one of many workers, in whatever process. What is not begun within
        `lease_seconds`, or whose taker died, may be taken again; each taking is an attempt.
        `damaged` of the answer names sessions that were skipped.

        If interrupted: what was taken and not returned lapses.
        """
        return self._run(work.take_due(self._core, limit, lease_seconds))

    def close_dead_turns(self) -> list[ClosedTurn]:
        """Close running turns whose processes are gone, in all sessions, as opening each would.

        If interrupted: each is closed or it is not; call it again.
        """
        return self._run(work.close_dead_turns(self._core))

    def delete_session(self, session_id: str, *, reason: str | None = None) -> Receipt:
        """Take a session out of every list, ending what runs in it; it can be restored.

        If interrupted: it is deleted or it is not.
        """
        return self._run(self._core.delete_session(session_id, reason))

    def restore_session(self, session_id: str) -> "Session":
        """Bring a deleted session back. If interrupted: it is restored or it is not."""
        return Session(self._run(self._core.restore_session(session_id)))

    def put_blob(self, data: bytes) -> str:
        """Keep bytes once for this tenant; returns the name that images and files carry.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return self._run(self._core.put_blob(data))

    def blob(self, name: str) -> bytes:
        """Return the bytes of a blob. Raises BlobNotFound."""
        return self._run(read_blob(self._core, name))

    def collect_blobs(self) -> int:
        """Remove blobs that nothing refers to; how many. If interrupted: all of them or none."""
        return self._run(self._core.collect_blobs())

    def counts(self) -> dict[str, int]:
        """Count rows by table."""
        return self._run(self._core.counts())

    def follow(self, *, after: int | str = 0, waiting: bool = False) -> StoreFollowing:
        """Follow all sessions of this tenant: what a person or a supervisor acts on, as it happens.

        It gives turns that ended, approvals asked and decided, and outcomes that are unknown: in
        order within a session, each once, from `after=0`, from the `.cursor` of an earlier line or
        from the `"end"` on; with `waiting=True` first what waits now. Raises InvalidCursor.
        """
        return StoreFollowing(self._core.runtime(), after, waiting=waiting)

    def feed(self) -> Feed:
        """Follow many sessions, read together; it begins with none."""
        return Feed(self._core.runtime())

    def openings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return how these sessions begin, by id: the first words of the first prompt in view.

        Sessions in which nothing was asked yet are left out.
        """
        return self._run(queries.openings(self._core, session_ids))

    def activity(
        self, *, since: date | None = None, until: date | None = None
    ) -> figures.Totals[figures.ActiveDay]:
        """Count sessions and turns that began, and how turns ended, day by day.

        `since` (29 days before `until`) and `until` (today) are days in UTC. Days without anything
        and deleted sessions are left out; `behind` counts sessions that it lacks otherwise.
        """
        return self._run(figures.activity(self._core, since=since, until=until))

    def _run(self, flow: Flow[T]) -> T:
        return run(self._core.runtime(), flow)


class Session(Amend):
    """One session. `id` is fixed; `title` and `head` are as of the last read or write here."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<Session {self.id!r} head={self.head}>"

    def turn(
        self,
        prompt: Prompt = None,
        *,
        key: str | None = None,
        if_busy: IfBusy = "refuse",
        wait_seconds: float | None = None,
        continues: str | None = None,
        retry_of: str | None = None,
        starts: Starts = "seen",
        limits: Limits | None = None,
        resume: int = 0,
        work: str | None = None,
    ) -> Turn:
        """Make a turn, a block: its prompt is durable once entered, its ending once left.

        `key` makes it idempotent, `if_busy` says what to do while another turn runs ("refuse",
        "wait" at most `wait_seconds`, "queue", "interrupt", "take_over"), `continues` and
        `retry_of` link it to an earlier turn. With `starts="unseen"` the caller does not see when
        tools start: a call without a result is told as unknown, not as never run. `limits` are of
        this turn alone.

        With `resume`, workers may continue the turn so often if it breaks by accident; `work` is
        the token of `store.take_due`, and goes with the prompt None. Raises WorkLost for a token
        that has lapsed, or that a person's turn has voided.
        """
        options = TurnOptions(
            key=key,
            if_busy=if_busy,
            wait_seconds=wait_seconds,
            continues=continues,
            retry_of=retry_of,
            starts=starts,
            limits=limits,
            resume=resume,
            work=work,
        )
        return Turn(TurnCore(self._core, prompt, options))

    def messages(
        self, *, after: int = 0, last: int | None = None, limit: int | None = None
    ) -> list[Message]:
        """Return messages in order: those after a seq, the last few, or the first few."""
        return self._run(self._core.messages(after, last, limit))

    def turns(self) -> list[TurnInfo]:
        """Return all turns in order, with how they ended."""
        return self._run(self._core.turns())

    def changes(self, *, after: int) -> queries.Changes:
        """Return messages that changed after a seq, and those that stream now."""
        return self._run(queries.changes(self._core, after))

    def queued(self) -> list[Message]:
        """Return prompts that wait for the next turn, in order."""
        return self._run(queries.queued(self._core))

    def blob(self, name: str) -> bytes:
        """Return the bytes of an image or a file of this session. Raises BlobNotFound."""
        return self._run(read_blob(self._core.opening, name))

    def approvals(self) -> list[e.ApprovalAsked]:
        """List what waits for a person: in the running turn, or in one that ended waiting."""
        return self._run(queries.approvals(self._core))

    def context(
        self,
        format: "Format",
        *,
        at: int | None = None,
        before_turn: str | None = None,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        count_tokens: "CountTokens | None" = None,
        profile: str | None = None,
        partial: "Partial" = "note",
        reasoning: bool = True,
        errors: "Errors" = "type",
    ) -> "Context":
        """Return what a model would be sent now, repaired, in one provider's shape.

        `at` computes it as of that seq. `before_turn` leaves out that turn and all that was said
        since, for a caller that gives the prompt by itself; late results of earlier turns stay.
        `max_messages`, `max_tokens` and `max_bytes` keep the running turn's prompt and then the
        newest; BudgetTooSmall is raised if the prompt alone does not fit. `count_tokens` counts a
        text's tokens in place of an estimate. `profile` names the server that is asked; without
        it the provider that answered last chooses. `partial` is "note", "plain" or "omit";
        `reasoning=False` leaves reasoning out. Of the exception that a turn failed with, a model
        is told the type; with `errors="text"` also its text, which may name paths and addresses.
        """
        flow = queries.show_context(
            self._core,
            format,
            at=at,
            before_turn=before_turn,
            max_messages=max_messages,
            max_tokens=max_tokens,
            max_bytes=max_bytes,
            count_tokens=count_tokens,
            profile=profile,
            partial_answers=partial,
            reasoning=reasoning,
            errors=errors,
        )
        return self._run(flow)

    def transcript(self, *, at: int | None = None) -> "list[Shown]":
        """Return what a person saw, partial messages too; by the seq `at`. Raises SeqNotFound."""
        return self._run(queries.show_transcript(self._core, at))

    def timeline(self) -> "list[TimedTurn]":
        """Return turns with durations, model calls, attempts, tools and tokens."""
        return self._run(queries.show_timeline(self._core))

    def entries(self, *, after: int = 0, limit: int | None = None) -> list[e.Entry]:
        """Return entries of the journal."""
        return self._run(self._core.entries(after, limit))

    def follow(self, *, after: int | str = 0) -> Following:
        """Follow entries and deltas, from any process, after a seq or a `cursor`."""
        return Following(self._core, after)

    def part_events(self, *, after: int | str = 0) -> PartEvents:
        """Follow the parts of messages: the start, the text as it grows and the end of each.

        The events of a message are the same live, resumed from a `cursor`, and after the end; how
        its text is cut into deltas is not. Nothing is left out that was rewound or hidden.
        """
        return PartEvents(self._core, after)

    def stop(
        self,
        turn_id: str | None = None,
        reason: str | None = None,
        cause: Cause = "stopped",
    ) -> str | None:
        """Ask the holder of the running turn to stop, in whatever process; the turn's id.

        The ending has this `cause`, which decides, and `reason`, which is only shown.

        None when none runs, or not this one. If interrupted: the request is recorded or it is not.
        """
        return self._run(self._core.stop(turn_id, reason, cause))

    def pause(self, why: str | None = None) -> Receipt:
        """Keep workers out of this session until `unpause`; what one has taken is void.

        If interrupted: it is paused or it is not.
        """
        return self._run(self._core.pause(why, paused=True))

    def unpause(self) -> Receipt:
        """Let workers continue this session again. If interrupted: they may or they may not."""
        return self._run(self._core.pause(None, paused=False))

    def resume_at(self, time: datetime | None) -> Receipt:
        """Let what is due be taken no earlier than this, in place of the backoff; None undoes it.

        If interrupted: it is recorded or it is not.
        """
        return self._run(self._core.resume_at(time))

    def queue(self, prompt: str | Sequence[Part] | Message, *, key: str | None = None) -> str:
        """Keep a prompt for the next turn; its id. If interrupted: kept or not, the `key` tells."""
        return self._run(self._core.queue(prompt, key))

    def steer(self, prompt: str | Sequence[Part] | Message, *, key: str | None = None) -> Steer:
        """Say something to the running turn: its loop takes it before the next model call.

        When the turn ends first, or none runs, it is a prompt that waits; `.queued` of the return
        value says that none ran.

        If interrupted: it is kept or it is not; the `key` tells.
        """
        return self._run(self._core.steer(prompt, key))

    def add_messages(
        self, messages: Sequence[Message], *, source: str, key: str | None = None
    ) -> AddedMessages:
        """Append messages that were made elsewhere, in one commit, as turns that are over.

        A user message begins a turn; what comes before one goes on with the newest. A result is
        paired with the newest call of its id that has none, also of an earlier turn; without a call
        it is kept as opaque data, and `unpaired` names it. `source` says where they come from.

        A message with an `id` is there once; so are all of them with a `key`. Others are new each
        time. Raises SessionBusy while a turn runs: record them in that.

        If interrupted: all of them are there or none.
        """
        return self._run(self._core.add_messages(messages, source, key))

    def withdraw(self, prompt_id: str) -> Receipt:
        """Take a prompt that waits out of the queue. If interrupted: it waits or it does not."""
        return self._run(self._core.withdraw(prompt_id))

    def finish_tool(
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
        return self._run(flow)

    def settle(
        self,
        turn_id: str,
        call_id: str,
        outcome: Outcome,
        *,
        result: str | None = None,
        by: SettledBy = "person",
        evidence: str | None = None,
        replaces: str | None = None,
    ) -> Receipt:
        """Record what was found out about a tool call whose outcome is unknown; no result of it.

        "ran", with what it gave if that is known, or "did_not_run"; `evidence` says how that was
        found out. The same again changes nothing, another outcome is a conflict unless `replaces`
        names the settlement before. Raises SessionBusy, CallFinished, InvalidEntry.

        If interrupted: it is recorded or it is not.
        """
        flow = self._core.settle(
            turn_id,
            call_id,
            outcome,
            result=result,
            by=by,
            evidence=evidence,
            replaces=replaces,
        )
        return self._run(flow)

    def add_late_text(self, turn_id: str, message_id: str, text: str) -> Receipt:
        """Record the whole text of an answer that was cut off; the new part is late.

        If interrupted: it is recorded or it is not.
        """
        return self._run(self._core.add_late_text(turn_id, message_id, text))

    def decide_approval(
        self,
        asked: e.ApprovalAsked,
        *,
        approved: bool,
        by: str | None = None,
        reason: str | None = None,
    ) -> Receipt:
        """Decide on exactly what was asked. If interrupted: it is recorded or it is not."""
        flow = self._core.decide_approval(asked, approved=approved, by=by, reason=reason)
        return self._run(flow)

    def fork(
        self,
        at: int | None = None,
        *,
        id: str | None = None,
        title: str | None = None,
        titled_by: Namer = "person",
        tags: Sequence[str] = (),
    ) -> "Session":
        """Begin a session with this one's entries up to `at`; none is copied.

        What began by then is there whole. Without `at`, everything so far. A title is not
        inherited. If interrupted: it exists or it does not; a given `id` tells which.
        """
        flow = HistoryCore(self._core).fork(at, id, title=title, titled_by=titled_by, tags=tags)
        return Session(self._run(flow))

    def info(self) -> SessionInfo:
        """Return what is known of the session now: title, tags, project, status, lineage."""
        return self._run(self._core.info())

    def _run(self, flow: Flow[T]) -> T:
        return run(self._core.runtime(), flow)
