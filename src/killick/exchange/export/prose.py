"""Markdown as HTML, for a page that runs nothing: text is escaped, and links lead to the web only.

The common part of Markdown: headings, lists, quotes, code, tables, rules, emphasis, links. What is
none of these stays the text that it is.
"""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Final

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})[^`]*$")
_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})\s+(.*)$")
_RULE: Final = re.compile(r"^ {0,3}([-*_])(?:\s*\1){2,}\s*$")
_ITEM: Final = re.compile(r"^( {0,9})([-*+]|\d{1,9}[.)])\s+(.*)$")
_QUOTE: Final = re.compile(r"^ {0,3}> ?(.*)$")
_BAR: Final = re.compile(r"^\|?(\s*:?-+:?\s*\|)+\s*(:?-+:?)?$")
_INLINE: Final = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`++)(?P<inside>.{1,2000}?)(?<!`)(?P=ticks)(?!`))"
    r"|\[(?P<label>[^\]\n]{1,500})\]\((?P<link>(?:https?://|mailto:)[^\s)]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"')\]]{1,2000})"
    r"|\*\*(?P<strong>[^*\n]+?)\*\*"
    r"|(?<![\w*])\*(?P<em>[^*\s](?:[^*\n]*?[^*\s])?)\*(?![\w*])"
)
"""Lengths are bounded and runs are taken whole, so that no text takes long: see its test."""
_DEPTH_MAX: Final = 8


def to_html(text: str) -> str:
    """Return a text of a model or a person as HTML."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(_blocks(lines, 0)) + "\n"


def _blocks(lines: list[str], depth: int) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        at, made = _block(lines, at, depth)
        yield made


def _block(lines: list[str], at: int, depth: int) -> tuple[int, str]:
    line = lines[at]
    if _FENCE.match(line):
        return _code(lines, at)
    heading = _HEADING.match(line)
    if heading is not None:
        title = heading[2].rstrip().rstrip("#").rstrip()
        level = min(6, len(heading[1]) + 2)  # a message stands under headings of the page
        return at + 1, f"<h{level}>{_inline(title)}</h{level}>"
    if _RULE.match(line):
        return at + 1, "<hr>"
    if depth < _DEPTH_MAX and _QUOTE.match(line):
        end = _while(lines, at, lambda text: _QUOTE.match(text) is not None)
        inside = [_QUOTE.sub(r"\1", line) for line in lines[at:end]]
        return end, "<blockquote>" + "\n".join(_blocks(inside, depth + 1)) + "</blockquote>"
    if depth < _DEPTH_MAX and _ITEM.match(line):
        return _list(lines, at, depth)
    if "|" in line and at + 1 < len(lines) and _BAR.match(lines[at + 1].strip()):
        return _table(lines, at)
    end = _while(lines, at, _goes_on)
    end = max(end, at + 1)
    return end, "<p>" + "<br>\n".join(_inline(line.strip()) for line in lines[at:end]) + "</p>"


def _goes_on(line: str) -> bool:
    begins = _FENCE.match(line) or _HEADING.match(line) or _RULE.match(line) or _ITEM.match(line)
    return bool(line.strip()) and begins is None and _QUOTE.match(line) is None


def _while(lines: list[str], at: int, fits: Callable[[str], bool]) -> int:
    while at < len(lines) and fits(lines[at]):
        at += 1
    return at


def _code(lines: list[str], at: int) -> tuple[int, str]:
    """A block of code; one that does not end goes on to the end of the text."""
    opened = _FENCE.match(lines[at])
    assert opened is not None
    closes = re.compile(rf"^ {{0,3}}{opened[1][0]}{{{len(opened[1])},}}\s*$")
    end = _while(lines, at + 1, lambda text: closes.match(text) is None)
    code = "\n".join(lines[at + 1 : end])
    return end + 1, f'<pre class="code">{escape(code)}</pre>'


def _list(lines: list[str], at: int, depth: int) -> tuple[int, str]:
    first = _ITEM.match(lines[at])
    assert first is not None
    indent, ordered = len(first[1]), first[2][0].isdigit()
    items: list[list[str]] = []
    while at < len(lines):
        item = _ITEM.match(lines[at])
        if item is not None and len(item[1]) <= indent:
            if item[2][0].isdigit() is not ordered:
                break
            items.append([item[3]])
        elif not lines[at].strip():
            if at + 1 >= len(lines) or not lines[at + 1].startswith((" ", "\t")):
                following = at + 1 < len(lines) and _ITEM.match(lines[at + 1])
                if not following:
                    break
            items[-1].append("")
        elif item is not None or lines[at].startswith((" " * (indent + 1), "\t")):
            items[-1].append(_dedent(lines[at], indent + 2))
        else:
            break
        at += 1
    name = "ol" if ordered else "ul"
    made = "".join(f"<li>{_item(item, depth)}</li>" for item in items)
    return at, f"<{name}>{made}</{name}>"


def _item(lines: list[str], depth: int) -> str:
    rest = "\n".join(_blocks(lines[1:], depth + 1))
    return _inline(lines[0]) + (f"\n{rest}" if rest else "")


def _dedent(line: str, width: int) -> str:
    line = line.expandtabs(4)
    return line[min(width, len(line) - len(line.lstrip())) :]


def _table(lines: list[str], at: int) -> tuple[int, str]:
    end = _while(lines, at + 2, lambda text: "|" in text and bool(text.strip()))
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in _cells(lines[at]))
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in _cells(line)) + "</tr>"
        for line in lines[at + 2 : end]
    )
    return end, f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _inline(text: str) -> str:
    pieces = []
    start = 0
    for match in _INLINE.finditer(text):
        pieces += [escape(text[start : match.start()]), _span(match)]
        start = match.end()
    return "".join([*pieces, escape(text[start:])])


def _span(match: re.Match[str]) -> str:
    if match["code"] is not None:
        return f"<code>{escape(match['inside'].strip())}</code>"
    if match["strong"] is not None:
        return f"<strong>{_inline(match['strong'])}</strong>"
    if match["em"] is not None:
        return f"<em>{_inline(match['em'])}</em>"
    link = match["link"] or match["bare"]
    label = _inline(match["label"]) if match["label"] is not None else escape(link)
    return f'<a href="{escape(link)}" rel="noopener noreferrer nofollow">{label}</a>'
