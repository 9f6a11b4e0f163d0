"""One durable append, on both faces; and the ten-thousandth against the five-hundredth."""

from collections.abc import Awaitable, Callable
from time import perf_counter

import anyio

from benchmarks.raw import TEXT, WARM_APPENDS, RawWriter, log_grew, warm_up
from benchmarks.results import Result, Setting, at_most
from benchmarks.stats import Clock, Pairs, micros, paired, timed
from benchmarks.turns import turns
from killick import AsyncStore, Message, Store, Text

_APPENDS = 20
_FINER = 3
"""Short blocks, and so many times more of them: a busy machine then disturbs both of a pair."""
_NEAR, _FAR, _WINDOW = 500, 10_000, 10
_TOGETHER = 64


def message() -> Message:
    return Message(role="assistant", parts=[Text(TEXT)])


def lone_caller(setting: Setting) -> Pairs:
    """`turn.record` of a message of 600 bytes, one after another, beside a raw writer."""
    raw = RawWriter(setting.folder)
    said = message()
    path = setting.folder / "ours.db"
    with (
        Store(path) as store,
        store.create_session().turn("Go.") as turn,
    ):

        def ours(appends: int) -> None:
            for _ in range(appends):
                turn.record(said)

        warm_up(path, ours)
        count = setting.some(_APPENDS)
        pairs = paired(
            lambda: timed(lambda: ours(count), count),
            lambda: raw.block(count),
            setting.blocks * _FINER,
        )
    raw.close()
    return pairs


def sync_append(setting: Setting) -> list[Result]:
    pairs = lone_caller(setting)
    return [at_most("one durable append, Store", pairs.slowdown(), 1.8, beside(pairs))]


def async_append(setting: Setting) -> list[Result]:
    """The same, awaited by one asyncio task."""

    async def main() -> Pairs:
        raw = RawWriter(setting.folder)
        said = message()
        count = setting.some(_APPENDS)
        path = setting.folder / "ours.db"
        async with AsyncStore(path) as store:
            session = await store.create_session()
            async with session.turn("Go.") as turn:

                async def ours(appends: int) -> float:
                    began = perf_counter()
                    for _ in range(appends):
                        await turn.record(said)
                    return (perf_counter() - began) / appends

                grew, size = True, 0
                while grew:
                    await ours(WARM_APPENDS)
                    grew, size = log_grew(path, size)
                pairs = await paired_async(
                    lambda: ours(count), lambda: raw.block(count), setting.blocks * _FINER
                )
        raw.close()
        return pairs

    pairs = anyio.run(main)
    return [at_most("one durable append, AsyncStore", pairs.slowdown(), 2.3, beside(pairs))]


def growth(setting: Setting) -> list[Result]:
    """Appends around the 10,000th of one session beside appends around the 500th of another."""
    blocks = min(setting.blocks, 40)
    path = setting.folder / "ours.db"
    half = blocks * _WINDOW // 2
    far = setting.some(_FAR)
    ids = anyio.run(_sessions_of, path, (_NEAR - half, far - half))
    said = message()
    with (
        Store(path) as store,
        store.session(ids[0]).turn() as near_turn,
        store.session(ids[1]).turn() as far_turn,
    ):

        def append(turn: object) -> float:
            record = near_turn.record if turn is near_turn else far_turn.record

            def work() -> None:
                for _ in range(_WINDOW):
                    record(said)

            return timed(work, _WINDOW)

        pairs = paired(lambda: append(far_turn), lambda: append(near_turn), blocks)
    absolute = f"{micros(pairs.ours)} against {micros(pairs.raw)}"
    what = f"append number {far:,} of a session against number {_NEAR:,}"
    return [at_most(what, pairs.slowdown(), 1.3, absolute)]


async def fill(store: AsyncStore, messages: int) -> str:
    """A session with this many messages, recorded many at a time; its id."""
    said = message()
    session = await store.create_session()
    async with session.turn() as turn:

        async def record(count: int) -> None:
            for _ in range(count):
                await turn.record(said)

        each, rest = divmod(messages, _TOGETHER)
        async with anyio.create_task_group() as group:
            for number in range(_TOGETHER):
                group.start_soon(record, each + (number < rest))
    return session.id


async def _sessions_of(path: object, sizes: tuple[int, ...]) -> list[str]:
    async with AsyncStore(str(path)) as store:
        return [await fill(store, size) for size in sizes]


async def paired_async(
    ours: Callable[[], Awaitable[float]], raw: Callable[[], float], blocks: int
) -> Pairs:
    """As `paired`, where ours is awaited."""
    pairs = Pairs([], [], [])
    for number in range(blocks):
        with turns:
            if number % 2:
                pairs.raw.append(raw())
            clock = Clock()
            pairs.ours.append(await ours())
            pairs.ours_cpu.append(clock.cpu(pairs.ours[-1]))
            if not number % 2:
                pairs.raw.append(raw())
    return pairs


def beside(pairs: Pairs) -> str:
    return f"{micros(pairs.ours)}, {pairs.cpu * 1e6:.0f} µs of CPU; raw {micros(pairs.raw)}"
