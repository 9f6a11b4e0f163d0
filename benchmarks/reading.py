"""Reading a whole session beside fetching and decoding the same rows from the same file."""

from statistics import median
from typing import Any

import anyio
import apsw
import msgspec

from benchmarks.appends import fill
from benchmarks.results import Result, Setting, at_most
from benchmarks.stats import paired, timed
from killick import AsyncStore, Store
from killick.model.entries import KnownBody

_MESSAGES = 10_000


def reading(setting: Setting) -> list[Result]:
    path = setting.folder / "ours.db"
    count = setting.some(_MESSAGES)

    async def prepare() -> str:
        async with AsyncStore(path) as store:
            return await fill(store, count)

    session_id = anyio.run(prepare)
    decode = msgspec.json.Decoder(KnownBody).decode
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    key = connection.execute("SELECT key FROM sessions WHERE id = ?", (session_id.encode(),)).get

    def raw() -> list[Any]:
        rows = connection.execute("SELECT body FROM entries WHERE session = ? ORDER BY seq", (key,))
        fetched: list[Any] = rows.fetchall()
        return [decode(body) for (body,) in fetched]

    with Store(path) as store:
        session = store.session(session_id)
        assert len(session.messages()) == count <= len(raw())
        pairs = paired(
            lambda: timed(session.messages, count), lambda: timed(raw, count), setting.blocks
        )
    connection.close()
    absolute = (
        f"{median(pairs.ours) * count * 1e3:.0f} ms, raw {median(pairs.raw) * count * 1e3:.0f} ms"
    )
    return [at_most(f"session.messages() of {count:,}", pairs.slowdown(), 2.0, absolute)]
