"""A provider of Anthropic's shape on loopback: a command first, and then words that do not end."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider(ThreadingHTTPServer):
    """Plays `hang` (a tool, then a text that hangs) or `ask` (one word); keeps the requests."""

    daemon_threads = True

    def __init__(self, scenario: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scenario = scenario
        self.requests: list[dict[str, Any]] = []
        self.reached = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away in the middle here."""


class _Handler(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        if "messages" not in request or "count_tokens" in self.path:
            self._whole({"input_tokens": 1})
            return
        tools = request.get("tools") or ()
        talks = any(tool.get("name") == "Bash" for tool in tools)
        if talks:
            self.server.requests.append(request)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in self._events(request, talks=talks):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def do_GET(self) -> None:
        self._whole({})

    def _whole(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _events(self, request: dict[str, Any], *, talks: bool) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
        yield {"type": "message_start", "message": {**head, "usage": usage}}
        first = "tool_result" not in json.dumps(request["messages"])
        if talks and self.server.scenario == "hang" and first:
            block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
            yield {"type": "content_block_start", "index": 0, "content_block": block}
            arguments = json.dumps({"command": "echo result-1", "description": "says it"})
            delta = {"type": "input_json_delta", "partial_json": arguments}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        else:
            block = {"type": "text", "text": ""}
            yield {"type": "content_block_start", "index": 0, "content_block": block}
            delta = {"type": "text_delta", "text": "Functions call themselves."}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
            if talks and self.server.scenario == "hang":
                self.server.reached.set()
                self.server.over.wait(120)
        yield {"type": "content_block_stop", "index": 0}
        reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
        yield {"type": "message_stop"}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
