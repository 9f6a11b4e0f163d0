"""Whatever a model's server sends, and whatever a client asks: the bytes pass, nothing breaks."""

import json
import random
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proxy.asking import SHAPES, body_of, path_of
from tests.proxy.bench import RunningProxy, proxy


class _Server(socketserver.ThreadingTCPServer):
    """Answers each request with the chunks that the test has set, and keeps the last body."""

    allow_reuse_address = True
    daemon_threads = True
    chunks: list[bytes] = []  # noqa: RUF012
    kind = b"text/event-stream"
    body = b""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while True:
            length = 0
            line = self.rfile.readline()
            if not line:
                return
            while line not in (b"\r\n", b"\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = self.rfile.readline()
            self.server.body = self.rfile.read(length)
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: " + self.server.kind
                + b"\r\ntransfer-encoding: chunked\r\n\r\n"
            )  # fmt: skip
            for chunk in self.server.chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[_Server, RunningProxy, Path]]:
    store = tmp_path_factory.mktemp("fuzz") / "s.db"
    with _Server(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with proxy(store, f"http://127.0.0.1:{server.server_address[1]}") as running:
            yield server, running, store
            assert running.process.poll() is None
        server.shutdown()
    for line in store.with_suffix(".log").read_text().splitlines():
        assert json.loads(line)["event"] in ("serving", "signal", "ended", "not_understood"), line


# ruff: noqa: E501
_EVENTS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello "}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "k", "function": {"name": "shell", "arguments": '{"a"'}}]}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "function": {"arguments": ": 1}"}}]}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hé"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "openai-responses": [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {"id": "i", "type": "message", "role": "assistant", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "shell", "args": {}}}]},
                         "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}},
    ],
}  # fmt: skip


def _mutated(shape: str, seed: int) -> list[bytes]:
    """Return a stream that was damaged: events dropped, repeated, changed, cut anywhere."""
    chance = random.Random(f"{shape}/{seed}")
    events = [json.loads(json.dumps(event)) for event in _EVENTS[shape]]
    for _ in range(chance.randrange(4)):
        match chance.randrange(4):
            case 0 if events:
                events.pop(chance.randrange(len(events)))
            case 1 if events:
                events.insert(chance.randrange(len(events)), chance.choice(events))
            case 2 if events:
                _change(chance.choice(events), chance)
            case _:
                chance.shuffle(events)
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    if chance.random() < 0.5:
        data += b"data: [DONE]\n\n"
    damaged = bytearray(data)
    for _ in range(chance.randrange(3) if data else 0):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    data = bytes(
        damaged[: chance.randrange(len(damaged) + 1)] if chance.random() < 0.3 else damaged
    )
    chunks = []
    while data:
        size = chance.randrange(1, 90)
        chunks.append(data[:size])
        data = data[size:]
    return chunks


def _change(event: Any, chance: random.Random) -> None:
    """Put something else in the place of a value, at any depth."""
    while isinstance(event, dict | list) and event:
        keys = list(event) if isinstance(event, dict) else list(range(len(event)))
        key = chance.choice(keys)
        if not isinstance(event[key], dict | list) or chance.random() < 0.3:
            event[key] = chance.choice([None, -1, "", "x", [], {}, [1], {"a": []}, 1e300, True])
            return
        event = event[key]


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), whole=st.booleans())
def test_a_damaged_answer_passes(
    both: tuple[_Server, RunningProxy, Path], shape: str, seed: int, whole: bool
) -> None:
    server, running, _ = both
    server.chunks = _mutated(shape, seed)
    server.kind = b"application/json" if whole else b"text/event-stream"
    body = json.dumps(body_of(shape, [("user", f"hello {seed}")], stream=not whole)).encode()
    with (
        httpx2.Client(timeout=30) as client,
        client.stream("POST", running.url + path_of(shape, stream=not whole), content=body) as got,
    ):
        assert b"".join(got.iter_raw()) == b"".join(server.chunks)
    assert server.body == body


def _nested(value: Any, depth: int) -> bytes:
    """Return JSON in which each object has a field more, that nests so deep."""
    deep = b"[" * depth + b"]" * depth
    return json.dumps(_marked(value)).encode().replace(b'"@"', deep)


def _marked(value: Any) -> Any:
    if isinstance(value, list):
        return [_marked(inner) for inner in value]
    if isinstance(value, dict):
        return {**{key: _marked(inner) for key, inner in value.items()}, "deep": "@"}
    return value


@pytest.mark.parametrize("depth", [300, 600, 970, 5_000])
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_that_nests_deeply_passes(
    both: tuple[_Server, RunningProxy, Path], shape: str, depth: int, *, whole: bool
) -> None:
    server, running, _ = both
    nested = [_nested(event, depth) for event in _EVENTS[shape]]
    server.chunks = nested[-1:] if whole else [b"data: " + event + b"\n\n" for event in nested]
    server.kind = b"application/json" if whole else b"text/event-stream"
    body = json.dumps(body_of(shape, [("user", f"deep {depth}")], stream=not whole)).encode()
    got = httpx2.post(running.url + path_of(shape, stream=not whole), content=body, timeout=30)
    assert got.content == b"".join(server.chunks)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "type", "text", "id", "tool_calls", "parts", "input",
                         "tool_call_id", "call_id", "output", "name", "function"]),
        inner | st.sampled_from(["user", "assistant", "tool", "message", "tool_result"]),
        max_size=5,
    ),
    max_leaves=15,
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=_VALUES | st.binary(max_size=40), session=st.sampled_from(["", "a", "b"]))
def test_a_damaged_request_passes(
    both: tuple[_Server, RunningProxy, Path], shape: str, value: Any, session: str
) -> None:
    server, running, _ = both
    events = _EVENTS[shape]
    server.kind = b"text/event-stream"
    server.chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    body = value if isinstance(value, bytes) else json.dumps(
        {"messages": value, "input": value, "contents": value, "stream": True}
    ).encode()  # fmt: skip
    headers = {"session-id": session} if session else {}
    got = httpx2.post(running.url + path_of(shape, stream=True), content=body, headers=headers)
    assert got.status_code == 200
    assert got.content == b"".join(server.chunks)
    assert server.body == body
