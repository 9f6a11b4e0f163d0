"""A provider that plays the model of the examples and of the guide: one call, then an answer."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.recorders.saying import plain_events
from tests.recorders.server import Script, Scripted, serving, sse

COMMAND = "echo 3 passed"


class _Talks:
    """Stands where a test's scripts do, and makes one up for each request."""

    def __init__(self, server: Scripted) -> None:
        self._server = server

    def popleft(self) -> Script:
        request = self._server.requests[-1]
        shape = _shape(request)
        done = "3 passed" in json.dumps(request)
        if not request.get("stream"):
            return Script(body=_whole(shape))
        if done:
            events = plain_events(shape, ["All ", "three ", "pass."])
        else:
            events = plain_events(shape, ["I run ", "them."], [("call_1", "shell")])
        return Script([sse(_told(event), named=shape == "anthropic") for event in events])


def _shape(request: dict[str, Any]) -> str:
    return "anthropic" if str(request.get("model")).startswith("claude") else "openai-chat"


def _told(event: dict[str, Any]) -> dict[str, Any]:
    """With a command in place of the arguments that every call has."""
    arguments = json.dumps(json.dumps({"place": "here"}))
    text = json.dumps(event).replace(arguments, json.dumps(json.dumps({"command": COMMAND})))
    found: dict[str, Any] = json.loads(text)
    return found


def _whole(shape: str) -> dict[str, Any]:
    if shape == "anthropic":
        content = [{"type": "text", "text": "All three pass."}]
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return head | {"content": content, "stop_reason": "end_turn", "usage": usage}
    message = {"role": "assistant", "content": "All three pass."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [choice]
    }


@contextlib.contextmanager
def talking() -> Iterator[dict[str, str]]:
    """What a program's environment needs in order to talk to it."""
    with serving() as server:
        server.scripts = _Talks(server)  # type: ignore[assignment]
        yield {
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "k",
        }
