"""The search index: what it adds to the disk, how long it takes to catch up, how fast it finds."""

import random
import zlib
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import apsw

from benchmarks.raw import BODY_BYTES
from benchmarks.results import TIMES, Result, Setting
from killick import AsyncStore, Message, Store, Text
from killick.journal.codec import encode
from killick.model.entries import MessageRecorded
from killick.stores.sqlite.rows import SQL

_SIZED = 5_000
_SEARCHED = 100_000
_MILLION = 1_000_000
_WRITERS = 64
_POOL = 20_000
_SEARCHES = 50
_VOCABULARY = 30_000
_BYTES_GOAL = 2.5
_MILLISECONDS_GOAL = 5.0
_RANKED_GOAL = 30.0
_MICROSECONDS_GOAL = 50.0
RARE, COMMON = "zymurgy", "w3"


class Speech:
    """Texts of words that are as unevenly common as those of people, the same in every run."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        letters = "etaoinshrdlucmfwypvbgk"
        self._words = [
            "".join(self._chance.choices(letters, k=self._chance.randint(3, 9)))
            for _ in range(_VOCABULARY)
        ]
        self._words[3] = COMMON
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(_VOCABULARY)))

    def texts(self, count: int) -> Iterator[str]:
        for number in range(count):
            said = " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=150))
            yield f"{RARE} {said}"[:BODY_BYTES] if number == count // 2 else said[:BODY_BYTES]


def _fill(path: Path, count: int) -> None:
    texts = Speech().texts(count)

    async def write(store: AsyncStore) -> None:
        session = await store.create_session()
        async with session.turn("Go.") as turn:
            for text in texts:
                await turn.record(Message(role="assistant", parts=[Text(text)]))

    async def main() -> None:
        store = AsyncStore(path, durability="normal", indexing=False)
        async with store, anyio.create_task_group() as group:
            for _ in range(_WRITERS):
                group.start_soon(write, store)

    anyio.run(main)


def _fill_rows(path: Path, count: int) -> None:
    """The same rows as a million appends would leave, written as fast as SQLite takes them."""
    with Store(path, indexing=False) as store:
        for number in range(_WRITERS):
            store.create_session(id=f"s{number}")
    pool = list(Speech().texts(_POOL))
    rare = pool[_POOL // 2]
    chance = random.Random(8)

    def rows() -> Iterator[tuple[object, ...]]:
        for number in range(count):
            text = rare if number == count // 2 else chance.choice(pool[: _POOL // 2])
            body = encode(
                MessageRecorded(id=f"m{number}", turn_id="t", role="assistant", parts=(Text(text),))
            )
            session, seq = number % _WRITERS + 1, number // _WRITERS + 2
            yield (
                session,
                seq,
                number.to_bytes(16),
                number,
                zlib.crc32(body),
                body,
                None,
                None,
                None,
            )

    connection = apsw.Connection(str(path))
    with connection:
        connection.executemany(SQL.insert_entry, rows())
    connection.close()


def _size(path: Path) -> int:
    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return path.stat().st_size


def search_size(setting: Setting) -> list[Result]:
    """The file without an index, with words, and with parts of words too."""
    path, count = setting.folder / "ours.db", setting.some(_SIZED)
    _fill(path, count)
    text = count * BODY_BYTES
    plain = _size(path)
    with Store(path) as store:
        store.search(RARE, wait_seconds=600)
    words = _size(path)
    with Store(path) as store:
        store.rebuild_search(substrings=True)
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM")
    connection.close()
    both = _size(path)
    return [
        Result(
            what=f"bytes on disk for each byte of text, {count:,} messages, words indexed",
            figure=f"{words / text:.2f} {TIMES}",
            goal=f"≤ {_BYTES_GOAL:g} {TIMES}",
            holds=words / text <= _BYTES_GOAL,
            absolute=f"without an index {plain / text:.2f}, with parts of words {both / text:.2f}",
        )
    ]


def search(setting: Setting) -> list[Result]:
    return _search(setting, setting.some(_SEARCHED))


def search_million(setting: Setting) -> list[Result]:
    """Takes some minutes, so it runs only when it is named."""
    return _search(setting, setting.some(_MILLION))


def _search(setting: Setting, count: int) -> list[Result]:
    path = setting.folder / "ours.db"
    _fill_rows(path, count)
    with Store(path, indexing=False) as store:
        began = perf_counter()
        behind = store.search(RARE, wait_seconds=0).behind
        assert store.search(RARE, wait_seconds=3_600).behind == 0
        drained = perf_counter() - began
        results = [
            Result(
                what=f"the index catching up with {count:,} messages",
                figure=f"{drained / behind * 1e6:.0f} µs an entry",
                goal=f"≤ {_MICROSECONDS_GOAL:g} µs" if count <= _SEARCHED else "",
                holds=drained / behind * 1e6 <= _MICROSECONDS_GOAL if count <= _SEARCHED else None,
                absolute=f"{drained:.1f} s for {behind:,} entries",
            ),
        ]
        asked: list[tuple[str, float | None, Callable[[], object]]] = [
            ("a rare word", _MILLISECONDS_GOAL, lambda: store.search(RARE)),
            ("a rare word, the best first", None, lambda: store.search(RARE, order="best")),
            ("a common word", None, lambda: store.search(COMMON)),
            (
                "a common word, the best first",
                _RANKED_GOAL,
                lambda: store.search(COMMON, order="best"),
            ),
            ("a word that is nowhere", None, lambda: store.search("nowhere")),
        ]
        results += [
            _timed(f"{what}, in {count:,} messages", goal, work) for what, goal, work in asked
        ]
    return results


def _timed(what: str, goal: float | None, work: Callable[[], object]) -> Result:
    times = []
    for _ in range(_SEARCHES):
        began = perf_counter()
        work()
        times.append((perf_counter() - began) * 1e3)
    middle = median(times)
    return Result(
        what=what,
        figure=f"{middle:.2f} ms",
        goal="" if goal is None else f"≤ {goal:g} ms",
        holds=None if goal is None else middle <= goal,
        absolute=f"slowest of {_SEARCHES} {max(times):.2f} ms",
    )
