"""One session of a source into a store: read, composed, mended, merged, and reported."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from killick.errors import KillickError
from killick.exchange.compose import Composer, session_id_of
from killick.exchange.formats.jsonl import has_blob
from killick.exchange.merge import Merged, merge, relocated
from killick.exchange.records import Record
from killick.exchange.repair import Mender
from killick.exchange.report import Outcome, Report, SourceLocation
from killick.journal.kinds import keyed_id
from killick.model import entries as e
from killick.model.limits import TITLE_CHARS_MAX
from killick.session.runtime import Clock
from killick.session.sync import Session, Store

_PAGE: Final = 200
OPEN: Final = "its last turn is still open there; it is left for the next import"


class Source(msgspec.Struct):
    """A session that can be read: what it is called there, where it lies, what it says.

    `settled` says that nobody writes to it any more: a last turn without an ending was interrupted.
    `answer_ends` says that an answer which calls no tool ends its turn, `changes_late` that what
    was said may be hidden there, or summed up, long afterwards.
    """

    name: str
    native_id: str
    origin: str
    records: Iterable[Record]
    settled: bool = True
    answer_ends: bool = False
    changes_late: bool = False


def import_source(
    store: Store,
    source: Source,
    report: Report,
    *,
    clock: Clock,
    dry_run: bool = False,
    known: set[str] | None = None,
) -> Outcome:
    """Bring one session in. If interrupted: whole turns are there; the next import goes on."""
    before = len(report.problems)
    session_id = session_id_of(source.name, source.native_id)
    composer = Composer(source.name, session_id, report, changes_late=source.changes_late)
    placed = composer.compose(
        source.records, settled=source.settled, answer_ends=source.answer_ends
    )
    mender = Mender(report, lambda name: has_blob(store, name))
    try:
        units = mender.mend(placed, close=False)
        merged = merge(
            store,
            session_id,
            units,
            dry_run=dry_run,
            known=known,
            passing=(e.Compacted,) if source.changes_late else (),
        )
        if not dry_run and merged.action != "left":
            _finish(store, source, composer, merged, report.summary(before), clock)
    except (KillickError, OSError) as error:
        report.skip(SourceLocation(source.origin), f"the session could not be taken over: {error}")
        merged = Merged(session_id, "left", why=str(error))
    outcome = Outcome(
        source=source.name,
        origin=source.origin,
        session_id=merged.session_id,
        action=merged.action,
        entries=merged.added,
        title=composer.title[0] if composer.title else None,
        fork_of=merged.fork_of,
        why=merged.why or (OPEN if composer.left_open else None),
    )
    report.sessions.append(outcome)
    return outcome


def _finish(
    store: Store,
    source: Source,
    composer: Composer,
    merged: Merged,
    found: dict[str, object],
    clock: Clock,
) -> None:
    """Give it the title that it has there, and note where it came from."""
    session = store.session(merged.session_id)
    about, bodies, title = session.info().about, list[e.Body](), composer.title
    if title is not None and about.titled_by != "person" and about.title != title[0]:
        key = f"title/{session.head}"
        entry_id = keyed_id("ent", session.id, key)
        bodies.append(e.Renamed(id=entry_id, title=title[0][:TITLE_CHARS_MAX], by=title[1]))
    bodies += _changed_since(session, composer, merged)
    if composer.archived and merged.action == "new":
        bodies.append(e.Archived(id=keyed_id("ent", session.id, "archived")))
    if merged.added:
        entry_id = keyed_id("ent", session.id, f"imported/{session.head}")
        bodies.append(
            e.Imported(id=entry_id, source=source.name, origin=source.origin, report=found)
        )
    if bodies:
        now, head = clock(), session.head
        entries = [e.Entry(head + n, now, body) for n, body in enumerate(bodies, start=1)]
        store.import_entries(session.id, entries)


def _changed_since(session: Session, composer: Composer, merged: Merged) -> Iterator[e.Body]:
    """What the source hides or has summed up by now, and the session has not yet."""
    if not composer.late:
        return
    known, after = set[str](), 0
    while page := session.entries(after=after, limit=_PAGE):
        known |= {one.body.id for one in page if isinstance(one.body, e.Visibility | e.Compacted)}
        after = page[-1].seq
    for body in composer.late:
        seq = body.through if isinstance(body, e.Compacted) else body.seq
        if body.id not in known and 0 < merged.place(seq) <= session.head:
            yield relocated(body, merged.place)
