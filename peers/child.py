"""One agent in one process.

    python -m peers.child SUBJECT SCENARIO FOLDER

prints a line when it is in the middle, and is then killed, or told to cancel. With the scenario
`ask` it answers a second prompt and prints what the provider was sent.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path

from peers.case import Case, Tools
from peers.provider import Provider
from peers.subjects import SUBJECTS

CHUNKS = 10
"""Pieces of a text that were shown before it is interrupted."""


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
    await asyncio.sleep(0.3)
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


if __name__ == "__main__":
    _, subject, scenario, place = sys.argv
    if scenario == "ask":
        asyncio.run(asked(subject, Path(place)))
    else:
        asyncio.run(interrupted(subject, scenario, Path(place)))
