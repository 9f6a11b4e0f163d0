"""What the proxy adds: to a request, to a chunk, in CPU; beside a proxy that records nothing.

    python -m benchmarks.proxying [--streams 50] [--seconds 20] [--requests 300] [--write-docs]
    python -m benchmarks.proxying --soak --streams 200 --seconds 600 --rate 5 [--write-docs]

The model's server, each proxy and the clients are processes of their own. Every chunk carries the
moment at which it was sent; a client compares it with the moment at which it has read it. CPU is
that of the proxy's process. Afterwards the store is asked whether every chunk is there. `--soak`
measures the recording proxy alone: each client asks for one answer after another, each in a new
conversation, and the proxy's memory is read at every sixtieth of the time. With short answers
(`--answer-seconds 2`) more conversations pass than are remembered.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from killick import AsyncStore, Store
from killick.proxy.forward import ProxySettings
from killick.proxy.launch import serve
from killick.server.auth import Tokens

RATE = 20
STAMP = re.compile(rb"t(\d+\.\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")


# -- the model's server ----------------------------------------------------------------------------


def _event(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    data = b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = json.loads(await reader.readexactly(int(found.group(1)) if found else 0))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            due = time.monotonic()
            for _ in range(body["chunks"]):
                writer.write(_event(f"t{time.monotonic():.6f} "))
                await writer.drain()
                due += 1 / body.get("rate", RATE)
                await asyncio.sleep(max(0, due - time.monotonic()))
            writer.write(_event("", "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()


def run_model() -> None:
    async def main() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=2_048)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    asyncio.run(main())


def run_proxy(upstream: str, store: str, record: str) -> None:
    settings = ProxySettings(upstream=upstream, port=0, record=record == "yes")

    def ready(url: str) -> None:
        print(url, flush=True)

    tokens = Tokens(Path(f"{store}.tokens"))
    asyncio.run(serve(lambda: AsyncStore(store), settings, tokens, ready))


@contextlib.contextmanager
def _process(*arguments: str) -> Iterator[tuple[int, str]]:
    """Run a part of this module in a process of its own: its pid and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.proxying", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found.group(1)) / 1024 if found else 0.0


# -- the clients -----------------------------------------------------------------------------------


async def _ask(url: str, number: str, chunks: int, rate: float = RATE) -> list[float]:
    """Ask once; how far behind each chunk was, in milliseconds."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    said = {"role": "user", "content": f"count {number}"}
    wanted = {"messages": [said], "stream": True, "chunks": chunks, "rate": rate, "model": "m"}
    body = json.dumps(wanted).encode()
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    behind: list[float] = []
    seen = b""
    while b"[DONE]" not in seen:
        data = await reader.read(65_536)
        if not data:
            raise ConnectionError("the answer was cut off")
        now = time.monotonic()
        seen = seen[-200:] + data
        behind += [(now - float(sent)) * 1_000 for sent in STAMP.findall(data)]
    writer.close()
    return behind


async def _streams(url: str, count: int, chunks: int, name: str) -> list[float]:
    found = await asyncio.gather(*(_ask(url, f"{name} {n}", chunks) for n in range(count)))
    return [value for behind in found for value in behind]


_TURNS = 10
"""Prompts of one conversation: the first makes a session, the others go on with it."""


class _Conversation:
    """Asks one prompt after another, with all that was said before."""

    def __init__(self, url: str, name: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self._name = name
        self._said: list[dict[str, str]] = []

    async def ask(self) -> float:
        """Ask once; how long the first words took, in milliseconds."""
        self._said.append({"role": "user", "content": f"{self._name}/{len(self._said)}"})
        wanted = {"messages": self._said, "stream": True, "chunks": 1, "rate": 1_000, "model": "m"}
        body = json.dumps(wanted).encode()
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        seen, took = b"", 0.0
        while b"[DONE]" not in seen:
            seen += await reader.read(65_536)
            if not took and STAMP.search(seen):
                took = (time.perf_counter() - began) * 1_000
        writer.close()
        words = "".join(f"t{stamp.decode()} " for stamp in STAMP.findall(seen))
        self._said.append({"role": "assistant", "content": words})
        return took


async def _first_words(urls: dict[str, str], count: int, folder: Path) -> dict[str, object]:
    """Ask directly and through each proxy in turn; beside each time, a commit on this disk."""
    first: dict[str, list[float]] = {name: [] for name in urls}
    later: dict[str, list[float]] = {name: [] for name in urls}
    commits: list[float] = []
    async with AsyncStore(folder / "commit.db") as store:
        session = await store.create_session()
        for number in range(count // _TURNS):
            talks = {name: _Conversation(url, f"{name} {number}") for name, url in urls.items()}
            for place in range(_TURNS):
                for name, talk in talks.items():
                    (later if place else first)[name].append(await talk.ask())
                turn = session.turn(f"prompt {number}/{place}")
                began = time.perf_counter()
                await turn.begin()
                commits.append((time.perf_counter() - began) * 1_000)
                await turn.end()
    added = [r - p for r, p in zip(later["recording"], later["plain"], strict=True)]
    added_first = [r - p for r, p in zip(first["recording"], first["plain"], strict=True)]
    commit = statistics.median(commits)
    return {
        "commit_ms": round(commit, 3),
        "first_words_ms": {name: round(statistics.median(took), 3) for name, took in later.items()},
        "added_ms": round(statistics.median(added), 3),
        "added_besides_the_commit_ms": round(statistics.median(added) - commit, 3),
        "added_to_a_new_conversation_ms": round(statistics.median(added_first), 3),
    }


def measure(streams: int, seconds: float, requests: int, folder: Path) -> dict[str, object]:
    """Measure directly, through a proxy that records nothing, and through one that records.

    All three run at once and are asked in turns, so that a busy machine is busy for all.
    """
    chunks = int(seconds / _BLOCKS * RATE)
    store = folder / "recording.db"
    with contextlib.ExitStack() as stack:
        _, model = stack.enter_context(_process("--model"))
        plain = stack.enter_context(_process("--proxy", model, str(folder / "plain.db"), "no"))
        recording = stack.enter_context(_process("--proxy", model, str(store), "yes"))
        urls = {"direct": model, "plain": plain[1], "recording": recording[1]}
        pids = {"plain": plain[0], "recording": recording[0]}
        figures = asyncio.run(_first_words(urls, requests, folder))
        behind: dict[str, list[float]] = {name: [] for name in urls}
        before = {name: _cpu_seconds(pid) for name, pid in pids.items()}
        for block in range(_BLOCKS):
            for name, url in urls.items():
                behind[name] += asyncio.run(_streams(url, streams, chunks, f"{name} {block}"))
        for name, values in behind.items():
            values.sort()
            figures[name] = {
                "behind_ms_p50": round(statistics.median(values), 3),
                "behind_ms_p99": round(values[int(len(values) * 0.99)], 3),
                "chunks": len(values),
            }
        for name, pid in pids.items():
            spent = (_cpu_seconds(pid) - before[name]) / len(behind[name]) * 1e6
            figures[f"{name}_cpu_us_per_chunk"] = round(spent, 1)
            figures[f"{name}_resident_mb"] = round(_resident_mb(pid), 1)
    figures["stored_chunks"] = _stored(store)
    return {"streams": streams, "seconds": seconds, "rate": RATE, **figures,
            "load": os.getloadavg()}  # fmt: skip


_BLOCKS = 4


def soak(
    streams: int, seconds: float, rate: float, answer_seconds: float, folder: Path
) -> dict[str, object]:
    """Record many streams for long: what is stored, and how the proxy's memory grows."""
    store = folder / "soak.db"
    resident: list[float] = []
    conversations = 0

    async def one(url: str, number: int) -> list[float]:
        nonlocal conversations
        behind: list[float] = []
        until = time.monotonic() + seconds
        answer = 0
        while time.monotonic() < until:
            chunks = int(min(answer_seconds, max(1.0, until - time.monotonic())) * rate)
            behind += await _ask(url, f"{number}/{answer}", max(1, chunks), rate)
            answer += 1
            conversations += 1
        return behind

    async def sample(pid: int) -> None:
        while True:
            await asyncio.sleep(seconds / 60)
            resident.append(round(_resident_mb(pid), 1))

    async def run(url: str, pid: int) -> list[float]:
        sampling = asyncio.create_task(sample(pid))
        found = await asyncio.gather(*(one(url, number) for number in range(streams)))
        sampling.cancel()
        return [value for behind in found for value in behind]

    with (
        _process("--model") as (_, model),
        _process("--proxy", model, str(store), "yes") as (pid, url),
    ):
        behind = sorted(asyncio.run(run(url, pid)))
        cpu = _cpu_seconds(pid)
    return {
        "streams": streams, "seconds": seconds, "rate": rate, "conversations": conversations,
        "chunks": len(behind),
        "stored_chunks": _stored(store), "behind_ms_p50": round(statistics.median(behind), 3),
        "behind_ms_p99": round(behind[int(len(behind) * 0.99)], 3),
        "cpu_us_per_chunk": round(cpu / len(behind) * 1e6, 1), "resident_mb": resident,
        "load": os.getloadavg(),
    }  # fmt: skip


def _stored(path: Path) -> int:
    """Count the chunks of the long answers that are in the store."""
    with Store(path) as store:
        count, before = 0, None
        while page := store.sessions(limit=500, before=before):
            before = page[-1]
            for info in page:
                messages = store.session(info.id).messages()
                if messages and messages[0].text.startswith("count"):
                    count += sum(len(STAMP.findall(m.text.encode())) for m in messages[1:])
        return count


# -- the document ----------------------------------------------------------------------------------

Found = dict[str, Any]
_BESIDE_MS: Final = 1.0
_P99_MS: Final = 10.0
_CHUNK_US: Final = 150.0


def _rows(found: Found) -> str:
    """Return what was measured as a table, each figure beside its goal."""
    direct, plain, recording = (found[name] for name in ("direct", "plain", "recording"))
    words, beside = found["added_ms"], found["added_besides_the_commit_ms"]
    behind = recording["behind_ms_p99"] - direct["behind_ms_p99"]
    cpu = found["recording_cpu_us_per_chunk"]
    stored, chunks = found["stored_chunks"], recording["chunks"]
    streams = f"{found['streams']} streams at {found['rate']} chunks a second"
    return report.aligned(
        [
            ("figure", "goal", "found", "holds"),
            (
                "first words of an answer, later than with a proxy that records nothing, median",
                f"{_BESIDE_MS:g} ms and one commit",
                f"{words:.2f} ms, of which a commit is {found['commit_ms']:.2f}",
                _verdict(beside <= _BESIDE_MS),
            ),
            (
                "the same, of a conversation that is new",
                "",
                f"{found['added_to_a_new_conversation_ms']:.2f} ms",
                "",
            ),
            (
                f"{streams}: the latest chunk of 99 in 100, later than without any proxy",
                f"{_P99_MS:g} ms",
                f"{behind:.1f} ms: {recording['behind_ms_p99']:.1f}, with a proxy that records "
                f"nothing {plain['behind_ms_p99']:.1f}, without any {direct['behind_ms_p99']:.1f}",
                _verdict(behind <= _P99_MS),
            ),
            (
                "processor for a chunk of these",
                f"{_CHUNK_US:g} µs",
                f"{cpu:.0f} µs, and {found['plain_cpu_us_per_chunk']:.0f} without recording",
                _verdict(cpu <= _CHUNK_US),
            ),
            (
                "chunks that are in the store afterwards",
                "all",
                f"{stored:,} of {chunks:,}",
                _verdict(stored == chunks),
            ),
        ]
    )


def _soak_rows(found: Found) -> str:
    """Return what a long run had stored, and its memory at some moments."""
    resident, seconds = found["resident_mb"], found["seconds"]
    rows = [("after", "conversations", "chunks, and those in the store", "resident memory")]
    for part in (1 / 60, 1 / 4, 1 / 2, 3 / 4):
        memory = resident[max(0, round(part * 60) - 1)]
        rows.append((f"{part * seconds:.0f} s", "", "", f"{memory:.0f} MB"))
    counts = f"{found['chunks']:,}, {found['stored_chunks']:,}"
    end = f"{resident[-1]:.0f} MB"
    rows.append((f"{seconds:.0f} s", f"{found['conversations']:,}", counts, end))
    asked = f"{found['streams']} streams, {found['rate']:g} chunks a second each; "
    spent = f"{found['cpu_us_per_chunk']:.0f} µs of processor a chunk, with the process's start."
    return f"{asked}{spent}\n\n{report.aligned(rows)}"


def _verdict(holds: object) -> str:
    return "yes" if holds else "NO"


def _write(name: str, table: str, folder: Path, load_before: float) -> None:
    commit, date = report.commit_and_date()
    about = f"Commit {commit}, {date}; {report.machine(folder)}, before {load_before:.1f}."
    report.replace_between(report.DOCUMENT, name, f"{about}\n\n{table}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rate", type=float, default=RATE, help="chunks a second; with --soak")
    parser.add_argument("--soak", action="store_true", help="many streams for long")
    parser.add_argument("--answer-seconds", type=float, default=60.0, help="with --soak")
    parser.add_argument("--dir", help="where the stores are made")
    parser.add_argument("--write-docs", action="store_true", help="renew docs/performance.md")
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--proxy", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        run_model()
    elif options.proxy:
        run_proxy(*options.proxy)
    else:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="killick-proxy-", dir=options.dir) as folder:
            if options.soak:
                asked = options.streams, options.seconds, options.rate, options.answer_seconds
                found, name = soak(*asked, Path(folder)), "proxy_soak"
                table = _soak_rows(found)
            else:
                found = measure(options.streams, options.seconds, options.requests, Path(folder))
                table, name = _rows(found), "proxy"
            print(json.dumps(found, indent=1), table, sep="\n\n")
            if options.write_docs:
                _write(name, table, Path(folder), load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
