"""Copy sessions from one store to another, entry by entry, and compare them afterwards.

Nothing is changed on the way: every entry has the same seq, time and body there, so an export of
either store has the same bytes. A copy that broke off goes on where it ended. What cannot be copied
keeps nothing else from being copied.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, Literal

import msgspec

from killick.errors import BlobNotFound, KillickError, SessionDeleted, SessionNotFound, StoreError
from killick.journal.chain import LinkedEntry
from killick.journal.codec import encode
from killick.journal.kinds import blobs_of
from killick.model import entries as e
from killick.session.sync import Store

_PAGE: Final = 200
_BATCH: Final = 256
_BATCH_BYTES: Final = 1024 * 1024
"""How much is written in one transaction, unless one turn alone is more."""

Progress = Callable[[int, int], None]
"""Told how many sessions were gone through, and how many there are."""


class Copied(msgspec.Struct, frozen=True):
    """The outcome of one session. `why` says what was left out, or what is wrong."""

    session_id: str
    action: Literal["copied", "grown", "unchanged", "failed"]
    entries: int = 0
    why: str | None = None


def copy_sessions(
    source: Store,
    target: Store,
    ids: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Generator[Copied, None, None]:
    """Copy sessions, all of them if none is named, the oldest first, and yield each outcome.

    Raises StoreError when one of the stores cannot be used. If interrupted: whole turns are there;
    call it again.
    """
    wanted = source.session_ids() if ids is None else list(ids)
    for number, session_id in enumerate(wanted, 1):
        try:
            copied = _copy(source, target, session_id)
        except StoreError:
            raise
        except KillickError as error:
            copied = Copied(session_id, "failed", why=str(error))
        if progress is not None:
            progress(number, len(wanted))
        yield copied


def _copy(source: Store, target: Store, session_id: str) -> Copied:
    head = _head(target, session_id)
    added, running = 0, None
    for batch in _batches(_units(_entries(source, session_id, head))):
        if isinstance(batch, str):
            running = batch
            break
        for entry in batch:
            _copy_blobs(source, target, entry)
        target.import_entries(session_id, batch)
        added += len(batch)
    why: str | None = None
    wrong = _first_difference(source, target, session_id, head + added)
    if wrong is not None:
        why = f"the two stores differ at seq {wrong}; it was there already, and went on otherwise"
        return Copied(session_id, "failed", added, why)
    broken = target.verify_session(session_id).findings if added else []
    if broken:
        why = f"its links do not fit at seq {broken[0].seq}; they were copied as they are"
    if running is not None:
        why = f"turn {running} runs, and was left out: copy it again later"
    action: Literal["copied", "grown", "unchanged"] = "unchanged"
    if added:
        action = "grown" if head else "copied"
    return Copied(session_id, action, added, why)


def _head(store: Store, session_id: str) -> int:
    """Return a session's last seq, deleted or not; 0 when there is none."""
    try:
        return store.session(session_id).head
    except SessionDeleted:
        return store.salvage(session_id).entries[-1].seq
    except SessionNotFound:
        return 0


def _entries(store: Store, session_id: str, after: int) -> Iterator[LinkedEntry]:
    with contextlib.suppress(SessionDeleted):
        store.session(session_id)  # a turn whose process died is closed
    while page := store.linked_entries(session_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def _units(entries: Iterable[e.Entry]) -> Iterator[list[e.Entry] | str]:
    """Yield whole turns and the entries between them; last the id of a turn that still runs."""
    turn: list[e.Entry] = []
    for entry in entries:
        if turn or isinstance(entry.body, e.TurnStarted):
            turn.append(entry)
            if isinstance(entry.body, e.TurnEnding):
                yield turn
                turn = []
        else:
            yield [entry]
    if turn:
        assert isinstance(turn[0].body, e.TurnStarted)
        yield turn[0].body.turn_id


def _batches(units: Iterator[list[e.Entry] | str]) -> Iterator[list[e.Entry] | str]:
    batch: list[e.Entry] = []
    size = 0
    for unit in units:
        if isinstance(unit, str):
            break
        batch += unit
        size += sum(len(encode(entry.body)) for entry in unit)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    else:
        unit = []
    if batch:
        yield batch
    if isinstance(unit, str):
        yield unit


def _copy_blobs(source: Store, target: Store, entry: e.Entry) -> None:
    for name in blobs_of(entry.body):
        try:
            target.blob(name)
        except BlobNotFound:
            try:
                target.put_blob(source.blob(name))
            except BlobNotFound:
                continue  # an entry may name a blob that never was


def _first_difference(source: Store, target: Store, session_id: str, through: int) -> int | None:
    """Return the first seq at which the journals differ, if it is at or before `through`."""
    for ours, theirs in zip_longest(
        _entries(source, session_id, 0), _entries(target, session_id, 0)
    ):
        known = ours or theirs
        if known.seq > through or ours is None:  # the rest is a turn that runs, or was added there
            return None
        if theirs is None or _bytes(ours) != _bytes(theirs):
            return int(known.seq)
    return None


def _bytes(entry: e.Entry) -> tuple[int, int, bytes]:
    return entry.seq, entry.at_us, encode(entry.body)
