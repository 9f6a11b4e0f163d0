"""What erasing costs as a store grows, while others append. A part of `benchmarks.growth`.

The stores are made once, session by session, by the library itself, with their search index; each
run erases a few of their sessions. What the first erasure of a store cost is kept beside it.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from killick import Image, Message, Store, Text
from killick.stores.sqlite.lockfile import LockFile

RETAINED: Final = 800
BLOBS: Final = (50, 4_000_000)
"""How many blobs the session has whose erasure is measured with blobs, and the bytes of each."""

_ROUNDS: Final = 5
_WORDS: Final = (
    "anchor",
    "beacon",
    "cable",
    "davit",
    "ebb",
    "fender",
    "gale",
    "hawser",
    "inlet",
    "jetty",
    "keel",
    "lantern",
    "mast",
    "narrows",
    "oar",
    "pennant",
    "quay",
    "rudder",
    "shoal",
    "tide",
    "upwind",
    "vane",
    "wharf",
    "yawl",
    "zenith",
    "buoy",
    "cleat",
    "dock",
    "eddy",
    "fathom",
)


class Cost(dict[str, float]):
    """What an erasure cost: bytes written, milliseconds, the entries that are gone."""


def make(folder: Path, sessions: int) -> Path:
    """Return the store with so many sessions, made if it is not there."""
    path = folder / f"erasing-{sessions}.db"
    if path.exists():
        return path
    partial = folder / f"{path.name}.part"
    for file in folder.glob(f"{partial.name}*"):
        file.unlink()
    with Store(partial, durability="normal") as store:
        for number in range(sessions):
            _session(store, number)
    with Store(partial):  # what is behind the writers is caught up with
        pass
    partial.rename(path)
    (folder / f"{path.name}.first").write_text(json.dumps(erase_one(path)), encoding="utf-8")
    return path


def _session(store: Store, number: int) -> None:
    """A prompt, two calls with their results, an answer: 22 entries with words of their own."""
    session = store.create_session(id=f"session-{number:07d}", title=f"Session {number}")
    with session.turn(_text(number, 12)) as turn:
        for step in range(2):
            with turn.stream(provider="anthropic", model="model-1") as reply:
                reply.text(_text(number + step, 20))
                reply.tool_call(f"call_{number}_{step}", name="shell", arguments='{"c": "ls"}')
            with turn.tool(f"call_{number}_{step}") as call:
                call.finish(_text(number * 7 + step, 60))
        with turn.stream(provider="anthropic", model="model-1") as reply:
            reply.text(_text(number * 3, 40))


def _text(number: int, words: int) -> str:
    chosen = (_WORDS[(number * 31 + n * (n + number)) % len(_WORDS)] for n in range(words))
    return f"{' '.join(chosen)} word{number}"


# -- measuring -------------------------------------------------------------------------------------


def erase_one(path: Path) -> Cost:
    """Erase the newest session that is left, while another process appends."""
    with Store(path, indexing=False) as store:
        session_id = next(each.id for each in store.sessions(limit=50) if "session-" in each.id)
        return _measured(path, lambda: _as_figures(store.erase_session(session_id)))


def erase_some(path: Path) -> Cost:
    """Return the medians of some erasures, and the longest turn to write of all of them."""
    each = [erase_one(path) for _ in range(_ROUNDS)]
    cost = Cost({name: statistics.median(one[name] for one in each) for name in each[0]})
    cost["turn"] = max(one["turn"] for one in each)
    return cost


def retain(path: Path) -> Cost:
    """Erase many deleted sessions by a rule of retention, while another process appends."""
    with Store(path, indexing=False) as store:
        found = [each.id for each in store.sessions(limit=RETAINED + 50) if "session-" in each.id]
        for session_id in found[:RETAINED]:
            store.delete_session(session_id)

        def clean_up() -> dict[str, float]:
            done = store.clean_up(deleted_after=timedelta(0), dry_run=False)
            assert sum(removal.done for removal in done) == len(found[:RETAINED])
            return {"sessions": len(done)}

        return _measured(path, clean_up)


def erase_blobs(path: Path) -> Cost:
    """Erase one session with large blobs, while another process appends."""
    count, size = BLOBS
    with Store(path, indexing=False) as store:
        session = store.create_session()
        with session.turn("Look at these.") as turn:
            for number in range(count):
                blob = store.put_blob(number.to_bytes(4) * (size // 4))
                turn.record(Message("user", [Image(blob, "image/png"), Text("a picture")]))
        return _measured(path, lambda: _as_figures(store.erase_session(session.id)))


def _as_figures(receipt: Any) -> dict[str, float]:
    assert receipt.verified, receipt
    return {"entries": receipt.entries, "blobs": receipt.blobs, "pages": receipt.pages}


def _measured(path: Path, erase: Callable[[], dict[str, float]]) -> Cost:
    with appending(path) as appended, _watched() as turns:
        bytes_before, cpu, began = _written(), _cpu(), time.perf_counter()
        figures = erase()
        seconds = time.perf_counter() - began
        cost = Cost(bytes=_written() - bytes_before, cpu=(_cpu() - cpu) * 1000, wall=seconds * 1000)
    took = sorted(appended)
    cost.update(figures, turn=max(turns) * 1000, appends=len(took))
    cost.update(p99=took[int(len(took) * 0.99)] * 1000, slowest=took[-1] * 1000)
    return cost


def _written() -> int:
    """Return the bytes that this process has handed to the kernel."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Yield how long each turn to write was held by this process."""
    turns: list[float] = []
    began = [0.0]
    acquire, release = LockFile.acquire_turn, LockFile.release_turn

    def acquire_turn(lock: LockFile, seconds: float) -> None:
        acquire(lock, seconds)
        began[0] = time.perf_counter()

    def release_turn(lock: LockFile) -> None:
        turns.append(time.perf_counter() - began[0])
        release(lock)

    LockFile.acquire_turn, LockFile.release_turn = acquire_turn, release_turn  # type: ignore[assignment, method-assign]
    try:
        yield turns
    finally:
        LockFile.acquire_turn, LockFile.release_turn = acquire, release  # type: ignore[method-assign]


@contextmanager
def appending(path: Path) -> Iterator[list[float]]:
    """Let another process append all the while; its times are there at the end."""
    took: list[float] = []
    command = [sys.executable, "-m", "benchmarks.erasing", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield took
        finally:
            process.stdin.close()
            took += json.loads(process.stdout.read())


def _append(path: Path) -> None:
    """Append and take the times until the input is at its end."""
    import threading

    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    took: list[float] = []
    with Store(path, indexing=False) as store, store.create_session().turn("go") as turn:
        print("ready", flush=True)
        while not over.is_set() or len(took) < 100:
            began = time.perf_counter()
            turn.record(Message("assistant", [Text("x" * 600)]))
            took.append(time.perf_counter() - began)
            over.wait(0.002)
    print(json.dumps(took))


if __name__ == "__main__":
    _append(Path(sys.argv[1]))
