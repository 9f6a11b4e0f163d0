"""A transcript as lines: who said what, what became of each tool, where it broke off."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from killick.cli.moments import told
from killick.cli.printing import Line, Span, block, line
from killick.cli.render.tables import counted, status
from killick.model.parts import File, Image, Opaque, Part, Reasoning, Text, ToolResult
from killick.model.sessions import SessionInfo
from killick.views.transcript import Shown, ShownTool

RESULT_LINES: Final = 12
"""How much of a tool's result is shown, unless everything is asked for."""

_ROLES: Final = {"user": "bold green", "assistant": "bold blue", "system": "bold magenta"}
_STATES: Final = {
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "unknown": "yellow",
    "not started": "yellow",
    "cut off": "yellow",
}


def heading(info: SessionInfo) -> list[Line]:
    """What the session is, before what was said in it."""
    facts = [status(info), info.type, *info.models, *(f"#{tag}" for tag in info.tags)]
    if info.project is not None:
        facts.append(info.project.root)
    if info.fork is not None:
        facts.append(f"forked from {info.fork.session_id} at {info.fork.at}")
    return [line(info.title or "(no title)", "bold"), line(info.id, "cyan"), _dim(facts)]


def conversation(shown: Sequence[Shown], now: datetime, *, unfold: bool) -> Iterator[Line]:
    """The whole transcript. `unfold` opens compactions and shows tools' results whole."""
    for one in shown:
        yield Line()
        match one.kind:
            case "ending":
                yield _ending(one, now)
            case "compaction":
                yield from _compaction(one, now, unfold=unfold)
            case _:
                yield from _message(one, now, unfold=unfold)


def _dim(facts: Sequence[str]) -> Line:
    return line(" · ".join(facts), "dim")


def _message(shown: Shown, now: datetime, *, unfold: bool) -> Iterator[Line]:
    yield Line(
        (
            Span(shown.role, _ROLES.get(shown.role, "bold")),
            Span(f"  #{shown.seq}  {told(shown.at, now)}", "dim"),
        )
    )
    for part in shown.parts:
        yield from _part(part)
    for tool in shown.tools:
        yield from _tool(tool, unfold=unfold)
    if shown.state == "partial":
        yield line("[cut off here: a partial message]", "yellow", indent=2)
    elif shown.state == "streaming":
        yield line("[still streaming]", "cyan", indent=2)


def _part(part: Part) -> list[Line]:
    match part:
        case Text():
            return block(part.text, indent=2)
        case Reasoning():
            return block(f"(thinking) {part.text}", "dim italic", indent=2) if part.text else []
        case Image():
            return [line(f"[image {part.media_type}: {part.alt or part.blob}]", "dim", indent=2)]
        case File():
            return [line(f"[file {part.media_type}: {part.name or part.blob}]", "dim", indent=2)]
        case Opaque():
            return [line(f"[{len(part.data):,} bytes of {part.provider}'s]", "dim", indent=2)]
        case _:
            return []


def _tool(tool: ShownTool, *, unfold: bool) -> Iterator[Line]:
    yield Line(
        (
            Span("> ", "dim"),
            Span(tool.name, "bold"),
            Span(f" {tool.arguments}" if tool.arguments.strip() else ""),
            Span(f"  [{tool.state}]", _STATES[tool.state]),
        ),
        2,
    )
    lines = [*_result(tool)]
    kept = lines if unfold else lines[:RESULT_LINES]
    yield from kept
    if len(kept) < len(lines):
        left = counted(len(lines) - len(kept), "lines")
        yield line(f"[{left} more; --all shows them]", "dim", indent=6)


def _result(tool: ShownTool) -> Iterator[Line]:
    said = "" if tool.result is None else _content(tool.result)
    if tool.output and tool.output != said:
        yield from block(tool.output, "dim", indent=6)
    if said:
        yield from block(said, indent=6)


def _content(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(one.text for part in result.content for one in _part_lines(part))


def _part_lines(part: Part) -> list[Line]:
    return [Line(one.spans) for one in _part(part)]


def _ending(shown: Shown, now: datetime) -> Line:
    style = "red" if shown.status == "failed" else "yellow"
    return line(
        f"-- {shown.status} at {told(shown.at, now)}: {shown.reason} --  #{shown.seq}", style
    )


def _compaction(shown: Shown, now: datetime, *, unfold: bool) -> Iterator[Line]:
    number = sum(one.kind == "message" for one in shown.folded)
    hint = "" if unfold else "; --all unfolds"
    yield line(
        f"-- {counted(number, 'messages')} folded into a summary at {told(shown.at, now)}{hint} --",
        "magenta",
    )
    yield from block(shown.text, "italic", indent=2)
    if unfold:
        yield from conversation(shown.folded, now, unfold=True)
        yield Line()
        yield line("-- end of what is folded --", "magenta")
