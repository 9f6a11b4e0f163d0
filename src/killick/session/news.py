"""Following a whole store: the feed over all sessions of a tenant, and its cursor.

A cursor names the store and a position in its feed. The database alone compares positions. On
PostgreSQL commits become visible out of order: it gives out no line before which one may appear.
"""

import re
from typing import Final

import msgspec

from killick.errors import InvalidCursor, UsageError
from killick.stores.contract import Position, Reader, StoredNews

_PAGE: Final = 500
_CURSOR: Final = re.compile(r"([0-9a-f]{1,16})((?:\.[0-9]{1,19})+)")


class News(msgspec.Struct, frozen=True, gc=False):
    """One line of the feed over all sessions; `cursor` goes on after it.

    `kind` is `turn_ended`, `outcome_unknown`, `settled`, `approval_asked`, `approval_decided`,
    `limit_reached`, `attempts_used_up`, `paused` or `unpaused`; `cause` is that of the ending. The
    entry at `seq` of the session has the rest.
    """

    session_id: str
    seq: int
    kind: str
    cause: str | None
    cursor: str


class NewsFollower:
    """Remembers how much of a feed was given; each `poll` returns what is new as of one moment."""

    def __init__(self, tenant: str, after: int | str, *, waiting: bool) -> None:
        self._tenant = tenant
        self._store: int | None = None
        self._position: Position = ()
        self._waiting = waiting
        self._from_end = after == "end" and not waiting
        self.cursor = str(after)
        self.live = False
        """Whether the last poll reached the end of the feed."""
        if self._from_end:
            return
        if isinstance(after, str):
            if waiting:
                raise UsageError(
                    "waiting=True begins with what waits now; leave after= out, and go on later "
                    "from a cursor without waiting=True"
                )
            self._store, self._position = _parse(after)
        elif after != 0 or isinstance(after, bool):
            raise InvalidCursor(f"after={after!r} is no cursor of a feed; give 0 or its .cursor")

    def poll(self, reader: Reader) -> list[News]:
        """Return what is new. If it fails, nothing counts as given."""
        store, end = reader.store_number(), reader.news_end()
        self._check(store, end)
        if self._waiting:
            lines = [_as_news(line, store, end) for line in reader.waiting_news(self._tenant)]
            self._store, self._position, self._waiting = store, end, False
            return lines
        if self._from_end:
            self._store, self._position, self._from_end = store, end, False
            self.cursor = _cursor(store, end)
        page = reader.news(self._tenant, self._position, _PAGE)
        if page:
            self._store, self._position = store, page[-1].position
        self.live = len(page) < _PAGE
        return [_as_news(line, store, line.position) for line in page]

    def _check(self, store: int, end: Position) -> None:
        if self._store not in (None, store):
            raise InvalidCursor(
                "the cursor is of another store's feed; begin anew with after=0 or waiting=True"
            )
        if self._position and (len(self._position) != len(end) or self._position > end):
            raise InvalidCursor(
                "the cursor is beyond the end of this feed: the store was restored from a backup "
                "that knew less; begin anew with after=0 or waiting=True"
            )


def _as_news(line: StoredNews, store: int, position: Position) -> News:
    return News(line.session_id, line.seq, line.kind, line.cause, _cursor(store, position))


def _cursor(store: int, position: Position) -> str:
    return f"{store:x}." + ".".join(map(str, position))


def _parse(cursor: str) -> tuple[int, Position]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidCursor(f"{cursor[:80]!r} is no cursor of a feed; give 0 or its .cursor")
    return int(match[1], 16), tuple(map(int, match[2][1:].split(".")))
