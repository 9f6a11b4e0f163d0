"""One turn as one run of AG-UI: live, resumed in the middle, or after the end."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from killick.adapters.ag_ui.translate import ending, of_part, started, waiting_at_the_end
from killick.errors import TurnNotFound
from killick.model import entries as e
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


async def run_events(
    session: AsyncSession, turn_id: str, *, after: str | None = None, run_id: str | None = None
) -> AsyncIterator[RunEvent]:
    """Yield a turn's events until it has ended: all of them, or those behind the id `after`.

    The thread is the session, the run is the turn, or `run_id` if the client has a name of its own
    for it. Raises TurnNotFound. What comes late, when the turn is over, is no part of its run.
    """
    turn = next((turn for turn in await session.turns() if turn.id == turn_id), None)
    if turn is None:
        raise TurnNotFound(f"no turn {turn_id!r} in session {session.id!r}")
    name = run_id or turn_id
    cursor, skipped, over = _place(after, turn.seq)
    if over:
        return
    if after is None:
        yield RunEvent(started(session.id, name), cursor)
    parts = session.part_events(after=cursor)
    waking = session.follow(after=session.head)
    is_over = (await _ended(session, turn_id)) is not None
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


def _place(after: str | None, begun: int) -> tuple[str, int, bool]:
    """Return the cursor to go on from, how many events of the next part were seen, and the end."""
    if after is None:
        return str(begun - 1), 0, False
    cursor, _, seen = after.rstrip(_OVER).partition("+")
    return cursor, int(seen or 0), after.endswith(_OVER)


async def _ended(session: AsyncSession, turn_id: str) -> str | None:
    """Return how a turn ended; None while it runs."""
    statuses = {turn.id: turn.status for turn in await session.turns()}
    return None if statuses[turn_id] == "running" else statuses[turn_id]
