"""A provider on loopback, in OpenAI's shape, that plays scenarios and remembers what it was sent.

par: three tools are called at once, of which the third hangs
seq: three tools are called one after another, of which the third hangs
str: two tools, one after another, and then a text that is long in coming
ask: one word, and the request is kept
"""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Messages = list[dict[str, Any]]
WORDS = [f"word{number} " for number in range(50)]


class Provider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, scenario: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scenario = scenario
        self.asked: Messages = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away in the middle here."""


def said(scenario: str, results: int) -> Iterator[dict[str, Any]]:
    """The deltas of one answer, after so many results."""
    if scenario == "ask":
        yield {"content": "Yes."}
    elif scenario == "par":
        yield {"content": "Three at once. "}
        yield {"tool_calls": [_call(index, index + 1) for index in range(3)]}
    elif scenario == "seq" or results < 2:
        yield {"content": f"Number {results + 1}. "}
        yield {"tool_calls": [_call(0, results + 1)]}
    else:
        for word in WORDS:
            yield {"content": word}
            time.sleep(0.02)
        time.sleep(600)


def _call(index: int, number: int) -> dict[str, Any]:
    function = {"name": f"t{number}", "arguments": "{}"}
    return {"index": index, "id": f"c{number}", "type": "function", "function": function}


class _Handler(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked = request["messages"]
        results = sum(message["role"] == "tool" for message in request["messages"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        finish = "stop"
        for delta in said(self.server.scenario, results):
            finish = "tool_calls" if "tool_calls" in delta else finish
            self._send({"role": "assistant", **delta}, None)
        self._send({}, finish)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
