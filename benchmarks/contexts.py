"""What a model is sent beside loading the same messages; a long session; a long list."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import anyio

from benchmarks.appends import fill
from benchmarks.footprint import Interpreter
from benchmarks.results import Result, Setting, at_most
from benchmarks.stats import paired, timed
from killick import AsyncStore, Message, Store, Text
from killick.views.context import FORMATS

_MESSAGES = 10_000
_MANY_MESSAGES = 200_000
_SESSIONS = 100_000
_AT_ONCE = 64
_TRIES = 7


def contexts(setting: Setting) -> list[Result]:
    path = setting.folder / "ours.db"
    count = setting.some(_MESSAGES)

    async def prepare() -> str:
        async with AsyncStore(path) as store:
            return await fill(store, count)

    session_id = anyio.run(prepare)
    results = []
    with Store(path) as store:
        session = store.session(session_id)
        for name in FORMATS:
            pairs = paired(
                partial(timed, partial(session.context, name), count),  # type: ignore[arg-type]
                partial(timed, session.messages, count),
                max(2, setting.blocks // 4),
            )
            absolute = f"{median(pairs.ours) * count * 1e3:.0f} ms"
            what = f"session.context of {count:,} messages, {name}, against loading them"
            results.append(at_most(what, pairs.slowdown(), 4.0, absolute))
    return results


def compacted(setting: Setting) -> list[Result]:
    """The next request of a session whose messages are nearly all behind a summary."""
    count = setting.some(_MANY_MESSAGES)

    async def prepare() -> str:
        path = setting.folder / "long.db"
        async with AsyncStore(path, durability="normal", indexing=False) as store:
            return await fill(store, count)

    session_id = anyio.run(prepare)
    with Store(setting.folder / "long.db", indexing=False) as store:
        session = store.session(session_id)
        for number in range(25):
            with session.turn(f"Question {number}") as turn:
                turn.record(Message("assistant", [Text(f"Answer {number}")]))
        session.compact("All that was said.", through=session.messages(last=50)[0].seq)
        taken = median(_seconds(partial(session.context, "anthropic")) for _ in range(_TRIES))
        assert len(session.context("anthropic").messages) == 50
    what = f"the next request of a session of {count:,} messages, all but 49 compacted"
    return [Result(what=what, figure=f"{taken * 1e3:.1f} ms")]


def listing(setting: Setting) -> list[Result]:
    """From opening the store to its newest 50 sessions."""
    path = setting.folder / "list.db"
    count = setting.some(_SESSIONS)

    async def prepare() -> None:
        async with AsyncStore(path, durability="normal", indexing=False) as store:

            async def some(first: int) -> None:
                for number in range(first, count, _AT_ONCE):
                    await store.create_session(title=f"Session {number}")

            async with anyio.create_task_group() as tasks:
                for first in range(_AT_ONCE):
                    tasks.start_soon(some, first)

    anyio.run(prepare)

    def opened() -> None:
        with Store(path) as store:
            assert len(store.sessions(limit=50)) == min(50, count)

    taken = median(_seconds(opened) for _ in range(_TRIES)) * 1e3
    what = f"opening a store of {count:,} sessions and listing the newest 50"
    figure = f"{taken:.1f} ms"
    command = ("-m", "killick.cli", "sessions", "--store", str(path))
    ratio, words = Interpreter(setting).beside_imports(*command, blocks=setting.blocks)
    return [
        Result(what=what, figure=figure, goal="< 100 ms", holds=taken < 100),
        at_most(f"`killick sessions` in a store of {count:,}", ratio, None, words),
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
