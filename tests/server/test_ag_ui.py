"""Runs of AG-UI on the server: begun, lost in the middle, sent on, over; with the real client."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import ROOT, Event, Server, parse
from tests.server.conftest import Serve

CLIENT = ROOT / ".adaptersvenv" / "ag_ui"


def asked(prompt: str, thread: str, run: str) -> dict[str, Any]:
    """A request as the client of AG-UI makes it: all that was said before is in it too."""
    before = [{"id": "u0", "role": "user", "content": "Hello."}]
    messages = [*before, {"id": "u1", "role": "user", "content": prompt}]
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": thread, "runId": run, "messages": messages, **rest}


def post(
    server: Server, body: dict[str, Any], after: str | None = None
) -> Generator[Event, None, None]:
    headers = {} if after is None else {"Last-Event-ID": after}
    with server.http.stream("POST", "/api/ag-ui", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, answer.text
        yield from parse(answer.iter_lines())


def again(
    server: Server, session_id: str, turn_id: str, after: str | None = None
) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session_id}/turns/{turn_id}/ag-ui"
    query = {} if after is None else {"after": after}
    with server.http.stream("GET", path, params=query) as answer:
        assert answer.status_code == 200
        return [event.data for event in parse(answer.iter_lines())]


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events without the run's name, their texts put together: how a text is cut is no promise."""
    made: list[dict[str, Any]] = []
    for one in events:
        event = {name: value for name, value in one.items() if name != "runId"}
        if "delta" in event and made and made[-1]["type"] == event["type"]:
            made[-1]["delta"] += event["delta"]
        else:
            made.append(event)
    return made


def turn_of(server: Server, session_id: str) -> str:
    return str(server.get(f"/api/sessions/{session_id}")["turn"]["id"])


def test_a_run_is_the_same_live_resumed_in_a_message_and_when_it_is_over(serve: Serve) -> None:
    server = serve()
    body = asked("count 60 0.01", "thread-1", "run-1")
    seen = []
    with contextlib.closing(post(server, body)) as events:
        for event in events:
            seen.append(event)
            if len([one for one in seen if one.data["type"] == "TEXT_MESSAGE_CONTENT"]) == 2:
                break  # the connection is lost, in the middle of a message
    assert [seen[0].data["type"], seen[0].data["runId"]] == ["RUN_STARTED", "run-1"]
    rest = list(post(server, body, seen[-1].id))
    assert rest[-1].data["outcome"] == {"type": "success"}
    whole = joined([event.data for event in (*seen, *rest)])
    assert [event["type"] for event in whole] == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        "RUN_FINISHED",
    ]
    assert whole[2]["delta"] == "".join(f"w{number} " for number in range(60))
    turn_id = turn_of(server, "thread-1")
    assert joined(again(server, "thread-1", turn_id)) == whole
    assert joined([event.data for event in post(server, body)]) == whole, "it runs once"
    for number, event in enumerate(seen):
        later = again(server, "thread-1", turn_id, event.id)
        assert joined([*(one.data for one in seen[: number + 1]), *later]) == whole
    assert again(server, "thread-1", turn_id, rest[-1].id) == []
    assert len(server.get("/api/sessions/thread-1/journal")["kinds"]) > 0
    assert [message["role"] for message in server.get("/api/sessions/thread-1/ag-ui")["messages"]]


def test_a_killed_server_s_run_is_told_as_interrupted_by_the_next(serve: Serve) -> None:
    first = serve()
    body = asked("count 1000 0.01", "thread-1", "run-1")
    seen = []
    with contextlib.closing(post(first, body)) as events:
        for event in events:
            seen.append(event)
            if event.data["type"] == "TEXT_MESSAGE_CONTENT":
                break
    first.kill()
    second = serve()
    rest = list(post(second, body, seen[-1].id))
    assert rest[-1].data["outcome"] == {"type": "cancelled"}
    whole = joined([event.data for event in (*seen, *rest)])
    assert whole[2]["delta"].startswith("w0 ")
    assert whole == joined(again(second, "thread-1", turn_of(second, "thread-1")))


def test_what_is_no_run_is_refused(server: Server) -> None:
    body = asked("hello", "thread-2", "run-1")
    list(post(server, body))
    turn_id = turn_of(server, "thread-2")
    other = server.http.post("/api/ag-ui", json=asked("other", "thread-2", "run-1"))
    assert other.status_code == 409, "the same run with another prompt"
    silent = {**body, "messages": [{"id": "a", "role": "assistant", "content": "hi"}]}
    assert server.http.post("/api/ag-ui", json=silent).status_code == 422
    assert server.http.post("/api/ag-ui", json={**body, "messages": []}).status_code == 400
    path = f"/api/sessions/thread-2/turns/{turn_id}/ag-ui"
    for after in ("x", "3+x", "+", "3+99999999999999999999"):
        refused = server.http.get(path, params={"after": after})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor"), after
    assert server.http.get("/api/sessions/thread-2/turns/nope/ag-ui").status_code == 404


def test_a_run_that_a_client_left_holds_no_place(server: Server) -> None:
    session_id = server.create()
    turn_id = server.begin(session_id, "hang")
    path = f"/api/sessions/{session_id}/turns/{turn_id}/ag-ui"
    with server.http.stream("GET", path) as answer:
        events = parse(answer.iter_lines())
        assert next(events).data["type"] == "RUN_STARTED"
        assert "killick_open_streams 1" in server.http.get("/metrics").text
    assert server.stop(session_id, wait_seconds=5).status_code == 202
    for _ in range(200):
        if "killick_open_streams 0" in server.http.get("/metrics").text:
            break
    assert "killick_open_streams 0" in server.http.get("/metrics").text
    assert again(server, session_id, turn_id)[-1]["outcome"] == {"type": "cancelled"}


PROGRAM = """
import { HttpAgent } from "@ag-ui/client";
const [url, how] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId: "thread-3" });
agent.addMessage({ id: "u1", role: "user", content: how === "cut" ? "count 40 0.02" : "work" });
const seen = [];
const run = agent.runAgent({ runId: "run-" + how }, {
  onEvent: ({ event }) => {
    seen.push(event.type);
    if (how === "cut" && event.type === "TEXT_MESSAGE_CONTENT") agent.abortRun();
  },
});
await run.catch(() => {});
if (how === "cut") {  // the client is gone in the middle; another one comes for the same run
  const other = new HttpAgent({ url, threadId: "thread-3" });
  other.addMessage({ id: "u1", role: "user", content: "count 40 0.02" });
  const onEvent = ({ event }) => { seen.push(event.type); };
  await other.runAgent({ runId: "run-cut" }, { onEvent });
  console.log(JSON.stringify({ messages: other.messages, seen }));
} else console.log(JSON.stringify({ messages: agent.messages, seen }));
"""


@pytest.mark.parametrize("how", ["whole", "cut"])
def test_the_real_client_talks_to_the_server(server: Server, how: str) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENT / "node_modules" / "@ag-ui" / "client").is_dir():
        pytest.skip("node with @ag-ui/client is not here: make adapters")
    program: Path = CLIENT / f"{how}.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [node, str(program), f"{server.url}/api/ag-ui", how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["seen"][-1] == "RUN_FINISHED", told
    said = [message.get("content") for message in told["messages"]]
    if how == "cut":
        assert "".join(f"w{number} " for number in range(40)) in said
    else:
        assert ["Let me look." in said, "compiling…\nlinking…\nok" in said] == [True, True]
