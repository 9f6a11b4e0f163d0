"""Cline's and Roo's `ui_messages.json` alone: rows for the screen, without those for the model.

They hold what was shown: prompts, text, thoughts, commands and what they printed, uses of tools
without what these returned. A tool whose result was not shown has no result here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek
from killick.exchange.formats import content as c
from killick.exchange.read import parse, read_document, rows_of, time_us
from killick.exchange.records import Source, SourceLocation
from killick.journal.codec import to_bytes
from killick.model.messages import Reasoning, ToolResult

NAME: Final = "cline-ui"

_UI: Final = "ui_messages.json"
_TASK: Final = "api_conversation_history.json"
_ROW: Final = re.compile(r'\{\s*"ts"\s*:')
_PROMPTS: Final = ("task", "user_feedback", "user_feedback_diff")
_WORDS: Final = ("text", "completion_result", "followup", "plan_mode_respond")
_TOOLS: Final = ("tool", "use_mcp_server", "browser_action", "browser_action_launch")
_OUTPUTS: Final = ("command_output", "mcp_server_response", "browser_action_result")


def cline_ui(path: Path, *, settled: bool) -> Source:
    """Return the session of a file; it is named by its folder. Raises OSError."""
    native = path.parent.resolve().name or str(path.resolve())
    records = _SessionReader(path, native).records()
    return Source(NAME, native, str(path), records, settled)


class _SessionReader:
    """The records of one file."""

    def __init__(self, path: Path, native: str) -> None:
        self._path = path
        self._native = native
        self._call: str | None = None
        self._outputs: list[str] = []
        self._begun = False
        self._model_call = r.ModelCallRecord()

    def records(self) -> Iterator[r.Record]:
        document = read_document(self._path, _ROW)
        name, location = str(self._path), SourceLocation(str(self._path), 1)
        at = time_us(int(self._native)) if self._native.isdecimal() else None
        yield r.BeginRecord(location=location, at_us=at, native_id=self._native)
        for number, reason in document.problems:
            yield r.ProblemRecord(location=SourceLocation(name, number), reason=reason)
        for number, row in rows_of(document, ""):
            location = SourceLocation(name, number)
            if isinstance(row, dict):
                yield from self._read_row(location, row)
            else:
                yield r.ProblemRecord(location=location, reason="not a row: it is no object")
        yield from self._finish_call(location, None)

    def _read_row(self, location: SourceLocation, row: dict[str, Any]) -> Iterator[r.Record]:
        kind, at = row.get("say") or row.get("ask"), time_us(row.get("ts"))
        if not isinstance(kind, str):
            yield r.ProblemRecord(location=location, reason="a row that does not say its kind")
            return
        if kind in _OUTPUTS and self._call is not None:
            if isinstance(row.get("text"), str):
                self._outputs.append(row["text"])
            return
        yield from self._finish_call(location, at)
        if kind in _PROMPTS or (kind == "text" and not self._begun):
            self._begun = True
            yield from self._say(location, at, "user", row, prompt=True)
        elif kind in _WORDS and row.get("text"):
            yield from self._say(location, at, "assistant", row)
        elif kind == "reasoning" and row.get("text"):
            yield from self._say(location, at, "assistant", row, thought=True)
        elif kind == "command" or kind in _TOOLS:
            yield from self._read_call(location, at, row, kind)
        elif kind == "api_req_started":
            yield from self._read_request(location, at, row)
        else:
            yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=row)
        if kind == "completion_result":
            yield r.TurnEndRecord(location=location, at_us=at, status="completed")

    def _say(
        self,
        location: SourceLocation,
        at: int | None,
        role: Any,
        row: dict[str, Any],
        *,
        prompt: bool = False,
        thought: bool = False,
    ) -> Iterator[r.Record]:
        parsed = c.Content()
        text = row.get("text")
        if thought and isinstance(text, str):
            parsed.parts.append(Reasoning(text))
        else:
            parsed.text(text)
        partial = row.get("partial") is True and role == "assistant"
        yield from c.message_records(
            location,
            at,
            role,
            parsed,
            key=self._key(location, row),
            prompt=prompt,
            model_call=self._model_call,
            partial=partial,
            streams=partial,
        )

    def _key(self, location: SourceLocation, row: dict[str, Any]) -> str:
        at = row.get("ts")
        return f"{self._native}/{at if isinstance(at, int) else location.line}/{location.line}"

    def _read_call(
        self, location: SourceLocation, at: int | None, row: dict[str, Any], kind: str
    ) -> Iterator[r.Record]:
        text = row.get("text")
        given: Any = {"command": text} if kind == "command" else _json(text)
        tool = c.as_dict(given).get("tool")
        name = "execute_command" if kind == "command" else kind
        name = tool if isinstance(tool, str) and tool else name
        parsed = c.Content()
        call_id = f"{location.line}/{kind}"
        parsed.call(call_id, name, c.compact(given if isinstance(given, dict) else {"text": text}))
        self._call = call_id
        yield from c.message_records(
            location,
            at,
            "assistant",
            parsed,
            key=self._key(location, row),
            model_call=self._model_call,
        )

    def _finish_call(self, location: SourceLocation, at: int | None) -> Iterator[r.Record]:
        """Give the last call what was shown of its output; without any it has no result."""
        call_id, self._call = self._call, None
        outputs, self._outputs = self._outputs, []
        if call_id is not None and outputs:
            result = ToolResult(call_id, "\n".join(outputs))
            yield r.ResultRecord(location=location, at_us=at, result=result)

    def _read_request(
        self, location: SourceLocation, at: int | None, row: dict[str, Any]
    ) -> Iterator[r.Record]:
        value = c.as_dict(_json(row.get("text")))
        usage = c.tokens(value, "tokensIn", "tokensOut", "cacheReads", cost=value.get("cost"))
        yield r.OpaqueRecord(
            location=location,
            at_us=at,
            name="api_req_started",
            data={name: value[name] for name in value if name != "request"},
        )
        self._model_call = r.ModelCallRecord(usage=usage)
        if isinstance(value.get("cancelReason"), str):
            stopped = value["cancelReason"] == "user_cancelled"
            yield r.TurnEndRecord(
                location=location,
                at_us=at,
                status="interrupted" if stopped else "failed",
                reason=value["cancelReason"] or None,
                cause="stopped" if stopped else None,
            )


def _json(text: object) -> Any:
    try:
        return parse(to_bytes(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _claims(peek: Peek) -> bool:
    if peek.path.name != _UI or (peek.path.parent / _TASK).is_file():
        return False
    rows = [row for _, row in rows_of(peek.rows_document(_ROW), "")]
    return any(isinstance(row, dict) and row.get("type") in ("say", "ask") for row in rows)


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [cline_ui(path, settled=reading.settled)],
)
