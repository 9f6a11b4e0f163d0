"""Streams that real providers sent, cut at every event: nothing is lost, and all can be sent."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from killick import Session, Store
from killick.recorders import record
from killick.stores.memory import MemoryDisk
from killick.types import Format
from killick.views import validators
from tests.corpus_figures import keep
from tests.recorders import corpus

FORMATS: list[Format] = ["openai-chat", "openai-responses", "anthropic", "gemini"]
CORPUS = corpus.folder()
STREAMS = [] if CORPUS is None else list(corpus.streams(CORPUS))
FEWEST = 250
EDITED = ("openai-phase.1.", "openai-shell-container.1.")
"""Shortened by hand: what their deltas say is not what their items say."""

pytestmark = pytest.mark.skipif(
    CORPUS is None, reason="KILLICK_CORPUS names no folder with recorded streams"
)


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What was tried, and held; kept at the end for docs/evidence.md, if all of it was."""
    counted: Counter[str] = Counter()
    yield counted
    if CORPUS is not None and counted["streams"] == len(STREAMS) and not every():
        counted["streams that differ"] = len({json.dumps(one.events) for one in STREAMS})
        keep("streams", CORPUS, {name: counted[name] for name in sorted(counted)})


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store(MemoryDisk().open()) as opened:
        yield opened


def test_there_are_enough_streams() -> None:
    assert len(STREAMS) >= FEWEST, Counter(stream.shape for stream in STREAMS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_a_real_stream_cut_at_every_event(
    store: Store, counts: Counter[str], stream: corpus.Recorded
) -> None:
    texts, by = accumulated(stream)
    numbers = sorted({*range(0, len(stream.events), every() or 1), len(stream.events)})
    for number in numbers:
        session = recorded(store, stream, number)
        parts = [message for message in session.messages()[1:] if message.role == "assistant"]
        text = parts[0].text if parts else ""
        if any(name in stream.name for name in EDITED):
            by = "nothing: shortened by hand"
        else:
            assert text == texts[number], (number, by)
        assert_sendable(session, number)
        store.delete_session(session.id)
    counts.update(
        {stream.shape: 1, "streams": 1, "cuts": len(numbers), f"text compared with {by}": 1}
    )
    counts.update({"contexts": 4 * len(numbers)})


def every() -> int:
    """Only each so manyth event, to be quicker; 0 for all."""
    return int(os.environ.get("KILLICK_CORPUS_EVERY", "0"))


def recorded(store: Store, stream: corpus.Recorded, number: int) -> Session:
    session = store.create_session()
    shape: Any = stream.shape
    with session.turn("Hi.") as turn:
        reply = record(turn, shape, iter(stream.events[:number]), cut="keep")
        for _ in reply:
            pass
    assert number == len(stream.events) or reply.error is not None or reply.finish_reason
    with session.turn("And now?"):
        pass
    return session


def assert_sendable(session: Session, number: int) -> None:
    for name in FORMATS:
        context = session.context(name)
        validate = getattr(validators, name.replace("-", "_"))
        found = validate(context.messages, context.system, complete=True)
        assert found == [], (number, name)


def accumulated(stream: corpus.Recorded) -> tuple[list[str], str]:
    """The text after each event, and by what: the SDK's accumulator, or plain appending."""
    if stream.shape != "gemini":
        try:
            return _texts(stream, corpus.SdkText(stream.shape)), "an SDK's accumulator"
        except Exception:  # noqa: BLE001 (events that this version of the SDK does not take)
            pass
    return _texts(stream, corpus.PlainText(stream.shape)), "plain appending"


def _texts(stream: corpus.Recorded, accumulator: Any) -> list[str]:
    texts = [""]
    for event in stream.events:
        accumulator.take(event)
        texts.append(accumulator.text)
    return texts
