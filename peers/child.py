"""Agents of one framework, each in a process of its own.

    python -m peers.child SUBJECT SOCKET

imports the framework, and forks for each connection to the socket. A connection says
`SCENARIO FOLDER`; it is told the process' id, and a line when the agent is in the middle, which is
then killed, or told to cancel. With the scenario `ask` it answers a second prompt and tells what
the provider was sent.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable
from importlib import import_module
from pathlib import Path

from peers.case import Case, Tools
from peers.provider import Provider
from peers.subjects import MODULES, SUBJECTS

CHUNKS = 10
"""Pieces of a text that were shown before it is interrupted."""


_SECONDS = 1.0
"""What can be stored by then, is: a store may be behind on a busy machine."""

ENDS = ("wait", "fail")
"""Where a run may be over by itself: it waits for a person, or its failing tool ends it."""


class Middle:
    """Says once that the middle is reached, when everything had time to be stored."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._text = ""

    def shown(self, piece: str) -> None:
        self._text += piece
        if self._text.count("word") >= CHUNKS:
            self.event.set()


async def interrupted(name: str, scenario: str, folder: Path) -> None:
    middle = Middle()
    tools = Tools(middle.event.set, second_fails=scenario == "fail")
    case = Case(folder, Provider(scenario), tools, middle.shown)
    limit = asyncio.timeout(None)
    task = asyncio.ensure_future(_within(limit, SUBJECTS[name].run(case, "PROMPT-1")))
    waiting = asyncio.ensure_future(middle.event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    if task.done() and scenario == "noid" and task.exception() is not None:
        print(f"REFUSED {task.exception()}", flush=True)
        return
    if task.done() and scenario not in ENDS:
        task.result()
        raise AssertionError("it came to an end")
    await asyncio.sleep(_SECONDS)
    print("MIDDLE", flush=True)
    asked = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if asked.strip() == "timeout":
        limit.reschedule(asyncio.get_running_loop().time())
    else:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _within(limit: asyncio.Timeout, running: Awaitable[None]) -> None:
    async with limit:
        await running


async def asked(name: str, folder: Path) -> None:
    provider, error = Provider("ask"), None
    case = Case(folder, provider, Tools(lambda: None), lambda _: None)
    try:
        await SUBJECTS[name].run(case, "PROMPT-2")
    except Exception as raised:  # noqa: BLE001  (what it raises is what is asked for)
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps({"messages": provider.asked, "error": error}))


def serve(name: str, path: str) -> None:
    """Fork for each connection; return in the new process, when its agent has ended."""
    for module in MODULES[SUBJECTS[name].environment]:
        import_module(module)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number in (0, 1):
        os.dup2(connection.fileno(), number)
    connection.close()
    scenario, folder = sys.stdin.readline().rstrip("\n").split(" ", 1)
    print(os.getpid(), flush=True)
    asyncio.run(
        asked(name, Path(folder))
        if scenario == "ask"
        else interrupted(name, scenario, Path(folder))
    )


if __name__ == "__main__":
    serve(*sys.argv[1:])
