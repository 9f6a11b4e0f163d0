"""What one process asks for or writes reaches another in time, in order and once."""

import asyncio
import statistics
import time
from collections.abc import Callable

import anyio
import pytest
import trio

from killick import AsyncStore, Entry, FollowedDelta, Message, Store, Text, TurnStopped
from tests.crash.journals import check_sound, endings
from tests.crash.processes import Channel, Nursery
from tests.waiting import until

pytestmark = pytest.mark.crash

ROUNDS = 10
STOPPED_WITHIN = 0.250
FOLLOWED_WITHIN = 0.050
WINDOW = 0.050


# -- stop --------------------------------------------------------------------------------------


def stream_until_stopped(parent: Channel, path: str) -> None:
    """Says something every millisecond until it is stopped; tells when that was."""
    session = Store(path).session("s")
    for number in range(ROUNDS):
        try:
            with session.turn(f"prompt {number}") as turn, turn.stream() as reply:
                parent.send(turn.id)
                while True:
                    reply.text("word ")
                    time.sleep(0.001)
        except TurnStopped as stopped:
            parent.send([time.monotonic(), stopped.reason])


def await_in_asyncio(parent: Channel, path: str) -> None:
    asyncio.run(_await_until_stopped(parent, path))


def await_in_trio(parent: Channel, path: str) -> None:
    trio.run(_await_until_stopped, parent, path)


async def _await_until_stopped(parent: Channel, path: str) -> None:
    """Awaits something that never comes, with an answer begun, until it is stopped."""
    session = await AsyncStore(path).session("s")
    for number in range(ROUNDS):
        cancelled = 0.0
        try:
            async with session.turn(f"prompt {number}") as turn, turn.stream() as reply:
                reply.text("word ")
                parent.send(turn.id)
                try:
                    await anyio.sleep_forever()
                finally:
                    cancelled = time.monotonic()
        except TurnStopped as stopped:
            parent.send([cancelled, stopped.reason])


@pytest.mark.parametrize(
    "holder",
    [stream_until_stopped, await_in_asyncio, await_in_trio],
    ids=["sync", "asyncio", "trio"],
)
def test_a_stop_reaches_a_holder_in_another_process(
    nursery: Nursery, path: str, holder: Callable[[Channel, str], None]
) -> None:
    """Within 250 ms the next delta raises TurnStopped, or what the body awaits is cancelled and the
    block raises it; every turn is ended as interrupted with the reason that was given."""
    store = Store(path)
    session = store.create_session(id="s")
    child = nursery.start(holder, path)
    took = []
    for number in range(ROUNDS):
        turn_id = child.receive()
        asked = time.monotonic()
        assert session.stop(turn_id, reason=f"reason {number}") == turn_id
        stopped, reason = child.receive()
        assert reason == f"reason {number}"
        took.append(stopped - asked)
    assert child.wait() == 0
    # One round may fall into a pause of a busy machine; all but one must be in time.
    assert sorted(took)[-2] < STOPPED_WITHIN, took
    check_sound(session)
    assert endings(session) == [("interrupted", f"reason {n}") for n in range(ROUNDS)]
    assert session.stop() is None
    store.close()


# -- follow ------------------------------------------------------------------------------------

MESSAGES = 30
CHUNKS = 75
"""Of a message: long enough to be seen while it streams, however busy the machine is."""


def write(parent: Channel, path: str) -> None:
    """Messages and streams; tells when each write had returned, and each chunk was handed over."""
    with Store(path) as store:
        session = store.session("s")
        parent.send("ready")
        parent.receive()
        entries: list[tuple[int, float]] = []
        chunks: list[tuple[str, int, float]] = []
        with session.turn("prompt") as turn:
            for number in range(MESSAGES):
                receipt = turn.record(Message("assistant", [Text(f"message {number}")]))
                entries.append((receipt.seq, time.monotonic()))
                if number % 5:
                    continue
                with turn.stream() as reply:
                    length = 0
                    for count in range(CHUNKS):
                        chunk = f"{number}.{count} "
                        reply.text(chunk)
                        chunks.append((reply.id, length, time.monotonic()))
                        length += len(chunk)
                        time.sleep(0.004)
                    reply.tool_call(f"call {number}", name="shell", arguments="{}")
                with turn.tool(f"call {number}") as call:
                    call.output("some ")
                    call.output("output")
                    call.finish()
        parent.send([entries, chunks])


def follow(parent: Channel, path: str, after: int, at_first: str = "") -> None:
    """Follows until the turn has ended; tells what came and when; says a word at the first text."""
    store = Store(path)
    session = store.session("s")
    seen: list[list[object]] = []
    parent.send("following")
    for item in session.follow(after=after):
        at = time.monotonic()
        if isinstance(item, FollowedDelta):
            text = item.text if item.delta.type in ("text", "output") else ""
            where = f"{item.message_id}/{item.call_id}/{item.part}"
            seen.append(["delta", where, item.offset, text, at])
            if at_first and text:
                parent.send(at_first)
                at_first = ""
        else:
            seen.append([item.kind, item.seq, at])
            if item.kind == "turn_ended":
                break
    parent.send(seen)
    store.close()


def follow_in_asyncio(parent: Channel, path: str, after: int) -> None:
    asyncio.run(_follow_async(parent, path, after))


async def _follow_async(parent: Channel, path: str, after: int) -> None:
    async with AsyncStore(path) as store:
        session = await store.session("s")
        seen: list[list[object]] = []
        parent.send("following")
        async for item in session.follow(after=after):
            at = time.monotonic()
            if isinstance(item, FollowedDelta):
                text = item.text if item.delta.type in ("text", "output") else ""
                where = f"{item.message_id}/{item.call_id}/{item.part}"
                seen.append(["delta", where, item.offset, text, at])
            else:
                assert isinstance(item, Entry)
                seen.append([item.kind, item.seq, at])
                if item.kind == "turn_ended":
                    break
        parent.send(seen)


@pytest.mark.parametrize("follower", [follow, follow_in_asyncio], ids=["sync", "asyncio"])
def test_a_follower_in_another_process_sees_everything_in_time(
    nursery: Nursery, path: str, follower: Callable[[Channel, str, int], None]
) -> None:
    """Entries come in the order of their seqs, deltas in the order of their offsets, without gap or
    repeat; at the median within 50 ms of the commit, for a delta that is after the window."""
    store = Store(path)
    session = store.create_session(id="s")
    writer, reader = nursery.start(write, path), nursery.start(follower, path, 0)
    writer.expect("ready")
    reader.expect("following")
    writer.send("go")
    returned, handed_over = writer.receive()
    seen = reader.receive()
    entries = [item for item in seen if item[0] != "delta"]
    assert [item[1] for item in entries] == list(range(1, len(session.entries()) + 1))
    seen_at = {item[1]: item[2] for item in entries}
    late = [seen_at[seq] - at for seq, at in returned]
    assert statistics.median(late) < FOLLOWED_WITHIN
    _check_deltas(seen)
    texts = _texts(seen)
    for message in session.messages():
        if message.role == "assistant" and message.tool_calls:
            assert texts[f"{message.id}/None/0"] == message.text
    outputs = [text for where, text in texts.items() if "/call" in where]
    # Output that was finished before it was ever shown comes with its result alone.
    assert set(outputs) <= {"some output"}
    delays = [_shown(seen, f"{m}/None/0", offset) - at for m, offset, at in handed_over]
    assert statistics.median(delays) < WINDOW + FOLLOWED_WITHIN
    store.close()


def _check_deltas(seen: list[list[object]]) -> None:
    lengths: dict[object, int] = {}
    for item in seen:
        if item[0] == "delta":
            _, where, offset, text, _ = item
            if text:
                assert offset == lengths.get(where, 0), "a gap or a repeat"
                lengths[where] = lengths.get(where, 0) + len(str(text))


def _texts(seen: list[list[object]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for item in seen:
        if item[0] == "delta" and item[3]:
            texts[str(item[1])] = texts.get(str(item[1]), "") + str(item[3])
    return texts


def _shown(seen: list[list[object]], where: str, offset: int) -> float:
    """When the character at this place was shown."""
    for item in seen:
        if item[0] == "delta" and item[1] == where:
            _, _, start, text, at = item
            assert isinstance(start, int)
            assert isinstance(at, float)
            if start <= offset < start + len(str(text)):
                return at
    raise AssertionError(f"nothing was shown at {where}, {offset}")


def test_followers_join_in_the_middle_of_a_stream(nursery: Nursery, path: str) -> None:
    """Followers that begin at any moment of a running turn, at the head or before it, see the same:
    what they are shown makes the text, wherever they came in."""
    store = Store(path)
    session = store.create_session(id="s")
    followers = []
    with session.turn("prompt") as turn:
        with turn.stream() as reply:
            head = session.head
            for number in range(12):
                reply.text(f"word{number} ")
                if number % 3 == 0:
                    followers.append(nursery.start(follow, path, 0 if number % 2 else head))
                    followers[-1].expect("following")
                time.sleep(0.03)
        whole = f"{reply.id}/None/0"
    said = "".join(f"word{number} " for number in range(12))
    for child in followers:
        seen = child.receive()
        _check_deltas(seen)
        seqs = [item[1] for item in seen if item[0] != "delta"]
        assert seqs == list(range(seqs[0], len(session.entries()) + 1))
        assert _texts(seen)[whole] == said
    store.close()


def test_a_follower_outlives_the_writer_it_follows(nursery: Nursery, path: str) -> None:
    """When the process it follows is killed, a follower keeps what it was shown, sees the recovery
    that another process does, and what it has been shown is what is stored."""
    store = Store(path)
    session = store.create_session(id="s")
    follower = nursery.start(follow, path, 0, "shown")
    follower.expect("following")
    writer = nursery.start(stream_until_stopped, path)
    writer.receive()
    follower.expect("shown")
    until(lambda: session.messages()[-1].text.startswith("word word "))
    writer.kill()
    store.session("s")
    seen = follower.receive()
    _check_deltas(seen)
    [partial] = [message for message in session.messages() if message.role == "assistant"]
    assert _texts(seen) == {f"{partial.id}/None/0": partial.text}
    assert partial.text.startswith("word word ")
    store.close()
