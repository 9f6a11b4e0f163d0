"""A provider on loopback, in OpenAI's shape, that plays scenarios and remembers what it was sent.

par: three tools are called at once, of which the third hangs
seq: three tools are called one after another, of which the third hangs
str: two tools, one after another, and then a text that is long in coming
noid: as par, and the provider gives the calls no ids
fail: three tools one after another, of which the second fails and the third hangs
wait: one tool, which a person must approve first
sub: a tool that asks an agent of its own, which is in the middle of par
ask: one word, and the request is kept
finish: a text, three tools one after another, and a text; the first request is kept
"""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from peers import messages

Messages = list[dict[str, Any]]
WORDS = [f"word{number} " for number in range(50)]
_LONG = 1_000
"""Words of a text that goes on; some agents ask here without a thread, and would hang behind it."""


class Provider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, scenario: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scenario = scenario
        self.asked: Messages = []
        self.first: Messages = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away in the middle here."""


def said(scenario: str, results: int, *, inner: bool = False) -> Iterator[dict[str, Any]]:
    """The deltas of one answer, after so many results."""
    if scenario == "ask":
        yield {"content": "Yes."}
    elif scenario.startswith("finish"):
        yield from _finish(scenario, results)
    elif scenario in ("par", "noid") or inner:
        calls = [_call(index, index + 1) for index in range(3)]
        if scenario == "noid":
            calls = [{key: call[key] for key in call if key != "id"} for call in calls]
        yield {"content": "Three at once. "}
        yield {"tool_calls": calls}
    elif scenario == "sub":
        arguments = json.dumps({"input": "Help."})
        function = {"name": "helper", "arguments": arguments}
        yield {"content": "I ask another. "}
        yield {"tool_calls": [{"index": 0, "id": "c3", "type": "function", "function": function}]}
    elif scenario == "wait":
        yield {"content": "One that needs a yes. "}
        yield {"tool_calls": [_call(0, 4) | {"id": "c3"}]}
    elif scenario in ("seq", "fail") or results < 2:
        yield {"content": f"Number {results + 1}. "}
        yield {"tool_calls": [_call(0, results + 1)]}
    else:
        for number in range(_LONG):
            yield {"content": f"word{number} "}
            time.sleep(0.02)
        time.sleep(600)


def _finish(scenario: str, results: int) -> Iterator[dict[str, Any]]:
    """Read, put and pay, with words before and after; words come slowly where it hangs in them."""
    names = ("read", "put", "pay")
    slow = scenario.endswith("text") if results == 0 else scenario.endswith("last")
    if results in (0, len(names)):
        for word in WORDS:
            yield {"content": word}
            time.sleep(0.02 if slow else 0)
    if results < len(names):
        function = {"name": names[results], "arguments": "{}"}
        call = {"index": 0, "id": f"c{results + 1}", "type": "function", "function": function}
        yield {"tool_calls": [call]}
    else:
        yield {"content": "Done."}


def _call(index: int, number: int) -> dict[str, Any]:
    function = {"name": f"t{number}", "arguments": "{}"}
    return {"index": index, "id": f"c{number}", "type": "function", "function": function}


class _Handler(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "/messages" in self.path:
            self._answer_claude(request)
            return
        self.server.asked = request["messages"]
        self.server.first = self.server.first or request["messages"]
        results = sum(message["role"] == "tool" for message in request["messages"])
        names = [tool["function"]["name"] for tool in request.get("tools") or ()]
        inner = self.server.scenario == "sub" and "helper" not in names
        deltas = said(self.server.scenario, results, inner=inner)
        if not request.get("stream"):
            self._answer_whole(list(deltas))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        finish = "stop"
        for delta in deltas:
            finish = "tool_calls" if "tool_calls" in delta else finish
            self._send({"role": "assistant", **delta}, None)
        self._send({}, finish)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _answer_claude(self, request: dict[str, Any]) -> None:
        """The command of the Claude Agent SDK speaks another protocol, and asks aside."""
        if "count_tokens" in self.path:
            self._send_json({"input_tokens": 1})
            return
        deltas = said("ask", 0)
        if messages.talks(request):
            asked = self.server.asked = messages.as_chat(request)
            self.server.first = self.server.first or asked
            results = sum(message["role"] == "tool" for message in asked)
            inner = self.server.scenario == "sub" and messages.helper(request) is None
            deltas = said(self.server.scenario, results, inner=inner)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in messages.events(request, deltas):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def _answer_whole(self, deltas: list[dict[str, Any]]) -> None:
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        message = {"role": "assistant", "content": "".join(d.get("content", "") for d in deltas)}
        if calls:
            message["tool_calls"] = calls  # type: ignore[assignment]
        finish = "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
        self._send_json({**whole, "choices": [choice]})

    def _send_json(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
