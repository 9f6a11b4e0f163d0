"""Files that are one JSON value: whole, damaged, or just being written anew."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange.files import open_file, problem_of
from killick.exchange.lines import parse

BYTES_MAX: Final = 256 * 1024 * 1024
"""A document is read as a whole; a larger one is refused."""

MESSAGE: Final = re.compile(r'\{\s*(?:"id"\s*:\s*"[^"\\]*"\s*,\s*)?"role"\s*:')
"""How a message begins, as everybody writes it."""

_TRIES: Final = 3
_FAILURES_MAX: Final = 1_000
"""Each failure may read on to the end of the file; after so many the rest is left out."""


class Document(msgspec.Struct):
    """What a file holds: its value, or the objects of a list that are whole, and why not more.

    `rows` are those objects with their numbers, `problems` what stands at a number or nowhere.
    """

    value: Any = None
    rows: list[tuple[int, Any]] = []
    problems: list[tuple[int | None, str]] = []

    @property
    def whole(self) -> bool:
        return not self.problems


def read_document(path: Path, begins: re.Pattern[str] = MESSAGE) -> Document:
    """The document in a file; `begins` is how a row of it begins. Raises OSError.

    An agent that writes its file anew on every save is met in the middle now and then; the file is
    read again before it is called damaged.
    """
    reason = ""
    data = b""
    for _ in range(_TRIES):
        before = path.stat()
        if before.st_size > BYTES_MAX:
            raise OSError(f"it is one document of more than {BYTES_MAX} bytes")
        data, reason = _read(path)
        try:
            return Document(parse(data)) if not reason else _rescued(data, reason, begins)
        except ValueError as error:
            reason = str(error)
        if _same(path, before):
            break
    return _rescued(data, reason, begins)


def _read(path: Path) -> tuple[bytes, str]:
    with open_file(path) as file:
        data = file.read(BYTES_MAX + 1)
        reason = problem_of(file) or ""
    if len(data) > BYTES_MAX:
        raise OSError(f"it is one document of more than {BYTES_MAX} bytes")
    return data, reason


def _same(path: Path, before: Any) -> bool:
    after = path.stat()
    return (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _rescued(data: bytes, reason: str, begins: re.Pattern[str]) -> Document:
    """The objects that are whole, told apart by how each begins."""
    found = Document(None, [], [(None, f"it is damaged ({reason})")])
    text = data.decode("utf-8", "replace")
    for number, value in enumerate(_objects(text, begins), start=1):
        if isinstance(value, str):
            found.problems.append((number, value))
        else:
            found.rows.append((number, value))
    return found


def _objects(text: str, begins: re.Pattern[str]) -> Iterator[dict[str, Any] | str]:
    decoder, end, failures = json.JSONDecoder(), 0, 0
    for begin in (match.start() for match in begins.finditer(text)):
        if begin < end:
            continue  # inside of the one before
        try:
            value, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield f"not a record: {error}"
            failures += 1
            if failures == _FAILURES_MAX:
                yield "too much of it is damaged; the rest was left out"
                return
            continue
        yield value


def rows_of(document: Document, name: str) -> list[tuple[int, Any]]:
    """The list that the document is, or has under a name, with numbers; what was rescued of it."""
    if not document.whole:
        return document.rows
    value = document.value
    found = value.get(name) if isinstance(value, dict) else value
    return list(enumerate(found, start=1)) if isinstance(found, list) else []
