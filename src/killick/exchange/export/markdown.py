"""A session as Markdown: what a person saw."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from killick.exchange.export.endings import ending_sentences
from killick.exchange.export.shelf import Words
from killick.model.messages import File, Image, Part, Reasoning, Text, ToolResult
from killick.views.transcript import Shown, ShownTool

ROLES: Final = {"user": "You", "assistant": "Assistant", "tool": "Tool", "system": "System"}


def render_markdown(title: str | None, shown: Iterable[Shown], words: Words) -> Iterator[str]:
    """Yield the document in pieces."""
    yield f"# {one_line(title or 'Untitled session')}\n"
    for item in shown:
        yield from _shown(words(item), words)


def _shown(item: Shown, words: Words) -> Iterator[str]:
    if item.kind == "ending":
        yield f"\n*{one_line(ending_sentences(item.status, item.cause, item.reason))}*\n"
        return
    if item.kind == "compaction":
        yield "\n---\n\n*What was said before, as the model was told it:*\n\n"
        yield f"{_quoted(item.text)}\n"
        yield "\n<details><summary>What was said before</summary>\n"
        for folded in item.folded:
            yield from _shown(words(folded), words)
        yield "\n</details>\n"
        return
    if item.role == "tool":
        return  # results are shown with their calls
    yield f"\n## {ROLES[item.role]}{', cut off' if item.state == 'partial' else ''}\n"
    for part in item.parts:
        yield from _part(part)
    for tool in item.tools:
        yield from _tool(tool)


def _part(part: Part) -> Iterator[str]:
    match part:
        case Text():
            yield f"\n{part.text}\n"
        case Reasoning() if part.text:
            yield f"\n{_quoted(part.text)}\n"
        case Image() | File():
            yield f"\n*[{describe(part)}]*\n"
        case _:
            pass


def _tool(tool: ShownTool) -> Iterator[str]:
    yield f"\n**Tool `{one_line(tool.name).replace('`', '')}`** ({tool.state})\n"
    if tool.arguments.strip():
        yield f"\n{_fenced(tool.arguments)}\n"
    text = result_text(tool.result) if tool.result is not None else tool.output
    if text:
        yield f"\n{_fenced(text)}\n"
    if tool.settled is not None:
        yield f"\n*It {tool.settled.words}.*\n"
        for detail in filter(None, (tool.settled.result, tool.settled.evidence)):
            yield f"\n{_fenced(detail)}\n"


def result_text(result: ToolResult) -> str:
    """Return a result as a person reads it; images and files by name."""
    if isinstance(result.content, str):
        return result.content
    pieces = []
    for part in result.content:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif isinstance(part, Image | File):
            pieces.append(f"[{describe(part)}]")
    return "\n".join(pieces)


def describe(part: Image | File) -> str:
    """Return an image or file in words."""
    if isinstance(part, Image):
        return one_line(f"image: {part.alt}" if part.alt else f"image, {part.media_type}")
    return one_line(f"file: {part.name}" if part.name else f"file, {part.media_type}")


def one_line(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _fenced(text: str) -> str:
    """Put a fence around the text that is longer than any fence in it."""
    runs = re.findall(r"`+", text) if "`" in text else ()
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{fence}\n{text}\n{fence}"
