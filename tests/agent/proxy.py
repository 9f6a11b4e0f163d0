"""Between an agent and the real model: remembers every request, and can make an answer wait."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Proxy(ThreadingHTTPServer):
    """Passes everything on. While `held`, an answer stops after a few words and goes on later."""

    daemon_threads = True

    def __init__(self, model: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = urlsplit(model)
        self.requests: list[dict[str, Any]] = []
        self.free = threading.Event()
        self.free.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def talks(self) -> list[dict[str, Any]]:
        """The requests that are part of the conversation: those that stream."""
        return [one for one in self.requests if one.get("stream")]

    def hold(self) -> None:
        self.free.clear()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(data)
        self.server.requests.append(request)
        model = self.server.model
        connection = http.client.HTTPConnection(str(model.hostname), model.port)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", self.path, data, headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", str(answer.headers["Content-Type"]))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._pass_on(answer, streaming=bool(request.get("stream")))

    def _pass_on(self, answer: http.client.HTTPResponse, *, streaming: bool) -> None:
        words = 0
        while line := answer.readline():
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            words += line.startswith(b"data:")
            if streaming and words > 12:
                self.server.free.wait(60)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def between(model: str) -> Iterator[Proxy]:
    server = Proxy(model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.free.set()
        server.shutdown()
        server.server_close()
        thread.join()
