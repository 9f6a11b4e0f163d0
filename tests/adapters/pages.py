"""Runs the program of a how-to page, with a model on loopback that says one sentence."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SAID: Final = "Functions call themselves."


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def lines_of(program: str) -> int:
    return sum(bool(line.strip()) for line in program.splitlines())


def check_page(page: str, folder: Path, *, hello_world: str) -> None:
    """Run a page's blocks one after another; the first is little longer than the framework's."""
    first, *_ = blocks(page)
    assert lines_of(first) <= lines_of(hello_world) + 12
    with _talking() as url:
        env = os.environ | {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "k",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GOOGLE_API_KEY": "k",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
        }
        for programs in ([first], blocks(page)):
            done = subprocess.run(
                [sys.executable, "-c", "\n".join(programs)],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=50,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert SAID in done.stdout


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        whole = _response() if self.path.endswith("/responses") else _completion()
        if ":generateContent" in self.path:
            whole = _content()
        if request.get("stream"):
            events = _events() if self.path.endswith("/responses") else _chunks()
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            body, kind = "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream"
        else:
            body, kind = json.dumps(whole).encode(), "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # a page begins several event loops
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _content() -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": SAID}]}
    return {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}


def _item() -> dict[str, Any]:
    text = {"type": "output_text", "text": SAID, "annotations": []}
    head = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return head | {"content": [text]}


def _response() -> dict[str, Any]:
    return {
        **{"id": "resp_1", "object": "response", "created_at": 1, "model": "m"},
        **{"status": "completed", "output": [_item()], "tools": [], "tool_choice": "auto"},
        "parallel_tool_calls": True,
        "usage": {
            **{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _events() -> Iterator[dict[str, Any]]:
    place = {"output_index": 0, "sequence_number": 1}
    start = _item() | {"content": [], "status": "in_progress"}
    yield {"type": "response.output_item.added", "item": start, **place}
    text = {"item_id": "msg_1", "content_index": 0, "delta": SAID, "logprobs": []}
    yield {"type": "response.output_text.delta", **text, **place}
    yield {"type": "response.output_item.done", "item": _item(), **place}
    yield {"type": "response.completed", "response": _response(), "sequence_number": 2}


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": SAID}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return head | {"choices": [choice], "usage": usage}


def _chunks() -> Iterator[dict[str, Any]]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for word in SAID.split(" "):
        delta = {"role": "assistant", "content": f"{word} "}
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@contextmanager
def _talking() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
