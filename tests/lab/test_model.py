"""The scripted model, asked by each provider's own client."""

import json
import socket
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from tests.lab.model import END, Model
from tests.lab.script import Answer, Call, Drop, Fail, Gate, Text, Think
from tests.lab.wires import Said

_SCRIPT = [
    Answer(Think("Hm."), Text("Let me look around."), Call("shell", {"command": "ls"}, "call_a")),
    Answer(Text("Two files.")),
]
_GATED = [Answer(Text("Two "), Gate("open"), Text("files."))]
_SPOKEN = ("Let me look around.", [("shell", {"command": "ls"})])
_WIRES = ["chat", "responses", "anthropic", "gemini"]
_NAME: Any = "scripted"


def _chat(model: Model, *, streamed: bool) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    client: Any = openai.OpenAI(base_url=f"{model.url}/v1", api_key="x", max_retries=0)
    messages = [{"role": "user", "content": "look"}]
    if not streamed:
        message = client.chat.completions.create(model=_NAME, messages=messages).choices[0].message
    else:
        with client.chat.completions.stream(model=_NAME, messages=messages) as stream:
            message = stream.get_final_completion().choices[0].message
    calls = [(c.function.name, _json(c.function.arguments)) for c in message.tool_calls or []]
    return message.content or "", calls


def _responses(model: Model, *, streamed: bool) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    client: Any = openai.OpenAI(base_url=f"{model.url}/v1", api_key="x", max_retries=0)
    if not streamed:
        response = client.responses.create(model=_NAME, input="look")
    else:
        with client.responses.stream(model=_NAME, input="look") as stream:
            response = stream.get_final_response()
    calls = [(i.name, _json(i.arguments)) for i in response.output if i.type == "function_call"]
    return response.output_text, calls


def _anthropic(model: Model, *, streamed: bool) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    client = anthropic.Anthropic(base_url=model.url, api_key="x", max_retries=0)
    asked: Any = {
        "model": _NAME, "max_tokens": 9, "messages": [{"role": "user", "content": "look"}],
    }  # fmt: skip
    if not streamed:
        message: Any = client.messages.create(**asked)
    else:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [(b.name, b.input) for b in message.content if b.type == "tool_use"]


def _gemini(model: Model, *, streamed: bool) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    client = genai.Client(api_key="x", http_options=types.HttpOptions(base_url=model.url))
    if not streamed:
        answers = [client.models.generate_content(model=_NAME, contents="look")]
    else:
        answers = list(client.models.generate_content_stream(model=_NAME, contents="look"))
    parts: list[Any] = [
        part
        for answer in answers
        for candidate in answer.candidates or []
        for part in (candidate.content.parts if candidate.content else None) or []
    ]
    text = "".join(part.text for part in parts if part.text and not part.thought)
    calls = [part.function_call for part in parts if part.function_call]
    return text, [(call.name, call.args) for call in calls]


def _json(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


_CLIENTS = {"chat": _chat, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", _WIRES)
def test_says_its_script_to_the_providers_own_client(wire: str, streamed: bool) -> None:
    with Model(_SCRIPT) as model:
        answers = [_CLIENTS[wire](model, streamed=streamed) for _ in range(3)]
    assert answers == [_SPOKEN, ("Two files.", []), (END, [])]
    assert [request.said() for request in model.requests] == [[Said("user", "look")]] * 3
    assert all(request.wire == wire and not request.cut for request in model.requests)


@pytest.mark.parametrize("wire", _WIRES)
def test_says_one_text_though_a_gate_stands_in_it(wire: str) -> None:
    with Model(_GATED) as model:
        model.open("open")
        assert _CLIENTS[wire](model, streamed=True) == ("Two files.", [])


@pytest.mark.parametrize("wire", _WIRES)
def test_refuses_when_its_script_says_so(wire: str) -> None:
    with Model([Answer(Fail(418, "no tea"))]) as model, pytest.raises(Exception, match="no tea"):
        _CLIENTS[wire](model, streamed=True)


def test_stands_at_a_gate_with_its_words_sent_and_sees_a_client_go() -> None:
    with Model([Answer(Text("Half of "), Gate("half"), Text("it."))]) as model:
        with socket.create_connection(("127.0.0.1", model.port)) as client:
            body = b'{"stream": true, "messages": []}'
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                b"X-Mine: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            model.wait("half")
            received = b""
            while b"Half of" not in received:
                received += client.recv(4096)
            assert b"it." not in received
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        model.open("half")
        request = model.requests[0]
        assert request.done.wait(10)
    assert request.cut
    assert (request.body, request.header("x-mine")) == (body, "1")


def test_drops_a_connection() -> None:
    with Model([Answer(Text("Half of "), Drop())]) as model, pytest.raises(Exception):  # noqa: B017, PT011  (whatever the client calls it)
        _chat(model, streamed=True)


def test_answers_beside_the_script_what_offers_no_tools() -> None:
    with Model([Answer(Text("Mine."))], tools_only=True) as model:
        assert _chat(model, streamed=True)[0] == "Aside"
        client = openai.OpenAI(base_url=f"{model.url}/v1", api_key="x")
        tool: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
        asked: Any = [{"role": "user", "content": "look"}]
        answer = client.chat.completions.create(model="m", messages=asked, tools=[tool])
    assert answer.choices[0].message.content == "Mine."
    assert len(model.requests) == 1 < len(model.everything)
