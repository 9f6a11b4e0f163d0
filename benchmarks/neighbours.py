"""How much one tenant at full load slows another down: `python -m benchmarks.neighbours`.

Two tenants share a PostgreSQL server, each in a process of its own, and then one `killick serve` on
it. The quiet one appends fifty times a second and measures; the loud one appends as fast as it can.
Blocks with the loud one and without alternate, so that a busy machine is busy for both.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from killick import Store
from killick.server.auth import Tokens
from tests.servers import Server

_EVERY: Final = 0.02
_CALLERS: Final = 16


def _appends(url: str, tenant: str) -> Callable[[], Callable[[], Any]]:
    store = Store(url, tenant=tenant, indexing=False)

    def caller() -> Callable[[], Any]:
        session = store.create_session()
        return lambda: session.note("n", "x" * 600)

    return caller


def _requests(port: str, secret: str) -> Callable[[], Callable[[], Any]]:
    def caller() -> Callable[[], Any]:
        connection = HTTPConnection("127.0.0.1", int(port))
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

        def create() -> None:
            connection.request("POST", "/api/sessions", json.dumps({"title": "x" * 600}), headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                time.sleep(float(answer.headers["Retry-After"]))

        return create

    return caller


_KINDS: Final = {"store": _appends, "server": _requests}


def _quiet(caller: Callable[[], Callable[[], Any]]) -> None:
    """Measure for as long as a line comes in that says for how many seconds."""
    write = caller()
    write()
    print("ready", flush=True)
    for line in sys.stdin:
        took, end = [], time.perf_counter() + float(line)
        while (began := time.perf_counter()) < end:
            write()
            took.append(time.perf_counter() - began)
            time.sleep(max(0.0, _EVERY - took[-1]))
        print(json.dumps(sorted(took)), flush=True)


def _loud(caller: Callable[[], Callable[[], Any]]) -> None:
    """Write as fast as possible between a line that says so and the next."""
    at_work, opened, written = threading.Event(), threading.Semaphore(0), [0] * _CALLERS

    def work(number: int) -> None:
        write = caller()
        write()
        opened.release()
        while True:
            at_work.wait()
            write()
            written[number] += 1

    for number in range(_CALLERS):
        threading.Thread(target=work, args=(number,), daemon=True).start()
        opened.acquire()
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        before = sum(written)
        at_work.clear() if number % 2 else at_work.set()
        print(before, flush=True)


def _start(role: str, kind: str, where: str, who: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.neighbours", "--as", role, kind, where, who]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _ask(process: "subprocess.Popen[str]", line: str) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _measure(kind: str, where: str, one: str, other: str, given: argparse.Namespace) -> None:
    quiet, loud = _start("quiet", kind, where, one), _start("loud", kind, where, other)
    try:
        alone: list[float] = []
        beside: list[float] = []
        written = 0
        for _ in range(given.blocks):
            alone += _ask(quiet, str(given.seconds))
            before = _ask(loud, "go")
            beside += _ask(quiet, str(given.seconds))
            written += _ask(loud, "rest") - before
            time.sleep(0.2)
    finally:
        for process in (quiet, loud):
            process.kill()
            process.wait()
    slower = [_percentile(beside, part) / _percentile(alone, part) for part in (50, 99)]
    each_second = written / (given.blocks * given.seconds)
    print(
        f"{kind}: alone {statistics.median(alone) * 1e3:.1f} ms, 99th of 100 "
        f"{_percentile(alone, 99) * 1e3:.1f}; beside {each_second:,.0f} writes a second "
        f"{statistics.median(beside) * 1e3:.1f} and {_percentile(beside, 99) * 1e3:.1f} ms: "
        f"{slower[0]:.2f} x and {slower[1]:.2f} x"
    )


def _percentile(times: list[float], part: int) -> float:
    return sorted(times)[min(len(times) * part // 100, len(times) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--token-requests", type=float, default=100.0, help="as of killick serve")
    parser.add_argument("--as", dest="role", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        role, kind, where, who = given.role
        (_quiet if role == "quiet" else _loud)(_KINDS[kind](where, who))
        return
    server = Server("18", shared_buffers="256MB").create()
    try:
        Store(server.url()).close()
        _measure("store", server.url(), "quiet", "loud", given)
        with tempfile.TemporaryDirectory() as folder:
            _on_server(server.url(), Path(folder) / "tokens.json", given)
    finally:
        server.remove()


def _on_server(url: str, file: Path, given: argparse.Namespace) -> None:
    quiet, loud = (Tokens(file).make(name, "write", 0, name)[1] for name in ("quiet", "loud"))
    command = [str(Path(sys.executable).with_name("killick")), "--store", url, "serve"]
    options = ["--port", "0", "--token-requests", str(given.token_requests)]
    with (file.parent / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "KILLICK_TOKENS": str(file)},
        )
    try:
        assert server.stdout is not None
        port = re.search(r"http://127.0.0.1:(\d+)", server.stdout.readline())
        assert port is not None
        _measure("server", port[1], quiet, loud, given)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
