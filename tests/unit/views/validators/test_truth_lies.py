"""The validator of truth finds every lie: contexts of generated journals, one lie in each."""

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
import pytest

from killick.model import entries as e
from killick.views.context import Context, Format, compute
from killick.views.validators import truth
from torture.campaigns.truth import Script

FORMATS: Final[tuple[Format, ...]] = ("openai-chat", "openai-responses", "anthropic", "gemini")
SEEDS: Final = range(6)
PLACES: Final = 2
"""At which a lie is told, of each context that has more."""

NEVER: Final = "[This tool call did not run.]"
DENIED: Final = "[This tool call was denied, so it did not run.]"
RUNNING: Final = "[This tool call is still running and has no result yet.]"
UNKNOWN: Final = (
    "[The outcome of this tool call is unknown: it was started and left no result. Check what it "
    "did before repeating it.]"
)
NOTE: Final = r"\[The tool call \S+ \([^)]*\) above [^\]]*\]"
LIES: Final[dict[str, tuple[str, str]]] = {
    "what did not run was denied": (re.escape(NEVER), DENIED),
    "what did not run runs": (re.escape(NEVER), RUNNING),
    "what did not run is unknown": (re.escape(NEVER), UNKNOWN),
    "what did not run is done": (re.escape(NEVER), "done"),
    "what was denied did not run": (re.escape(DENIED), NEVER),
    "what was denied has a result": (re.escape(DENIED), "[This tool call was denied.]"),
    "what was denied with a result has none": (r"\[This tool call was denied\.\]", DENIED),
    "what runs is unknown": (re.escape(RUNNING), UNKNOWN),
    "what runs did not run": (re.escape(RUNNING), NEVER),
    "what is unknown runs": (re.escape(UNKNOWN), RUNNING),
    "what is unknown did not run": (re.escape(UNKNOWN), NEVER),
    "what is unknown may be repeated": (r" Check what it did before repeating it\.", ""),
    "what was not seen was started": (
        "it left no result, and whether it ran was not seen",
        "it was started and left no result",
    ),
    "what was started was not seen": (
        r"was started and left no result, so",
        "left no result, and whether it ran was not seen, so",
    ),
    "what failed has finished": (r"\) above has failed since", ") above has finished since"),
    "what has finished failed": (r"\) above has finished since", ") above has failed since"),
    "a failure is not said": (r"\[This tool call failed\.\]\n", ""),
    "a result is another": (r"done (\d+)", r"done \g<1>9"),
    "a result by message is another": (r"by message (\d+)", r"by message \g<1>9"),
    "output is left out": (r"so far \d+", ""),
    "a reason is left out": (r"too risky \d+", ""),
    "a note is left out": (NOTE, ""),
    "a note is told twice": (f"({NOTE})", r"\1\n\1"),
    "a note names another call": (r"\[The tool call (\S+) \(", r"[The tool call \g<1>x ("),
    "a person was a check": ("A person found out", "A check found out"),
    "a check was a person": ("A check found out", "A person found out"),
    "what was found to have run did not": (
        r"found out that it ran\b",
        "found out that it did not run",
    ),
    "what was found not to have run did": (
        "found out that it did not run",
        "found out that it ran",
    ),
    "evidence is left out": (r"seen \d+", ""),
    "a call that broke off is not told": (
        r"A call to \S+ (was cut off while its|came after the answer was over)",
        "A call",
    ),
    "a call that broke off is of another tool": (
        r"A call to (\S+) was cut",
        r"A call to \1x was cut",
    ),
    "a call that broke off is unseen": (
        "arguments were written, so it did not run",
        "arguments were written",
    ),
    "a late call is unseen": ("so it did not run", "and whether it ran was not seen"),
    "a late call was seen": ("and whether it ran was not seen", "so it did not run"),
    "what is not shown has failed": (
        r"(is not shown here, \S+ \([^)]*\), has) finished",
        r"\1 failed",
    ),
    "what is not shown is of another tool": (r"(is not shown here, \S+ \([^)]*)\)", r"\1x)"),
    "what is not shown is not told": (r"A tool call that is not shown here", "Something"),
    "what the provider ran is not told": (r"The model's provider (began to run|ran)", "It"),
    "what the provider ran failed": (r"(provider ran [^\]]*, and it) finished", r"\1 failed"),
    "what the provider ran has finished": (r"(provider ran [^\]]*, and it) failed", r"\1 finished"),
    "what the provider began is done": (r"no result of it stands here\.\]", "and it finished.]"),
    "what the provider ran itself is another": (r"its own tool (\S+)", r"its own tool \1x"),
    "a turn failed by another error": (
        r"before it was complete: Broken",
        "before it was complete: Sound",
    ),
    "a turn did not fail": (
        r"The turn above failed before it was complete",
        "The turn above is over",
    ),
}


@cache
def played(seed: int) -> tuple[list[e.Entry], dict[Format, Context]]:
    script = Script(random.Random(seed))
    try:
        for _ in range(150):
            script.step()
        journal = list(script.session.entries())
    finally:
        script.close()
    return journal, {name: compute(journal, name, blobs=lambda _: None) for name in FORMATS}


def strings(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, str):
        yield way, value
    elif isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            yield from strings(one, (*way, key))


def with_text(messages: list[Any], way: tuple[Any, ...], text: str) -> list[Any]:
    copy: Any = json.loads(json.dumps(messages))
    place = copy
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = text
    return copy  # type: ignore[no-any-return]


def lies(messages: list[Any], true: str, false: str) -> Iterator[list[Any]]:
    for way, text in strings(messages):
        for match in re.finditer(true, text):
            told = text[: match.start()] + match.expand(false) + text[match.end() :]
            yield with_text(messages, way, told)


@pytest.mark.parametrize("name", LIES)
def test_every_lie_is_found(name: str) -> None:
    count = 0
    for seed in SEEDS:
        journal, contexts = played(seed)
        for format_, context in contexts.items():
            told = list(lies(context.messages, *LIES[name]))
            for messages in random.Random(seed).sample(told, min(PLACES, len(told))):
                lie = msgspec.structs.replace(context, messages=messages)
                assert truth(journal, lie) != [], (seed, format_, name)
                count += 1
    assert count


def test_no_lie_is_found_where_there_is_none() -> None:
    for seed in SEEDS:
        journal, contexts = played(seed)
        assert [truth(journal, context) for context in contexts.values()] == [[]] * len(FORMATS)
