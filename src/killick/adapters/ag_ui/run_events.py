"""One turn as one run of AG-UI: live, resumed in the middle, or after the end."""

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from killick.adapters.ag_ui.translate import ending, of_part, started, waiting_at_the_end
from killick.errors import InvalidCursor, TurnNotFound
from killick.model import entries as e
from killick.model.sessions import TurnInfo
from killick.session.aio import AsyncSession
from killick.session.parts import PartItem

_OVER = "!"


class RunEvent(NamedTuple):
    """An event of AG-UI, and the id after which `run_events` goes on."""

    event: dict[str, Any]
    id: str

    def encode(self) -> bytes:
        """Return it as a server-sent event: a client that comes back names the last id."""
        data = json.dumps(self.event, ensure_ascii=False, separators=(",", ":"))
        return f"id: {self.id}\ndata: {data}\n\n".encode()


class RunPlace(NamedTuple):
    """Where in a session a run is, and what of it a client has."""

    turn: TurnInfo
    cursor: str
    skipped: int
    over: bool


async def find_run(session: AsyncSession, turn_id: str, after: str | None = None) -> RunPlace:
    """Return where a run goes on behind the id `after`. Raises TurnNotFound, InvalidCursor."""
    turn = next((turn for turn in await session.turns() if turn.id == turn_id), None)
    if turn is None:
        raise TurnNotFound(f"no turn {turn_id!r} in session {session.id!r}")
    if after is None:
        return RunPlace(turn, str(turn.seq - 1), 0, over=False)
    cursor, _, seen = after.removesuffix(_OVER).partition("+")
    if seen and not (seen.isascii() and seen.isdigit() and len(seen) < 4):
        raise InvalidCursor(f"{after[:80]!r} is no id of an event of a run")
    await session.part_events(after=cursor).aclose()
    return RunPlace(turn, cursor, int(seen or 0), after.endswith(_OVER))


async def run_events(
    session: AsyncSession, turn_id: str, *, after: str | None = None, run_id: str | None = None
) -> AsyncGenerator[RunEvent, None]:
    """Yield a turn's events until it has ended: all of them, or those behind the id `after`.

    The thread is the session, the run is the turn, or `run_id` if the client has a name of its own
    for it. Raises TurnNotFound, InvalidCursor. What comes late, when the turn is over, is no part
    of its run.
    """
    turn, cursor, skipped, over = await find_run(session, turn_id, after)
    if over:
        return
    name = run_id or turn_id
    if after is None:
        yield RunEvent(started(session.id, name), cursor)
    parts = session.part_events(after=cursor)
    waking = session.follow(after=session.head)
    try:
        is_over = await _has_ended(session, turn_id)
        while True:
            while page := await parts._page():
                for item in page:
                    for event in _events(item, turn_id, cursor):
                        if skipped:
                            skipped -= 1
                        else:
                            yield event
                    cursor = item.cursor
            if is_over:
                break
            try:
                seen = [await anext(waking)]
            except StopAsyncIteration:
                return  # the store is closing: the client comes back
            seen += [more.item for more in await waking.now()]
            is_over = any(
                isinstance(item, e.Entry)
                and isinstance(item.body, e.TurnEnding)
                and item.body.turn_id == turn_id
                for item in seen
            )
    finally:
        await parts.aclose()
        await waking.aclose()
    ended, waiting = waiting_at_the_end(await session.entries(after=turn.seq - 1), turn_id)
    assert ended is not None
    yield RunEvent(ending(ended, waiting, session.id, name), f"{cursor}{_OVER}")


def _events(item: PartItem, turn_id: str, before: str) -> list[RunEvent]:
    part = item.item
    if part.turn_id != turn_id or part.late or part.role in ("user", "system"):
        return []
    made = of_part(part)
    if not made:
        return []
    ids = [f"{before}+{number}" for number in range(1, len(made))]
    return [RunEvent(event, id_) for event, id_ in zip(made, [*ids, item.cursor], strict=True)]


async def _has_ended(session: AsyncSession, turn_id: str) -> bool:
    return any(turn.id == turn_id and turn.status != "running" for turn in await session.turns())
