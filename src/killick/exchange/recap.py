"""The recap of a session, for an agent or a person who takes over. Pure.

Prompts and the last answer are as they were said. Files and commands are those that tools were
given, by the names that agents have for such arguments: whether a tool changed a file, only its
own name tells.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from killick.views.transcript import Shown, ShownTool, ToolState

_FILE_KEYS: Final = (
    "file_path", "filePath", "path", "absolute_path", "notebook_path", "target_file", "filename",
    "file",
)  # fmt: skip
_COMMAND_KEYS: Final = ("command", "cmd", "commands", "script")
_SHELLS: Final = {"bash", "sh", "zsh"}
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_OPEN: Final[frozenset[ToolState]] = frozenset({"unknown", "not started", "cut off", "running"})


class TouchedFile(msgspec.Struct, frozen=True):
    """A file that calls name, and the tools that were called for it."""

    path: str
    tools: tuple[str, ...]
    calls: int


class GivenCommand(msgspec.Struct, frozen=True):
    """A command that a tool was given, and the state of its call."""

    command: str
    state: ToolState
    seq: int


class OpenCall(msgspec.Struct, frozen=True):
    """A call that left no result, or runs; `seq` is the place of its message."""

    tool: ShownTool
    seq: int


class Recap(msgspec.Struct, frozen=True):
    """A session in short.

    `answer` are the newest words of the model, `ending` says how the newest turn ended if it did
    not complete, `open` are calls of it without a result, and earlier ones of unknown outcome.
    """

    prompts: tuple[Shown, ...]
    answer: Shown | None
    files: tuple[TouchedFile, ...]
    commands: tuple[GivenCommand, ...]
    ending: Shown | None
    open: tuple[OpenCall, ...]


def unfold(shown: Sequence[Shown]) -> Iterator[Shown]:
    """Yield what is shown, with the messages of a compaction in the place of its summary."""
    for item in shown:
        if item.kind == "compaction":
            yield from unfold(item.folded)
        else:
            yield item


def recap(shown: Sequence[Shown], newest_turn: str | None) -> Recap:
    """Return a transcript in short; `newest_turn` is the id of its last turn."""
    items = list(unfold(shown))
    messages = [item for item in items if item.kind == "message"]
    spoken = [item for item in messages if item.role == "assistant" and item.text.strip()]
    calls = [OpenCall(tool, item.seq) for item in messages for tool in item.tools]
    newest = {item.seq for item in messages if item.turn_id == newest_turn}
    endings = [item for item in items if item.kind == "ending" and item.turn_id == newest_turn]
    return Recap(
        prompts=tuple(item for item in messages if item.role == "user" and item.text.strip()),
        answer=spoken[-1] if spoken else None,
        files=_files(calls),
        commands=_commands(calls),
        ending=endings[-1] if endings else None,
        open=tuple(
            call
            for call in calls
            if call.tool.state in _OPEN
            and call.tool.settled is None
            and (call.seq in newest or call.tool.state == "unknown")
        ),
    )


def _files(calls: Sequence[OpenCall]) -> tuple[TouchedFile, ...]:
    """Return the files in the order in which they were named last."""
    tools: dict[str, list[str]] = {}
    for call in calls:
        for path in dict.fromkeys(_paths(call.tool)):
            tools[path] = [*tools.pop(path, []), call.tool.name]
    return tuple(
        TouchedFile(path, tuple(dict.fromkeys(names)), len(names)) for path, names in tools.items()
    )


def _paths(tool: ShownTool) -> Iterator[str]:
    given = _arguments(tool)
    for key in _FILE_KEYS:
        path = given.get(key)
        if isinstance(path, str) and path.strip():
            yield path
    texts = [value for value in given.values() if isinstance(value, str)] or [tool.arguments]
    for text in texts:
        yield from (name.strip() for name in _PATCHED.findall(text))


def _commands(calls: Sequence[OpenCall]) -> tuple[GivenCommand, ...]:
    return tuple(
        GivenCommand(command, call.tool.state, call.seq)
        for call in calls
        for command in _given_commands(_arguments(call.tool))
    )


def _given_commands(given: dict[str, Any]) -> Iterator[str]:
    for key in _COMMAND_KEYS:
        value = given.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            is_script = len(value) == 3 and value[0].rpartition("/")[2] in _SHELLS
            value = value[2] if is_script and value[1].startswith("-") else shlex.join(value)
        if isinstance(value, str) and value.strip():
            yield value


def _arguments(tool: ShownTool) -> dict[str, Any]:
    try:
        value = json.loads(tool.arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
