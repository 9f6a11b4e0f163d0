"""A session as one HTML file that opens anywhere: no scripts, nothing fetched, all text escaped."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Final

from killick.exchange.export.endings import ending_sentences
from killick.exchange.export.markdown import ROLES, describe, one_line
from killick.exchange.export.prose import to_html
from killick.exchange.export.shelf import Words
from killick.model.messages import File, Image, Part, Reasoning, Text
from killick.views.transcript import Shown, ShownTool

Blobs = Callable[[str], bytes | None]

_PICTURES: Final = {"image/png", "image/jpeg", "image/gif", "image/webp"}
"""What is shown. An SVG is a document with scripts of its own; it is named."""

_ABOUT: Final = (
    "command",
    "cmd",
    "script",
    "code",
    "path",
    "file_path",
    "file",
    "pattern",
    "query",
)
_ABOUT_CHARS: Final = 160

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8885;--wash:#8881;--soft:#6b7280}
body{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;line-height:1.3}
article{margin:1.5rem 0}article.user{background:var(--wash);border-radius:.8rem;padding:.4rem 1rem}
article>h2{font-size:.8rem;margin:.2rem 0;color:var(--soft);font-weight:600}
time{font-weight:normal;margin-left:.6rem}h3,h4,h5,h6{font-size:1.05rem;margin:1.2rem 0 .3rem}
p,ul,ol,blockquote,table{margin:.6rem 0}
blockquote{border-left:3px solid var(--line);padding-left:1rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.6rem 0}
pre{font:.86rem/1.5 ui-monospace,monospace}
pre.code,code{background:var(--wash);border-radius:.3rem}pre.code{padding:.6rem .8rem}
code{padding:.1rem .3rem;font:.88em ui-monospace,monospace}summary code{background:none}
pre.words{font:inherit}table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{border:1px solid var(--line);padding:.2rem .6rem;text-align:left}
details{border:1px solid var(--line);border-radius:.5rem;padding:.3rem .8rem;margin:.5rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}summary span{color:var(--soft);font-size:.85rem}
.ending{border-left:3px solid #c2570c;padding-left:1rem;color:#c2570c}img{max-width:100%}
@media (prefers-color-scheme:dark){:root{--soft:#9ca3af}.ending{color:#fdba74}}
"""


def render_page(
    title: str | None, shown: Iterable[Shown], words: Words, blobs: Blobs
) -> Iterator[str]:
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
        yield from _shown(words(item), words, blobs)
    yield "</body>\n</html>\n"


def _shown(item: Shown, words: Words, blobs: Blobs) -> Iterator[str]:
    if item.kind == "ending":
        sentences = ending_sentences(item.status, item.cause, item.reason)
        yield f'<p class="ending">{_safe(sentences)}</p>\n'
        return
    if item.kind == "compaction":
        yield f"<details><summary>What was said before</summary>{to_html(_whole(item.text))}\n"
        for folded in item.folded:
            yield from _shown(words(folded), words, blobs)
        yield "</details>\n"
        return
    if item.role == "tool":
        return  # results are shown with their calls
    state = " partial" if item.state == "partial" else ""
    # In the time of the machine that writes the file: its reader is told which that is.
    at = f"{item.at.astimezone():%d %B %Y, %H:%M %Z}".lstrip("0")
    exact = item.at.isoformat(timespec="seconds")
    heading = ROLES[item.role] + (", cut off" if state else "")
    yield f'<article class="{item.role}{state}">\n'
    yield f'<h2>{heading}<time datetime="{exact}">{_safe(at)}</time></h2>\n'
    for part in item.parts:
        yield from _part(part, blobs, as_written=item.role == "user")
    for tool in item.tools:
        yield from _tool(tool, blobs)
    yield "</article>\n"


def _part(part: Part, blobs: Blobs, *, as_written: bool = False) -> Iterator[str]:
    match part:
        case Text():
            yield _pre(part.text, "words") if as_written else to_html(_whole(part.text))
        case Reasoning() if part.text:
            summary = "<summary>Reasoning</summary>"
            yield f"<details>{summary}{_pre(part.text, 'words')}</details>\n"
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
    about = _safe(_about(tool.arguments))
    code = f"<code>{_safe(tool.name)}</code> {about} <span>{tool.state}</span>"
    yield f"<details><summary>{code}</summary>\n"
    if tool.arguments.strip():
        yield _pre(tool.arguments, "code")
    content = tool.output if tool.result is None else tool.result.content
    if isinstance(content, str):
        yield _pre(content, "code")
    for part in () if content is None or isinstance(content, str) else content:
        yield from _part(part, blobs, as_written=True)
    if tool.settled is not None:
        yield f"<p>It {_safe(tool.settled.words)}.</p>\n"
        for detail in filter(None, (tool.settled.result, tool.settled.evidence)):
            yield _pre(detail, "code")
    yield "</details>\n"


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind}">{_safe(text)}</pre>\n'


def _about(arguments: str) -> str:
    """Return what a call is about in one line: its command, its file, or all that it was given."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return one_line(arguments)[:_ABOUT_CHARS]
    values = [given.get(name) for name in _ABOUT] if isinstance(given, dict) else []
    named = next((value for value in values if isinstance(value, str) and value.strip()), None)
    return one_line(named or (arguments if given else ""))[:_ABOUT_CHARS]


def _whole(text: str) -> str:
    """Return text in which characters that UTF-8 does not have are a mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def _safe(text: str) -> str:
    return escape(_whole(text))
