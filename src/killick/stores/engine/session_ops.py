"""Operations on a session as a whole: begin it, describe it, change its history, delete it.

They need no fence. Any process may carry them out while a turn runs, but for rewinding.
"""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from killick.errors import IdConflict, InvalidEntry, SessionDamaged, SessionHasForks
from killick.journal import checks
from killick.journal.chain import LinkedEntry
from killick.journal.codec import decode_body, encode
from killick.journal.compaction import check_undo
from killick.journal.kinds import HISTORY, TURNS, identity, same_content
from killick.journal.news import Told, fold_news
from killick.journal.summary import Spent, advance, fold_usage, retagged
from killick.model import entries as e
from killick.search.documents import index_batch
from killick.search.port import SLICE_SECONDS, Batch
from killick.stores.contract import Reader, SessionRow, Transaction, check_doubt
from killick.stores.engine.state import EngineState, Receipt
from killick.stores.engine.sum_ops import discount
from killick.stores.engine.turn_ops import close_turn, interrupted, session_busy

_ERASE_SECONDS: Final = 0.015
"""About how long a step of an erasure takes; then other writers have their turn."""


def create_session(
    engine: EngineState,
    *,
    session_id: str,
    tenant: str,
    created: e.SessionCreated,
    at_us: int,
    base: int | None = None,
    carried: Sequence[tuple[e.Body, int | None]] = (),
    copied: LinkedEntry | None = None,
) -> SessionRow | None:
    """Begin a session; None when it exists already, with the same beginning.

    A fork has a `base`, and begins by closing what was open there (`carried`, with the times that
    the source has).
    """
    existing = engine.tx.find_session(tenant, session_id)
    if existing is not None:
        stored = engine.tx.find_entry(existing.key, identity(created))
        offered = decode_body(encode(engine.redacted(created)))
        if stored is not None and same_content(stored.body, offered):
            return None
        raise IdConflict(
            f"session {session_id!r} exists already, with another beginning; "
            "store.open_session(id) opens it"
        )
    if base is not None:
        engine.live(base)
    reach = 0 if created.fork is None else created.fork.at
    row = SessionRow(
        key=0,
        id=session_id,
        tenant=tenant,
        head=reach,
        created_at_us=at_us,
        base=base,
        base_seq=reach,
        link=None if base is None else engine.tx.link_at(base, reach),
    )
    row.key = engine.tx.create_session(row)
    state = engine.adopt(row)
    engine.write(state, created, at_us, copied)
    with engine.untold():
        for body, then_us in carried:
            engine.write_closing(state, body, at_us if then_us is None else then_us)
    return msgspec.structs.replace(row)


def about(engine: EngineState, key: int, body: e.Body, at_us: int) -> tuple[Receipt, SessionRow]:
    """Append an entry that needs no fence: renamed, archived, note, imported, compaction …"""
    state = engine.state(key)
    if state.row.about.deleted and not isinstance(body, e.Restored):
        raise checks.session_deleted(state.row.id)
    if isinstance(body, e.Tagged):
        checks.check_tags(retagged(state.row.about.tags, body))
    receipt = engine.write(state, body, at_us)
    return receipt, msgspec.structs.replace(state.row)


def compact(
    engine: EngineState, key: int, body: e.Compacted, head: int, at_us: int
) -> Receipt | None:
    """Append a compaction that was planned at `head`; None if the session was rewound since."""
    state = engine.live(key)
    since = engine.tx.marked_entries(key, HISTORY, after=head)
    if any(isinstance(entry.body, e.Rewound | e.Undone) for entry in since):
        return None
    return engine.write(state, body, at_us)


def rewind(engine: EngineState, key: int, body: e.Rewound, head: int, at_us: int) -> Receipt | None:
    """Append a rewind that was planned at `head`; None when the journal has grown since."""
    state = engine.live(key)
    if state.turn is not None:
        raise session_busy(state.row.id, state.turn.id, state.turn.holder)
    return None if state.row.head != head else engine.write(state, body, at_us)


def undo(engine: EngineState, key: int, seq: int | None, at_us: int) -> Receipt:
    """Undo a compaction or rewind, if it may still be undone."""
    state = engine.live(key)
    turns = engine.tx.newest_marked(key, TURNS, before=None, limit=1)
    newest = turns[-1].seq if turns else 0
    body = check_undo(engine.tx.marked_entries(key, HISTORY), seq, newest)
    return engine.write(state, body, at_us)


def delete_session(
    engine: EngineState, key: int, body: e.Deleted, at_us: int, *, as_of_us: int | None = None
) -> Receipt:
    """Close what runs, then take the session out of every list.

    With `as_of_us`, only if nothing has happened to it since then.
    """
    state = engine.state(key)
    if state.row.about.deleted:
        return Receipt(state.row.head, repeated=True)
    _check_unchanged(state.row, as_of_us)
    if state.turn is not None:
        close_turn(engine, state, interrupted(state.turn.id, "deleted"), at_us)
    return about(engine, key, body, at_us)[0]


def erase(
    engine: EngineState,
    keys: Sequence[int],
    at_us: int,
    *,
    as_of_us: int | None = None,
    because: str | None = None,
) -> tuple[int, int]:
    """Take sessions away for good, forks first; return how many entries and blobs are gone.

    `erase_rows` removes the rest.
    """
    engine.need(keys)
    rows = [_erasable(engine, key) for key in keys]
    for row in rows:
        _check_unchanged(row, as_of_us)
        left = [fork for fork in engine.tx.forks_of(row.key) if fork not in keys]
        if left:
            raise has_forks(row.id, engine.tx, left)
    discount(engine, keys)
    entries = blobs = 0
    for row in rows:
        gone = engine.tx.erase_session(row, at_us, because)
        engine.forget(row.key)
        entries, blobs = entries + gone[0], blobs + gone[1]
    return entries, blobs


def erase_rows(engine: EngineState, key: int) -> tuple[int, int, bool]:
    """Remove rows of a session that was taken away, for a moment; True at last if some are left."""
    end = time.monotonic() + _ERASE_SECONDS
    return engine.tx.erase_rows(key, lambda: time.monotonic() >= end)


def _erasable(engine: EngineState, key: int) -> SessionRow:
    """Return the row of a session in which no turn runs; a damaged one can be erased too."""
    try:
        state = engine.state(key)
    except SessionDamaged:
        return engine.tx.origin(key)
    turn = state.turn
    if turn is not None and engine.tx.is_alive(turn.holder):
        check_doubt(engine.tx, turn.holder)
        raise session_busy(state.row.id, turn.id, turn.holder)
    return state.row


def scrubbed(engine: EngineState, tenant: str, sessions: Sequence[str], at_us: int) -> None:
    """Note that what was erased of these sessions is gone from the file too."""
    for session_id in sessions:
        engine.tx.scrubbed(tenant, session_id, at_us)


def keep_rule(
    engine: EngineState, tenant: str, project: str, body: bytes | None, at_us: int
) -> None:
    """Keep a rule of retention in place of the one for the same project; None forgets it."""
    engine.tx.keep_rule(tenant, project, body, at_us)


def rebuild(engine: EngineState, key: int) -> None:
    """Derive anew what is kept beside a session's journal."""
    engine.tx.version(key)  # no other process appends between reading and saving
    save_derived(engine.tx, key)
    engine.forget(key)


def put_blob(engine: EngineState, tenant: str, name: str, data: bytes, holder: str) -> str:
    if not engine.tx.claim_blob(tenant, name, holder):
        engine.tx.put_blob(tenant, name, data, holder)
    return name


def collect_blobs(engine: EngineState, *, if_due: bool = False) -> int:
    return engine.tx.collect_blobs(if_due=if_due)


def index(engine: EngineState, batch: Batch, seconds: float = SLICE_SECONDS) -> Batch | None:
    """Index a batch; what is left of it, None if nothing was indexed. Raises SearchDamaged."""
    end = time.monotonic() + seconds
    return index_batch(engine.tx, batch, lambda: time.monotonic() >= end)


def reset_index(engine: EngineState, *, substrings: bool | None, forget: bool = False) -> None:
    """Begin the index anew. Raises SearchDamaged where it must be forgotten as a whole."""
    engine.tx.reset_index(substrings=substrings, forget=forget)


def index_is_damaged(engine: EngineState, reason: str) -> None:
    """Tell every process that the index must be rebuilt."""
    engine.tx.index_is_damaged(reason)


def _check_unchanged(row: SessionRow, as_of_us: int | None) -> None:
    if as_of_us is not None and row.updated_at_us != as_of_us:
        raise InvalidEntry(f"session {row.id!r} was changed meanwhile; look at it again")


def has_forks(session_id: str, reader: Reader, forks: Sequence[int]) -> SessionHasForks:
    ids = tuple(reader.origin(fork).id for fork in forks)
    return SessionHasForks(
        f"session {session_id!r} has forks that are made of its entries ({', '.join(ids)}); erase "
        "them with it (forks=True), or keep it",
        forks=ids,
    )


def derived(reader: Reader, key: int) -> tuple[SessionRow, list[Spent]]:
    """Return the row and usage that a session's own entries amount to. Raises SessionDamaged."""
    row = reader.origin(key)
    entries = reader.entries(key, after=row.base_seq)
    for entry in entries:
        row.head = entry.seq
        advance(row, entry.seq, entry.at_us, entry.body)
    return row, fold_usage(entries)


def labels_of(row: SessionRow) -> list[tuple[str, str]]:
    """Return the tags and models that a session is found by, each with its kind."""
    tags = [("tag", tag) for tag in row.about.tags]
    return [*tags, *(("model", model) for model in row.about.models)]


def save_derived(tx: Transaction, key: int) -> None:
    """Derive row, labels and usage of a session anew and save them.

    Raises SessionDamaged, with nothing changed. If interrupted: rolled back with its transaction.
    """
    row, usage = derived(tx, key)
    tx.save_session(row)
    tx.save_labels(row)
    tx.drop_usage(key)
    for spent in usage:
        tx.spend(key, spent)
    _save_news(tx, key, tx.entries(key, after=row.base_seq))


def news_due(entries: Sequence[e.Entry], stored: Sequence[Told]) -> list[Told]:
    """Return the lines of the feed that a session's entries amount to, from the first it has on.

    Entries that were brought in from elsewhere are no news, nor is what was there before the feed;
    what was told while it was followed is.
    """
    imported = max(
        (entry.seq for entry in entries if isinstance(entry.body, e.Imported)), default=0
    )
    first, known = min((line.seq for line in stored), default=None), {line.seq for line in stored}
    told_since = [line for line in fold_news(entries) if line.seq > imported or line.seq in known]
    return [] if first is None else [line for line in told_since if line.seq >= first]


def _save_news(tx: Transaction, key: int, entries: Sequence[e.Entry]) -> None:
    """Mend a session's lines of the feed. One that has none gets those that wait."""
    stored = tx.news_of(key)
    due = news_due(entries, stored)
    if not stored:
        due = [line for line in fold_news(entries) if line.line.waits]
    for line in stored:
        if line not in due:
            tx.drop_news(key, line.seq, line.number)
    for line in due:
        if line not in stored:
            tx.put_news(key, line.seq, line.number, line.line)
