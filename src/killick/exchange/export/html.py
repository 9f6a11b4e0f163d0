"""A session as one HTML file that opens anywhere: no scripts, nothing fetched, all text escaped."""

import base64
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Final

from killick.exchange.export.markdown import ROLES, describe, one_line
from killick.model.messages import File, Image, Part, Reasoning, Text
from killick.views.transcript import Shown, ShownTool

Blobs = Callable[[str], bytes | None]

_PICTURES: Final = {"image/png", "image/jpeg", "image/gif", "image/webp"}
"""What is shown. An SVG is a document with scripts of its own; it is named."""

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}
article{border-left:3px solid #8888;padding:.1rem 1rem;margin:1rem 0}
article.user{border-color:#36c}article.assistant{border-color:#2a7}article.partial{opacity:.8}
h2{font-size:1rem;margin:.5rem 0}time{font-weight:normal;color:#888;margin-left:.5rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0}
pre.code,.reasoning{background:#8882;padding:.5rem;border-radius:.3rem}
.text{font:inherit}.ending{color:#a33;font-style:italic}img{max-width:100%}
"""


def render_page(title: str | None, shown: Iterable[Shown], blobs: Blobs) -> Iterator[str]:
    """Yield the file in pieces."""
    name = _safe(one_line(title or "Untitled session"))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    )
    for item in shown:
        yield from _shown(item, blobs)
    yield "</body>\n</html>\n"


def _shown(item: Shown, blobs: Blobs) -> Iterator[str]:
    if item.kind == "ending":
        reason = _safe(item.reason or "")
        yield f'<p class="ending">The turn was {_safe(item.status or "")}: {reason}</p>\n'
        return
    if item.kind == "compaction":
        yield f"<details><summary>What was said before</summary>{_pre(item.text, 'reasoning')}\n"
        for folded in item.folded:
            yield from _shown(folded, blobs)
        yield "</details>\n"
        return
    if item.role == "tool":
        return  # results are shown with their calls
    state = " partial" if item.state == "partial" else ""
    at = item.at.isoformat(timespec="seconds")
    heading = ROLES[item.role] + (", cut off" if state else "")
    yield f'<article class="{item.role}{state}">\n<h2>{heading}<time>{at}</time></h2>\n'
    for part in item.parts:
        yield from _part(part, blobs)
    for tool in item.tools:
        yield from _tool(tool, blobs)
    yield "</article>\n"


def _part(part: Part, blobs: Blobs) -> Iterator[str]:
    match part:
        case Text():
            yield _pre(part.text, "text")
        case Reasoning() if part.text:
            summary = "<summary>Reasoning</summary>"
            yield f"<details>{summary}{_pre(part.text, 'reasoning')}</details>\n"
        case Image() | File():
            yield _media(part, blobs)
        case _:
            pass


def _media(part: Image | File, blobs: Blobs) -> str:
    words = _safe(describe(part))
    data = blobs(part.blob) if part.media_type in _PICTURES else None
    if data is None:
        return f"<p>[{words}]</p>\n"
    encoded = base64.b64encode(data).decode("ascii")
    return f'<img src="data:{part.media_type};base64,{encoded}" alt="{words}">\n'


def _tool(tool: ShownTool, blobs: Blobs) -> Iterator[str]:
    yield f"<details><summary>{_safe(tool.name)} ({tool.state})</summary>\n"
    if tool.arguments.strip():
        yield _pre(tool.arguments, "code")
    content = tool.output if tool.result is None else tool.result.content
    if isinstance(content, str):
        yield _pre(content, "code")
    for part in () if content is None or isinstance(content, str) else content:
        yield from _part(part, blobs)
    if tool.settled is not None:
        yield f"<p>It {_safe(tool.settled.words)}.</p>\n"
        for detail in filter(None, (tool.settled.result, tool.settled.evidence)):
            yield _pre(detail, "code")
    yield "</details>\n"


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind}">{_safe(text)}</pre>\n'


def _safe(text: str) -> str:
    """Escape text; characters that UTF-8 does not have become a mark."""
    return escape(text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd"))
