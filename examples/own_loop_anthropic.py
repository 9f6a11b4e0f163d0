"""An agent loop of one's own with the anthropic SDK, recorded. Stop it anywhere, and run it again.

Needs ANTHROPIC_API_KEY; with ANTHROPIC_BASE_URL it talks to any server of the same protocol.
"""

import subprocess
import sys
from typing import Any

from anthropic import Anthropic
from anthropic.types import RawMessageStreamEvent

from killick import Session, Store, Turn
from killick.recorders import Recording, record

SYSTEM = "You help with this folder. Use the shell."
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = [{"name": "shell", "input_schema": PARAMETERS}]


def shell(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def ask(client: Anthropic, session: Session, turn: Turn) -> Recording[RawMessageStreamEvent]:
    request: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 4096}
    request |= {"system": SYSTEM, "tools": TOOLS}
    request["messages"] = session.context("anthropic").messages
    return record(
        turn,
        "anthropic",
        lambda: client.messages.create(stream=True, **request),
        request=request,
    )


def answer(client: Anthropic, session: Session, prompt: str) -> None:
    with session.turn(prompt) as turn:  # the prompt is durable here
        while True:
            reply = ask(client, session, turn)
            with turn.run_tools(reply, {"shell": shell}):  # starts each call as it is whole
                for event in reply:  # what is shown is on the disk at most 50 ms later
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        print(event.delta.text, end="", flush=True)
            print()
            if not reply.tool_calls:
                return


with Store("agent.db") as store, Anthropic() as client:
    session = store.create_session(id="my-agent")  # the same one the next time
    answer(client, session, sys.argv[1] if len(sys.argv) > 1 else "Do the tests pass?")
    for message in session.messages():
        print(f"{message.role}, {message.state}")
