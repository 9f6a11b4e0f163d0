"""What recording a stream costs, above the official SDK's own stream of the same bytes."""

import json
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types

from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting
from benchmarks.stats import paired, ratio
from killick import Store, Turn
from killick.recorders import record

_PIECE = TEXT[:20]
_CHUNKS = 2_000
_PACED = 100
_PACE_SECONDS = 0.005
_GOAL_MICROS = 30.0
_GOAL_LATENCY_MICROS = 200.0

_OPENAI = {"model": "m", "stream": True}
_TALK = [{"role": "user", "content": "Go."}]


def _chat_event(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None if text else "stop"}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return head | {"choices": [choice]}


def _responses_event(text: str) -> dict[str, Any]:
    if not text:
        response = {"id": "r1", "object": "response", "status": "completed", "output": []}
        return {"type": "response.completed", "response": response, "sequence_number": 2}
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1", "sequence_number": 1}
    return {"type": "response.output_text.delta", "delta": text, "logprobs": [], **place}


def _anthropic_event(text: str) -> dict[str, Any]:
    if not text:
        return {"type": "message_stop"}
    delta = {"type": "text_delta", "text": text}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def _gemini_event(text: str) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    return {"candidates": [candidate if text else candidate | {"finishReason": "STOP"}]}


_OPENINGS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [],
    "openai-responses": [
        {"type": "response.output_item.added", "output_index": 0, "sequence_number": 0}
        | {"item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []}}
    ],
    "anthropic": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    ],
    "gemini": [],
}
_EVENTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "openai-chat": _chat_event,
    "openai-responses": _responses_event,
    "anthropic": _anthropic_event,
    "gemini": _gemini_event,
}


def _bytes(shape: str, count: int) -> list[bytes]:
    pieces = [_EVENTS[shape](_PIECE)] * count
    found = []
    for event in [*_OPENINGS[shape], *pieces, _EVENTS[shape]("")]:
        head = f"event: {event['type']}\n" if "type" in event else ""
        found.append(f"{head}data: {json.dumps(event)}\n\n".encode())
    return found


class _Body(httpx2.SyncByteStream):
    """A body that is there already, or comes in its own time; remembers when each piece came."""

    def __init__(self, pieces: list[bytes], pace: float) -> None:
        self.came: list[float] = []
        self._pieces = pieces
        self._pace = pace

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if self._pace:
                sleep(self._pace)
            self.came.append(perf_counter())
            yield piece


class _Provider:
    """An SDK's client without a network under it."""

    def __init__(self, shape: str, count: int, pace: float = 0.0) -> None:
        self.body = _Body([], 0)
        self._shape = shape
        self._pieces = _bytes(shape, count)
        self._pace = pace
        self._http = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        options = types.HttpOptions(httpx_client=self._http, base_url="http://localhost")
        self._openai = openai.OpenAI(api_key="k", http_client=self._http)
        self._anthropic = anthropic.Anthropic(api_key="k", http_client=self._http)
        self._google = genai.Client(api_key="k", http_options=options)

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        self.body = _Body(self._pieces, self._pace)
        kind = {"Content-Type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, stream=self.body)

    def ask(self) -> Any:
        match self._shape:
            case "openai-chat":
                return self._openai.chat.completions.create(messages=_TALK, **_OPENAI)  # type: ignore[call-overload]
            case "openai-responses":
                return self._openai.responses.create(input="Go.", **_OPENAI)  # type: ignore[call-overload]
            case "anthropic":
                return self._anthropic.messages.create(  # type: ignore[call-overload]
                    messages=_TALK, max_tokens=9, **_OPENAI
                )
        return self._google.models.generate_content_stream(model="m", contents="Go.")


def recording(setting: Setting) -> list[Result]:
    """CPU of a chunk of 20 characters for each SDK, unpaced; the latency it adds, paced."""
    with Store(setting.folder / "ours.db") as store, store.create_session().turn("Go.") as turn:
        results = [_cpu(setting, turn, shape) for shape in _EVENTS]
        return [*results, _latency(setting, turn)]


def _cpu(setting: Setting, turn: Turn, shape: Any) -> Result:
    count = setting.some(_CHUNKS)
    provider = _Provider(shape, count)

    def used(stream: Iterator[Any]) -> float:
        before = process_time()
        for _ in stream:
            pass
        return (process_time() - before) / count

    used(provider.ask())  # what is loaded and cached at first
    found = paired(
        lambda: used(record(turn, shape, provider.ask())),
        lambda: used(provider.ask()),
        setting.blocks,
    )
    pairs = zip(found.ours, found.raw, strict=True)
    added = ratio([(ours - bare) * 1e6 for ours, bare in pairs])
    return Result(
        what=f"recording a chunk of {shape}, CPU above the SDK's",
        figure=f"{added.median:.1f} µs ({added.low:.1f} to {added.high:.1f})",
        goal=f"≤ {_GOAL_MICROS:g} µs",
        holds=added.median <= _GOAL_MICROS,
        absolute=f"the SDK alone {median(found.raw) * 1e6:.0f} µs, all threads counted",
    )


def _latency(setting: Setting, turn: Turn) -> Result:
    """From the moment a piece is there to the moment the consumer has it."""
    provider = _Provider("openai-chat", setting.some(_PACED), _PACE_SECONDS)

    def waited(stream: Iterator[Any]) -> float:
        seen = [perf_counter() for _ in stream]
        return median(late - came for late, came in zip(seen, provider.body.came, strict=False))

    found = paired(
        lambda: waited(record(turn, "openai-chat", provider.ask())),
        lambda: waited(provider.ask()),
        setting.blocks,
    )
    pairs = zip(found.ours, found.raw, strict=True)
    added = ratio([(ours - bare) * 1e6 for ours, bare in pairs])
    return Result(
        what="recording a chunk, latency added at the median",
        figure=f"{added.median:.0f} µs ({added.low:.0f} to {added.high:.0f})",
        goal=f"< {_GOAL_LATENCY_MICROS:g} µs",
        holds=added.median < _GOAL_LATENCY_MICROS,
        absolute=f"the SDK alone {median(found.raw) * 1e6:.0f} µs; a chunk each 5 ms",
    )
