"""Ways in which a file of JSON lines goes wrong, decided by a seed."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Lines = list[bytes]


def cut(lines: Lines, random: Random) -> Lines:
    """The end is missing, in the middle of a line."""
    at = random.randrange(len(lines))
    return [*lines[:at], lines[at][: random.randrange(len(lines[at]))]]


def drop(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[:at], *lines[at + 1 :]]


def splice(lines: Lines, random: Random) -> Lines:
    """A torn line with the next one right behind it."""
    at = random.randrange(len(lines))
    torn = lines[at][: random.randrange(len(lines[at]))]
    return [*lines[:at], torn + b"".join(lines[at + 1 : at + 2]), *lines[at + 2 :]]


def nul(lines: Lines, random: Random) -> Lines:
    """A run of NULs, as a file system leaves it after a power cut."""
    at = random.randrange(len(lines))
    return [*lines[:at], b"\0" * random.randrange(1, 4096), *lines[at:]]


def nul_over(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[:at], b"\0" * len(lines[at]) + b"\n", *lines[at + 1 :]]


def invalid_utf8(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    line = lines[at]
    where = random.randrange(len(line))
    return [*lines[:at], line[:where] + b"\xff\xfe" + line[where:], *lines[at + 1 :]]


def separators(lines: Lines, random: Random) -> Lines:
    """U+2028 inside of text is no end of a line."""
    at = random.randrange(len(lines))
    return [*lines[:at], lines[at].replace(b"a", "\u2028a".encode(), 1), *lines[at + 1 :]]


def duplicate(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[: at + 1], lines[at], *lines[at + 1 :]]


def shuffle(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    to = random.randrange(len(lines))
    mixed = list(lines)
    mixed.insert(to, mixed.pop(at))
    return mixed


def unknown(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    strange = [b'{"type":"strange","payload":[1]}\n', b"[]\n", b"17\n", b'"text"\n', b"{}\n", b"\n"]
    return [*lines[:at], random.choice(strange), *lines[at:]]


def swap_values(lines: Lines, random: Random) -> Lines:
    """A field has a value of another kind."""
    at = random.randrange(len(lines))
    line = lines[at]
    spots = [i for i in range(len(line)) if line[i : i + 1] == b":"]
    if not spots:
        return lines
    spot = random.choice(spots)
    value = random.choice([b"null,", b"-1,", b'"x",', b"[],", b"{},", b"1e400,", b"true,"])
    return [*lines[:at], line[: spot + 1] + value + b'"_":' + line[spot + 1 :], *lines[at + 1 :]]


def deep(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[:at], b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n", *lines[at:]]


_IDS = {
    "id", "uuid", "parentUuid", "call_id", "message_id", "tool_use_id", "tool_call_id", "seq",
    "run_id", "thread_id", "turn_id", "sessionId", "session_id", "agentId", "ordinal", "timestamp",
}  # fmt: skip


def _spots(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _IDS and isinstance(inner, str | int):
                yield value, key
            yield from _spots(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _spots(inner)


def same_ids(lines: Lines, random: Random) -> Lines:
    """A record has the id of another: ids are there twice, parents go in circles."""
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    try:
        one, other = json.loads(lines[at]), json.loads(lines[to])
    except (ValueError, RecursionError):
        return lines
    for record, key in _spots(one):
        given = [where[name] for where, name in _spots(other) if name == key]
        if key == "parentUuid":
            given = [where[name] for where, name in _spots(other) if name == "uuid"]
        if given:
            record[key] = random.choice(given)
    return [*lines[:at], json.dumps(one).encode() + b"\n", *lines[at + 1 :]]


def dots(lines: Lines, random: Random) -> Lines:
    """A name would like to lead out of its folder."""
    at = random.randrange(len(lines))
    try:
        record = json.loads(lines[at])
    except (ValueError, RecursionError):
        return lines
    for where, key in _spots(record):
        where[key] = random.choice(["../../etc/passwd", "..", "/", "a" * 5000, "\0", "", "\u2028"])
    return [*lines[:at], json.dumps(record).encode() + b"\n", *lines[at + 1 :]]


ALL: list[Callable[[Lines, Random], Lines]] = [
    cut, drop, splice, nul, nul_over, invalid_utf8, separators, duplicate, shuffle, unknown,
    swap_values, deep, same_ids, dots,
]  # fmt: skip


def mutated(data: bytes, seed: int) -> bytes:
    """One or a few things gone wrong."""
    random = Random(seed)
    lines = data.splitlines(keepends=True)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        if lines:
            lines = [line for line in random.choice(ALL)(lines, random) if line]
    return b"".join(lines)
