"""An agent of pydantic-ai, kept in the ways that its documents and its harness show; recorded."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from peers.case import Case


async def pydantic_ai(case: Case, prompt: str) -> None:
    """Its history, saved when a run is over, as its documents show."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    agent, handler = _agent(case)
    file = case.folder / "history.json"
    before = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else None
    result = await agent.run(prompt, message_history=before, event_stream_handler=handler)
    file.write_bytes(result.all_messages_json())


async def pydantic_ai_saving(case: Case, prompt: str) -> None:
    """Its history, saved however a run ends, and mended before it is used again."""
    from pydantic_ai import capture_run_messages
    from pydantic_ai.messages import ModelMessagesTypeAdapter, repair_messages

    agent, handler = _agent(case)
    file = case.folder / "history.json"
    before = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else []
    with capture_run_messages() as messages:
        try:
            await agent.run(
                prompt, message_history=repair_messages(before), event_stream_handler=handler
            )
        finally:
            file.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))


async def step_persistence(case: Case, prompt: str) -> None:
    """Its harness' StepPersistence, with its defaults."""
    await _with_steps(case, prompt, include_interrupted=False)


async def step_persistence_interrupted(case: Case, prompt: str) -> None:
    """The same, continued from its rescue points, mended as it says."""
    await _with_steps(case, prompt, include_interrupted=True)


async def _with_steps(case: Case, prompt: str, *, include_interrupted: bool) -> None:
    from pydantic_ai.messages import repair_messages
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence, continue_run

    steps = SqliteStepStore(database=case.folder / "steps.db")
    agent, handler = _agent(case, [StepPersistence(store=steps)])
    before: Sequence[Any] = []
    runs = await steps.list_runs()
    with contextlib.suppress(LookupError):  # it has nothing to continue from
        if runs:
            before = await continue_run(
                steps, run_id=runs[-1].run_id, include_interrupted=include_interrupted
            )
            if include_interrupted:
                before = repair_messages(before)
    await agent.run(prompt, message_history=before, event_stream_handler=handler)


async def killick(case: Case, prompt: str) -> None:
    """The same agent, recorded by Killick's adapter."""
    from killick import AsyncStore
    from killick.adapters.pydantic_ai import Approvals, Recorder, history

    async with AsyncStore(case.folder / "work.db") as store:
        session = await store.open_session("session")
        async with session.turn(prompt) as turn:
            recorder = Recorder(turn)
            capabilities: list[Any] = [recorder, Approvals(session, recorder)]
            agent, handler = _agent(case, capabilities, recorder)
            asking = asyncio.ensure_future(_until_asked(session, case))
            try:
                before = await history(session)
                await agent.run(message_history=before, event_stream_handler=handler)
            finally:
                asking.cancel()


async def _until_asked(session: Any, case: Case) -> None:
    """Say that the middle is reached when a person is asked: the run waits there."""
    async for item in session.follow(after=session.head):
        if item.kind == "approval_asked":
            case.tools.reach_middle()


def _agent(case: Case, capabilities: Sequence[Any] = (), recorder: Any = None) -> Any:
    from pydantic_ai import Agent, DeferredToolRequests, RunContext
    from pydantic_ai.messages import PartDeltaEvent, TextPartDelta
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = OpenAIProvider(base_url=case.provider.url, api_key="none")
    model = OpenAIChatModel("m", provider=made)
    waits = case.provider.scenario == "wait"
    output: Any = [str, DeferredToolRequests] if waits and recorder is None else str
    agent: Any = Agent(model, capabilities=capabilities, output_type=output)
    working = agent
    if case.provider.scenario == "sub":
        working = Agent(model)

        async def helper(ctx: RunContext[Any], input: str) -> str:  # noqa: A002
            """Help."""
            if recorder is None:
                return str((await working.run(input)).output)
            async with recorder.subagent(ctx.tool_call_id, input) as inner:
                return str((await working.run(input, capabilities=[inner])).output)

        # Its annotations are names of this function.
        helper.__annotations__["ctx"] = RunContext[Any]
        agent.tool(helper)
    for tool in case.tools.all():
        working.tool_plain(tool)
    if waits:
        agent.tool_plain(case.tools.t4, requires_approval=True)

    async def handler(_: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                case.shown(event.delta.content_delta)

    return agent, handler
