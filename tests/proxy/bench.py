"""A proxy in a process of its own, and a tap that keeps what a client sends to it."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import h11

_SECONDS: Final = 30


@dataclass
class SentRequest:
    """A request as a client sent it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class Tap:
    """Passes connections on as they are, and keeps every request that a client sends."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._streams: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            kept = bytearray()
            with self._lock:
                self._streams.append(kept)
                self._sockets += [client, server]
            for source, target, copy in ((client, server, kept), (server, client, None)):
                threading.Thread(target=_relay, args=(source, target, copy), daemon=True).start()

    def requests(self) -> list[SentRequest]:
        """Return every whole request so far, connection by connection."""
        with self._lock:
            streams = [bytes(stream) for stream in self._streams]
        return [request for stream in streams for request in _parse(stream)]


def _relay(source: socket.socket, target: socket.socket, copy: bytearray | None) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if copy is not None:
                copy += data
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _parse(stream: bytes) -> Iterator[SentRequest]:
    """Yield the requests of one connection."""
    rest = stream
    while rest:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 26)
        connection.receive_data(rest)
        request = connection.next_event()
        if not isinstance(request, h11.Request):
            return
        body = bytearray()
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        headers = [(k.decode(), v.decode("latin-1")) for k, v in request.headers.raw_items()]
        yield SentRequest(request.method.decode(), request.target.decode(), headers, bytes(body))
        rest = connection.trailing_data[0]


@dataclass
class RunningProxy:
    process: subprocess.Popen[str]
    url: str
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_SECONDS)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(_SECONDS)


@contextmanager
def proxy(
    store: Path, upstream: str | None, *options: str, port: int = 0
) -> Iterator[RunningProxy]:
    """Run `killick proxy`; kill it at the end if it still runs."""
    log = store.with_suffix(".log")
    to = [] if upstream is None else ["--upstream", upstream]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "killick.cli", "proxy", "--store", str(store), "--json",
             "--port", str(port), *to, *options],
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        told: dict[str, Any] = json.loads(line)
        yield RunningProxy(process, told["url"], log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
