"""An agent loop of one's own with the openai SDK, recorded. Stop it anywhere, and run it again.

Needs OPENAI_API_KEY; with OPENAI_BASE_URL it talks to any server of the same protocol.
"""

import subprocess
import sys
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from killick import Session, Store, Turn
from killick.recorders import Recording, record

SYSTEM = {"role": "system", "content": "You help with this folder. Use the shell."}
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": PARAMETERS}}]


def shell(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def ask(client: OpenAI, session: Session, turn: Turn) -> Recording[ChatCompletionChunk]:
    messages = [SYSTEM, *session.context("openai-chat").messages]
    request: dict[str, Any] = {"model": "gpt-4.1-mini", "messages": messages, "tools": TOOLS}
    return record(
        turn,
        "openai-chat",
        lambda: client.chat.completions.create(stream=True, **request),
        request=request,
    )


def answer(client: OpenAI, session: Session, prompt: str) -> None:
    with session.turn(prompt) as turn:  # the prompt is durable here
        while True:
            reply = ask(client, session, turn)
            with turn.run_tools(reply, {"shell": shell}):  # starts each call as it is whole
                for chunk in reply:  # what is shown is on the disk at most 50 ms later
                    if chunk.choices and chunk.choices[0].delta.content:
                        print(chunk.choices[0].delta.content, end="", flush=True)
            print()
            if not reply.tool_calls:
                return


with Store("agent.db") as store, OpenAI() as client:
    session = store.create_session(id="my-agent")  # the same one the next time
    answer(client, session, sys.argv[1] if len(sys.argv) > 1 else "Do the tests pass?")
    for message in session.messages():
        print(f"{message.role}, {message.state}")
