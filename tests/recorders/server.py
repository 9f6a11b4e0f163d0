"""A scripted provider on loopback: real SDKs stream from it what a test wrote down."""

import contextlib
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Ending = Literal["whole", "eof", "broken", "stall"]
"""How the stream ends: properly; by silence, as if it were whole; torn; or not at all."""


class Script:
    """What one request is answered with."""

    def __init__(
        self,
        events: Sequence[bytes] = (),
        ending: Ending = "whole",
        *,
        body: Any = None,
        status: int = 200,
    ) -> None:
        self.events = events
        self.ending = ending
        self.body = body
        self.status = status


def sse(event: dict[str, Any] | str, *, named: bool = False) -> bytes:
    """One event on the wire; Anthropic's carry their type as their name."""
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    head = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
    return f"{head}data: {data}\n\n".encode()


class Scripted(ThreadingHTTPServer):
    """Answers each request with the next script; remembers requests, and who hung up."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts: deque[Script] = deque()
        self.requests: list[dict[str, Any]] = []
        self.hung_up = threading.Semaphore(0)
        self.stalled = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Scripted
    protocol_version = "HTTP/1.1"
    # Small writes go out at once, as a provider's do.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        script = self.server.scripts.popleft()
        if script.body is not None:
            self._answer(script)
        elif script.ending == "eof":
            self._until_closed(script)
        else:
            self._in_chunks(script)

    def _answer(self, script: Script) -> None:
        data = json.dumps(script.body).encode()
        self.send_response(script.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _until_closed(self, script: Script) -> None:
        """A body that lasts until the connection closes: a cut looks like an end."""
        self._head()
        self.wfile.write(b"".join(script.events))
        self.close_connection = True

    def _head(self, *more: tuple[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        for name, value in more or (("Connection", "close"),):
            self.send_header(name, value)
        self.end_headers()

    def _in_chunks(self, script: Script) -> None:
        self._head(("Transfer-Encoding", "chunked"))
        try:
            for event in script.events:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        except ConnectionError:  # it hung up before everything was said
            self.server.hung_up.release()
            raise
        if script.ending == "stall":
            self.server.stalled.release()
            self._wait_for_hang_up()
        if script.ending == "whole":
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def _wait_for_hang_up(self) -> None:
        select.select([self.connection], [], [], 30)
        try:
            gone = self.connection.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:  # it had not read everything
            gone = True
        if gone:
            self.server.hung_up.release()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def serving() -> Iterator[Scripted]:
    server = Scripted()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
