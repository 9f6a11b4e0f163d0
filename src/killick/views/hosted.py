"""Sentences about tools that a provider ran itself, for a request that cannot carry its records."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from killick.model.messages import Opaque, Part
from killick.views import phrases

_INPUT_MAX: Final = 200
SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_INPUTS: Final = ("input", "arguments", "action", "queries", "code", "args")
_GEMINI: Final = {"executable_code": "code_execution_result", "tool_call": "tool_response"}
"""Parts by which Gemini calls its own tools, and those that bring their results."""

Json = dict[str, Any]


def is_hosted(part: Opaque) -> bool:
    """Tell whether an imported block is a call of a tool that Anthropic ran, or its result."""
    value = _object(part) or {}
    return value.get("type") in SERVER_CALLS or isinstance(value.get("tool_use_id"), str)


def hosted(part: Opaque, parts: Sequence[Part]) -> str | None:
    """Return the sentence about a tool that the provider ran, one of these parts of its answer.

    None for other data, and for a result whose call is among the parts: that says it.
    """
    value = _object(part)
    if value is None:
        return None
    if part.provider == "openai":
        return _openai(value, parts)
    if part.provider in ("anthropic", "anthropic-block"):  # that of imported lists
        return _anthropic(value, parts)
    return _gemini(part, value, parts) if part.provider == "gemini" else None


def _openai(value: Json, parts: Sequence[Part]) -> str | None:
    item = value.get("item") or value.get("unfinished") or value
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "shell_call_output" and not _items(parts, "shell_call", item):
        return phrases.hosted_result(failed=_shell_failed(item))
    if not isinstance(kind, str) or not kind.endswith("_call"):
        return None
    if "item" in value and kind != "image_generation_call":
        return None  # a built-in tool that the caller runs: it is a call of its own
    name = str(item.get("name") or kind.removesuffix("_call"))
    ended = item.get("status") not in ("in_progress", "incomplete") and "unfinished" not in value
    outputs = _items(parts, f"{kind}_output", item)
    ended = ended and (kind != "shell_call" or bool(outputs))
    failed = item.get("status") == "failed" or bool(item.get("error"))
    failed = failed or any(map(_shell_failed, outputs))
    return phrases.hosted(name, given_to(item), ended=ended, failed=failed)


def _items(parts: Sequence[Part], kind: str, item: Json) -> list[Json]:
    """Return the items of this kind among the parts that have the call of another."""
    items = [other for other in objects(parts, "openai") if other.get("type") == kind]
    return [other for other in items if other.get("call_id") == item.get("call_id")]


def _shell_failed(output: Json) -> bool:
    pieces = output.get("output")
    outcomes = [piece.get("outcome") for piece in pieces] if isinstance(pieces, list) else []
    return any(isinstance(end, dict) and end.get("exit_code", 1) != 0 for end in outcomes)


def _anthropic(value: Json, parts: Sequence[Part]) -> str | None:
    others = list(objects(parts, "anthropic"))
    if value.get("type") in SERVER_CALLS:
        results = [other for other in others if other.get("tool_use_id") == value.get("id")]
        failed = any(map(is_failure, results))
        name = str(value.get("name") or "tool")
        return phrases.hosted(name, given_to(value), ended=bool(results), failed=failed)
    if not isinstance(value.get("tool_use_id"), str):
        return None
    asked = any(other.get("id") == value["tool_use_id"] for other in others)
    return None if asked else phrases.hosted_result(failed=is_failure(value))


def is_failure(result: Json) -> bool:
    """Tell whether the result of a tool that Anthropic ran says that it failed."""
    content = result.get("content")
    kind = str(content.get("type")) if isinstance(content, dict) else ""
    return result.get("is_error") is True or kind.endswith("_error")


def _gemini(part: Opaque, value: Json, parts: Sequence[Part]) -> str | None:
    value = _snake_keys(value)
    asked = next((key for key in _GEMINI if key in value), None)
    results, orphans = _pair(parts)
    at = next(index for index, other in enumerate(parts) if other is part)
    if asked is None:
        return phrases.hosted_result(failed=_has_failed(orphans[at])) if at in orphans else None
    call = _half(value, asked)
    tool = call.get("tool_type") or call.get("toolType") or "tool"
    name = "code_execution" if asked == "executable_code" else str(tool).lower()
    failed = at in results and _has_failed(results[at])
    return phrases.hosted(name, given_to(call), ended=at in results, failed=failed)


def _pair(parts: Sequence[Part]) -> tuple[dict[int, Json], dict[int, Json]]:
    """Return Gemini's results by the place of their call, and by their own those without one.

    A result belongs to the newest open call of its id. Code that the model runs has no ids.
    """
    waiting: list[tuple[int, str, Any]] = []
    results: dict[int, Json] = {}
    orphans: dict[int, Json] = {}
    for at, part in enumerate(parts):
        value = _snake_keys(next(objects([part], "gemini"), {}))
        for asked, answered in _GEMINI.items():
            if asked in value:
                waiting.append((at, asked, _half(value, asked).get("id")))
            elif answered in value:
                result = _half(value, answered)
                wanted = (asked, result.get("id"))
                match = next((call for call in reversed(waiting) if call[1:] == wanted), None)
                if match is None:
                    orphans[at] = result
                else:
                    waiting.remove(match)
                    results[match[0]] = result
    return results, orphans


def _half(value: Json, key: str) -> Json:
    return value[key] if isinstance(value[key], dict) else {}


def _has_failed(result: Json) -> bool:
    return result.get("outcome") not in (None, "OUTCOME_OK")


def _snake_keys(value: Json) -> Json:
    return {
        "".join(f"_{char.lower()}" if char.isupper() else char for char in key): inner
        for key, inner in value.items()
    }


def given_to(call: Json) -> str:
    """Return the beginning of what the tool was asked to do, on one line."""
    given = next((call[key] for key in _INPUTS if call.get(key)), None)
    if given is None:
        return ""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _INPUT_MAX else f"{text[:_INPUT_MAX]}…"


def objects(parts: Sequence[Part], provider: str) -> Iterator[Json]:
    """Return a provider's own objects among these parts, imported ones too."""
    for part in parts:
        if isinstance(part, Opaque) and part.provider in (provider, f"{provider}-block"):
            value = _object(part)
            if value is not None:
                yield value


def _object(part: Opaque) -> Json | None:
    try:
        value = json.loads(part.data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
