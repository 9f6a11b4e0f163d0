"""Records out of a file of JSON lines, one at a time, however the file was damaged.

A line is what ends with a line feed and nothing else: text may hold every other separator. A line
that is no record does not take its neighbours along, nor a whole record that stands behind a torn
one in the same line.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from killick.exchange.files import open_file, problem_of
from killick.exchange.report import Place
from killick.exchange.times import time_us
from killick.model.limits import BODY_BYTES_MAX

LINE_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""A longer line is skipped without being held in memory; no entry could hold it."""

_TRIES: Final = 64
_SHOWN: Final = 60
_TAIL_BYTES: Final = 1 << 16


class Line(msgspec.Struct):
    """A record, or the reason why there is none; `torn` is a last one that was not finished."""

    place: Place
    record: dict[str, Any] | None
    problem: str | None = None
    torn: bool = False
    raw: bytes = b""


def read_lines(path: Path, name: str | None = None) -> Iterator[Line]:
    """The records of a file, opened read-only; it may be compressed."""
    with open_file(path) as file:
        yield from lines_of(file, name or str(path))


def lines_of(file: BinaryIO, name: str) -> Iterator[Line]:
    number = 0
    for number, data in enumerate(split(file), start=1):
        yield from records_in(Place(name, number), data)
    problem = problem_of(file)
    if problem is not None:
        yield Line(Place(name, number + 1), None, problem)


def newest_us(path: Path) -> int | None:
    """The `timestamp` of the last whole record; None where the end of the file has none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
    for data in reversed(tail.split(b"\n")):
        try:
            at_us = time_us(parse_object(data).get("timestamp"))
        except ValueError:
            continue
        if at_us is not None:
            return at_us
    return None


def records_in(place: Place, data: bytes | None) -> Iterator[Line]:
    """What one line holds; None stands for one that is too long."""
    if data is None:
        yield Line(place, None, f"the line is longer than {LINE_BYTES_MAX} bytes")
    elif data.strip(b" \t\r\n"):
        yield from _records(place, data)


def split(file: BinaryIO) -> Iterator[bytes | None]:
    """Lines, each with its line feed; None for one that is too long to be held."""
    while data := file.readline(LINE_BYTES_MAX):
        if len(data) < LINE_BYTES_MAX or data.endswith(b"\n"):
            yield data
            continue
        while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
            pass
        yield None


def _records(place: Place, data: bytes) -> Iterator[Line]:
    try:
        record = parse_object(data)
    except ValueError as error:
        yield from _damaged(place, data, str(error))
    else:
        yield Line(place, record, raw=data)


def _damaged(place: Place, data: bytes, reason: str) -> Iterator[Line]:
    torn = not data.endswith(b"\n")
    at = _rescue(data)
    lost, found = data[:at], data[at:]
    if lost.strip(b" \t\r\n\0"):
        yield Line(place, None, f"not a record ({reason}): {_shown(lost)}", torn and not found)
    elif not found:
        yield Line(place, None, f"{len(data)} bytes of nothing", torn)
    if found:
        yield Line(place, parse_object(found), raw=found)


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError, which says what is wrong."""
    value = parse(data)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}, where an object is due")  # noqa: TRY004
    return value


def parse(data: bytes) -> Any:
    """Any JSON value; escapes of lone surrogates are kept. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _rescue(data: bytes) -> int:
    """Where the whole record begins that stands at the end of a line; its length if none does."""
    at = 0
    for _ in range(_TRIES):
        at = data.find(b'{"', at + 1)
        if at < 0:
            break
        try:
            parse_object(data[at:])
        except ValueError:
            continue
        return at
    return len(data)


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "replace").strip()
    return json.dumps(text + ("…" if len(data) > _SHOWN else ""), ensure_ascii=True)
