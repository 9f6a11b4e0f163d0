"""Taking due work, and closing the turns of holders that died, as flows for both faces."""

import logging
from collections.abc import Sequence
from zlib import crc32

import msgspec

from killick.errors import SessionDamaged, SessionNotFound
from killick.journal.checks import check_count, check_numbers
from killick.model.limits import LEASE_SECONDS_MAX, WORK_MAX
from killick.session.core.session import SessionCore
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import Runtime, StoreOpening
from killick.stores import engine as ops
from killick.stores.contract import Held, Reader, check_doubt
from killick.stores.engine.turn_ops import DueWork
from killick.stores.log import log


class TakenWork(list[DueWork]):
    """The work that was taken; `damaged` are sessions that were skipped, for the doctor."""

    def __init__(self, taken: Sequence[DueWork] = (), damaged: Sequence[str] = ()) -> None:
        super().__init__(taken)
        self.damaged = tuple(damaged)


class ClosedTurn(msgspec.Struct, frozen=True):
    """A turn that was closed because the process that ran it is gone."""

    session_id: str
    turn_id: str


def take_due(opening: StoreOpening, limit: int, lease_seconds: float) -> Flow[TakenWork]:
    """Take work that is due, at most so much of it; each is given to one caller.

    If interrupted: what was taken and not given to the caller lapses, and counts as an attempt.
    """
    check_count("limit", limit)
    check_numbers(lease_seconds=lease_seconds)
    if not 1 <= limit <= WORK_MAX:
        raise ValueError(f"limit={limit}; it is from 1 to {WORK_MAX}")
    if not 0 < lease_seconds <= LEASE_SECONDS_MAX:
        raise ValueError(f"lease_seconds={lease_seconds}; it is more than 0, at most a day")
    runtime = opening.runtime()
    taken: list[DueWork] = []
    damaged: list[str] = []
    tried: set[int] = set()
    while len(taken) < limit:
        candidates = yield from read(lambda reader: _candidates(runtime, reader, limit, tried))
        if not candidates:
            break
        # Many workers look at once: each begins elsewhere, as an id of its own says.
        first = crc32(runtime.ids("ent").encode()) % len(candidates)
        for key in [*candidates[first:], *candidates[:first]]:
            tried.add(key)
            try:
                work = yield from _take(runtime, key, lease_seconds)
            except SessionDamaged as error:
                damaged.append(error.session_id)
                log(logging.WARNING, "damaged session skipped", session_id=error.session_id)
            except SessionNotFound:
                continue  # erased meanwhile
            else:
                if work is not None:
                    taken.append(work)
            if len(taken) == limit:
                break
    return TakenWork(taken, damaged)


def _take(runtime: Runtime, key: int, lease_seconds: float) -> Flow[DueWork | None]:
    token, at = runtime.ids("ent"), runtime.clock()
    holder, lease_us = runtime.database.holder, max(1, int(lease_seconds * 1_000_000))
    return (
        yield from write(lambda engine: ops.take_work(engine, key, token, holder, lease_us, at))
    )


def _candidates(runtime: Runtime, reader: Reader, limit: int, tried: set[int]) -> list[int]:
    """Return sessions that may have due work: by their time, and those of the dead."""
    held = [each for each in reader.held(runtime.tenant) if each.is_work]
    due = reader.due(runtime.tenant, reader.now_us(), limit + len(tried))
    dead = _of_the_dead(reader, held)
    return [key for key in dict.fromkeys([*due, *dead]) if key not in tried]


def _of_the_dead(reader: Reader, held: Sequence[Held]) -> list[int]:
    """Return the sessions whose holders are dead, judged as opening a session judges it."""
    alive: dict[str, bool] = {}
    for each in held:
        if each.holder not in alive:
            alive[each.holder] = reader.is_alive(each.holder)
    for holder in alive:
        if alive[holder]:
            check_doubt(reader, holder)
    return [each.key for each in held if not alive[each.holder]]


def close_dead_turns(opening: StoreOpening) -> Flow[list[ClosedTurn]]:
    """Close the running turns whose holders are dead, as opening their sessions would.

    They are found by an index; a damaged session is logged, and left to the doctor.
    If interrupted: each is closed or it is not; call it again.
    """
    runtime = opening.runtime()
    dead = yield from read(lambda reader: _of_the_dead(reader, reader.held(runtime.tenant)))
    closed: list[ClosedTurn] = []
    for key in dead:
        try:
            row = yield from read(lambda reader: reader.session(key))  # noqa: B023
            if row is None or row.turn_seq is None or row.about.deleted:
                continue
            core, seq = SessionCore(opening, row), row.turn_seq
            if (yield from core.recover()):
                start = yield from read(lambda reader: reader.entries(key, after=seq - 1, limit=1))  # noqa: B023
                closed.append(ClosedTurn(row.id, getattr(start[0].body, "turn_id", "")))
        except SessionDamaged as error:
            log(logging.WARNING, "damaged session skipped", session_id=error.session_id)
    return closed
