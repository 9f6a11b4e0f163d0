"""aider: `.aider.chat.history.md`, to which every session of a folder is appended for ever.

A heading says when a session began. Lines with `####` are the person's, lines with `>` aider's own,
the rest is the model's. Two spaces end what aider itself and the person say, so a heading or a
quote of the model's is told from it, and so are several lines of aider's own. There are no ids, no
times inside a session, and no calls of tools: edits are in the model's text, and aider tells below
what it did with them.
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
_HEAD_BYTES: Final = 4096
_BEGINS: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_SAID_TO_MODEL: Final = re.compile(r"/(ask|code|architect|context|help)\s+(?=\S)")
_COMMAND: Final = re.compile(r"[/!]")
_MODEL: Final = re.compile(r"(?:Main model|Model|Models?): (\S+)")
_TOKENS: Final = re.compile(r"Tokens: ([\d.,]+)(k?) sent, (?:.* )?([\d.,]+)(k?) received")
_OWN: Final = ("> ", "####")
_END: Final = "  "
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
    stopped: r.TurnEndRecord | None = None
    chunks = list(_chunks(lines))
    for number, chunk in enumerate(chunks):
        before = chunks[number - 1] if number else chunk
        is_answered = number + 1 < len(chunks) and chunks[number + 1].who == "model"
        grows = growing and number == len(chunks) - 1
        if grows and not quiet and chunk.who == "aider":
            return  # more lines of it may come
        where = SourceLocation(str(path), chunk.at)
        key = f"{native}/{chunk.at - (location.line or 0)}"
        if chunk.who == "aider":
            named = _MODEL.search(chunk.text)
            model = named[1] if named is not None else model
            yield r.OpaqueRecord(location=where, name="aider", data=chunk.text)
            # Behind an answer, Ctrl+C was for the prompt line. What was cut off is written below.
            if _STOPPED.search(chunk.text) and (is_answered or before.who == "person"):
                stopped = r.TurnEndRecord(
                    location=where, status="interrupted", reason="ctrl_c", cause="stopped"
                )
                if not is_answered:
                    yield stopped
        elif chunk.who == "person":
            if before.who != "person" or before is chunk or not _is_said_again(before, chunk):
                yield from _read_prompt(where, chunk, key, growing=grows and not quiet)
            stopped = None
        else:
            usage = _usage(chunks[number + 1].text) if number + 1 < len(chunks) else None
            yield r.MessageRecord(
                location=where,
                role="assistant",
                parts=(Text(chunk.text),),
                key=key,
                partial=stopped is not None,
                growing=grows,  # what it has cost is said behind it
                model_call=r.ModelCallRecord(model=model, usage=usage),
            )
            if stopped is not None:
                yield stopped
            stopped = None


def _chunks(lines: list[tuple[int, str]]) -> Iterator[_Chunk]:
    chunk: _Chunk | None = None
    for number, who, text in _speakers(lines):
        if who == "model" and not text.strip() and chunk is not None and chunk.who != "person":
            chunk.lines.append("")
            continue
        if chunk is None or chunk.who != who:
            if chunk is not None and chunk.text:
                yield chunk
            chunk = _Chunk(who, number, [])
        chunk.lines.append(text)
    if chunk is not None and chunk.text:
        yield chunk


def _speakers(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield each line's number, who says it, and its text.

    What aider itself says may go on to the next line that two spaces end, unless that begins with
    a mark. Where no mark has them, an editor took them away: then a mark is enough.
    """
    bare = not any(line.startswith(_OWN) and line.endswith(_END) for _, line in lines)
    ends, end = list[bool](), False
    for _, line in reversed(lines):
        ends.append(end)
        if _is_ended(line):
            end = not line.startswith(_OWN)
    goes_on = False
    for (number, line), ends_below in zip(lines, reversed(ends), strict=True):
        ended = bare or _is_ended(line)
        if goes_on:
            yield number, "aider", line.removesuffix(_END)
            goes_on = not ended
        elif line.startswith("####") and (bare or line.endswith(_END)):
            yield number, "person", line[4:].removeprefix(" ").removesuffix(_END)
        elif line.startswith(">" if bare else "> ") and (ended or ends_below):
            yield number, "aider", line[1:].removeprefix(" ").removesuffix(_END)
            goes_on = not ended
        else:
            yield number, "model", line


def _is_ended(line: str) -> bool:
    """Tell whether aider ended a line of its own here: it takes away the spaces that were there."""
    return line.endswith(_END) and not line.endswith(f" {_END}")


def _is_said_again(before: _Chunk, chunk: _Chunk) -> bool:
    """Tell whether this is the prompt of the command above, which aider writes once more."""
    asked = _SAID_TO_MODEL.match(before.text)
    return asked is not None and before.text[asked.end() :] == chunk.text


def _read_prompt(
    location: SourceLocation, chunk: _Chunk, key: str, *, growing: bool
) -> Iterator[r.Record]:
    """Read what the person typed; of a command that goes to the model, what goes there."""
    text = chunk.text
    asked = _SAID_TO_MODEL.match(text)
    if asked is not None:
        text = text[asked.end() :]
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
    if peek.path.name == _FILE:
        return True
    with open_file(peek.path) as file:
        return _BEGINS.match(file.read(_HEAD_BYTES).decode("utf-8", "replace").lstrip()) is not None


def _read(path: Path, reading: ReadOptions) -> Iterable[Source | r.ProblemRecord]:
    return aider(path, settled=reading.settled, quiet=reading.quiet)


FORMAT: Final = Format(
    name=NAME,
    claims=_claims,
    read=_read,
    commands=("aider",),
    works_in=lambda path: str(path.resolve().parent),
)
