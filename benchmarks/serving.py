"""How far followers are behind: many streams in one server, twice as many clients that read them.

    python -m benchmarks.serving [--streams 200] [--followers 400] [--seconds 60] [--stuck 5]

Every delta carries the moment at which it was handed over, and every client compares it with the
moment at which it has read it. Clients that never read are there too. The server runs in a process
of its own; its memory is read while it runs.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from killick import AsyncStore
from killick.server.auth import Tokens
from killick.server.launch import serve
from killick.server.runner import Runner
from killick.server.service import ServerSettings
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTurn

RATE = 20
STAMP = re.compile(rb"t(\d+\.\d+)")


# -- the server --------------------------------------------------------------------------------


async def answer(_session: AsyncSession, turn: AsyncTurn) -> None:
    """Says what time it is, so many times a second, until it is stopped."""
    async with turn.stream() as reply:
        due = time.monotonic()
        while True:
            reply.text(f"t{time.monotonic():.6f} ")
            due += 1 / RATE
            await asyncio.sleep(max(0, due - time.monotonic()))


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[Runner]:
    yield Runner(answer, "clock")


def run_server(store: str) -> None:
    settings = ServerSettings(port=0, streams=10_000, drain_seconds=0)
    tokens = Tokens(Path(f"{store}.tokens"))

    def ready(url: str) -> None:
        print(url, flush=True)

    asyncio.run(
        serve(lambda tenant: AsyncStore(store, tenant=tenant), answering(), settings, tokens, ready)
    )


# -- the clients -------------------------------------------------------------------------------


async def ask(port: int, method: str, path: str, body: object = None) -> dict[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    text = await reader.read()
    writer.close()
    return dict(json.loads(text.partition(b"\r\n\r\n")[2]))


async def open_stream(port: int, session_id: str) -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/api/sessions/{session_id}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    reader._held = writer  # type: ignore[attr-defined]
    return reader


async def follow(port: int, session_id: str, behind: list[float], since: list[float]) -> None:
    reader = await open_stream(port, session_id)
    while True:
        data = await reader.read(65536)
        if not data:
            return
        now = time.monotonic()
        if now >= since[0]:
            behind.extend(now - float(stamp) for stamp in STAMP.findall(data))


def memory(pid: int) -> float:
    """Megabytes of a process that are in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(port: int, pid: int, given: argparse.Namespace) -> dict[str, object]:
    sessions = [(await ask(port, "POST", "/api/sessions", {}))["id"] for _ in range(given.streams)]
    behind: list[float] = []
    since = [float("inf")]
    followers = [
        asyncio.create_task(follow(port, sessions[n % len(sessions)], behind, since))
        for n in range(given.followers)
    ]
    stuck = [await open_stream(port, sessions[n % len(sessions)]) for n in range(given.stuck)]
    for session_id in sessions:
        await ask(port, "POST", f"/api/sessions/{session_id}/turns", {"prompt": "go"})
    await asyncio.sleep(given.warm)
    since[0] = time.monotonic()
    spent = sum(os.times()[2:4]), cpu(pid)
    held = []
    for _ in range(10):
        await asyncio.sleep(given.seconds / 10)
        held.append(round(memory(pid), 1))
    for follower in followers:
        follower.cancel()
    behind.sort()
    commits = await commit_times(port)
    return {
        "streams": given.streams,
        "followers": given.followers,
        "stuck": len(stuck),
        "seconds": given.seconds,
        "deltas_read": len(behind),
        "expected": int(given.followers * RATE * given.seconds),
        "behind_ms": {
            name: round(behind[int(len(behind) * part)] * 1000, 1)
            for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
        },
        "most_ms": round(behind[-1] * 1000, 1),
        "server_cpu": round((cpu(pid) - spent[1]) / given.seconds, 2),
        "server_mb": held,
        "commits": commits,
        "load": round(os.getloadavg()[0], 1),
    }


async def commit_times(port: int) -> dict[str, int]:
    """How many commits took at most so many seconds, as the server itself counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    host = f"Host: 127.0.0.1:{port}\r\nConnection: close"
    writer.write(f"GET /metrics HTTP/1.1\r\n{host}\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    found = re.findall(r'commit_seconds_bucket{le="([^"]+)"} (\d+)', text)
    return {bound: int(count) for bound, count in found}


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--followers", type=int, default=400)
    parser.add_argument("--stuck", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=float, default=3)
    given = parser.parse_args()
    if given.server:
        run_server(given.server)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.serving", "--server", f"{folder}/work.db"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline().strip().rstrip("/").rpartition(":")[2])
            try:
                print(json.dumps(asyncio.run(measure(port, server.pid, given)), indent=1))
            finally:
                server.kill()


if __name__ == "__main__":
    main()
