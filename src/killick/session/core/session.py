"""Sessions and turns, written once for both faces, as flows."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from killick.errors import BlobNotFound, InvalidEntry, SessionNotFound
from killick.journal import checks
from killick.journal.fold import Messages, fold_messages, fold_turns
from killick.journal.kinds import TURNS, digest, keyed_id
from killick.journal.summary import Total, add_up
from killick.journal.visibility import History, in_view
from killick.maintenance.erase import CareCore, info_of, not_found
from killick.model import entries as e
from killick.model.messages import (
    File,
    Image,
    Json,
    Message,
    Opaque,
    Prompt,
    Text,
    ToolResult,
    as_message,
)
from killick.model.sessions import Namer, Project, SessionInfo, TurnInfo
from killick.search.results import Hits
from killick.session.arguments import check_count, check_counts, check_names
from killick.session.core.history import ForkSettings, HistoryCore, read_deltas, read_history
from killick.session.core.turn import TurnCore, TurnOptions
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import Runtime, is_dead
from killick.stores import engine as ops
from killick.stores.contract import Listing, Reader, SessionRow, UsageQuery
from killick.stores.engine.state import EngineState, Receipt

if TYPE_CHECKING:  # the options stand on this module
    from killick.session.core.queries import ActiveDay, ActivityFilters, Changes
    from killick.session.options import Progress, SearchFilters
    from killick.views.context import Context
    from killick.views.timeline import TimedTurn
    from killick.views.transcript import Shown

VERIFIED_ON_OPEN: Final = 10_000
"""How many of the newest entries are checked when a session is opened; older ones when read."""

_PAGE: Final = 1_000
_LISTED_MAX: Final = 1_000_000

Content = str | Sequence[Text | Image | File | Opaque]
"""What a tool returns: text, or parts."""


class ContextSettings(TypedDict, total=False):
    """How a context is shown: how much, what becomes of a partial answer, and of reasoning."""

    max_messages: int | None
    max_tokens: int | None
    partial: Literal["note", "plain", "omit"]
    reasoning: bool


class StoreCore:
    """What can be asked of a store."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self._runtime: Runtime | None = None
        # One for each process: a child may inherit one that a thread of its parent holds.
        self._opening: dict[int, threading.RLock] = {}
        self.care = CareCore(self)

    def runtime(self) -> Runtime:
        """This process's opening of the store; opened here, once, if there is none yet."""
        runtime = self.opened()
        if runtime is not None:
            return runtime
        with self._opening.setdefault(os.getpid(), threading.RLock()):
            runtime = self.opened()
            if runtime is None:
                runtime = self._runtime = self._make()
        return runtime

    def opened(self) -> Runtime | None:
        runtime = self._runtime
        return runtime if runtime is not None and runtime.is_ours() else None

    def create_session(
        self, session_id: str | None, created: e.SessionCreated
    ) -> Flow["SessionCore"]:
        runtime = self.runtime()
        checks.check_content(created)
        minted = session_id if session_id is not None else runtime.ids("ses")
        checks.check_id(minted, "session id")
        at = runtime.clock()
        row = yield from write(
            lambda engine: ops.create_session(
                engine, session_id=minted, tenant=runtime.tenant, created=created, at_us=at
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

    def sessions(self, filters: dict[str, Any]) -> Flow[list[SessionInfo]]:
        listing = Listing(tenant=self.runtime().tenant, **filters)
        if not 0 <= listing.limit <= _LISTED_MAX:
            raise ValueError(f"limit={listing.limit}; it counts from 0 to {_LISTED_MAX}")
        return (yield from read(lambda reader: reader.sessions(listing)))

    def usage(self, by: str, filters: dict[str, Any]) -> Flow[list[Total]]:
        query = UsageQuery(tenant=self.runtime().tenant, **filters)
        return (yield from read(lambda reader: add_up(reader.usage(query), by)))

    def search(self, words: str, filters: "SearchFilters") -> Flow[Hits]:
        from killick.session.core.queries import search

        return search(self.runtime(), words, filters)

    def rebuild_search(self, *, substrings: bool | None, progress: "Progress | None") -> Flow[int]:
        from killick.session.core.queries import rebuild_search

        return rebuild_search(self.runtime(), substrings=substrings, progress=progress)

    def delete_session(
        self, session_id: str, reason: str | None, as_of_us: int | None = None
    ) -> Flow[Receipt]:
        runtime = self.runtime()
        row = yield from read(lambda reader: _find(runtime, reader, session_id))
        body = e.Deleted(id=runtime.ids("ent"), reason=reason)
        at = runtime.clock()
        return (
            yield from write(
                lambda engine: ops.delete_session(engine, row.key, body, at, as_of_us=as_of_us)
            )
        )

    def restore_session(self, session_id: str) -> Flow["SessionCore"]:
        runtime = self.runtime()
        row = yield from read(lambda reader: _find(runtime, reader, session_id))
        if row.about.deleted:
            yield from SessionCore(self, row).describe(e.Restored(id=runtime.ids("ent")))
        return (yield from self.session(session_id))

    def put_blob(self, data: bytes) -> Flow[str]:
        runtime = self.runtime()
        checks.check_blob(data)
        name = digest(data)
        return (
            yield from write(
                lambda engine: ops.put_blob(
                    engine, runtime.tenant, name, data, runtime.database.holder
                )
            )
        )

    def blob(self, name: str) -> Flow[bytes]:
        tenant = self.runtime().tenant
        data = yield from read(lambda reader: reader.blob(tenant, name))
        if data is None:
            raise BlobNotFound(f"no blob {name!r} is stored for this tenant")
        return data

    def collect_blobs(self) -> Flow[int]:
        self.runtime()
        return (yield from write(lambda engine: ops.collect_blobs(engine)))

    def counts(self) -> Flow[dict[str, int]]:
        self.runtime()
        return (yield from read(lambda reader: reader.counts()))

    def openings(self, session_ids: Sequence[str]) -> Flow[dict[str, str]]:
        from killick.session.core.queries import openings

        return openings(self.runtime(), session_ids)

    def activity(self, filters: "ActivityFilters") -> "Flow[list[ActiveDay]]":
        from killick.session.core.queries import activity

        return activity(self.runtime(), filters)


class SessionCore:
    """One session. `title` and `head` are as of the last read or write through this object."""

    def __init__(self, store: StoreCore, row: SessionRow) -> None:
        self._store = store
        self.key = row.key
        self.id = row.id
        self.title = row.about.title
        self.head = row.head
        self.history = HistoryCore(self)

    def runtime(self) -> Runtime:
        return self._store.runtime()

    def saw(self, seq: int) -> None:
        self.head = max(self.head, seq)

    def write(self, apply: Callable[[EngineState], Receipt]) -> Flow[Receipt]:
        """Wait for a write of one entry, and know of it."""
        receipt = yield from write(apply)
        self.saw(receipt.seq)
        return receipt

    # -- reading -------------------------------------------------------------------------------

    def row(self, reader: Reader) -> SessionRow:
        """What is known of the session now."""
        row = reader.session(self.key)
        if row is None:
            raise SessionNotFound(f"session {self.id!r} does not exist any more; it was erased")
        self.title = row.about.title
        self.saw(row.head)
        return row

    def info(self) -> Flow[SessionInfo]:
        return (yield from read(lambda reader: info_of(self.row(reader))))

    def entries(self, after: int, limit: int | None) -> Flow[list[e.Entry]]:
        return (yield from read(lambda reader: self.read_entries(reader, after, limit)))

    def read_entries(self, reader: Reader, after: int, limit: int | None) -> list[e.Entry]:
        check_count("after", after)
        check_counts(limit=limit)
        self.row(reader)
        return reader.entries(self.key, after=after, limit=limit)

    def messages(self, after: int, last: int | None, limit: int | None) -> Flow[list[Message]]:
        check_count("after", after)
        check_counts(last=last, limit=limit)
        if last is not None:
            return (yield from read(lambda reader: self._last_messages(reader, after, last)))
        if limit is not None:
            return (yield from read(lambda reader: self._first_messages(reader, after, limit)))
        return (yield from read(lambda reader: self._all_messages(reader, after)))

    def _all_messages(self, reader: Reader, after: int) -> list[Message]:
        history = read_history(reader, self.key)
        return self._fold(reader, history, self.read_entries(reader, after, None))

    def _fold(self, reader: Reader, history: History, entries: list[e.Entry]) -> list[Message]:
        return fold_messages(in_view(history, entries), partial(read_deltas, reader, self.key))

    def _last_messages(self, reader: Reader, after: int, last: int) -> list[Message]:
        """Read backwards until there are enough: what starts in a tail is whole in that tail."""
        self.row(reader)
        history = read_history(reader, self.key)
        tail: list[e.Entry] = []
        while True:
            before = tail[0].seq if tail else None
            page = reader.newest_entries(self.key, before=before, limit=max(last * 2, 64))
            tail = [entry for entry in page if entry.seq > after] + tail
            messages = self._fold(reader, history, tail)
            if len(messages) >= last or not page or page[0].seq <= after + 1:
                return messages[-last:] if last else []

    def _first_messages(self, reader: Reader, after: int, limit: int) -> list[Message]:
        """Read forwards until there are enough, then look up what ends them further on."""
        self.row(reader)
        fold, history = Messages(), read_history(reader, self.key)
        while True:
            page = reader.entries(self.key, after=after, limit=_PAGE)
            for entry in in_view(history, page):
                fold.take(entry)
            after = page[-1].seq if page else after
            if len(page) == _PAGE and fold.count() < limit:
                continue
            for name in fold.awaiting():
                entry_further_on = reader.find_entry(self.key, name)
                if entry_further_on is not None and entry_further_on.seq > after:
                    for entry in in_view(history, [entry_further_on]):
                        fold.take(entry)
            messages = fold.finish(partial(read_deltas, reader, self.key))
            if len(messages) >= limit or len(page) < _PAGE:
                return messages[:limit]

    def turns(self) -> Flow[list[TurnInfo]]:
        return (yield from read(self._turns))

    def _turns(self, reader: Reader) -> list[TurnInfo]:
        self.row(reader)
        return fold_turns(reader.marked_entries(self.key, TURNS))

    def context(self, format_: str, settings: ContextSettings) -> "Flow[Context]":
        from killick.session.core.queries import show_context

        check_names(settings, ContextSettings, "context()")
        check_counts(
            max_messages=settings.get("max_messages"), max_tokens=settings.get("max_tokens")
        )
        return show_context(self, format_, settings)

    def transcript(self) -> "Flow[list[Shown]]":
        from killick.session.core.queries import show_transcript

        return show_transcript(self)

    def timeline(self) -> "Flow[list[TimedTurn]]":
        from killick.session.core.queries import show_timeline

        return show_timeline(self)

    def changes(self, after: int) -> "Flow[Changes]":
        from killick.session.core.queries import changes

        return changes(self, after)

    def blob(self, name: str) -> Flow[bytes]:
        return self._store.blob(name)

    def queued(self) -> Flow[list[Message]]:
        from killick.session.core.queries import queued

        return queued(self)

    def approvals(self) -> Flow[list[e.ApprovalAsked]]:
        from killick.session.core.queries import approvals

        return approvals(self)

    # -- about the session ---------------------------------------------------------------------

    def describe(self, body: e.Body) -> Flow[Receipt]:
        """Append an entry that any process may append while a turn runs."""
        checks.check_content(body)
        at = self.runtime().clock()
        receipt, row = yield from write(lambda engine: ops.about(engine, self.key, body, at))
        self.title = row.about.title
        self.saw(receipt.seq)
        return receipt

    def rename(self, title: str | None, by: Namer) -> Flow[Receipt]:
        return self.describe(e.Renamed(id=self.runtime().ids("ent"), title=title, by=by))

    def archive(self, *, archived: bool) -> Flow[Receipt]:
        return self.describe(e.Archived(id=self.runtime().ids("ent"), archived=archived))

    def pin(self, *, pinned: bool) -> Flow[Receipt]:
        return self.describe(e.Pinned(id=self.runtime().ids("ent"), pinned=pinned))

    def tag(self, add: Sequence[str], remove: Sequence[str]) -> Flow[Receipt]:
        put_on, taken_off = checks.as_tags(add), checks.as_tags(remove)
        return self.describe(e.Tagged(id=self.runtime().ids("ent"), add=put_on, remove=taken_off))

    def move(self, project: Project | None) -> Flow[Receipt]:
        return self.describe(e.Moved(id=self.runtime().ids("ent"), project=project))

    def fork(self, at: int | None, settings: ForkSettings) -> Flow["SessionCore"]:
        row = yield from self.history.fork(at, settings)
        if row is None:
            return (yield from self._store.session(settings["id"]))
        return SessionCore(self._store, row)

    def note(self, name: str, data: Json, key: str | None) -> Flow[Receipt]:
        if key is not None:
            checks.check_id(key, "key")
        note_id = keyed_id("ent", self.id, key) if key is not None else self.runtime().ids("ent")
        return self.describe(e.Note(id=note_id, name=name, data=data))

    def recover(self) -> Flow[bool]:
        runtime = self.runtime()
        at = runtime.clock()
        recovered = yield from write(lambda engine: ops.recover(engine, self.key, at))
        runtime.writer.tally.recovered += recovered
        return recovered

    # -- turns ---------------------------------------------------------------------------------

    def turn(self, prompt: Prompt, options: TurnOptions) -> TurnCore:
        return TurnCore(self, prompt, options)

    def stop(self, turn_id: str | None, reason: str) -> Flow[bool]:
        """Ask whoever holds the running turn to stop; False when it is not running."""
        runtime = self.runtime()
        if turn_id is not None:
            checks.check_id(turn_id, "id of a turn")
        body = e.StopAsked(id=runtime.ids("ent"), turn_id=turn_id or "", reason=reason or "stopped")
        at = runtime.clock()
        stopped = yield from write(lambda engine: ops.stop(engine, self.key, body, at))
        if stopped is None:
            return False
        stopped_id, seq = stopped
        self.saw(seq)
        runtime.deliver_stop(stopped_id, body.reason)
        return True

    def queue(self, prompt: Prompt, key: str | None) -> Flow[str]:
        """Keep a prompt for the next turn; its id."""
        runtime = self.runtime()
        if prompt is None:
            raise InvalidEntry("there is no prompt to keep")
        if key is not None:
            checks.check_id(key, "key")
        message = self.prompt(prompt, "", key)
        at = runtime.clock()
        yield from self.write(lambda engine: ops.queue(engine, self.key, message, at))
        return message.id

    def withdraw(self, prompt_id: str) -> Flow[Receipt]:
        """Take a prompt that waits out of the queue."""
        checks.check_id(prompt_id, "prompt id")
        at = self.runtime().clock()
        return self.write(lambda engine: ops.withdraw(engine, self.key, prompt_id, at))

    def finish_tool(
        self, turn_id: str, call_id: str, content: Content, *, is_error: bool, structured: Json
    ) -> Flow[Receipt]:
        checks.check_id(call_id, "tool call id")
        result = tool_result(call_id, content, is_error=is_error, structured=structured)
        at = self.runtime().clock()
        return self.write(
            lambda engine: ops.finish_tool(engine, self.key, turn_id, call_id, result, None, at)
        )

    def add_late_text(self, turn_id: str, message_id: str, text: str) -> Flow[Receipt]:
        checks.check_id(message_id, "message id")
        checks.check_text(text, "late text")
        at = self.runtime().clock()
        return self.write(
            lambda engine: ops.add_late_text(engine, self.key, turn_id, message_id, text, at)
        )

    def decide_approval(self, body: e.ApprovalDecided) -> Flow[Receipt]:
        at = self.runtime().clock()
        return self.write(lambda engine: ops.decide_approval(engine, self.key, body, at))

    def prompt(self, prompt: Prompt, turn_id: str, key: str | None) -> e.MessageRecorded:
        assert prompt is not None
        if not isinstance(prompt, str | Message):
            prompt = checks.as_parts(prompt, "a prompt is text, a list of parts, or a Message")
        message = as_message(prompt)
        minted = keyed_id("msg", self.id, key) if key is not None else self.runtime().ids("msg")
        body = e.MessageRecorded(
            id=message.id or minted,
            turn_id=turn_id,
            role=message.role,
            parts=checks.as_parts(message.parts, "the parts of a message are a list"),
        )
        checks.check_content(body)
        return body


def tool_result(call_id: str, content: Content, *, is_error: bool, structured: Json) -> ToolResult:
    """A result as it is recorded. Raises InvalidEntry for what is over a limit."""
    kept = (
        content
        if isinstance(content, str)
        else checks.as_parts(content, "a tool's result is text, or a list of parts")
    )
    result = ToolResult(call_id, kept, is_error=is_error, structured=structured)
    checks.check_result(result)
    return result


def _find(runtime: Runtime, reader: Reader, session_id: str) -> SessionRow:
    row = reader.find_session(runtime.tenant, session_id)
    if row is None:
        raise not_found(reader, runtime.tenant, session_id)
    return row


def _open(runtime: Runtime, reader: Reader, session_id: str) -> tuple[SessionRow, bool]:
    row = _find(runtime, reader, session_id)
    checks.check_live(session_id=session_id, deleted=row.about.deleted)
    verified = runtime.verified.get(row.key, 0)
    if verified < row.head:
        oldest = max(verified, row.head - VERIFIED_ON_OPEN)
        reader.entries(row.key, after=oldest)
        runtime.verified[row.key] = row.head
    return row, is_dead(reader, row)
