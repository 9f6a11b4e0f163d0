"""Reads from journals what providers ran themselves, and looks for it in what is sent.

It shares nothing with `views.hosted`, which writes the sentences.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from killick.model.messages import Opaque, Part

Json = dict[str, Any]

_HOSTED: Final = re.compile(
    r"\[(?:The model's provider ran its own tool (?P<name>\S+).*?, and it (?P<end>finished|failed)"
    r"|The model's provider began to run its own tool (?P<begun>\S+).*?; no result of it stands "
    r"here"
    r"|A tool that the model's provider ran itself (?P<half>finished|failed) here)\.\]",
    re.DOTALL,
)
_GEMINI_RESULTS: Final = {
    "executable_code": "code_execution_result",
    "tool_call": "tool_response",
}


class Run(NamedTuple):
    """A tool that a provider ran itself; of a result without its call the name is not known."""

    provider: str
    name: str
    end: str


def runs_of(parts: Iterable[Part]) -> list[Run]:
    """Return the tools that providers ran in one answer, and how each ended as far as it says."""
    runs: list[Run] = []
    for provider, read in (("openai", _openai), ("anthropic", _anthropic), ("gemini", _gemini)):
        values = []
        for part in parts:
            if isinstance(part, Opaque) and part.provider == provider:
                with contextlib.suppress(ValueError):
                    values.append(json.loads(part.data))
        runs += [Run(provider, name, end) for name, end in read(values)]
    return runs


def _openai(values: Sequence[Json]) -> Iterator[tuple[str, str]]:
    items = [value.get("unfinished") or value.get("item") or value for value in values]
    outputs = {item["call_id"]: item for item in items if item["type"] == "shell_call_output"}
    for value, item in zip(values, items, strict=True):
        kind = item["type"]
        open_ = "unfinished" in value or item.get("status") in ("in_progress", "incomplete")
        failed = bool(item.get("error")) or item.get("status") == "failed"
        if kind == "shell_call":
            output = outputs.pop(item["call_id"], None)
            open_, failed = open_ or output is None, output is not None and _exits(output)
        if kind.endswith("_call") and ("item" not in value or kind == "image_generation_call"):
            yield item.get("name") or kind[: -len("_call")], _end(open_=open_, failed=failed)
    for output in outputs.values():
        yield "", _end(open_=False, failed=_exits(output))


def _exits(output: Json) -> bool:
    return any(piece["outcome"].get("exit_code") != 0 for piece in output["output"])


def _anthropic(values: Sequence[Json]) -> Iterator[tuple[str, str]]:
    results = {value["tool_use_id"]: value for value in values if "tool_use_id" in value}
    for value in values:
        if value["type"] in ("server_tool_use", "mcp_tool_use"):
            result = results.pop(value["id"], None)
            failed = result is not None and _is_error(result)
            yield value["name"], _end(open_=result is None, failed=failed)
    for result in results.values():
        yield "", _end(open_=False, failed=_is_error(result))


def _is_error(result: Json) -> bool:
    content = result["content"]
    return result.get("is_error") or (isinstance(content, dict) and "error_code" in content)


def _gemini(values: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Read from the end, where a result comes before its call."""
    waiting: list[tuple[str, Any, bool]] = []
    runs: list[tuple[str, str]] = []
    for value in reversed(values):
        for kind, name in (("executable_code", "code_execution"), ("tool_call", "")):
            result = value.get(_GEMINI_RESULTS[kind])
            if result is not None:
                failed = result.get("outcome", "OUTCOME_OK") != "OUTCOME_OK"
                waiting.append((kind, result.get("id"), failed))
            if kind in value:
                call = value[kind]
                own = [answer for answer in waiting if answer[:2] == (kind, call.get("id"))]
                if own:
                    waiting.remove(own[-1])
                end = _end(open_=not own, failed=bool(own) and own[-1][2])
                runs.append((name or call["tool_type"].lower(), end))
    yield from runs
    yield from (("", _end(open_=False, failed=failed)) for _, _, failed in waiting)


def _end(*, open_: bool, failed: bool) -> str:
    return "open" if open_ else "failed" if failed else "finished"


def find_untold(runs: Sequence[Run], texts: Sequence[str], native: int, format_: str) -> str | None:
    """Return what is wrong with what a context says of these runs, or None.

    Another provider is told one sentence on each. Its own is sent the run, or told the sentence;
    `native` is how many calls are sent.
    """
    own = {"openai-responses": "openai"}.get(format_, format_)
    wanted = Counter((run.name, run.end) for run in runs if run.provider != own)
    spoken = Counter(
        (match["name"] or match["begun"] or "", match["end"] or match["half"] or "open")
        for text in texts
        for match in _HOSTED.finditer(text)
    )
    ours = [run for run in runs if run.provider == own]
    extra = spoken - wanted
    if wanted - spoken or extra - Counter((run.name, run.end) for run in ours):
        return f"{wanted} ran, {spoken} are told"
    sent = Counter((run.name, run.end) for run in ours) - extra
    if own == "openai" and any(end == "open" for _, end in sent):  # the others take half of a run
        return f"{ours} ran, and what is open is sent"
    calls = sum(1 for run in ours if run.name)
    if calls != native + sum(count for (name, _), count in extra.items() if name):
        return f"{ours} ran, {native} are sent, {extra} are told"
    return None
