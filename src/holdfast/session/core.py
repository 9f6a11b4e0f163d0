"""Sessions and turns, written once for both faces, as flows."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict

from holdfast.errors import (
    ForeignHandle,
    InvalidEntry,
    PromptQueued,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
    TurnEnded,
    TurnStopped,
)
from holdfast.journal import rules
from holdfast.journal.fold import Messages, fold_messages, fold_turns
from holdfast.journal.identity import digest, keyed_id
from holdfast.model import entries as e
from holdfast.model.messages import Message, Prompt, as_message
from holdfast.model.parts import File, Image, Json, Opaque, Text, ToolResult
from holdfast.model.sessions import Namer, SessionInfo, TurnInfo
from holdfast.session.endings import attach, ending, interruption
from holdfast.session.runtime import Runtime
from holdfast.session.steps import Flow, Pause, Write, read, write
from holdfast.stores.base import Listing, Reader, SessionRow
from holdfast.stores.buffers import StreamBuffer
from holdfast.stores.engine import Engine, IfBusy, TurnBegun, TurnStart
from holdfast.stores.standing import Claim, Receipt
from holdfast.stores.writer import Op
from holdfast.views.context import Budget, Context, compute
from holdfast.views.neutral import Partial
from holdfast.views.timeline import TimedTurn, timeline
from holdfast.views.transcript import Shown, transcript

VERIFIED_ON_OPEN: Final = 10_000
"""How many of the newest entries are checked when a session is opened; older ones when read."""

_LOOK_AGAIN_SECONDS: Final = 0.25
"""How often a caller that waits for a turn checks whether its holder still lives."""

_PAGE: Final = 1_000

Content = str | Sequence[Text | Image | File | Opaque]
"""What a tool returns: text, or parts."""


class ContextSettings(TypedDict, total=False):
    """How a context is shown: what becomes of a partial answer, and whether reasoning is sent."""

    partial: Partial
    reasoning: bool


class StoreCore:
    """What can be asked of a store."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self._runtime: Runtime | None = None

    def runtime(self) -> Runtime:
        """This process's opening of the store; opened here if there is none yet."""
        if self._runtime is None or not self._runtime.is_ours():
            self._runtime = self._make()
        return self._runtime

    def opened(self) -> Runtime | None:
        runtime = self._runtime
        return runtime if runtime is not None and runtime.is_ours() else None

    def create_session(
        self, session_id: str | None, created: e.SessionCreated
    ) -> Flow["SessionCore"]:
        runtime = self.runtime()
        rules.check_content(created)
        minted = session_id if session_id is not None else runtime.ids("ses")
        rules.check_id(minted, "session id")
        at = runtime.clock()
        row = yield from write(
            lambda engine: engine.create_session(
                session_id=minted, tenant=runtime.tenant, created=created, at_us=at
            )
        )
        if row is None:
            return (yield from self.session(minted))
        return SessionCore(self, row)

    def session(self, session_id: str) -> Flow["SessionCore"]:
        """Open a session: close a turn whose holder died, check what is read."""
        runtime = self.runtime()
        row, dead = yield from read(lambda reader: _open(runtime, reader, session_id))
        core = SessionCore(self, row)
        if dead:
            yield from core.recover()
        return core

    def sessions(self, **filters: Any) -> Flow[list[SessionInfo]]:
        listing = Listing(tenant=self.runtime().tenant, **filters)
        return (yield from read(lambda reader: reader.sessions(listing)))

    def delete_session(self, session_id: str, reason: str | None) -> Flow[Receipt]:
        runtime = self.runtime()
        row = yield from read(lambda reader: _find(runtime, reader, session_id))
        body = e.Deleted(id=runtime.ids("ent"), reason=reason)
        at = runtime.clock()
        return (yield from write(lambda engine: engine.delete_session(row.key, body, at)))

    def restore_session(self, session_id: str) -> Flow["SessionCore"]:
        runtime = self.runtime()
        row = yield from read(lambda reader: _find(runtime, reader, session_id))
        if row.about.deleted:
            yield from SessionCore(self, row).describe(e.Restored(id=runtime.ids("ent")))
        return (yield from self.session(session_id))

    def put_blob(self, data: bytes) -> Flow[str]:
        runtime = self.runtime()
        rules.check_blob(data)
        name = digest(data)
        return (
            yield from write(
                lambda engine: engine.put_blob(runtime.tenant, name, data, runtime.database.holder)
            )
        )

    def blob(self, name: str) -> Flow[bytes | None]:
        tenant = self.runtime().tenant
        return (yield from read(lambda reader: reader.blob(tenant, name)))

    def collect_blobs(self) -> Flow[int]:
        self.runtime()
        return (yield from write(lambda engine: engine.collect_blobs()))

    def counts(self) -> Flow[dict[str, int]]:
        self.runtime()
        return (yield from read(lambda reader: reader.counts()))


class SessionCore:
    """One session. `title` and `head` are as of the last read or write through this object."""

    def __init__(self, store: StoreCore, row: SessionRow) -> None:
        self._store = store
        self.key = row.key
        self.id = row.id
        self.title = row.about.title
        self.head = row.head

    def runtime(self) -> Runtime:
        return self._store.runtime()

    def saw(self, seq: int) -> None:
        self.head = max(self.head, seq)

    # -- reading -------------------------------------------------------------------------------

    def entries(self, after: int, limit: int | None) -> Flow[list[e.Entry]]:
        return (yield from read(lambda reader: self._read(reader, after, limit)))

    def _read(self, reader: Reader, after: int, limit: int | None) -> list[e.Entry]:
        entries = reader.entries(self.key, after=after, limit=limit)
        if entries:
            self.saw(entries[-1].seq)
        return entries

    def messages(self, after: int, last: int | None, limit: int | None) -> Flow[list[Message]]:
        if min(after, last or 0, limit or 0) < 0:
            raise ValueError("after, last and limit count from zero")
        if last is not None:
            return (yield from read(lambda reader: self._last_messages(reader, after, last)))
        if limit is not None:
            return (yield from read(lambda reader: self._first_messages(reader, after, limit)))
        return (yield from read(lambda reader: self._fold(reader, self._read(reader, after, None))))

    def _fold(self, reader: Reader, entries: Sequence[e.Entry]) -> list[Message]:
        return fold_messages(entries, lambda seq: _stored_deltas(reader, self.key, seq))

    def _last_messages(self, reader: Reader, after: int, last: int) -> list[Message]:
        """Read backwards until there are enough: what starts in a tail is whole in that tail."""
        tail: list[e.Entry] = []
        while True:
            before = tail[0].seq if tail else None
            page = reader.newest_entries(self.key, before=before, limit=max(last * 2, 64))
            tail = [entry for entry in page if entry.seq > after] + tail
            messages = self._fold(reader, tail)
            if len(messages) >= last or not page or page[0].seq <= after + 1:
                return messages[-last:] if last else []

    def _first_messages(self, reader: Reader, after: int, limit: int) -> list[Message]:
        """Read forwards until there are enough, then look up what ends them further on."""
        fold = Messages()
        while True:
            page = reader.entries(self.key, after=after, limit=_PAGE)
            for entry in page:
                fold.take(entry)
            after = page[-1].seq if page else after
            if len(page) == _PAGE and fold.count() < limit:
                continue
            for name in fold.awaiting():
                entry_further_on = reader.find_entry(self.key, name)
                if entry_further_on is not None and entry_further_on.seq > after:
                    fold.take(entry_further_on)
            messages = fold.finish(lambda seq: _stored_deltas(reader, self.key, seq))
            if len(messages) >= limit or len(page) < _PAGE:
                return messages[:limit]

    def turns(self) -> Flow[list[TurnInfo]]:
        return (yield from read(lambda reader: fold_turns(reader.turn_entries(self.key))))

    def context(self, format_: str, budget: Budget, options: ContextSettings) -> Flow[Context]:
        """What a model would be sent now."""
        return (yield from read(lambda reader: self._context(reader, format_, budget, options)))

    def _context(
        self, reader: Reader, format_: str, budget: Budget, options: ContextSettings
    ) -> Context:
        tenant = self.runtime().tenant
        return compute(
            self._read(reader, 0, None),
            format_,
            blobs=lambda name: reader.blob(tenant, name),
            budget=budget,
            **options,
        )

    def transcript(self) -> Flow[list[Shown]]:
        return (
            yield from read(
                lambda reader: transcript(
                    self._read(reader, 0, None), lambda seq: _stored_deltas(reader, self.key, seq)
                )
            )
        )

    def timeline(self) -> Flow[list[TimedTurn]]:
        return (yield from read(lambda reader: timeline(self._read(reader, 0, None))))

    # -- about the session ---------------------------------------------------------------------

    def describe(self, body: e.Body) -> Flow[Receipt]:
        """Append an entry that any process may append while a turn runs."""
        rules.check_content(body)
        at = self.runtime().clock()
        receipt, row = yield from write(lambda engine: engine.about(self.key, body, at))
        self.title = row.about.title
        self.saw(receipt.seq)
        return receipt

    def rename(self, title: str | None, by: Namer) -> Flow[Receipt]:
        return self.describe(e.Renamed(id=self.runtime().ids("ent"), title=title, by=by))

    def archive(self, *, archived: bool) -> Flow[Receipt]:
        return self.describe(e.Archived(id=self.runtime().ids("ent"), archived=archived))

    def note(self, name: str, data: Json, key: str | None) -> Flow[Receipt]:
        if key is not None:
            rules.check_id(key, "key")
        note_id = keyed_id("ent", self.id, key) if key is not None else self.runtime().ids("ent")
        return self.describe(e.Note(id=note_id, name=name, data=data))

    def recover(self) -> Flow[bool]:
        at = self.runtime().clock()
        return (yield from write(lambda engine: engine.recover(self.key, at)))

    # -- turns ---------------------------------------------------------------------------------

    def turn(self, prompt: Prompt, options: "TurnOptions") -> "TurnCore":
        return TurnCore(self, prompt, options)

    def stop(self, turn_id: str | None, reason: str) -> Flow[bool]:
        """Ask whoever holds the running turn to stop; False when it is not running."""
        runtime = self.runtime()
        body = e.StopAsked(id=runtime.ids("ent"), turn_id=turn_id or "", reason=reason or "stopped")
        at = runtime.clock()
        stopped = yield from write(lambda engine: engine.stop(self.key, body, at))
        if stopped is not None:
            runtime.deliver_stop(stopped, body.reason)
        return stopped is not None

    def queue(self, prompt: Prompt, key: str | None) -> Flow[str]:
        """Keep a prompt for the next turn; its id."""
        runtime = self.runtime()
        if prompt is None:
            raise InvalidEntry("there is no prompt to keep")
        if key is not None:
            rules.check_id(key, "key")
        message = self._prompt(prompt, "", key)
        at = runtime.clock()
        yield from write(lambda engine: engine.queue(self.key, message, at))
        return message.id

    def finish_tool(
        self, turn_id: str, call_id: str, content: Content, *, is_error: bool, structured: Json
    ) -> Flow[Receipt]:
        result = tool_result(call_id, content, is_error=is_error, structured=structured)
        at = self.runtime().clock()
        receipt = yield from write(
            lambda engine: engine.finish_tool(self.key, turn_id, call_id, result, None, at)
        )
        self.saw(receipt.seq)
        return receipt

    def add_late_text(self, turn_id: str, message_id: str, text: str) -> Flow[Receipt]:
        at = self.runtime().clock()
        return (
            yield from write(
                lambda engine: engine.add_late_text(self.key, turn_id, message_id, text, at)
            )
        )

    def decide_approval(self, body: e.ApprovalDecided) -> Flow[Receipt]:
        at = self.runtime().clock()
        return (yield from write(lambda engine: engine.decide_approval(self.key, body, at)))

    def _prompt(self, prompt: Prompt, turn_id: str, key: str | None) -> e.MessageRecorded:
        assert prompt is not None
        message = as_message(prompt)
        minted = keyed_id("msg", self.id, key) if key is not None else self.runtime().ids("msg")
        body = e.MessageRecorded(
            id=message.id or minted,
            turn_id=turn_id,
            role=message.role,
            parts=tuple(message.parts),
        )
        rules.check_content(body)
        return body


class TurnOptions:
    """How a turn is to begin."""

    __slots__ = ("continues", "if_busy", "key", "retry_of", "wait_seconds")

    def __init__(
        self,
        *,
        key: str | None,
        if_busy: IfBusy,
        continues: str | None,
        retry_of: str | None,
        wait_seconds: float | None,
    ) -> None:
        if if_busy not in ("refuse", "wait", "queue", "interrupt", "take_over"):
            raise ValueError(
                f'if_busy={if_busy!r}; it is "refuse", "wait", "queue", "interrupt" or "take_over"'
            )
        if key is not None:
            rules.check_id(key, "key")
        self.key = key
        self.if_busy = if_busy
        self.continues = continues
        self.retry_of = retry_of
        self.wait_seconds = wait_seconds


class TurnCore:
    """A turn from the moment its block is entered until it has its ending."""

    def __init__(self, session: SessionCore, prompt: Prompt, options: TurnOptions) -> None:
        self.session = session
        self.key = session.key
        self.runtime = session.runtime()
        self._prompt = prompt
        self._options = options
        self._buffers: dict[int, StreamBuffer] = {}
        self.claim = Claim("", 0)
        self.repeated = False
        self.over = True
        self.status: str = "running"
        self.reason: str | None = None
        self.stop_reason: str | None = None
        self.on_stop: Callable[[], None] | None = None
        self.seals: dict[str, Op[None]] = {}

    # -- the block -----------------------------------------------------------------------------

    def enter(self) -> Flow[None]:
        """Take the lease and make the prompt durable.

        If interrupted: a turn that was begun all the same is ended as interrupted first.
        """
        options = self._options
        key = options.key
        turn_id = keyed_id("turn", self.session.id, key) if key else self.runtime.ids("turn")
        prompt = None
        if self._prompt is not None:
            prompt = self.session._prompt(self._prompt, turn_id, key)
        start = TurnStart(
            turn_id=turn_id,
            holder=self.runtime.database.holder,
            prompt=prompt,
            key=key,
            continues=options.continues,
            retry_of=options.retry_of,
            if_busy=options.if_busy,
        )
        try:
            begun = yield from self._begin(start)
            self._begun(begun, start)
        except GeneratorExit:
            self.runtime.post(self._undo_begin(turn_id, "closed"))
            raise
        except Exception:
            raise
        except BaseException as error:
            reason = ending(turn_id, error).reason or "interrupted"
            yield from write(self._undo_begin(turn_id, reason))
            raise

    def _undo_begin(self, turn_id: str, reason: str) -> Callable[[Engine], object]:
        if self._options.key is not None and self.repeated:
            return lambda engine: None
        at = self.runtime.clock()
        return lambda engine: engine.interrupt_turn(self.key, turn_id, reason, at)

    def _begin(self, start: TurnStart) -> Flow[TurnBegun]:
        wait = self._options.wait_seconds
        deadline = None if wait is None else time.monotonic() + wait
        stopped = None
        while True:
            since = self.runtime.watcher.generation
            at = self.runtime.clock()
            try:
                return (yield from write(lambda engine: engine.start_turn(self.key, start, at)))  # noqa: B023
            except SessionBusy as busy:
                if start.if_busy not in ("wait", "interrupt"):
                    raise
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                running = busy.turn_id
            if start.if_busy == "interrupt" and running != stopped:
                stopped = running
                yield from self.session.stop(running, "interrupted by the next turn")
            yield from self._until_free(since, deadline)

    def _until_free(self, since: int, deadline: float | None) -> Flow[None]:
        """Wait until the running turn has ended, its holder has died, or time is over."""
        with self.runtime.watcher.following():
            while deadline is None or time.monotonic() < deadline:
                if (yield from read(self._is_free)):
                    return
                yield Pause(since, _LOOK_AGAIN_SECONDS)
                since = self.runtime.watcher.generation

    def _is_free(self, reader: Reader) -> bool:
        row = reader.session(self.key)
        return row is None or _is_dead(self.runtime, reader, row) or row.turn_seq is None

    def _begun(self, begun: TurnBegun, start: TurnStart) -> None:
        if begun.queued is not None:
            assert begun.busy is not None
            assert start.prompt is not None
            turn_id, holder = begun.busy
            raise PromptQueued(
                f"session {self.session.id!r} is busy with turn {turn_id!r} in {holder}; the "
                f"prompt is kept as {start.prompt.id!r} and the next turn takes it",
                turn_id=turn_id,
                holder=holder,
                prompt_id=start.prompt.id,
            )
        self.claim = begun.claim
        self.repeated = begun.repeated
        self.session.saw(begun.head)
        if begun.repeated:
            if begun.ended is not None:
                self.status, self.reason = begun.ended.status, begun.ended.reason
            return
        self.over = False
        self.runtime.turn_began(self)

    def leave(self, error: BaseException | None) -> Flow[None]:
        """Give the turn its one ending.

        If interrupted: the ending is written all the same; only the wait for it is given up.
        """
        if self.over or not self.runtime.is_ours():
            return
        cause = error
        if error is not None and self.stop_reason is not None and interruption(error):
            cause = TurnStopped("asked to stop", reason=self.stop_reason)
        body = ending(self.claim.turn_id, cause)
        self._ended()
        try:
            outcome = yield from write(self._end_write(body))
        except Exception as failure:
            if error is None:
                raise
            attach(error, failure)
            return
        if isinstance(outcome, TurnEnded):
            self.status, self.reason = outcome.status or "interrupted", outcome.reason
            if error is None:
                raise outcome
            attach(error, outcome)
            return
        self.status, self.reason = body.status, body.reason
        self.session.saw(outcome.seq)

    def _end_write(self, body: e.TurnEnded) -> Callable[[Engine], Receipt | TurnEnded]:
        buffers = list(self._buffers.values())
        at = self.runtime.clock()
        return lambda engine: engine.end_turn(self.key, self.claim, body, buffers, at)

    def _ended(self) -> None:
        self.over = True
        self.runtime.turn_ended(self.claim.turn_id)

    def close_write(self, reason: str) -> Callable[[Engine], object]:
        """The store is being closed, or nobody holds the turn any more: end it as interrupted."""
        self.over = True
        self.status, self.reason = "interrupted", reason
        body = e.TurnEnded(turn_id=self.claim.turn_id, status="interrupted", reason=reason)
        return self._end_write(body)

    def abandon(self) -> None:
        """The last reference is gone. Only enqueues: a finaliser may run on any thread."""
        if not self.over and self.runtime.is_ours() and not self.runtime.closed:
            self.runtime.post(self.close_write("abandoned"))
            self.runtime.turn_ended(self.claim.turn_id)

    def stop(self, reason: str) -> None:
        """Somebody asked for it: the next call on this turn raises; a waiting task is cancelled."""
        if self.stop_reason is None and not self.over:
            self.stop_reason = reason
            if self.on_stop is not None:
                self.on_stop()

    # -- inside the block ----------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise what stands in the way of one more write in this turn."""
        if not self.runtime.is_ours():
            raise ForeignHandle(
                "this turn was inherited through fork() and belongs to the parent process; start "
                "a turn of your own"
            )
        if self.stop_reason is not None and not self.over:
            raise TurnStopped(
                f"the turn was asked to stop: {self.stop_reason}", reason=self.stop_reason
            )
        if self.over:
            if self.repeated:
                raise TurnEnded(f"turn {self.claim.turn_id!r} was begun before with the same key")
            raise TurnEnded(f"turn {self.claim.turn_id!r} has ended; start a new turn")

    def append(self, *bodies: e.Body) -> Write[Receipt]:
        """Fenced entries, all or none; the receipt is that of the last."""
        self.check_open()
        for body in bodies:
            rules.check_content(body)
        at = self.runtime.clock()
        claim, key, session = self.claim, self.key, self.session
        return Write(
            lambda engine: engine.append(key, claim, bodies, at)[-1],
            lambda receipt: session.saw(receipt.seq),
        )

    def record(self, message: Message) -> Write[Receipt]:
        body = e.MessageRecorded(
            id=message.id or self.runtime.ids("msg"),
            turn_id=self.claim.turn_id,
            role=message.role,
            parts=tuple(message.parts),
            model_call_id=message.model_call_id,
        )
        return self.append(body)

    def ask_approval(self, call_id: str, arguments: str) -> Flow[e.ApprovalAsked]:
        """Record that a call waits for a person, bound to its exact arguments."""
        self.check_open()
        approval_id, at = self.runtime.ids("ent"), self.runtime.clock()
        hashed = digest(arguments.encode("utf-8", "surrogatepass"))
        return (
            yield from write(
                lambda engine: engine.ask_approval(
                    self.key, self.claim, approval_id, call_id, hashed, at
                )
            )
        )

    # -- its streams ---------------------------------------------------------------------------

    def open_buffer(self, seq: int) -> StreamBuffer:
        buffer = StreamBuffer(
            key=self.key,
            seq=seq,
            turn_id=self.claim.turn_id,
            fence=self.claim.fence,
            wake=self.runtime.writer,
            limit=self.runtime.buffer_bytes,
        )
        self._buffers[seq] = buffer
        return buffer

    def close_buffer(self, buffer: StreamBuffer) -> None:
        self._buffers.pop(buffer.seq, None)


def tool_result(call_id: str, content: Content, *, is_error: bool, structured: Json) -> ToolResult:
    kept = content if isinstance(content, str) else tuple(content)
    return ToolResult(call_id, kept, is_error=is_error, structured=structured)


def _stored_deltas(reader: Reader, key: int, seq: int) -> list[e.Delta]:
    return [delta for _, flush in reader.deltas(key, seq) for delta in flush]


def _find(runtime: Runtime, reader: Reader, session_id: str) -> SessionRow:
    row = reader.find_session(runtime.tenant, session_id)
    if row is None:
        raise SessionNotFound(
            f"no session {session_id!r} in this store; store.sessions() lists them"
        )
    return row


def _open(runtime: Runtime, reader: Reader, session_id: str) -> tuple[SessionRow, bool]:
    row = _find(runtime, reader, session_id)
    if row.about.deleted:
        raise SessionDeleted(
            f"session {session_id!r} was deleted; restore it with store.restore_session()"
        )
    verified = runtime.verified.get(row.key, 0)
    if verified < row.head:
        oldest = max(verified, row.head - VERIFIED_ON_OPEN)
        reader.entries(row.key, after=oldest)
        runtime.verified[row.key] = row.head
    return row, _is_dead(runtime, reader, row)


def _is_dead(runtime: Runtime, reader: Reader, row: SessionRow) -> bool:
    """Whether a turn is recorded as running whose holder does not exist any more."""
    if row.turn_seq is None:
        return False
    started = reader.entries(row.key, after=row.turn_seq - 1, limit=1)[0].body
    assert isinstance(started, e.TurnStarted)
    return not runtime.database.is_alive(started.holder)
