"""aider: `.aider.chat.history.md`, to which every session of a folder is appended for ever.

A heading says when a session began. Lines with `####` are the person's, lines with `>` aider's own,
the rest is the model's. There are no ids, no times inside a session, and no calls of tools: edits
are in the model's text, and aider tells below what it did with them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek, ReadOptions
from killick.exchange.formats import content as c
from killick.exchange.read import open_file, split, time_us
from killick.exchange.records import Source, SourceLocation
from killick.model.entries import Usage
from killick.model.messages import Text
from killick.model.sessions import Project

NAME: Final = "aider"

_FILE: Final = ".aider.chat.history.md"
_BEGINS: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_SAID_TO_MODEL: Final = re.compile(r"/(ask|code|architect|context|help)\s+(?=\S)")
_COMMAND: Final = re.compile(r"[/!]")
_MODEL: Final = re.compile(r"(?:Main model|Model|Models?): (\S+)")
_TOKENS: Final = re.compile(r"Tokens: ([\d.,]+)(k?) sent, (?:.* )?([\d.,]+)(k?) received")
_STOPPED: Final = re.compile(r"\^C|KeyboardInterrupt")


class _Chunk(msgspec.Struct):
    """Lines of one speaker that follow each other; `at` is the first one's number."""

    who: str
    at: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


def aider(path: Path, *, settled: bool, quiet: bool = False) -> Iterator[Source | r.ProblemRecord]:
    """Yield the sessions of a file. Only the last can still be written to."""
    sessions = list(_sessions(path))
    seen: dict[str, int] = {}
    for number, (at, begun, lines) in enumerate(sessions):
        count = seen[begun] = seen.get(begun, 0) + 1
        native = f"{path.resolve()}#{begun}" + (f"/{count}" if count > 1 else "")
        location = SourceLocation(str(path), at)
        last = number == len(sessions) - 1
        yield Source(
            NAME,
            native,
            f"{path}:{at}",
            _records(
                path, location, native, begun, lines, growing=last and not settled, quiet=quiet
            ),
            settled or not last,
            answer_ends=True,
        )


def _sessions(path: Path) -> Iterator[tuple[int, str, list[tuple[int, str]]]]:
    """Yield where each session begins, when, and its lines with their numbers."""
    session: tuple[int, str, list[tuple[int, str]]] | None = None
    with open_file(path) as file:
        for number, data in enumerate(split(file), start=1):
            line = (data or b"").decode("utf-8", "replace").rstrip("\r\n")
            match = _BEGINS.match(line)
            if match is not None:
                if session is not None:
                    yield session
                session = (number, match[1], [])
            elif session is not None:
                session[2].append((number, line))
            elif line.strip():
                session = (number, "", [(number, line)])
    if session is not None:
        yield session


def _records(
    path: Path,
    location: SourceLocation,
    native: str,
    begun: str,
    lines: list[tuple[int, str]],
    *,
    growing: bool,
    quiet: bool,
) -> Iterator[r.Record]:
    yield r.BeginRecord(
        location=location,
        at_us=time_us(begun),
        native_id=native,
        project=Project(str(path.resolve().parent)),
    )
    model: str | None = None
    chunks = list(_chunks(lines))
    for number, chunk in enumerate(chunks):
        grows = growing and number == len(chunks) - 1
        if grows and not quiet and chunk.who == "aider":
            return  # more lines of it may come
        where = SourceLocation(str(path), chunk.at)
        key = f"{native}/{chunk.at - (location.line or 0)}"
        if chunk.who == "aider":
            named = _MODEL.search(chunk.text)
            model = named[1] if named is not None else model
            yield r.OpaqueRecord(location=where, name="aider", data=chunk.text)
            if _STOPPED.search(chunk.text):
                yield r.TurnEndRecord(
                    location=where, status="interrupted", reason="ctrl_c", cause="stopped"
                )
        elif chunk.who == "person":
            yield from _read_prompt(where, chunk, key, growing=grows and not quiet)
        else:
            usage = _usage(chunks[number + 1].text) if number + 1 < len(chunks) else None
            yield r.MessageRecord(
                location=where,
                role="assistant",
                parts=(Text(chunk.text),),
                key=key,
                growing=grows,  # what it has cost is said behind it
                model_call=r.ModelCallRecord(model=model, usage=usage),
            )


def _chunks(lines: list[tuple[int, str]]) -> Iterator[_Chunk]:
    chunk: _Chunk | None = None
    for number, line in lines:
        who, text = _speaker(line)
        if chunk is not None and not line.strip() and chunk.who != "person":
            chunk.lines.append("")
            continue
        if chunk is None or chunk.who != who or (who == "person" and not line.strip()):
            if chunk is not None and chunk.text:
                yield chunk
            chunk = _Chunk(who, number, [])
        chunk.lines.append(text)
    if chunk is not None and chunk.text:
        yield chunk


def _speaker(line: str) -> tuple[str, str]:
    if line.startswith("####"):
        return "person", line[4:].removeprefix(" ").removesuffix("  ")
    if line.startswith(">"):
        return "aider", line[1:].removeprefix(" ").removesuffix("  ")
    return "model", line


def _read_prompt(
    location: SourceLocation, chunk: _Chunk, key: str, *, growing: bool
) -> Iterator[r.Record]:
    """Read what the person typed; a command that goes to the model comes once more, without it."""
    text = chunk.text
    asked = _SAID_TO_MODEL.match(text)
    if asked is not None:
        rest = text[asked.end() :]
        lines = rest.splitlines()
        half = len(lines) // 2
        if half and len(lines) % 2 == 0 and lines[:half] == lines[half:]:
            rest = "\n".join(lines[:half])
        text = rest
    elif _COMMAND.match(text):
        yield r.OpaqueRecord(location=location, name="command", data=text)
        return
    yield r.MessageRecord(
        location=location,
        role="user",
        parts=(Text(text),),
        key=key,
        begins_turn=True,
        growing=growing,
    )


def _usage(text: str) -> Usage | None:
    match = _TOKENS.search(text)
    if match is None:
        return None
    counts = {"sent": _number(match[1], match[2]), "received": _number(match[3], match[4])}
    return c.tokens(counts, "sent", "received")


def _number(text: str, thousands: str) -> int:
    try:
        return int(float(text.replace(",", "")) * (1_000 if thousands else 1))
    except ValueError:
        return 0


def _claims(peek: Peek) -> bool:
    if not peek.path.name.endswith(".md"):
        return False
    with open_file(peek.path) as file:
        head = file.read(1 << 16)
    return peek.path.name == _FILE or (
        b"# aider chat started at" in head and b"Generated by SpecStory" not in head[:4096]
    )


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    return aider(path, settled=reading.settled, quiet=reading.quiet)


FORMAT: Final = Format(name=NAME, claims=_claims, read=_read, commands=("aider",))
