"""Streams that others recorded from real providers, if they lie in the folder KILLICK_CORPUS.

It holds `vercel-ai` and `pydantic-ai`, trees of these repositories, or those folders of them that
have recorded streams: `**/__fixtures__/*.chunks.txt` and `tests/**/cassettes/**/*.yaml`. Nothing of
it is in this repository. How to get it: docs/how-to/record-my-own-loop.md.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from anthropic._models import construct_type as construct_anthropic
from anthropic.types import RawMessageStreamEvent
from openai._models import construct_type as construct_openai
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from tests.recorders.accumulated import ACCUMULATORS

Event = dict[str, Any]
_BEGINS = ("message_start", "response.created")
"""Some files have several answers one after another."""


class Recorded:
    """One recorded stream; `name` says in which file, and at which place of it, it stands."""

    def __init__(self, name: str, shape: str, events: list[Event]) -> None:
        self.name = name
        self.shape = shape
        self.events = events


def folder() -> Path | None:
    given = os.environ.get("KILLICK_CORPUS")
    return Path(given) if given else None


def streams(corpus: Path) -> Iterator[Recorded]:
    """Every stream in one of our four shapes; some stand in two packages."""
    for path in sorted(corpus.rglob("*.chunks.txt")):
        yield from _known(path, 0, path.read_text(encoding="utf-8").splitlines())
    for path in sorted(corpus.rglob("cassettes/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "data: " not in text:
            continue
        for number, answer in enumerate(_answers(text)):
            lines = [line[5:].strip() for line in answer.splitlines() if line.startswith("data:")]
            yield from _known(path, number, lines)


def _answers(cassette: str) -> Iterator[str]:
    content = yaml.load(cassette, Loader=yaml.CSafeLoader)
    for exchange in (content or {}).get("interactions") or ():
        body = (exchange.get("response") or {}).get("body") or {}
        answer = body.get("string") if isinstance(body, dict) else body
        if isinstance(answer, bytes):
            answer = answer.decode("utf-8", "replace")
        if isinstance(answer, str):
            yield answer


def _known(path: Path, number: int, lines: list[str]) -> Iterator[Recorded]:
    events = [event for line in lines if isinstance(event := _parsed(line), dict)]
    shape = next(filter(None, map(_shape, events)), None)
    if shape is None:
        return
    begins = [0, *(at for at, event in enumerate(events) if at and event.get("type") in _BEGINS)]
    for at, (begin, end) in enumerate(zip(begins, [*begins[1:], len(events)], strict=True)):
        yield Recorded(f"{path}#{number}.{at}", shape, events[begin:end])


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _shape(event: Event) -> str | None:
    kind = event.get("type")
    if kind == "message_start":
        return "anthropic"
    if isinstance(kind, str) and kind.startswith("response."):
        return "openai-responses"
    if event.get("choices") and "delta" in event["choices"][0]:
        return "openai-chat"
    return "gemini" if event.get("candidates") else None


# -- accumulating apart ----------------------------------------------------------------------------


class SdkText:
    """The text by the SDK's own accumulator; it raises where the SDK does."""

    def __init__(self, shape: str) -> None:
        self._shape = shape
        self._accumulator: Any = ACCUMULATORS[shape]()

    def take(self, event: Event) -> None:
        types: dict[str, Any] = {
            "anthropic": (construct_anthropic, RawMessageStreamEvent),
            "openai-chat": (construct_openai, ChatCompletionChunk),
            "openai-responses": (construct_openai, ResponseStreamEvent),
        }
        construct, type_ = types[self._shape]
        self._accumulator.take(construct(type_=type_, value=json.loads(json.dumps(event))))

    @property
    def text(self) -> str:
        return "".join(one[1] for one in self._accumulator.plain() if one[0] == "text")


class PlainText:
    """The text by plain appending, where there is no SDK's accumulator, or it gives up."""

    def __init__(self, shape: str) -> None:
        self._take = getattr(self, f"_{shape.replace('-', '_')}")
        self._places: dict[Any, str] = {}

    def take(self, event: Event) -> None:
        self._take(event)

    @property
    def text(self) -> str:
        return "".join(self._places[place] for place in sorted(self._places))

    def _add(self, text: Any, place: Any = 0) -> None:
        if isinstance(text, str):
            self._places[place] = self._places.get(place, "") + text

    def _anthropic(self, event: Event) -> None:
        block, delta = event.get("content_block") or {}, event.get("delta") or {}
        self._add(block.get("text") or delta.get("text"), event.get("index", 0))

    def _openai_chat(self, event: Event) -> None:
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if choice.get("index", 0) == 0:
                content = delta.get("content")
                parts = content if isinstance(content, list) else [{"text": content}]
                for part in parts:
                    self._add(part.get("text"))
                self._add(delta.get("refusal"))

    def _openai_responses(self, event: Event) -> None:
        if event.get("type") in ("response.output_text.delta", "response.refusal.delta"):
            self._add(
                event.get("delta"), (event.get("output_index", 0), event.get("content_index", 0))
            )

    def _gemini(self, event: Event) -> None:
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                if not part.get("thought"):
                    self._add(part.get("text"))
