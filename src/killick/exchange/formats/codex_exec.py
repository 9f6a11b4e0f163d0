"""Codex' `exec --json`: the stream of events that a script gets, kept in a file.

It names the thread, and says what the agent did: messages, thoughts, commands, changed files, calls
of MCP servers and searches. It does not hold the prompt.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, misfits
from killick.exchange.formats import content as c
from killick.exchange.read import read_lines
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Reasoning, ToolResult

NAME: Final = "codex-exec"

_KINDS: Final = (
    "thread.started", "turn.started", "turn.completed", "turn.failed", "item.started",
    "item.updated", "item.completed", "error",
)  # fmt: skip
_TOOLS: Final = ("command_execution", "file_change", "mcp_tool_call", "web_search", "todo_list")
_ARGUMENTS: Final = ("command", "changes", "server", "tool", "arguments", "query", "items")


def is_codex_exec(record: dict[str, Any]) -> bool:
    """Tell whether this is an event that only such a stream has."""
    if record.get("type") == "thread.started":
        return "thread_id" in record
    return str(record.get("type")).startswith("item.") and isinstance(record.get("item"), dict)


def codex_exec(path: Path, *, settled: bool) -> Source:
    """Return the session of a stream."""
    native = str(path.resolve())
    for line in read_lines(path):
        own = (line.record or {}).get("thread_id")
        if c.is_id(own):
            native = own
            break
    records = _SessionReader(native, settled=settled).records(path)
    return Source(NAME, native, str(path), records, settled)


class _SessionReader:
    """The records of one stream."""

    def __init__(self, native: str, *, settled: bool) -> None:
        self._native = native
        self._settled = settled
        self._turns = 0
        self._called: set[str] = set()

    def records(self, path: Path) -> Iterator[r.Record]:
        yield r.BeginRecord(location=SourceLocation(str(path), 1), native_id=self._native)
        yield from c.line_records(read_lines(path), self._read_line, settled=self._settled)

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, item = record.get("type"), record.get("item")
        match kind:
            case "turn.started":
                self._turns += 1
                self._called.clear()
                yield r.TurnStartRecord(location=location, key=f"{self._native}/{self._turns}")
            case "turn.completed":
                yield r.OpaqueRecord(location=location, name="usage", data=record)
                yield r.TurnEndRecord(location=location, status="completed")
            case "turn.failed":
                message = c.as_text(c.as_dict(record.get("error")).get("message"))
                yield r.TurnEndRecord(
                    location=location, status="failed", reason="error", detail=message
                )
            case "item.started" | "item.updated" | "item.completed" if isinstance(item, dict):
                yield from self._read_item(location, item, done=kind == "item.completed")
            case "thread.started" | "error":
                yield r.OpaqueRecord(location=location, name=str(kind), data=record)
            case _:
                yield r.ProblemRecord(location=location, reason="a line that is no event")

    def _read_item(
        self, location: SourceLocation, item: dict[str, Any], *, done: bool
    ) -> Iterator[r.Record]:
        kind, own = item.get("type"), item.get("id")
        key = f"{self._native}/{self._turns}/{own if c.is_id(own) else location.line}"
        parsed = c.Content()
        if kind in _TOOLS:
            yield from self._read_tool(location, item, str(kind), key, done=done)
        elif not done:
            return
        elif kind == "agent_message":
            parsed.text(item.get("text"))
            yield from self._say(location, parsed, key)
        elif kind == "reasoning" and isinstance(item.get("text"), str):
            parsed.parts.append(Reasoning(item["text"]))
            yield from self._say(location, parsed, key)
        else:
            name = kind if isinstance(kind, str) and kind else "item"
            yield r.OpaqueRecord(location=location, name=name, data=item)

    def _say(self, location: SourceLocation, parsed: c.Content, key: str) -> Iterator[r.Record]:
        yield from c.message_records(
            location, None, "assistant", parsed, key=key, model_call=r.ModelCallRecord()
        )

    def _read_tool(
        self, location: SourceLocation, item: dict[str, Any], kind: str, key: str, *, done: bool
    ) -> Iterator[r.Record]:
        """Read a call when it is first heard of, and its result when it is done."""
        own = item.get("id")
        call_id = own if c.is_id(own) else str(location.line)
        if call_id not in self._called:
            self._called.add(call_id)
            given = {name: item[name] for name in _ARGUMENTS if name in item}
            parsed = c.Content()
            parsed.call(call_id, kind, c.compact(given))
            yield from self._say(location, parsed, key)
        if not done:
            return
        output = item.get("aggregated_output", item.get("result", item.get("error")))
        text = output if isinstance(output, str) else c.compact(output)
        failed = item.get("status") == "failed" or item.get("error") is not None
        code = item.get("exit_code")
        failed = failed or (isinstance(code, int) and code != 0)
        yield r.ResultRecord(
            location=location,
            result=ToolResult(call_id, text if output is not None else "", is_error=failed),
        )


def _fits(record: dict[str, Any]) -> bool:
    return record.get("type") in _KINDS


def _claims(peek: Peek) -> bool:
    return any(is_codex_exec(record) for record in peek.records)


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [codex_exec(path, settled=reading.settled)],
    misfits=misfits(_fits),
    commands=("codex",),
)
