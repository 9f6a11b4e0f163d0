"""An ACP agent that follows a script, in a process of its own: python agent.py SCRIPT.json.

The script has `load`, whether it can load sessions, and `turns`, lists of items: `["say", text]`,
`["think", text]`, `["tool", {fields of a tool_call}]`, `["more", {fields of a tool_call_update}]`,
`["ask", {tool call}]` waits for the person, `["gate", fifo]` until the test writes to a pipe,
`["cancelled"]` until the editor cancels, `["look", store]` keeps what the store knows by now,
`["fail", text]` and `["die"]`. Each line that it gets and sends is kept in SCRIPT.json.log.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.argv[1])
script = json.loads(SCRIPT.read_text())
log = SCRIPT.with_suffix(".log").open("a")
HISTORY = [("user_message_chunk", "Earlier."), ("agent_message_chunk", "Long ago.")]


def keep(kind: str, value: Any) -> None:
    log.write(json.dumps({kind: value}) + "\n")
    log.flush()


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message})
    keep("sent", line)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def get() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    keep("got", line.rstrip("\n"))
    value: dict[str, Any] = json.loads(line)
    return value


def update(session: str, **fields: Any) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def words(session: str, kind: str, text: str) -> None:
    update(session, sessionUpdate=kind, content={"type": "text", "text": text})


def play(session: str, items: list[Any], request: Any) -> None:
    stop = "end_turn"
    for kind, *rest in items:
        match kind:
            case "say":
                words(session, "agent_message_chunk", rest[0])
            case "think":
                words(session, "agent_thought_chunk", rest[0])
            case "tool":
                update(session, sessionUpdate="tool_call", **rest[0])
            case "more":
                update(session, sessionUpdate="tool_call_update", **rest[0])
            case "ask":
                options = [
                    {"optionId": "y", "name": "Yes", "kind": "allow_once"},
                    {"optionId": "n", "name": "No", "kind": "reject_once"},
                ]
                params = {"sessionId": session, "toolCall": rest[0], "options": options}
                send({"id": "ask", "method": "session/request_permission", "params": params})
                while get().get("id") != "ask":
                    pass
            case "gate":
                Path(rest[0]).read_bytes()
            case "cancelled":
                while get().get("method") != "session/cancel":
                    pass
                stop = "cancelled"
            case "look":
                keep("stored", look(rest[0]))
            case "fail":
                send({"id": request, "error": {"code": -32603, "message": rest[0]}})
                return
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
    send({"id": request, "result": {"stopReason": stop}})


def look(store: str) -> list[str]:
    import killick

    with killick.Store(store) as opened:
        return [
            message.text
            for info in opened.sessions()
            for message in opened.session(info.id).messages()
        ]


def main() -> None:
    sessions = 0
    while True:
        message = get()
        request, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                can = {"loadSession": script["load"]}
                who = {"name": "scripted", "version": "1"}
                result = {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": who}
                send({"id": request, "result": result})
            case "session/new":
                sessions += 1
                send({"id": request, "result": {"sessionId": f"s{os.getpid()}-{sessions}"}})
            case "session/load":
                for kind, text in HISTORY:
                    words(params["sessionId"], kind, text)
                send({"id": request, "result": {}})
            case "session/prompt":
                play(params["sessionId"], script["turns"].pop(0), request)
            case "session/cancel":
                pass
            case _:
                send({"id": request, "error": {"code": -32601, "message": "no such method"}})


main()
