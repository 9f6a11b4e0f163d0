"""Whatever a consumer does with a recorded stream, what came is kept and the connection closed."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from killick import AsyncStore, Message, Session, Store, TurnEnded, TurnStopped
from killick.model import entries as e
from killick.recorders import record
from killick.recorders.apply import LEFT
from tests.recorders.clients import REQUESTS, SHAPES, AsyncClients, Clients
from tests.recorders.corpora import EVENTS, wire
from tests.recorders.saying import answer, plain_events
from tests.recorders.server import Script, Scripted

WORDS = [f"w{number} " for number in range(8)]


def calls(session: Session) -> list[e.ModelCallEnded]:
    bodies = [entry.body for entry in session.entries()]
    return [body for body in bodies if isinstance(body, e.ModelCallEnded)]


def is_text(item: Any) -> bool:
    """Whether this item of whatever SDK says a word."""
    return any(word.strip() in repr(item) for word in WORDS)


def hung_up(server: Scripted) -> bool:
    return server.hung_up.acquire(timeout=10)


# -- leaving early -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_breaking_out_of_the_loop_closes_the_connection_and_the_turn_goes_on(
    store: Store, server: Scripted, clients: Clients, shape: Any
) -> None:
    server.scripts.append(answer(shape, WORDS, stalls=True))
    session = store.create_session()
    with session.turn("Hi.") as turn:
        stream = record(turn, shape, clients.ask(shape))
        for item in stream:
            if WORDS[3].strip() in repr(item):
                break
        assert hung_up(server)
        said = session.messages()[1]
        assert (said.text, said.state) == ("".join(WORDS[:4]), "partial")
        assert list(stream) == []
    assert session.turns()[0].status == "completed"
    assert [call.error for call in calls(session)] == [LEFT]


def test_an_exception_in_the_loop_closes_the_connection_and_fails_the_turn(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(answer("anthropic", WORDS, stalls=True))
    session = store.create_session()
    with pytest.raises(ZeroDivisionError), session.turn("Hi.") as turn:  # noqa: PT012
        for item in record(turn, "anthropic", clients.ask("anthropic")):
            if WORDS[2].strip() in repr(item):
                raise ZeroDivisionError
    assert hung_up(server)
    assert session.messages()[1].text == "".join(WORDS[:3])
    assert session.turns()[0].status == "failed"


def test_stepping_by_hand_in_a_block(store: Store, server: Scripted, clients: Clients) -> None:
    server.scripts.append(answer("openai-chat", WORDS, stalls=True))
    session = store.create_session()
    with session.turn("Hi.") as turn:
        with record(turn, "openai-chat", lambda: clients.ask("openai-chat")) as stream:
            next(stream)
            next(stream)
        assert hung_up(server)
        assert session.messages()[1].text == "".join(WORDS[:2])


@pytest.mark.parametrize("where", ["reading", "body"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_cancelled_task_closes_the_connection(
    tmp_path: Path, server: Scripted, shape: Any, where: str
) -> None:
    """While it waits for the next chunk, and while it does something with the last one."""
    server.scripts.append(answer(shape, WORDS, stalls=True))

    async def main() -> None:
        reached = asyncio.Event()
        async with AsyncStore(tmp_path / "work.db") as store, AsyncClients(server.url) as clients:
            session = await store.create_session()

            async def work() -> None:
                async with session.turn("Hi.") as turn:
                    async for item in record(turn, shape, clients.ask(shape)):
                        if WORDS[-1].strip() in repr(item):
                            reached.set()
                            if where == "body":
                                await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(hung_up, server)
            assert (await session.messages())[1].text == "".join(WORDS)
            assert (await session.turns())[0].reason == "cancelled"

    asyncio.run(main())


def test_breaking_out_of_an_asynchronous_loop(tmp_path: Path, server: Scripted) -> None:
    server.scripts.append(answer("openai-responses", WORDS, stalls=True))

    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store, AsyncClients(server.url) as clients:
            session = await store.create_session()
            async with session.turn("Hi.") as turn:
                async for item in record(turn, "openai-responses", clients.ask("openai-responses")):
                    if WORDS[3].strip() in repr(item):
                        break
                assert await asyncio.to_thread(hung_up, server)
            said = (await session.messages())[1]
            assert (said.text, said.state) == ("".join(WORDS[:4]), "partial")
            assert (await session.turns())[0].status == "completed"

    asyncio.run(main())


def test_cancelled_under_trio(tmp_path: Path, server: Scripted) -> None:
    server.scripts.append(answer("openai-chat", WORDS, stalls=True))

    async def main() -> None:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        request = REQUESTS["openai-chat"] | {"stream": True}
        async with AsyncStore(tmp_path / "work.db") as store, client:
            session = await store.create_session()
            with trio.CancelScope() as scope:
                async with session.turn("Hi.") as turn:
                    made = client.chat.completions.create(**request)
                    async with record(turn, "openai-chat", made) as stream:
                        while True:
                            item = await anext(stream)
                            if WORDS[-1].strip() in repr(item):
                                scope.cancel()
            assert await trio.to_thread.run_sync(hung_up, server)
            assert (await session.messages())[1].text == "".join(WORDS)
            assert (await session.turns())[0].reason == "cancelled"

    trio.run(main)


# -- a stop, and the end -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_stop_while_it_streams_keeps_the_text_once(
    store: Store, server: Scripted, clients: Clients, shape: Any, place: int
) -> None:
    """Also with the last word: the end and the stop meet, and one of them wins."""
    server.scripts.append(answer(shape, WORDS))
    session = store.create_session()
    with pytest.raises(TurnStopped), session.turn("Hi.") as turn:  # noqa: PT012
        for item in record(turn, shape, clients.ask(shape)):
            if WORDS[place].strip() in repr(item):
                session.stop(reason="enough")
        turn.record(Message(role="assistant", parts=[]))
    said = [message.text for message in session.messages()[1:]]
    assert said == ["".join(WORDS[: place + 1])]
    assert session.turns()[0].reason == "enough"


def test_a_completion_and_a_stop_from_another_thread_meet(
    store: Store, server: Scripted, clients: Clients
) -> None:
    """Whichever wins, the whole text is there once, and the turn has one ending."""
    for number in range(25):
        server.scripts.append(answer("openai-chat", WORDS))
        session = store.create_session()
        gate = threading.Event()

        def stop(session: Session = session, gate: threading.Event = gate) -> None:
            gate.wait()
            session.stop(reason="enough")

        stopper = threading.Thread(target=stop)
        stopper.start()
        try:
            with session.turn("Hi.") as turn:
                for item in record(turn, "openai-chat", clients.ask("openai-chat")):
                    if WORDS[-1 - number % 2].strip() in repr(item):
                        gate.set()
        except (TurnStopped, TurnEnded):
            pass
        stopper.join()
        said = [message.text for message in session.messages()[1:]]
        assert said in (["".join(WORDS)], ["".join(WORDS[:-1])])
        endings = [entry for entry in session.entries() if entry.kind == "turn_ended"]
        assert len(endings) == 1


def test_a_stream_that_stalls_until_the_sdk_gives_up(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(answer("openai-chat", WORDS, stalls=True))
    session = store.create_session()
    impatient = clients.openai.with_options(timeout=0.3)
    request = REQUESTS["openai-chat"]
    with session.turn("Hi.") as turn, pytest.raises(openai.APITimeoutError):
        list(record(turn, "openai-chat", impatient.chat.completions.create(stream=True, **request)))
    assert hung_up(server)
    assert session.messages()[1].text == "".join(WORDS)
    assert (calls(session)[0].error or "").startswith("APITimeoutError")


# -- attempts ----------------------------------------------------------------------------------


def test_a_retry_is_a_new_attempt_and_the_first_ones_text_stays(
    store: Store, server: Scripted, clients: Clients
) -> None:
    broken = answer("openai-chat", WORDS)
    server.scripts.append(Script(broken.events[:3], "broken"))
    server.scripts.append(Script(broken.events[:2], "broken"))
    server.scripts.append(answer("openai-chat", WORDS))
    session = store.create_session()
    said = []
    with session.turn("Hi.") as turn:
        last = None
        for _ in range(3):
            last = record(turn, "openai-chat", lambda: clients.ask("openai-chat"), retry_of=last)
            try:
                said = list(last)
            except openai.APIConnectionError:
                continue
    assert len(said) == len(WORDS) + 1
    started = [
        entry.body for entry in session.entries() if isinstance(entry.body, e.ModelCallStarted)
    ]
    assert [call.attempt for call in started] == [1, 2, 3]
    assert [call.retry_of for call in started] == [None, started[0].id, started[0].id]
    texts = [(message.text, message.state) for message in session.messages()[1:]]
    assert texts == [
        ("".join(WORDS[:3]), "partial"),
        ("".join(WORDS[:2]), "partial"),
        ("".join(WORDS), "complete"),
    ]


def test_a_request_that_is_refused_is_a_model_call_with_an_error_and_no_message(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(Script(body={"error": {"message": "Slow down."}}, status=429))
    session = store.create_session()
    with session.turn("Hi.") as turn, pytest.raises(openai.RateLimitError):
        list(record(turn, "openai-chat", lambda: clients.ask("openai-chat")))
    assert "Slow down." in (calls(session)[0].error or "")
    assert len(session.messages()) == 1


def test_the_model_call_is_durable_before_the_request_is_made(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(answer("openai-chat", WORDS))
    session = store.create_session()
    seen: list[list[str]] = []

    def ask() -> Any:
        seen.append([entry.kind for entry in session.entries()])
        return clients.ask("openai-chat")

    with session.turn("Hi.") as turn:
        list(record(turn, "openai-chat", ask))
    assert seen[0][-2:] == ["model_call_started", "message_started"]


# -- what the SDKs add ---------------------------------------------------------------------------


def test_helper_streams_of_the_sdks_are_recorded(
    store: Store, server: Scripted, clients: Clients
) -> None:
    """Their own accumulators go on working, and their managers are entered and left."""
    session = store.create_session()
    server.scripts.append(Script(wire("anthropic", EVENTS["anthropic"])))
    with session.turn("One.") as turn:
        request = REQUESTS["anthropic"]
        stream = record(turn, "anthropic", clients.anthropic.messages.stream(**request))
        final = stream.get_final_message()
    assert [block.type for block in final.content].count("tool_use") == 2
    assert "".join(block.text for block in final.content if block.type == "text") == (
        session.messages()[-1].text
    )
    server.scripts.append(answer("anthropic", WORDS))
    with session.turn("Two.") as turn:
        manager = clients.anthropic.messages.stream(**request)
        assert "".join(record(turn, "anthropic", manager).text_stream) == "".join(WORDS)
    assert session.messages()[-1].text == "".join(WORDS)
    chunks = wire("openai-chat", EVENTS["openai-chat"])
    server.scripts.append(Script([*chunks, b"data: [DONE]\n\n"]))
    with session.turn("Three.") as turn:
        plain = {k: v for k, v in REQUESTS["openai-chat"].items() if k != "tools"}
        chat = record(turn, "openai-chat", clients.openai.chat.completions.stream(**plain))
        completion = chat.get_final_completion()
    assert completion.choices[0].message.content == session.messages()[-1].text
    server.scripts.append(answer("openai-responses", WORDS))
    with session.turn("Four.") as turn:
        plain = {k: v for k, v in REQUESTS["openai-responses"].items() if k != "tools"}
        responses = record(turn, "openai-responses", clients.openai.responses.stream(**plain))
        response = responses.get_final_response()
    assert response.output_text == session.messages()[-1].text == "".join(WORDS)
    assert [message.state for message in session.messages()] == ["complete"] * 8


def test_attributes_of_the_stream_are_those_of_the_sdk(
    store: Store, server: Scripted, clients: Clients
) -> None:
    server.scripts.append(answer("openai-chat", WORDS))
    with store.create_session().turn("Hi.") as turn:
        made = clients.ask("openai-chat")
        stream = record(turn, "openai-chat", made)
        assert stream.response is made.response
        assert list(stream)
        with pytest.raises(AttributeError):
            stream.nothing  # noqa: B018


def test_a_whole_response_is_not_taken_for_a_stream(store: Store) -> None:
    with store.create_session().turn("Hi.") as turn, pytest.raises(TypeError, match="whole"):
        list(record(turn, "openai-chat", {"choices": []}))


def test_an_unknown_shape_is_named(store: Store) -> None:
    with store.create_session().turn("Hi.") as turn, pytest.raises(ValueError, match="openai-chat"):
        record(turn, "openai", iter([]))  # type: ignore[call-overload]


def test_secrets_and_what_json_cannot_hold_stay_out_of_the_settings(store: Store) -> None:
    session = store.create_session()
    request = {
        "model": "m",
        "extra_headers": {"Authorization": "Bearer secret"},
        "timeout": object(),
        "response_format": Message,
        "stop": ["a", float("nan")],
    }
    with session.turn("Hi.") as turn:
        list(record(turn, "openai-chat", iter(plain_events("openai-chat", ["a"])), request=request))
    started = next(
        entry.body for entry in session.entries() if isinstance(entry.body, e.ModelCallStarted)
    )
    assert started.settings == {"stop": ["a"]}


SECRET_TOOLS: dict[str, dict[str, Any]] = {
    "openai-responses": {
        "tools": [
            {"type": "mcp", "server_url": "https://t", "authorization": "zebra-1"},
            {"type": "mcp", "server_url": "https://t", "headers": {"X-Key": "zebra-2"}},
        ]
    },
    "anthropic": {"mcp_servers": [{"url": "https://t", "authorization_token": "zebra-3"}]},
    "gemini": {
        "tools": [
            {
                "mcpServers": [
                    {"streamableHttpTransport": {"url": "u", "headers": {"K": "zebra-4"}}}
                ]
            },
            {"googleMaps": {"authConfig": {"apiKeyConfig": {"apiKeyString": "zebra-5"}}}},
        ]
    },
}


@pytest.mark.parametrize("shape", SECRET_TOOLS)
def test_keys_for_servers_of_tools_stay_out_of_the_journal(store: Store, shape: Any) -> None:
    session = store.create_session()
    schema = {"type": "object", "properties": {"headers": {"type": "string"}}}
    wanted = [{"name": "fetch", "parameters": schema}]
    given = dict(SECRET_TOOLS[shape])
    given["tools"] = [*given.get("tools", ()), *wanted]
    with session.turn("Hi.") as turn:
        list(record(turn, shape, iter(plain_events(shape, ["a"])), request={"model": "m", **given}))
    started = next(
        entry.body for entry in session.entries() if isinstance(entry.body, e.ModelCallStarted)
    )
    assert started.tools is not None
    tools = store.blob(started.tools)
    assert b"zebra" not in tools
    assert "zebra" not in str(started.settings)
    assert json.loads(tools)[-1:] == wanted, "a parameter may be called so"


def test_importing_the_recorders_brings_no_sdk_and_no_event_loop_along() -> None:
    import subprocess
    import sys

    program = (
        "import sys, killick.recorders; print(sorted({'asyncio', 'anyio', 'openai', 'anthropic', "
        "'google.genai', 'pydantic', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_both_faces_have_the_same_names() -> None:
    from killick.recorders import AsyncRecording, Recording

    faces = [{name for name in dir(face) if name[0] != "_"} for face in (Recording, AsyncRecording)]
    assert faces[0] == faces[1]
