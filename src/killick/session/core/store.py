"""A store, written once for both faces, as flows: creating, finding, listing, deleting sessions."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final, TypeVar

import msgspec

from killick.errors import IdConflict, InvalidEntry
from killick.journal import checks
from killick.journal.checks import check_is, check_kinds
from killick.journal.codec import check_value
from killick.journal.kinds import digest
from killick.journal.summary import Total
from killick.model import entries as e
from killick.model.limits import EARLIEST_US, LATEST_US
from killick.model.messages import plain
from killick.model.sessions import Limits, Namer, Parent, Project, SessionInfo, microseconds
from killick.session.core import figures
from killick.session.core.figures import FIRST_DAY, Totals, UsageBy
from killick.session.core.session import SessionCore, find_row, open_session
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import StoreOpening
from killick.stores import engine as ops
from killick.stores.contract import Listing, SessionRow, UsageQuery
from killick.stores.engine.state import EngineState, Receipt

_LISTED_MAX: Final = 1_000_000
_IDS: Final = ("id", "turn_id", "message_id", "call_id")

Q = TypeVar("Q", Listing, UsageQuery)


class StoreCore(StoreOpening):
    """A store, opened when it is first needed."""

    # -- sessions ------------------------------------------------------------------------------

    def create_session(
        self,
        session_id: str | None,
        *,
        title: str | None,
        titled_by: Namer,
        session_type: str,
        project: Project | None,
        tags: Sequence[str],
        extra: dict[str, Any] | None,
        parent: Parent | None,
        limits: Limits | None = None,
    ) -> Flow[SessionCore]:
        """Begin a session.

        If interrupted: it exists or it does not.
        """
        core, create = self.plan_session(
            session_id,
            title=title,
            titled_by=titled_by,
            session_type=session_type,
            project=project,
            tags=tags,
            extra=extra,
            parent=parent,
            limits=limits,
        )
        if (yield from create):
            return core
        return (yield from open_session(self, core.id))

    def plan_session(
        self,
        session_id: str | None,
        *,
        title: str | None,
        titled_by: Namer,
        session_type: str,
        project: Project | None,
        tags: Sequence[str] = (),
        extra: dict[str, Any] | None,
        parent: Parent | None,
        limits: Limits | None = None,
    ) -> tuple[SessionCore, Flow[bool]]:
        """Return a session that is still to begin, and the flow that begins it.

        What is written with that flow, and behind it, may be about the session. The flow gives
        False if the session exists already, with the same beginning.
        """
        runtime = self.runtime()
        created = e.SessionCreated(
            type=session_type,
            title=title,
            titled_by=titled_by if title is not None else None,
            project=project,
            tags=checks.as_tags(tags),
            extra={} if extra is None else extra,
            parent=parent,
            limits=limits,
        )
        checks.check_content(created)
        minted = plain(session_id) if session_id is not None else runtime.ids("ses")
        checks.check_id(minted, "session id")
        at, tenant = runtime.clock(), runtime.tenant
        core = SessionCore(
            self, SessionRow(key=0, id=minted, tenant=tenant, head=0, created_at_us=at)
        )

        def create(engine: EngineState) -> bool:
            row = ops.create_session(
                engine, session_id=minted, tenant=tenant, created=created, at_us=at
            )
            begun = row or engine.tx.find_session(tenant, minted)
            if begun is not None:
                core.key, core.title, core.head = begun.key, begun.about.title, begun.head
            return row is not None

        return core, write(create)

    def open_session(self, session_id: str, **beginning: Any) -> Flow[SessionCore]:
        """Open a session, or create it with this beginning.

        If interrupted: it exists or it does not.
        """
        checks.check_id(session_id, "session id")
        tenant = self.runtime().tenant
        if (yield from read(lambda reader: reader.find_session(tenant, session_id))) is None:
            try:
                return (yield from self.create_session(session_id, **beginning))
            except IdConflict:
                pass  # another process was faster
        return (yield from open_session(self, session_id))

    def sessions(
        self,
        *,
        since: datetime | None,
        until: datetime | None,
        before: SessionInfo | None,
        archived: bool | None,
        **filters: Any,
    ) -> Flow[list[SessionInfo]]:
        check_kinds("sessions()", datetime, since=since, until=until)
        check_kinds("sessions()", SessionInfo, before=before)
        listing = _query(
            "sessions()",
            Listing,
            tenant=self.runtime().tenant,
            since_us=None if since is None else microseconds(since),
            until_us=None if until is None else microseconds(until),
            before=None if before is None else (before.updated_at_us, before.id),
            archived=archived,
            **{name: value for name, value in filters.items() if value is not None},
        )
        if not 0 <= listing.limit <= _LISTED_MAX:
            raise ValueError(f"limit={listing.limit}; it counts from 0 to {_LISTED_MAX}")
        return (yield from read(lambda reader: reader.sessions(listing)))

    def delete_session(
        self, session_id: str, reason: str | None, as_of_us: int | None = None
    ) -> Flow[Receipt]:
        runtime = self.runtime()
        row = yield from read(lambda reader: find_row(reader, runtime.tenant, session_id))
        body = e.Deleted(id=runtime.ids("ent"), reason=reason)
        at = runtime.clock()
        return (
            yield from write(
                lambda engine: ops.delete_session(engine, row.key, body, at, as_of_us=as_of_us)
            )
        )

    def has_session(self, session_id: str) -> Flow[bool]:
        tenant = self.runtime().tenant
        row = yield from read(lambda reader: reader.find_session(tenant, session_id))
        return row is not None and not row.about.deleted

    def restore_session(self, session_id: str) -> Flow[SessionCore]:
        runtime = self.runtime()
        row = yield from read(lambda reader: find_row(reader, runtime.tenant, session_id))
        if row.about.deleted:
            yield from SessionCore(self, row).describe(e.Restored(id=runtime.ids("ent")))
        return (yield from open_session(self, session_id))

    def import_entries(
        self, session_id: str, entries: Sequence[e.Entry], *, hold: bool = False
    ) -> Flow[Receipt]:
        """Append entries that were made elsewhere."""
        tenant, session_id = self.runtime().tenant, plain(session_id)
        holder = self.runtime().database.holder if hold else None
        checks.check_id(session_id, "session id")
        if not entries:
            raise InvalidEntry("there is no entry to import")
        for entry in entries:
            _check_imported(entry)
        return (
            yield from write(
                lambda engine: ops.import_entries(engine, session_id, tenant, entries, holder)
            )
        )

    def import_deltas(
        self, session_id: str, message_id: str, deltas: Sequence[e.Delta]
    ) -> Flow[None]:
        """Add to a message that streams in a turn which this opening holds."""
        runtime, given = self.runtime(), tuple(deltas)
        tenant, holder = runtime.tenant, runtime.database.holder
        yield from write(
            lambda engine: ops.import_deltas(engine, session_id, tenant, message_id, given, holder)
        )

    def end_imported(self, session_id: str, ending: e.TurnEnding) -> Flow[bool]:
        """End a turn that was imported, and that this opening holds."""
        runtime = self.runtime()
        tenant, holder, at = runtime.tenant, runtime.database.holder, runtime.clock()
        return (
            yield from write(
                lambda engine: ops.end_imported(engine, session_id, tenant, ending, holder, at)
            )
        )

    # -- the rest ------------------------------------------------------------------------------

    def usage(
        self, by: UsageBy, *, since: date | None, until: date | None, **filters: Any
    ) -> Flow[Totals[Total]]:
        check_kinds("usage()", date, since=since, until=until)
        query = _query(
            "usage()",
            UsageQuery,
            tenant=self.runtime().tenant,
            since_day=None if since is None else (since - FIRST_DAY).days,
            until_day=None if until is None else (until - FIRST_DAY).days,
            **filters,
        )
        return (yield from figures.usage(self, by, query))

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

    def collect_blobs(self) -> Flow[int]:
        self.runtime()
        return (yield from write(lambda engine: ops.collect_blobs(engine)))

    def counts(self) -> Flow[dict[str, int]]:
        self.runtime()
        return (yield from read(lambda reader: reader.counts()))


def _query(call: str, shape: type[Q], **filters: Any) -> Q:
    """Make a query. Raises ValueError for a filter of the wrong kind."""
    try:
        return msgspec.convert({name: plain(value) for name, value in filters.items()}, shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"a filter of {call} is of the wrong kind: {error}") from error


def _check_imported(entry: e.Entry) -> None:
    """Raise InvalidEntry or TypeError for an entry that could not have been recorded here."""
    check_is(entry, e.Entry, "what is imported")
    check_is(entry.at_us, int, "the time of an entry, in microseconds,")
    if not isinstance(entry.body, e.Unknown):
        check_value(entry.body, e.KnownBody, e.kind_of(entry.body))
    if not EARLIEST_US <= entry.at_us <= LATEST_US:
        raise InvalidEntry(
            f"the time of the entry for seq {entry.seq} is in no year from 1 to 9999"
        )
    checks.check_content(entry.body)
    for name in _IDS:
        value = getattr(entry.body, name, None)
        if value is not None:
            checks.check_id(value, name.replace("_", " "))
