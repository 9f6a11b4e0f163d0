"""Kills one agent at five places, lets each way of finishing a run go on, and counts outside of it.

    python -m peers finish                         all ways at all places; renews docs/peers.md
    python -m peers.finish WAY PLACE FOLDER        one process of one run, which the parent kills
    python -m peers.finish WAY on FOLDER           the process after it

The agent is one of pydantic-ai. Its tools write to a file that no store knows: that is counted.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers.provider import Provider

PLACES: Final = ("text", "read", "put", "pay", "last")
TOOLS: Final = ("read", "put", "pay")
HINTS: Final = {"read": {"readOnlyHint": True}, "put": {"idempotentHint": True}, "pay": {}}
_SHOWN: Final = 10
_SECONDS: Final = 180
_EXCERPT: Final = 96


class Case(NamedTuple):
    """What a way of finishing is given; `place` is where it hangs, None in the process after."""

    folder: Path
    provider: Provider
    place: str | None
    hang: Callable[[], Awaitable[None]]

    async def act(self, tool: str) -> str:
        """Do a tool's work outside, and hang there if this is the place."""
        with (self.folder / "outside.txt").open("a", encoding="utf-8") as file:
            file.write(f"{tool}\n")
        if self.place == tool:
            await self.hang()
        return f"{tool} is done"

    async def show(self, events: AsyncIterator[Any]) -> None:
        words = 0
        async for event in events:
            words += getattr(getattr(event, "delta", None), "content_delta", "").count("word")
            if self.place in ("text", "last") and words >= _SHOWN:
                await self.hang()


class After(NamedTuple):
    """The end of a run: whether it finished, and what had to be done for it."""

    finished: bool
    waited: str = ""


def _agent(case: Case, wrap: Callable[[Any], Any] = lambda tool: tool, **given: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = OpenAIProvider(base_url=case.provider.url, api_key="none")
    agent = Agent(OpenAIChatModel("m", provider=made), name="agent", **given)
    for name, tool in tools(case).items():
        agent.tool_plain(wrap(tool), name=name, metadata={"annotations": HINTS[name]})
    return agent


def tools(case: Case) -> dict[str, Callable[[], Awaitable[str]]]:
    async def read() -> str:
        return await case.act("read")

    async def put() -> str:
        return await case.act("put")

    async def pay() -> str:
        return await case.act("pay")

    return {"read": read, "put": put, "pay": pay}


def _handler(case: Case) -> Any:
    async def handle(_: Any, events: AsyncIterator[Any]) -> None:
        await case.show(events)

    return handle


async def dbos(case: Case) -> After:
    """As its documents show: the run is a workflow, each tool a step; launching it recovers."""
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    url = f"sqlite:///{case.folder / 'dbos.sqlite'}"
    DBOS(config={"name": "peers", "system_database_url": url, "application_version": "1"})
    durability = DBOSDurability(event_stream_handler=_handler(case))
    agent = _agent(case, DBOS.step(), capabilities=[durability])

    @DBOS.workflow()
    async def answer(prompt: str) -> str:
        return str((await agent.run(prompt)).output)

    DBOS.launch()
    if case.place is not None:
        with SetWorkflowID("run"):
            await answer("PROMPT-1")
    handle: Any = await DBOS.retrieve_workflow_async("run")
    return After("Done." in await handle.get_result())


async def harness(case: Case) -> After:
    """As its README shows: the newest settled snapshot is gone on with, with a prompt."""
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence, continue_run

    store = SqliteStepStore(database=case.folder / "steps.db")
    run_id = "second" if case.place is None else "first"
    agent = _agent(case, capabilities=[StepPersistence(store=store, run_id=run_id)])
    if case.place is not None:
        await agent.run("PROMPT-1", event_stream_handler=_handler(case))
    unresolved = await store.list_unresolved_tool_effects(run_id="first")
    known = ", ".join(record.tool_name for record in unresolved)
    try:
        history = await continue_run(store, run_id="first")
    except LookupError:
        history = []
    prompt = "Go on." if history else "PROMPT-1"
    result = await agent.run(
        prompt, message_history=history or None, event_stream_handler=_handler(case)
    )
    return After("Done." in result.output, f"its ledger names {known}" if known else "")


async def killick(case: Case) -> After:
    """A worker takes what is due; the effect `once` waits until a person or a check settles it."""
    from killick import AsyncStore

    async with AsyncStore(case.folder / "work.db") as store:
        if case.place is not None:
            session = await store.create_session(id="session")
            async with session.turn("PROMPT-1", resume=3) as turn:
                await _think(case, session, turn)
        session, waited = await store.session("session"), ""
        while True:
            turns = await session.turns()
            if turns[-1].status == "completed":
                said = (await session.messages(last=1))[0].text
                return After("Done." in said, waited)
            taken = await store.take_due()
            for due in taken:
                async with session.turn(None, continues=due.turn_id, work=due.token) as turn:
                    effects: Any = {"read": "none", "put": "idempotent"}
                    async with turn.run_tools(
                        None, tools(case), effects=effects, unfinished=due.turn_id
                    ):
                        pass
                    await _think(case, session, turn)
            if not taken and not waited and await _waits_for_pay(store, session):
                waited = "waits until `pay` is settled, then goes on"
                outside = (case.folder / "outside.txt").read_text(encoding="utf-8")
                outcome = "ran" if "pay" in outside else "did_not_run"
                await session.settle(
                    turns[-1].id, "c3", outcome, by="check", evidence="the bank's list"
                )
            await asyncio.sleep(0.1)


async def _waits_for_pay(store: Any, session: Any) -> bool:
    """Tell whether the feed says that an outcome is unknown, and it is that of the payment."""
    started = [entry.body for entry in await session.entries() if entry.kind == "tool_started"]
    if not started or started[-1].call_id != "c3":
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            async for line in store.follow(waiting=True):
                if line.kind == "outcome_unknown":
                    return True
    return False


async def _think(case: Case, session: Any, turn: Any) -> None:
    from killick.adapters.pydantic_ai import Recorder, history

    await _agent(case).run(
        message_history=await history(session),
        event_stream_handler=_handler(case),
        capabilities=[Recorder(turn)],
    )


_ENVIRONMENT: Final = ".adaptersvenv/pydantic_ai"
WAYS: Final[dict[str, tuple[str, Callable[[Case], Awaitable[After]]]]] = {
    "killick": ("pydantic-ai with Killick, `take_due`", killick),
    "dbos": ("pydantic-ai with DBOS, `DBOSDurability`", dbos),
    "harness": ("pydantic-ai-harness, `StepPersistence`", harness),
}
_AT_ONCE: Final = 3
PACKAGES: Final = ("pydantic-ai-slim", "pydantic-ai-harness", "dbos")

# -- one process -------------------------------------------------------------------------------


async def _child(way: str, place: str, folder: Path) -> None:
    async def hang() -> None:
        await asyncio.sleep(0.3)  # what can be stored by now, is
        print("MIDDLE", flush=True)
        await asyncio.Event().wait()

    provider = Provider(f"finish {place}")
    case = Case(folder, provider, None if place == "on" else place, hang)
    after, error = After(finished=False), None
    try:
        after = await asyncio.wait_for(WAYS[way][1](case), _SECONDS)
    except Exception as raised:  # noqa: BLE001  (what it raises is what is asked for)
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps([*after, error, provider.first]), flush=True)


# -- the parent --------------------------------------------------------------------------------


def measure(python: str, versions: dict[str, str]) -> dict[str, Any]:
    """Kill each way's agent at each place, and go on."""

    def one(place: tuple[str, str]) -> list[Any]:
        with tempfile.TemporaryDirectory() as name:
            return [*place, *_run(python, *place, Path(name))]

    cells = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for cell in pool.map(one, [(way, place) for way in WAYS for place in PLACES]):
            cells.append(cell)
            print(row(cell), flush=True)
    return {"versions": versions, "cells": cells}


def _run(python: str, way: str, place: str, folder: Path) -> list[Any]:
    command = [python, "-m", "peers.finish", way]
    with subprocess.Popen(
        [*command, place, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        line = next((line for line in child.stdout if line == "MIDDLE\n"), None)
        child.kill()
        if line is None:
            raise SystemExit(f"{way} {place}: {child.stderr.read()[-2000:]}")
    done = subprocess.run(
        [*command, "on", str(folder)], capture_output=True, text=True, timeout=3 * _SECONDS
    )
    if done.returncode:
        raise SystemExit(f"{way} {place}: {done.stderr[-2000:]}")
    finished, waited, error, first = json.loads(done.stdout.splitlines()[-1])
    outside = Counter((folder / "outside.txt").read_text(encoding="utf-8").split())
    twice = [tool for tool in TOOLS if outside[tool] > 1]
    missing = [tool for tool in TOOLS if not outside[tool]]
    return [finished and not missing, waited, twice, error or told(first, place)]


def told(messages: list[dict[str, Any]], place: str) -> str:
    """Return what the first request of the process after says of what was broken off."""
    if place in ("text", "last"):
        return "the words that were shown" if "word8" in json.dumps(messages) else "nothing of it"
    call_id = f"c{TOOLS.index(place) + 1}"
    answers = [one["content"] for one in messages if one.get("tool_call_id") == call_id]
    if not answers:
        return "nothing of the call"
    said = " ".join(str(answers[0]).split())
    return f"“{said if len(said) <= _EXCERPT else said[:_EXCERPT] + '…'}”"


def row(cell: list[Any]) -> str:
    way, place, finished, waited, twice, said = cell
    end = "yes" if finished else "**no**"
    columns = [
        WAYS[way][0],
        place,
        f"{end}; {waited}" if waited else end,
        f"**{', '.join(twice)}**" if twice else "none",
        said,
    ]
    return f"| {' | '.join(columns)} |"


def section(measured: dict[str, Any]) -> str:
    """Return the part of the page about runs that finish."""
    cells = measured["cells"]
    lines = []
    for way, (label, _) in WAYS.items():
        own = [cell for cell in cells if cell[0] == way]
        ended = sum(bool(cell[2]) for cell in own)
        repeats = sum(len(cell[4]) for cell in own)
        pays = sum("pay" in cell[4] for cell in own)
        lines.append(f"| {label} | {ended} of {len(own)} | {repeats} | {pays} |")
    used = ", ".join(f"{name} {number}" for name, number in measured["versions"].items())
    template = Path(__file__).with_name("finish.md").read_text(encoding="utf-8")
    return template.format(versions=used, summary="\n".join(lines), rows="\n".join(map(row, cells)))


def python(root: Path) -> str:
    return str(root / _ENVIRONMENT / "bin" / "python")


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
