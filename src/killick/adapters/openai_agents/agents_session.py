"""The SDK's `Session` on a store: its items are messages of a session, in order.

An item that is popped, and a session that is cleared, are out of every view; the journal has them.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from agents.memory.session_settings import (
    SessionSettings,
    coerce_session_settings,
    resolve_session_limit,
)

from killick.adapters.openai_agents.items import OURS, Item, as_item, as_message, history
from killick.errors import SessionNotFound, UsageError
from killick.model import entries as e
from killick.model.messages import Part, ToolCall, ToolResult
from killick.model.sessions import SessionNote
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.drive.drive_async import in_thread

POPPED: Final = "openai_agents.popped"
"""The name of the notes that say which items were popped: one note for each, by its key."""


class SessionClosed(UsageError, RuntimeError):
    """The session was used after `close`; the SDK's own raise RuntimeError then."""


class KillickSession:
    """A session of the SDK, kept in a store: `Runner.run(agent, prompt, session=…)`.

    `store` is an open `AsyncStore`, or a path or URL, which is then opened here and closed by
    `close`. The SDK hands over what happened when a turn is over; `Recorder` records it as it
    happens. A session that a `Recorder` has recorded into is read as what a model may be sent.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        store: AsyncStore | str | Path,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._owned = not isinstance(store, AsyncStore)
        self._store = store if isinstance(store, AsyncStore) else AsyncStore(store)
        self._closed = False

    # -- the interface ---------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items in order, all or `limit` of them."""
        session = await self._existing()
        items = [] if session is None else await self._items(session)
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted is None or wanted < 0:
            return items
        return items[-wanted:] if wanted else []

    async def add_items(self, items: list[Any]) -> None:
        """Append items, in one commit. If interrupted: all of them are there or none."""
        self._check_open()
        if items:
            session = await self._store.open_session(self.session_id)
            given: list[Item] = [dict(item) for item in items]
            answerable = {str(item.get("call_id")) for item in given if _is_call(item)}
            if any(_is_result(item) and item["call_id"] not in answerable for item in given):
                answerable |= unanswered(await session.entries())
            messages = [
                as_message(item, whole=_is_result(item) and item["call_id"] not in answerable)
                for item in given
            ]
            await session.add_messages(messages, source=OURS)

    async def pop_item(self) -> Any | None:
        """Take the newest item out of every view, and return it.

        If interrupted: it is out of the items or it is not.
        """
        return await self._pop_item_with_validation()

    async def _pop_item_with_validation(
        self, validate: Callable[[Any], None] | None = None
    ) -> Any | None:
        """Pop as `pop_item` does; what `validate` refuses stays. The SDK's wrappers call it."""
        session = await self._existing()
        while session is not None:
            kept = await _kept(session)
            if not kept:
                return None
            seq, item = kept[-1]
            if validate is not None:
                await in_thread(partial(validate, item))  # theirs may wait, and none is cut off
            # Of several that pop at once, the one whose note is written first has popped it.
            [receipt] = await session.note_all([SessionNote(POPPED, seq, key=f"{POPPED}:{seq}")])
            if not receipt.repeated:
                await session.hide(seq)
                return item
        return None

    async def clear_session(self) -> None:
        """Take all items out of every view. If interrupted: all of them or none."""
        session = await self._existing()
        if session is not None:
            await session.clear()

    async def close(self) -> None:
        """Let go of the store, if it was opened here. If interrupted: closed all the same."""
        self._closed = True
        if self._owned:
            await self._store.close()

    # -- reading ---------------------------------------------------------------------------------

    async def _items(self, session: AsyncSession) -> list[Any]:
        entries = await session.entries()
        if any(isinstance(entry.body, e.MessageStarted) for entry in entries):
            return await history(session)  # recorded as it happened: read as a model may have it
        return [item for _, item in fold(entries)]

    async def _existing(self) -> AsyncSession | None:
        self._check_open()
        try:
            return await self._store.session(self.session_id)
        except SessionNotFound:
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed("this session is closed")


async def _kept(session: AsyncSession) -> list[tuple[int, Item]]:
    return fold(await session.entries())


def fold(entries: list[e.Entry]) -> list[tuple[int, Item]]:
    """Return the items in order, each with its seq: popped and cleared ones are left out. Pure."""
    undone = {entry.body.id for entry in entries if isinstance(entry.body, e.Undone)}
    items: dict[int, Item] = {}
    for entry in entries:
        match entry.body:
            case e.MessageRecorded(role=role, parts=parts):
                _add(items, entry.seq, role, parts)
            case e.ToolFinished(result=result) | e.LateResult(result=result):
                _add(items, entry.seq, "tool", (result,))
            case e.Rewound(id=name, through=through, keep=keep) if name not in undone:
                for seq in [seq for seq in items if seq > through and seq not in keep]:
                    del items[seq]
            case e.Note(name=name, data=int() as seq) if name == POPPED:
                items.pop(seq, None)
            case _:
                pass
    return list(items.items())


def _is_call(item: Item) -> bool:
    return item.get("type") == "function_call"


def _is_result(item: Item) -> bool:
    return str(item.get("type")).endswith("_output") and isinstance(item.get("call_id"), str)


def unanswered(entries: list[e.Entry]) -> set[str]:
    """Return the ids of calls that never had a result, also none that was popped since. Pure."""
    calls: set[str] = set()
    for entry in entries:
        match entry.body:
            case e.MessageRecorded(parts=parts) | e.MessageEnded(parts=parts):
                calls |= {part.id for part in parts if isinstance(part, ToolCall)}
                calls -= {part.call_id for part in parts if isinstance(part, ToolResult)}
            case e.ToolFinished(result=result) | e.LateResult(result=result):
                calls.discard(result.call_id)
            case _:
                pass
    return calls


def _add(items: dict[int, Item], seq: int, role: str, parts: tuple[Part, ...]) -> None:
    item = as_item(role, parts)
    if item is not None:
        items[seq] = item
