"""Whether the types of the official SDKs accept a list; nothing is ever sent.

Each function raises when they do not. Two things are done that validation alone leaves out. The
types say `Iterable` where the APIs take arrays, which pydantic validates only as it is read, so
everything is read. And the types of openai and anthropic are TypedDicts, which drop an unknown
key silently, so what comes out is compared with what went in. Those of google-genai forbid it.

The types know shapes only. That a call has its result, that an id is not there twice, that text
is not empty: the validators say that.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

Messages = Sequence[dict[str, Any]]


class Changed(ValueError):
    """A value that the types accept only by leaving something out or making it something else."""


def accept_openai_chat(messages: Messages) -> None:
    _same(messages, _openai_chat().validate_python(list(messages)))


def accept_openai_responses(items: Messages) -> None:
    _same(items, _openai_responses().validate_python(list(items)))


def accept_anthropic(messages: Messages) -> None:
    _same(messages, _anthropic().validate_python(list(messages)))


def accept_gemini(contents: Messages) -> None:
    _gemini().validate_python(list(contents))


# Importing an SDK takes a second or two, and most tests need none or one of them.


@cache
def _openai_chat() -> TypeAdapter[Any]:
    from openai.types.chat import ChatCompletionMessageParam

    return TypeAdapter(list[ChatCompletionMessageParam])


@cache
def _openai_responses() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseInputItemParam

    return TypeAdapter(list[ResponseInputItemParam])


@cache
def _anthropic() -> TypeAdapter[Any]:
    from anthropic.types import MessageParam

    return TypeAdapter(list[MessageParam])


@cache
def _gemini() -> TypeAdapter[Any]:
    from google.genai.types import Content

    return TypeAdapter(list[Content])


def _same(given: Messages, accepted: object) -> None:
    for index, (one, other) in enumerate(zip(given, _read(accepted), strict=True)):
        if one != other:
            raise Changed(f"[{index}] was given as {one!r} and is accepted as {other!r}")


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _read(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_read(inner) for inner in value]
    return value
