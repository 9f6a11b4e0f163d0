"""A scripted model on loopback, which keeps every request that it was sent."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tests.lab.script import Answer, Call, Drop, Fail, Gate, Item, Text
from tests.lab.wires import Said, Speaker, Wire, failure, has_tools, is_streamed, said, wire_of

END: Final = "That was the script."
ASIDE: Final = "Aside"
"""What the model says to a request beside the script, for a title or the like."""

Script = Sequence[Answer] | Callable[["Request"], Answer]


@dataclass
class Request:
    """A request as it was sent, byte for byte, and what became of it."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    wire: Wire | None = None
    aside: bool = False
    """It was answered beside the script."""
    cut: bool = False
    """The client went before the answer was whole."""
    done: threading.Event = field(default_factory=threading.Event)
    """The answer was sent, or could not be."""

    def json(self) -> dict[str, Any]:
        """Return the body, decoded; empty where it is no JSON object."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def header(self, name: str) -> str | None:
        """Return the first header of that name, in whatever case."""
        return next((v for key, v in self.headers if key.lower() == name.lower()), None)

    def said(self) -> list[Said]:
        """Return what it tells the model, whatever its wire."""
        return [] if self.wire is None else said(self.wire, self.json())


class Model:
    """A model that follows a script.

    The script is a list of answers, one for each request to a model, or a function from a request
    to its answer. With `tools_only`, requests that offer no tools are answered beside the script:
    agents ask for titles and summaries so.
    """

    def __init__(self, script: Script = (), *, tools_only: bool = False) -> None:
        self._script = script
        self._tools_only = tools_only
        self._next = 0
        self._changed = threading.Condition()
        self._reached: set[str] = set()
        self._gates: dict[str, threading.Event] = {}
        self._closing = threading.Event()
        self.everything: list[Request] = []
        """Every request, in the order in which they came; also those for lists of models."""
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address without a path; OpenAI's clients want `/v1` behind it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """The requests that took an answer from the script."""
        with self._changed:
            return [r for r in self.everything if r.wire is not None and not r.aside]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        with self._changed:
            for gate in self._gates.values():
                gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, gate: str, timeout: float = 60) -> None:
        """Wait until the model stands at the gate. Raises TimeoutError."""
        self._wait(lambda: gate in self._reached, timeout, f"nobody came to the gate {gate!r}")

    def wait_requests(self, count: int, timeout: float = 60) -> None:
        """Wait until so many requests took an answer from the script. Raises TimeoutError."""
        self._wait(
            lambda: sum(r.wire is not None and not r.aside for r in self.everything) >= count,
            timeout,
            f"fewer than {count} requests came",
        )

    def open(self, gate: str) -> None:
        """Let the model through, also when it has not come there yet."""
        self._gate(gate).set()

    def _wait(self, ready: Callable[[], bool], timeout: float, otherwise: str) -> None:
        limit = time.monotonic() + timeout
        with self._changed:
            while not ready():
                left = limit - time.monotonic()
                if left <= 0:
                    raise TimeoutError(otherwise)
                self._changed.wait(left)

    def _gate(self, name: str) -> threading.Event:
        with self._changed:
            return self._gates.setdefault(name, threading.Event())

    def _stand_at(self, name: str) -> None:
        gate = self._gate(name)
        with self._changed:
            self._reached.add(name)
            self._changed.notify_all()
        if not self._closing.is_set():
            gate.wait()

    def _take(self, request: Request) -> tuple[Answer, int]:
        """Keep the request, and return its answer with the number of the answer."""
        body = request.json()
        with self._changed:
            request.aside = self._tools_only and not has_tools(body)
            self.everything.append(request)
            if request.wire is None or request.aside:
                answer = Answer(Text(_aside(body)))
            elif callable(self._script):
                answer = self._script(request)
            else:
                more = self._next < len(self._script)
                answer = self._script[self._next] if more else Answer(Text(END))
                self._next += 1
            number = len(self.everything)
            self._changed.notify_all()
        return answer, number


def _aside(body: dict[str, Any]) -> str:
    """Return what fits a request beside the script; some want JSON."""
    wants_json = any(
        word in json.dumps(body.get(key, {}))
        for key in ("generationConfig", "response_format", "text")
        for word in ("json",)
    )
    return '{"next_speaker": "user", "reasoning": "", "title": "Aside"}' if wants_json else ASIDE


class _Server(ThreadingHTTPServer):
    """A server that is not surprised by clients that are killed."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing; that a client went is kept with its request."""


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        owner = model

    return Handler


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    owner: Model
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as it is called there)
        """Say nothing; the requests are kept."""

    def do_GET(self) -> None:
        self._keep(b"")
        if self.path.split("?")[0].endswith("/models"):
            self._document(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        else:
            self._document(404, {"error": {"message": "nothing here"}})

    def do_HEAD(self) -> None:
        self._keep(b"")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self._body()
        request = Request(self.command, self.path, list(self.headers.items()), body)
        request.wire = wire_of(self.path)
        answer, number = self.owner._take(request)
        try:
            self._answer(request, answer.items, number)
        except OSError:
            request.cut = True
            self.close_connection = True
        finally:
            request.done.set()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _keep(self, body: bytes) -> None:
        request = Request(self.command, self.path, list(self.headers.items()), body)
        request.done.set()
        self.owner._take(request)

    def _answer(self, request: Request, items: Sequence[Item], number: int) -> None:
        body = request.json()
        if request.wire is None:
            counted = {"input_tokens": 1, "totalTokens": 1}
            known = "token" in request.path.lower()
            self._document(200 if known else 404, counted if known else {"error": "nothing here"})
            return
        if items and isinstance(items[0], Fail):
            fail = items[0]
            self._document(fail.status, failure(request.wire, fail.status, fail.message))
            return
        speaker = Speaker(request.wire, body, number)
        spoken = [speaker.named(item) if isinstance(item, Call) else item for item in items]
        if not is_streamed(request.wire, request.path, body):
            for item in spoken:
                if isinstance(item, Gate):
                    self.owner._stand_at(item.name)
                if isinstance(item, Drop):
                    self.close_connection = True
                    return
            self._document(200, speaker.whole(spoken))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._send(*speaker.begin())
        for item in spoken:
            if isinstance(item, Gate):
                self.owner._stand_at(item.name)
            if isinstance(item, Drop):
                self.close_connection = True
                return
            self._send(*speaker.say(item))
        self._send(*speaker.end())
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send(self, *events: bytes) -> None:
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()

    def _document(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
