"""Imports of a size that people have: run as a program, so that its memory can be measured.

python -m tests.exchange.scale one FOLDER MEGABYTES
python -m tests.exchange.scale many FOLDER SESSIONS
python -m tests.exchange.scale export FOLDER MEGABYTES [FORMAT…]
"""

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from killick import Store
from killick.exchange import EXPORTS, Report, import_paths
from killick.exchange.export import export_session

NOW = 1_800_000_000_000_000


def _line(kind: str, second: int, **payload: object) -> bytes:
    day, hour, minute = second // 86400 % 28, second // 3600 % 24, second // 60 % 60
    at = f"2026-08-{1 + day:02d}T{hour:02d}:{minute:02d}:00Z"
    return json.dumps({"timestamp": at, "type": kind, "payload": payload}).encode() + b"\n"


def turn(number: int, words: str) -> bytes:
    """A turn as Codex writes it: a prompt, a tool, an answer."""
    call = f"call_{number}"
    said = [{"type": "input_text", "text": f"Prompt {number}: {words[:200]}"}]
    answer = [{"type": "output_text", "text": f"Answer {number}: {words}"}]
    return b"".join((
        _line("event_msg", number, type="task_started", turn_id=f"t{number}"),
        _line("response_item", number, type="message", role="user", content=said),
        _line("response_item", number, type="function_call", name="exec", arguments="{}",
              call_id=call),
        _line("response_item", number, type="function_call_output", call_id=call, output=words),
        _line("response_item", number, type="message", role="assistant", content=answer),
        _line("event_msg", number, type="task_complete", turn_id=f"t{number}"),
    ))  # fmt: skip


def meta(name: str) -> bytes:
    return _line("session_meta", 0, id=name, session_id=name, cwd="/w", source="cli",
                 timestamp="2026-08-01T00:00:00Z", model_provider="openai")  # fmt: skip


def make_one(path: Path, megabytes: int) -> None:
    """One rollout of this size."""
    words = "All work and no play makes a long transcript. " * 90
    with path.open("wb") as file:
        file.write(meta("one"))
        number = 0
        while file.tell() < megabytes << 20:
            file.write(turn(number, words))
            number += 1


def make_many(folder: Path, sessions: int) -> None:
    for number in range(sessions):
        path = folder / f"{number // 1000:03d}" / f"rollout-{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(
            meta(f"s{number}") + b"".join(turn(n, f"{number} words") for n in range(3))
        )


def main(what: str, folder: Path, size: int) -> None:
    source = folder / "source"
    source.mkdir()
    if what == "one":
        make_one(source / "rollout-one.jsonl", size)
    else:
        make_many(source, size)
    before = _peak_mb()
    began = time.perf_counter()
    with Store(folder / "store.db") as store:
        report: Report = import_paths(store, [source], clock=lambda: NOW)
    first = time.perf_counter() - began
    began = time.perf_counter()
    with Store(folder / "store.db") as store:
        again = import_paths(store, [source], clock=lambda: NOW)
    seconds = time.perf_counter() - began
    print(json.dumps({
        "seconds": round(first, 1), "again_seconds": round(seconds, 1),
        "peak_mb": _peak_mb(),
        "before_mb": before, "sessions": len(report.sessions), "entries": report.entries,
        "problems": len(report.problems), "again": again.entries,
    }))  # fmt: skip


def exports(folder: Path, megabytes: int, formats: Sequence[str]) -> None:
    """Export a session in these formats: how much memory each takes, and processor time.

    Each is a process of its own: the most memory that it has had is its export's.
    """
    _apart(_bring_in, folder, megabytes)
    measured: dict[str, dict[str, float]] = {}
    for to in ("killick", *formats):
        done = folder / f"{to}.json"
        runs = 5 if megabytes < 50 else 3 if to in ("killick", "codex") else 1
        _apart(_export, folder, to, done, runs)
        measured[to] = json.loads(done.read_text())
        ratio = measured[to]["seconds"] / measured["killick"]["seconds"]
        measured[to]["ratio"] = round(ratio, 2)
    print(json.dumps(measured))


def _apart(target: Callable[..., None], *values: object) -> None:
    making = multiprocessing.get_context("spawn").Process(target=target, args=values)
    making.start()
    making.join()


def _export(folder: Path, to: str, done: Path, runs: int) -> None:
    seconds = list[float]()
    with Store(folder / "store.db") as store:
        (session_id,) = store.session_ids()
        before = _peak_mb()
        for _ in range(runs):
            began = time.process_time()
            size = sum(map(len, export_session(store, session_id, to)))
            seconds.append(time.process_time() - began)
    found = {"more_mb": _peak_mb() - before, "seconds": round(min(seconds), 3), "bytes": size}
    done.write_text(json.dumps(found))


def _bring_in(folder: Path, megabytes: int) -> None:
    make_one(folder / "rollout-one.jsonl", megabytes)
    with Store(folder / "store.db") as store:
        import_paths(store, [folder / "rollout-one.jsonl"], clock=lambda: NOW)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def long_line(folder: Path, megabytes: int, name: str) -> None:
    from tests.exchange.test_scale import check_long

    began = time.perf_counter()
    check_long(name, folder, megabytes << 20)
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1), "peak_mb": _peak_mb()}))


if __name__ == "__main__":
    if sys.argv[1] == "line":
        long_line(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1] == "export":
        chosen = sys.argv[4:] or [name for name in EXPORTS if name != "killick"]
        exports(Path(sys.argv[2]), int(sys.argv[3]), chosen)
    else:
        main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
