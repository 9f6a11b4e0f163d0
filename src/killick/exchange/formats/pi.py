"""pi: `agent/sessions/--*--/*.jsonl`, one file for each session, in all versions of its lines.

Since version 3 a line names the line before it, and the newest line is where the session stands:
going back leaves a branch, here a rewind. Before, lines followed each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, chosen, misfits
from killick.exchange.formats import content as c
from killick.exchange.formats.tree import Tree
from killick.exchange.read import newest_us, read_lines, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Reasoning, Text, ToolResult

NAME: Final = "pi"

_KINDS: Final = (
    "session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary",
    "custom", "custom_message", "label", "session_info",
)  # fmt: skip
_ROLES: Final = (
    "user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary",
    "compactionSummary",
)  # fmt: skip


def is_pi(record: dict[str, Any]) -> bool:
    """Tell whether this is a line that only pi writes."""
    message = record.get("message")
    if record.get("type") == "session":
        return "cwd" in record and "timestamp" in record and "id" in record
    if record.get("type") != "message" or not isinstance(message, dict):
        return False
    return message.get("role") == "toolResult" or "stopReason" in message


def _fits(record: dict[str, Any]) -> bool:
    return record.get("type") in _KINDS and "timestamp" in record


def pi(path: Path, *, settled: bool) -> Source:
    """Return the session of a file."""
    about = c.first_record(path, lambda record: record.get("type") == "session")
    own = about.get("id")
    native = own if c.is_id(own) else path.stem
    records = _SessionReader(native, about, settled=settled).records(path)
    return Source(NAME, native, str(path), records, settled, answer_ends=True)


class _SessionReader:
    """The records of one file."""

    def __init__(self, native: str, about: dict[str, Any], *, settled: bool) -> None:
        self._native = native
        self._about = about
        self._settled = settled
        self._tree = Tree()
        self._keys: list[str | None] = []

    def records(self, path: Path) -> Iterator[r.Record]:
        about = self._about
        names = ("version", "parentSession", "branchedFrom")
        yield r.BeginRecord(
            location=SourceLocation(str(path), 1),
            at_us=None,  # of the first line that says something: a branch is younger than that
            native_id=self._native,
            project=c.project_of(about.get("cwd")),
            extra={name: about[name] for name in names if isinstance(about.get(name), str | int)},
        )
        yield from c.line_records(read_lines(path), self._read_line, settled=self._settled)

    def _read_line(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        kind, message = record.get("type"), record.get("message")
        key: str | None = None
        if kind == "message" and isinstance(message, dict):
            key = self._key(location, record)
            yield from self._go_to(location, record)
            yield from self._read_message(location, record, message, key)
        elif kind == "compaction":
            yield from self._go_to(location, record)
            yield from self._read_compaction(location, record)
        elif kind in ("branch_summary", "custom_message"):
            yield from self._go_to(location, record)
            key = self._key(location, record)
            yield from self._read_injected(location, record, key)
        elif not isinstance(kind, str) or kind == "message":
            yield r.ProblemRecord(location=location, reason="a line that does not say its kind")
        elif kind != "session":
            self._tree.pass_by(record.get("id"), record.get("parentId"))
            yield from _read_aside(location, record, kind)
        self._keys.append(key)

    def _go_to(self, location: SourceLocation, record: dict[str, Any]) -> Iterator[r.Record]:
        if "parentId" in record:
            yield from self._tree.go_to(location, record["parentId"])

    def _key(self, location: SourceLocation, record: dict[str, Any]) -> str:
        own = record.get("id")
        return f"{self._native}/{own if c.is_id(own) else location.line}"

    # -- messages ------------------------------------------------------------------------------

    def _read_message(
        self, location: SourceLocation, record: dict[str, Any], message: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        at = time_us(record.get("timestamp")) or time_us(message.get("timestamp"))
        own = record.get("id")
        match message.get("role"):
            case "toolResult":
                self._tree.pass_by(own, record.get("parentId"))
                yield from _read_result(location, at, message)
            case "user":
                self._tree.add(own, key)
                parsed = _content(message.get("content"))
                yield from c.message_records(location, at, "user", parsed, key=key, prompt=True)
            case "assistant":
                self._tree.add(own, key)
                yield from _read_answer(location, at, message, key)
            case "bashExecution":
                self._tree.add(own, key)
                yield from _read_command(location, at, message, key)
            case "custom" | "branchSummary" | "compactionSummary":
                yield from self._read_injected(location, record, key)
            case role:
                yield r.ProblemRecord(location=location, reason=f"no such role: {role!r}")

    def _read_injected(
        self, location: SourceLocation, record: dict[str, Any], key: str
    ) -> Iterator[r.Record]:
        """Read what an extension or a summary of a branch says to the model."""
        source = c.as_dict(record.get("message")) or record
        parsed = _content(source.get("content", source.get("summary", "")))
        self._tree.add(record.get("id"), key)
        shown = source.get("display") is True
        at = time_us(record.get("timestamp"))
        yield from c.message_records(location, at, "user", parsed, key=key, person=shown)

    def _read_compaction(
        self, location: SourceLocation, record: dict[str, Any]
    ) -> Iterator[r.Record]:
        first, index = record.get("firstKeptEntryId"), record.get("firstKeptEntryIndex")
        kept = self._tree.since(first)
        if isinstance(index, int) and 0 <= index < len(self._keys):
            kept = [key for key in self._keys[index:] if key is not None]
        self._tree.pass_by(record.get("id"), record.get("parentId"))
        summary = record.get("summary")
        yield r.SummaryRecord(
            location=location,
            at_us=time_us(record.get("timestamp")),
            text=summary if isinstance(summary, str) else "",
            kept_keys=frozenset(kept),
        )


def _read_answer(
    location: SourceLocation, at: int | None, message: dict[str, Any], key: str
) -> Iterator[r.Record]:
    parsed, stop = _content(message.get("content")), message.get("stopReason")
    detail = c.as_text(message.get("errorMessage"))
    if parsed.parts or parsed.bad:
        yield from c.message_records(
            location,
            at,
            "assistant",
            parsed,
            key=key,
            model_call=_model_call(message),
            partial=stop in ("aborted", "error"),
        )
    if stop == "aborted":
        yield r.TurnEndRecord(
            location=location,
            at_us=at,
            status="interrupted",
            reason="aborted",
            detail=detail,
            cause="stopped",
        )
    elif stop == "error":
        yield r.TurnEndRecord(
            location=location, at_us=at, status="failed", reason="error", detail=detail
        )


def _read_result(
    location: SourceLocation, at: int | None, message: dict[str, Any]
) -> Iterator[r.Record]:
    call_id = message.get("toolCallId")
    parsed = _content(message.get("content"))
    for what in parsed.bad:
        yield r.ProblemRecord(location=location, reason=what)
    if not c.is_id(call_id):
        yield r.ProblemRecord(location=location, reason="a result without the id of its call")
        return
    content = c.plain_or_parts(parsed.parts)
    result = ToolResult(call_id, content, is_error=message.get("isError") is True)
    yield r.ResultRecord(location=location, at_us=at, result=result, blobs=parsed.blobs)


def _read_command(
    location: SourceLocation, at: int | None, message: dict[str, Any], key: str
) -> Iterator[r.Record]:
    """Read a command that the person ran: a turn of its own, without an answer."""
    output = message.get("output")
    text = f"Ran `{message.get('command')}`\n```\n{output if isinstance(output, str) else ''}\n```"
    yield r.MessageRecord(
        location=location,
        at_us=at,
        role="user",
        parts=(Text(text),),
        key=key,
        begins_turn=True,
        model=message.get("excludeFromContext") is not True,
    )
    yield r.TurnEndRecord(location=location, at_us=at, status="completed")


def _read_aside(location: SourceLocation, record: dict[str, Any], kind: str) -> Iterator[r.Record]:
    name = record.get("name")
    if kind == "session_info" and isinstance(name, str) and name.strip():
        yield r.TitleRecord(location=location, title=name, by="person")
    at = time_us(record.get("timestamp"))
    yield r.OpaqueRecord(location=location, at_us=at, name=kind, data=record)


def _content(content: object) -> c.Content:
    parsed = c.Content()
    if isinstance(content, str):
        parsed.text(content)
        return parsed
    for block in c.blocks(parsed, content):
        match block.get("type"):
            case "text":
                parsed.text(block.get("text"))
            case "thinking":
                text, signature = block.get("thinking"), block.get("thinkingSignature")
                sealed = signature if c.is_sealed(signature) and len(str(signature)) > 40 else None
                if (isinstance(text, str) and text) or sealed:
                    words = text if isinstance(text, str) else ""
                    parsed.parts.append(Reasoning(words, signature=sealed))
            case "toolCall":
                arguments = block.get("arguments", {})
                parsed.call(block.get("id"), block.get("name"), c.compact(c.as_dict(arguments)))
            case "image" if parsed.picture(block.get("data"), block.get("mimeType")):
                pass
            case _:
                parsed.opaque("pi-block", block)  # kept, never sent
    return parsed


def _model_call(message: dict[str, Any]) -> r.ModelCallRecord:
    usage = c.as_dict(message.get("usage"))
    own = message.get("responseId")
    return r.ModelCallRecord(
        provider=c.as_text(message.get("provider")),
        model=c.as_text(message.get("model")),
        usage=c.tokens(
            usage,
            "input",
            "output",
            "cacheRead",
            cost=c.as_dict(usage.get("cost")).get("total"),
            apart=True,
        ),
        finish_reason=c.as_text(message.get("stopReason")),
        provider_ids={"response": own} if c.is_id(own) else {},
        error=c.as_text(message.get("errorMessage")),
    )


def _claims(peek: Peek) -> bool:
    return any(is_pi(record) for record in peek.records)


def _places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return [chosen(environment, "PI_CODING_AGENT_DIR", home / ".pi" / "agent") / "sessions"]


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=lambda path, reading: [pi(path, settled=reading.settled)],
    places=_places,
    newest_us=newest_us,
    misfits=misfits(_fits),
    commands=("pi", "pi-coding-agent"),
)
