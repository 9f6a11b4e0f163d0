"""Real SDKs stream from a scripted server: what is recorded is what they made of it."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors as google_errors

from killick import AsyncStore, Message, Store, StreamCut
from killick.model import entries as e
from killick.recorders import record
from killick.views import validators
from tests.recorders.accumulated import ACCUMULATORS, Accumulator, Plain, recorded, without_ids
from tests.recorders.clients import REQUESTS, SHAPES, AsyncClients, Clients
from tests.recorders.corpora import EVENTS, wire
from tests.recorders.server import Ending, Script, Scripted, sse

SDK_ERRORS = (openai.APIError, anthropic.APIError, google_errors.APIError)
FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")
CUTS = [(shape, number) for shape in SHAPES for number in range(1, len(EVENTS[shape]))]


def same(shape: str, message: Message, accumulator: Accumulator) -> tuple[Plain, Plain]:
    found = recorded(message.parts)
    return (without_ids(found) if shape == "gemini" else found), accumulator.plain()


def answer(store: Store) -> Message | None:
    """The only answer of the only session; None when nothing came."""
    messages = store.session(store.sessions()[0].id).messages()
    return messages[1] if len(messages) > 1 else None


def assert_sendable(store: Store) -> None:
    """The next request is valid for every provider, whatever was recorded."""
    session = store.session(store.sessions()[0].id)
    with session.turn("And now?"):
        pass
    for name in FORMATS:
        context = session.context(name)  # type: ignore[arg-type]
        validate = getattr(validators, name.replace("-", "_"))
        assert validate(context.messages, context.system, complete=True) == []


def call_of(store: Store) -> tuple[e.ModelCallStarted, e.ModelCallEnded]:
    bodies = [entry.body for entry in store.session(store.sessions()[0].id).entries()]
    started = next(body for body in bodies if isinstance(body, e.ModelCallStarted))
    ended = next(body for body in bodies if isinstance(body, e.ModelCallEnded))
    return started, ended


def play(
    store: Store, server: Scripted, clients: Clients, shape: Any, events: list[bytes], end: Ending
) -> Accumulator:
    """Record one stream in a turn of its own; whatever the SDK raises at a cut is let go."""
    server.scripts.append(Script(events, end))
    came = []
    with store.create_session().turn("Hi.") as turn, suppress(StreamCut, *SDK_ERRORS):
        stream = record(turn, shape, lambda: clients.ask(shape), request=REQUESTS[shape])
        for item in stream:
            came.append(item)
    accumulator = ACCUMULATORS[shape]()
    for item in came:
        accumulator.take(item)
    return accumulator


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_stream_is_the_message_that_the_sdk_built(
    store: Store, server: Scripted, clients: Clients, shape: str
) -> None:
    accumulator = play(store, server, clients, shape, wire(shape, EVENTS[shape]), "whole")
    message = answer(store)
    assert message is not None
    found, expected = same(shape, message, accumulator)
    assert found == expected
    assert_sendable(store)
    assert len(found) >= 5
    assert message.state == "complete"


@pytest.mark.parametrize(("shape", "number"), CUTS)
def test_a_stream_that_ends_without_its_end_marker_is_partial(
    store: Store, server: Scripted, clients: Clients, shape: str, number: int
) -> None:
    """Cut after every event: what the SDK had built by then is there, and nothing else."""
    accumulator = play(store, server, clients, shape, wire(shape, EVENTS[shape][:number]), "eof")
    message = answer(store)
    assert_sendable(store)
    expected = accumulator.plain()
    if message is None:
        assert expected == []
        return
    found, expected = same(shape, message, accumulator)
    assert found == expected
    finished = shape == "openai-chat" and number == len(EVENTS[shape]) - 1
    assert message.state == ("complete" if finished else "partial")
    if not finished:
        assert call_of(store)[1].error == "the stream ended without its end marker"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_connection_that_breaks_is_an_error_and_keeps_what_came(
    store: Store, server: Scripted, clients: Clients, shape: Any
) -> None:
    """The SDK raises; the message is partial, and the call says what broke."""
    events = wire(shape, EVENTS[shape][:5])
    server.scripts.append(Script(events, "broken"))
    accumulator = ACCUMULATORS[shape]()
    session = store.create_session()
    with pytest.raises(Exception) as caught, session.turn("Hi.") as turn:  # noqa: PT011, PT012
        for item in record(turn, shape, lambda: clients.ask(shape)):
            accumulator.take(item)
    message = answer(store)
    assert message is not None
    found, expected = same(shape, message, accumulator)
    assert (found, message.state) == (expected, "partial")
    assert (call_of(store)[1].error or "").startswith(type(caught.value).__name__)
    assert session.turns()[0].status == "failed"


def error_event(shape: str) -> bytes:
    if shape == "anthropic":
        error = {"type": "overloaded_error", "message": "Overloaded"}
        return sse({"type": "error", "error": error}, named=True)
    return sse({"error": {"message": "Overloaded", "type": "server_error", "code": 503}})


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_event_leaves_a_partial_message(
    store: Store, server: Scripted, clients: Clients, shape: Any
) -> None:
    events = [*wire(shape, EVENTS[shape][:6]), error_event(shape)]
    accumulator = play(store, server, clients, shape, events, "whole")
    message = answer(store)
    assert message is not None
    found, expected = same(shape, message, accumulator)
    assert (found, message.state) == (expected, "partial")
    assert "Overloaded" in (call_of(store)[1].error or "")


def test_a_response_that_failed_is_partial_though_nothing_is_raised(
    store: Store, server: Scripted, clients: Clients
) -> None:
    """The Responses API tells of a failure in its last event."""
    last = {**EVENTS["openai-responses"][-1], "type": "response.failed"}
    error = {"code": "server_error", "message": "It broke."}
    last["response"] = last["response"] | {"status": "failed", "output": [], "error": error}
    events = wire("openai-responses", [*EVENTS["openai-responses"][:-1], last])
    play(store, server, clients, "openai-responses", events, "whole")
    message = answer(store)
    assert message is not None
    assert message.state == "partial"
    assert "It broke." in (call_of(store)[1].error or "")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_model_call_says_what_it_was_made_with_and_what_came_of_it(
    store: Store, server: Scripted, clients: Clients, shape: str
) -> None:
    play(store, server, clients, shape, wire(shape, EVENTS[shape]), "whole")
    started, ended = call_of(store)
    assert started.provider == shape.partition("-")[0]
    assert started.model == REQUESTS[shape]["model"]
    assert started.settings
    assert not {"messages", "input", "contents", "system", "tools"} & set(started.settings)
    assert started.system is not None
    assert store.blob(started.system) == b"Be brief."
    assert started.tools is not None
    assert b"read" in store.blob(started.tools)
    assert ended.usage is not None
    assert (ended.usage.cached, ended.usage.output > 30) == (5, True)
    assert ended.finish_reason in ("tool_calls", "completed", "tool_use", "STOP")
    assert ended.error is None


def test_ids_that_change_mid_stream_are_aliases_of_one_message(
    store: Store, server: Scripted, clients: Clients
) -> None:
    shape = "openai-responses"
    play(store, server, clients, shape, wire(shape, EVENTS[shape]), "whole")
    ids = call_of(store)[1].provider_ids
    assert ids == {"response": "resp_1", "message": "msg_1", "message_2": "txt-77"}


def test_the_id_of_the_message_is_there_before_the_first_chunk(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(Script(wire("openai-chat", EVENTS["openai-chat"])))
    session = store.create_session()
    with session.turn("Hi.") as turn:
        stream = record(turn, "openai-chat", lambda: clients.ask("openai-chat"))
        minted = stream.id
        next(stream)
        assert [message.id for message in session.messages()][1:] == [minted]
        for _ in stream:
            pass


@pytest.mark.parametrize("shape", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_raw_bytes_give_the_same_message_as_the_sdk(
    store: Store, server: Scripted, clients: Clients, shape: Any, size: int
) -> None:
    """Whatever pieces they come in, also inside a character; and they come out as they went in."""
    accumulator = play(store, server, clients, shape, wire(shape, EVENTS[shape]), "whole")
    whole = b"".join([b": hello\r\n\r\n", *wire(shape, EVENTS[shape]), b"data: [DONE]\n\n"])
    pieces = [whole[place : place + size] for place in range(0, len(whole), size)]
    session = store.create_session()
    with session.turn("Hi.") as turn:
        assert list(record(turn, shape, iter(pieces))) == pieces
    message = session.messages()[1]
    found, expected = same(shape, message, accumulator)
    assert (found, message.state) == (expected, "complete")


def whole_body(shape: str) -> Any:
    """What the provider answers when it is not asked to stream."""
    events = EVENTS[shape]
    if shape == "openai-responses":
        return events[-1]["response"]
    if shape == "gemini":
        parts = [part for one in events for part in one["candidates"][0]["content"]["parts"]]
        joined = {**events[-1]["candidates"][0], "content": {"role": "model", "parts": parts}}
        return events[-1] | {"candidates": [joined]}
    accumulator: Any = ACCUMULATORS[shape]()
    for event in _typed(shape, events):
        accumulator.take(event)
    if shape == "anthropic":
        return accumulator._snapshot.to_dict()
    return accumulator._state.current_completion_snapshot.to_dict()


def _typed(shape: str, events: list[dict[str, Any]]) -> Iterator[Any]:
    if shape == "anthropic":
        yield from (_Loose(event) for event in events if event["type"] != "ping")
        return
    from openai.types.chat import ChatCompletionChunk

    yield from (ChatCompletionChunk.model_validate(event) for event in events)


class _Loose(dict[str, Any]):
    """A plain event; the SDK's accumulator types it by itself."""

    @property
    def type(self) -> Any:
        return self["type"]

    @property
    def index(self) -> Any:
        return self["index"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_response_that_is_not_streamed_is_the_same_message(
    store: Store, server: Scripted, clients: Clients, shape: Any
) -> None:
    accumulator = play(store, server, clients, shape, wire(shape, EVENTS[shape]), "whole")
    server.scripts.append(Script(body=whole_body(shape)))
    session = store.create_session()
    with session.turn("Hi.") as turn:
        asked = record(turn, shape, lambda: clients.ask(shape, stream=False))
        response = asked.whole()
    assert type(response).__name__ in (
        *("ChatCompletion", "Response", "Message"),
        "GenerateContentResponse",
    )
    message = session.messages()[1]
    found, expected = same(shape, message, accumulator)
    assert message.state == "complete"
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert asked.tool_calls


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_and_a_response_are_recorded_on_the_asynchronous_face_too(
    tmp_path: Path, server: Scripted, shape: Any
) -> None:
    async def main() -> None:
        server.scripts.append(Script(wire(shape, EVENTS[shape])))
        server.scripts.append(Script(body=whole_body(shape)))
        accumulator = ACCUMULATORS[shape]()
        async with AsyncStore(tmp_path / "work.db") as store, AsyncClients(server.url) as clients:
            session = await store.create_session()
            async with session.turn("Hi.") as turn:
                async for item in record(turn, shape, clients.ask(shape)):
                    accumulator.take(item)
            async with session.turn("Again.") as turn:
                await record(turn, shape, clients.ask(shape, stream=False)).whole()
            _, streamed, _, whole = await session.messages()
        found, expected = same(shape, streamed, accumulator)
        assert (found, streamed.state, whole.state) == (expected, "complete", "complete")
        kinds = [one[:1] for one in recorded(whole.parts)]
        assert kinds == [one[:1] for one in recorded(streamed.parts)]

    asyncio.run(main())


def test_a_refusal_is_what_was_said_and_is_marked(
    store: Store, server: Scripted, clients: Clients
) -> None:
    from tests.recorders.corpora import REFUSED

    play(store, server, clients, "openai-chat", wire("openai-chat", REFUSED), "whole")
    message = answer(store)
    assert message is not None
    assert message.text == "I cannot help with that."
    assert b'{"refusal":true}' in [getattr(part, "data", b"") for part in message.parts]


def test_a_call_that_a_limit_cut_off_makes_the_message_partial(
    store: Store, server: Scripted, clients: Clients
) -> None:
    """Its end marker came, and yet nobody may take the call for one."""
    from tests.recorders.corpora import TOO_LONG

    play(store, server, clients, "openai-chat", wire("openai-chat", TOO_LONG), "whole")
    message = answer(store)
    assert message is not None
    assert message.state == "partial"
    assert call_of(store)[1].finish_reason == "length"


def test_events_that_nobody_knows_are_kept(store: Store, server: Scripted) -> None:
    events = [*EVENTS["anthropic"][:1], {"type": "brand_new", "value": [1]}, {"type": 7}]
    session = store.create_session()
    with session.turn("Hi.") as turn:
        assert list(record(turn, "anthropic", iter(events), cut="keep")) == events
    kept = [getattr(part, "data", b"") for part in session.messages()[1].parts]
    assert kept == [b'{"event":{"type":"brand_new","value":[1]}}', b'{"event":{"type":7}}']


HALF = "\ud83d"
"""Half of a character: a provider may cut its events there."""

ODD: list[tuple[Any, list[Any]]] = [
    (
        "anthropic",
        [b'data: {"type": "odd", "x": "\\ud83d"}\n\n', b'data: {"type": "message_stop"}\n\n'],
    ),
    (
        "gemini",
        [{"candidates": [{"content": {"parts": [{"odd": HALF}]}, "finish_reason": "STOP"}]}],
    ),
    (
        "gemini",
        [
            {
                "candidates": [
                    {
                        "content": {
                            "parts": [{"function_call": {"name": "f", "args": {"a": HALF}}}]
                        },
                        "finish_reason": "STOP",
                    }
                ]
            }
        ],
    ),
    (
        "openai-chat",
        [{"choices": [{"index": 0, "delta": {"audio": {"data": "abc"}}, "finish_reason": "stop"}]}],
    ),
    (
        "openai-responses",
        [{"type": "odd", "x": HALF}, {"type": "response.completed", "response": {}}],
    ),
]


@pytest.mark.parametrize(("shape", "events"), ODD)
def test_what_cannot_be_read_is_kept_and_breaks_nobodys_stream(
    store: Store, shape: Any, events: list[Any]
) -> None:
    session = store.create_session()
    with session.turn("Go.") as turn:
        assert list(record(turn, shape, iter(events))) == events
    kept = answer(store)
    assert kept is not None
    assert (kept.state, len(kept.parts)) == ("complete", 1)
    assert any(text in str(kept.parts) for text in ("ud83d", "abc"))
    assert_sendable(store)


def test_what_is_signed_goes_back_with_its_signature(
    store: Store, server: Scripted, clients: Clients
) -> None:
    """Gemini refuses a call whose signature is missing."""
    play(store, server, clients, "gemini", wire("gemini", EVENTS["gemini"]), "whole")
    context = store.session(store.sessions()[0].id).context("gemini")
    parts = [part for message in context.messages for part in message["parts"]]
    calls = [part for part in parts if "function_call" in part]
    assert [part.get("thought_signature") for part in calls] == ["c2lnbmVk", None]


@pytest.mark.parametrize(("number", "kept"), [(20, []), (22, ["server_tool_use"])])
def test_a_search_that_was_cut_off_before_its_result_is_not_sent(
    store: Store, server: Scripted, clients: Clients, number: int, kept: list[str]
) -> None:
    events = wire("anthropic", EVENTS["anthropic"][:number])
    play(store, server, clients, "anthropic", events, "eof")
    context = store.session(store.sessions()[0].id).context("anthropic")
    blocks = [block["type"] for message in context.messages for block in message["content"]]
    assert [block for block in blocks if block == "server_tool_use"] == kept
