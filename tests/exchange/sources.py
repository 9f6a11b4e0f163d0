"""Importing in a test: a clock that stands still, and files that nobody writes to."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from killick import Session, Store
from killick.exchange.importer import import_source
from killick.exchange.records import ProblemRecord, Report, Source
from killick.stores.memory import MemoryDisk
from tests.exchange.checks import check_sound
from tests.exchange.mutations import mutated

NOW = 1_800_000_000_000_000


def bring(
    store: Store, *sources: Source | Iterable[Source | ProblemRecord], dry_run: bool = False
) -> Report:
    """Sources of a database are read one by one, as long as it is open."""
    report = Report()
    for one in sources:
        for source in [one] if isinstance(one, Source) else one:
            if isinstance(source, ProblemRecord):
                report.take(source)
            else:
                import_source(store, source, report, clock=lambda: NOW, dry_run=dry_run)
    return report


def kinds(session: Session) -> list[str]:
    return [entry.kind for entry in session.entries()]


def said(session: Session) -> list[tuple[str, str]]:
    """Roles and texts, results as text."""
    found: list[tuple[str, str]] = []
    for message in session.messages():
        results = [getattr(part, "content", "") for part in message.parts]
        found.append((message.role, message.text or "".join(map(str, results))))
    return found


def jsonl(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def mutate(
    data: bytes, folder: Path, name: str, seeds: Iterable[int], read: Callable[[Path], list[Source]]
) -> None:
    """Damaged files come in without a crash, and every line that a reader refused is named."""
    for seed in seeds:
        path = folder / name
        path.write_bytes(mutated(data, seed))
        with Store(MemoryDisk().open()) as store:
            report = bring(store, *read(path))
            check_sound(store)
            again = bring(store, *read(path))
            assert {one.action for one in again.sessions} <= {"unchanged"}, (seed, again.sessions)
            assert again.problems == report.problems


def strange(random: Random) -> Any:
    """A value of any kind."""
    return random.choice([None, True, -1, 1.5, "", "x", [], {}, [None], {"type": 1}, "\ud800"])


def twisted(value: Any, random: Random) -> Any:
    """The same document with one value, anywhere in it, replaced by a strange one."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return strange(random)
    if isinstance(value, dict):
        key = random.choice(list(value))
        return value | {key: twisted(value[key], random)}
    at = random.randrange(len(value))
    return [*value[:at], twisted(value[at], random), *value[at + 1 :]]
