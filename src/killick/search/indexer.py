"""Searching, and keeping the index up, as far as every database does it the same way."""

from collections.abc import Callable

from killick.errors import SessionDamaged, SessionNotFound
from killick.journal.kinds import HISTORY
from killick.journal.visibility import History
from killick.search.documents import Document, document
from killick.search.port import SLICE_ENTRIES, Batch, Lineage, Search, Unindexed
from killick.search.query import phrases
from killick.search.results import SNIPPET_CHARS, Hit, Hits, Ranges, cut, snippet, substring_snippet
from killick.stores.contract import Reader, SessionRow, Transaction


def read_batch(reader: Reader, limit: int = SLICE_ENTRIES) -> Batch:
    """What the next slice indexes. Raises SearchDamaged."""
    waiting = reader.unindexed(limit)
    return Batch(reader.index_mark(), [(one, _made(reader, one)) for one in waiting])


def _made(reader: Reader, one: Unindexed) -> Document | None:
    """A damaged entry has no document, and keeps no other from having one."""
    if one.entry is None:
        return None
    try:
        made = document(one.entry, lambda identity: reader.find_entry(one.key, identity))
    except SessionDamaged:
        return None
    return made if made is not None and (made.text or made.reasoning) else None


def index_batch(tx: Transaction, batch: Batch, over: Callable[[], bool]) -> bool:
    """Index what was read, until time is over; whether anything was. Raises SearchDamaged."""
    ours = tx.take_slice(batch) if batch.entries else ()
    if not ours:
        return False  # nothing is missing, or somebody else was quicker
    done = []
    for one, made in ours:
        if made is not None:
            tx.put_document(one.key, made)
        done.append(one)
        if over():
            break
    tx.index_reached(done)
    return True


def search(reader: Reader, wanted: Search) -> Hits:
    """What is found, as of one moment. Raises SearchDamaged, SessionNotFound."""
    lineage, asked = None, None
    if wanted.session is not None:
        asked = reader.find_session(wanted.tenant, wanted.session)
        if asked is None or asked.about.deleted:
            raise SessionNotFound(f"no session {wanted.session!r} to search in")
        lineage = _lineage(reader, asked)
    behind = reader.index_behind()
    hits, damaged = [], []
    shown = _Shown(reader, wanted, asked)
    for key, seq in reader.find_documents(wanted, lineage):
        try:
            hit = shown.hit(key, seq)
        except SessionDamaged as error:
            damaged.append(error.session_id)
            continue
        if hit is not None:
            hits.append(hit)
    return Hits(hits, behind, tuple(dict.fromkeys(damaged)))


def _lineage(reader: Reader, row: SessionRow) -> list[Lineage]:
    """The session and those whose entries it begins with, each as far as it reaches."""
    reach, found = row.head, []
    current: SessionRow | None = row
    while current is not None:
        found.append(Lineage(current.key, reach))
        if current.base is None:
            break
        reach = min(reach, current.base_seq)
        current = reader.session(current.base)
    return found


class _Shown:
    """Makes hits of what was found, reading each session's row and history once."""

    def __init__(self, reader: Reader, wanted: Search, asked: SessionRow | None) -> None:
        self._reader = reader
        self._wanted = wanted
        self._asked = asked
        self._sessions: dict[int, tuple[SessionRow, History]] = {}

    def hit(self, key: int, seq: int) -> Hit | None:
        # Who searches a fork is shown what it has inherited under its own name.
        row, history = self._session(key if self._asked is None else self._asked.key)
        entries = self._reader.entries(key, after=seq - 1, limit=1)
        if not entries or entries[0].seq != seq:
            return None
        made = document(entries[0], lambda identity: self._reader.find_entry(key, identity))
        if made is None:
            return None
        shown, matches = self._snippet(made)
        return Hit(
            session_id=row.id,
            title=row.about.title,
            seq=made.place,
            message_id=made.id,
            turn_id=made.turn_id,
            role=made.role,
            state=made.state,
            at_us=made.at_us,
            snippet=shown,
            matches=matches,
            rewound=not history.is_in_view(made.seq),
            hidden=made.place in history.hides("person").places,
        )

    def _session(self, key: int) -> tuple[SessionRow, History]:
        known = self._sessions.get(key)
        if known is None:
            row = self._reader.session(key)
            assert row is not None
            known = (row, History(self._reader.marked_entries(key, HISTORY)))
            self._sessions[key] = known
        return known

    def _snippet(self, made: Document) -> tuple[str, Ranges]:
        query = self._wanted.query
        texts = [made.text, made.reasoning] if self._wanted.reasoning else [made.text]
        for text in texts:
            if isinstance(query, str):
                found = substring_snippet(text, query)
            else:
                found = snippet(text, phrases(query))
            if found is not None:
                return found
        return cut(texts[0], 0, SNIPPET_CHARS, [])
