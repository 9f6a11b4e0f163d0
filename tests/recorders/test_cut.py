"""A stream without its end mark, what is known after a recording, and what is no stream."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from killick import AsyncStore, Store, StreamCut
from killick.recorders import record
from killick.types import Usage
from tests.recorders.clients import SHAPES
from tests.recorders.corpora import EVENTS

Event = dict[str, Any]


def chunk(delta: Event, finish: str | None = None) -> Event:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CALL = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"a": 1}'}}
EARLY = [chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({"tool_calls": [CALL]})]
WHOLE = [
    chunk({"content": "Hello"}),
    chunk({}, "stop") | {"usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]


def test_a_clean_end_before_the_end_mark_raises_and_says_what_was_kept(store: Store) -> None:
    session = store.create_session()
    with pytest.raises(StreamCut) as cut, session.turn("Hi.") as turn:  # noqa: PT012
        reply = record(turn, "openai-chat", iter(EARLY))
        for _ in reply:
            pass
    message = session.messages()[1]
    assert (message.text, message.state) == ("Hello", "partial")
    assert (cut.value.message_id, cut.value.characters, cut.value.calls) == (reply.id, 5, ("c1",))
    assert reply.id in str(cut.value)
    assert "5 characters" in str(cut.value)
    assert session.turns()[0].status == "failed"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_cut_until_its_end_mark_comes(store: Store, shape: Any) -> None:
    """What comes behind the end mark (usage, in a chunk of its own) may be missing."""
    events = EVENTS[shape]
    mark = len(events) - 1 if shape == "openai-chat" else len(events)
    for number in range(len(events) + 1):
        with store.create_session().turn("Hi.") as turn:
            reply = record(turn, shape, iter(events[:number]))
            try:
                assert list(reply) == events[:number]
                assert number >= mark
            except StreamCut:
                assert number < mark
        assert reply.complete is (number >= mark)
        assert (reply.error is None) is (number >= mark)


def test_one_that_catches_it_asks_again_in_the_same_turn(store: Store) -> None:
    session = store.create_session()
    with session.turn("Hi.") as turn:
        first = record(turn, "openai-chat", iter(EARLY))
        with pytest.raises(StreamCut):
            list(first)
        second = record(turn, "openai-chat", iter(WHOLE), retry_of=first)
        assert list(second) == WHOLE
    assert session.turns()[0].status == "completed"
    assert [(m.text, m.state) for m in session.messages()[1:]] == [
        ("Hello", "partial"),
        ("Hello", "complete"),
    ]
    assert (second.attempt, second.first_call_id) == (2, first.model_call_id)


def test_a_caller_may_keep_it_without_an_exception(store: Store) -> None:
    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, "openai-chat", iter(EARLY), cut="keep")
        assert list(reply) == EARLY
    assert session.turns()[0].status == "completed"
    assert session.messages()[1].state == "partial"
    assert (reply.complete, reply.error) == (False, "the stream ended without its end marker")
    with session.turn("Hi.") as turn, pytest.raises(ValueError, match="raise, keep"):
        record(turn, "openai-chat", iter(EARLY), cut="drop")  # type: ignore[call-overload]


def test_a_loop_that_is_left_raises_nothing(store: Store) -> None:
    with store.create_session().turn("Hi.") as turn:
        reply = record(turn, "openai-chat", iter(EARLY))
        for _ in reply:
            break
    assert (reply.answer.text, reply.answer.state) == ("Hel", "partial")
    assert reply.error == "the consumer stopped reading"


class Named:
    """A stream of an SDK that calls things of its own by our names."""

    usage = answer = complete = error = finish_reason = "theirs"
    other = "theirs"

    def __iter__(self) -> Any:
        return iter(WHOLE)


def test_what_is_known_after_a_recording_wins_over_the_streams_names(store: Store) -> None:
    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, "openai-chat", Named())
        assert (reply.finish_reason, reply.usage, reply.complete) == (None, None, False)
        assert reply.answer.state == "streaming"
        list(reply)
        assert reply.other == "theirs"
    stored = session.messages()[1]
    assert (reply.finish_reason, reply.usage) == ("stop", Usage(input=3, output=2))
    assert (reply.complete, reply.error) == (True, None)
    assert (reply.answer.text, list(reply.answer.parts)) == ("Hello", list(stored.parts))
    assert (reply.answer.id, reply.answer.turn_id) == (stored.id, stored.turn_id)


def test_they_are_there_after_a_whole_response(store: Store) -> None:
    message = {"role": "assistant", "content": "Hello"}
    response = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    with store.create_session().turn("Hi.") as turn:
        reply = record(turn, "openai-chat", response)
        assert reply.whole() is response
    assert (reply.finish_reason, reply.answer.text, reply.complete) == ("length", "Hello", True)


def test_an_error_of_the_providers_is_said_after_the_recording(store: Store) -> None:
    events = [*EARLY, {"error": {"message": "Overloaded"}}]
    with store.create_session().turn("Hi.") as turn:
        reply = record(turn, "openai-chat", iter(events))
        with pytest.raises(StreamCut, match="Overloaded"):
            list(reply)
    assert reply.error == "the provider reported an error: Overloaded"


def test_a_response_that_failed_has_its_end_and_raises_nothing(store: Store) -> None:
    failed = {"status": "failed", "error": {"message": "Overloaded"}, "output": []}
    with store.create_session().turn("Hi.") as turn:
        reply = record(
            turn, "openai-responses", iter([{"type": "response.failed", "response": failed}])
        )
        list(reply)
    assert (reply.complete, reply.finish_reason) == (False, "failed")
    assert reply.error == "the provider reported an error: Overloaded"


def test_the_same_on_the_asynchronous_face(tmp_path: Path) -> None:
    async def flow(events: list[Event]) -> AsyncIterator[Event]:
        for event in events:
            yield event

    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            with pytest.raises(StreamCut) as cut:  # noqa: PT012
                async with session.turn("Hi.") as turn:
                    first = record(turn, "openai-chat", flow(EARLY))
                    async for _ in first:
                        pass
            assert (cut.value.message_id, cut.value.characters) == (first.id, 5)
            assert (await session.turns())[0].status == "failed"
            async with session.turn("Again.") as turn:
                kept = record(turn, "openai-chat", flow(EARLY), cut="keep")
                assert [event async for event in kept] == EARLY
                async with record(turn, "openai-chat", flow(WHOLE), retry_of=kept) as reply:
                    while not reply.complete:
                        try:
                            await anext(reply)
                        except StopAsyncIteration:
                            break
            assert (kept.complete, kept.answer.text) == (False, "Hello")
            assert (reply.complete, reply.error, reply.finish_reason) == (True, None, "stop")
            assert reply.usage == Usage(input=3, output=2)
            assert reply.answer.text == "Hello"
            async with session.turn("No stream.") as turn:
                for wrong, kind in NO_STREAMS:
                    with pytest.raises(TypeError, match=kind):
                        record(turn, "openai-chat", wrong)
                other_face: Any = EARLY
                with pytest.raises(TypeError, match="a list"):
                    record(turn, "openai-chat", other_face)
                made: Any = lambda: "Hello"  # noqa: E731
                with pytest.raises(TypeError, match="a str"):
                    await record(turn, "openai-chat", made).whole()

    asyncio.run(main())


# -- what is no stream -----------------------------------------------------------------------------

NO_STREAMS: list[tuple[Any, str]] = [
    ("Hello", "a str"),
    (b"data: {}", "a bytes"),
    (None, "None"),
    (7, "an int"),
]


@pytest.mark.parametrize(("given", "kind"), NO_STREAMS)
def test_what_is_no_stream_is_refused_before_anything_is_recorded(
    store: Store, given: Any, kind: str
) -> None:
    session = store.create_session()
    with session.turn("Hi.") as turn:
        before = session.head
        with pytest.raises(TypeError, match=kind):
            record(turn, "openai-chat", given)
        assert list(session.entries(after=before)) == []


@pytest.mark.parametrize(("given", "kind"), NO_STREAMS)
def test_a_function_that_makes_no_stream_or_response_is_told_what_it_made(
    store: Store, given: Any, kind: str
) -> None:
    with store.create_session().turn("Hi.") as turn:
        with pytest.raises(TypeError, match=kind):
            list(record(turn, "openai-chat", lambda: given))
        with pytest.raises(TypeError, match=f"whole.*{kind}"):
            record(turn, "openai-chat", lambda: given).whole()


@pytest.mark.parametrize("shape", SHAPES)
def test_items_that_are_no_events_are_refused(store: Store, shape: Any) -> None:
    session = store.create_session()
    with session.turn("Hi.") as turn, pytest.raises(TypeError, match="not an int"):
        list(record(turn, shape, iter([7])))
    assert session.turns()[0].status == "completed"
