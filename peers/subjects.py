"""One small agent in each framework, kept in that framework's own store as its documents say.

Each takes a prompt and answers it; what it was sent is what the provider remembers. Frameworks are
imported where they are used: each runs in a process of its own.
"""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any, NamedTuple

from peers import claude, pydantic
from peers.case import Case, Subject
from peers.provider import said


async def openai_agents(case: Case, prompt: str) -> None:
    import agents

    agent = _openai_agent(case, None)
    session = agents.SQLiteSession("session", str(case.folder / "agents.db"))
    await _show(case, agents.Runner.run_streamed(agent, prompt, session=session))


async def openai_agents_killick(case: Case, prompt: str) -> None:
    """The same agent, recorded by Killick's adapter."""
    import agents

    from killick import AsyncStore
    from killick.adapters.openai_agents import Recorder, SubagentHooks, history

    agent = _openai_agent(case, SubagentHooks())
    async with AsyncStore(case.folder / "work.db") as store:
        session = await store.open_session("session")
        async with session.turn(prompt) as turn:
            recorder = Recorder(turn)
            result = agents.Runner.run_streamed(
                agent, await history(session), hooks=recorder, run_config=recorder.run_config
            )
            await _show(case, result)
            await recorder.pause(result)


def _openai_agent(case: Case, hooks: Any) -> Any:
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=case.provider.url, api_key="none")
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
    tools: list[Any] = [agents.function_tool(tool) for tool in case.tools.all()]
    if case.provider.scenario == "sub":
        helper = agents.Agent(name="helper", model=model, tools=tools)
        tools = [helper.as_tool("helper", "Helps.", hooks=hooks)]
    if case.provider.scenario == "wait":
        tools.append(agents.function_tool(case.tools.t4, needs_approval=True))
    return agents.Agent(name="agent", model=model, tools=tools)


async def _show(case: Case, result: Any) -> None:
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            case.shown(event.data.delta)


async def langgraph(case: Case, prompt: str) -> None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(case.folder / "graph.db")) as saver:
        await _run_graph(case, prompt, {"checkpointer": saver}, [], {})


async def langgraph_killick(case: Case, prompt: str) -> None:
    """The same agent, with Killick's saver, its recorder and the journal's view."""
    from killick import AsyncStore
    from killick.adapters.langchain import JournalView, Recorder
    from killick.adapters.langgraph import KillickSaver

    async with AsyncStore(case.folder / "work.db") as store:
        session = await store.open_session("1")
        async with session.turn(prompt) as turn:
            recorder = Recorder(turn)
            given = {"checkpointer": KillickSaver(store)}
            state = await _run_graph(
                case, prompt, given, [JournalView(session)], {"callbacks": [recorder]}
            )
            await recorder.pause({"__interrupt__": state.interrupts})


async def _run_graph(
    case: Case, prompt: str, given: dict[str, Any], middleware: list[Any], more: dict[str, Any]
) -> Any:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=case.provider.url, api_key="none", model="m", streaming=True)
    tools: list[Any] = [tool(one) for one in case.tools.all()]
    if case.provider.scenario == "sub":
        inner = create_agent(model, tools)

        @tool
        async def helper(input: str) -> str:  # noqa: A002
            """Help."""
            made = await inner.ainvoke({"messages": [{"role": "user", "content": input}]})
            return str(made["messages"][-1].content)

        tools = [helper]
    if case.provider.scenario == "wait":
        tools.append(tool(case.tools.t4))
        middleware = [*middleware, HumanInTheLoopMiddleware(interrupt_on={"t4": True})]
    graph = create_agent(model, tools, middleware=middleware, **given)
    said = {"messages": [{"role": "user", "content": prompt}]}
    config: Any = {"configurable": {"thread_id": "1"}, **more}
    async for chunk, _ in graph.astream(said, config, stream_mode="messages"):
        if chunk.type == "AIMessageChunk":
            case.shown(str(chunk.content))
    return await graph.aget_state(config)


async def google_adk(case: Case, prompt: str) -> None:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    service = SqliteSessionService(str(case.folder / "adk.db"))
    await _run_adk(case, prompt, service, [])


async def google_adk_killick(case: Case, prompt: str) -> None:
    """The same agent, with Killick's session service, its recorder and the journal's view."""
    from killick import AsyncStore
    from killick.adapters.google_adk import JournalContext, KillickSessionService, Recorder

    async with AsyncStore(case.folder / "work.db") as store:
        service, recorder = KillickSessionService(store), Recorder()
        session = await service.journal(app_name="app", user_id="user", session_id="session")
        async with session.turn(prompt) as turn:
            with recorder.recording(turn):
                await _run_adk(case, prompt, service, [JournalContext(), recorder])


async def _run_adk(case: Case, prompt: str, service: Any, plugins: list[Any]) -> None:
    """It asks no server of OpenAI's shape, so the provider's script is its model."""
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.apps import App
    from google.adk.models import BaseLlm, LlmRequest, LlmResponse
    from google.adk.runners import Runner
    from google.adk.tools import AgentTool, FunctionTool
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(
            self,
            llm_request: LlmRequest,
            stream: bool = False,  # noqa: FBT001, FBT002
        ) -> AsyncGenerator[LlmResponse, None]:
            case.provider.asked = _as_chat(llm_request.contents)
            results = sum(message["role"] == "tool" for message in case.provider.asked)
            inner = case.provider.scenario == "sub" and "helper" not in llm_request.tools_dict
            parts: list[types.Part] = []
            for delta in said(case.provider.scenario, results, inner=inner):
                if "content" in delta:
                    part = types.Part(text=delta["content"])
                    content = types.Content(role="model", parts=[part])
                    yield LlmResponse(content=content, partial=True)
                    await asyncio.sleep(0)
                    parts.append(part)
                for call in delta.get("tool_calls", ()):
                    name = call["function"]["name"]
                    args = {"request": "Help."} if name == "helper" else {}
                    made = types.FunctionCall(id=call.get("id"), name=name, args=args)
                    parts.append(types.Part(function_call=made))
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    tools: list[Any] = list(case.tools.all())
    if case.provider.scenario == "sub":
        tools = [AgentTool(LlmAgent(name="helper", model=Scripted(model="m"), tools=tools))]
    if case.provider.scenario == "wait":
        tools.append(FunctionTool(case.tools.t4, require_confirmation=True))
    agent = LlmAgent(name="agent", model=Scripted(model="m"), tools=tools)
    place = {"app_name": "app", "user_id": "user", "session_id": "session"}
    if await service.get_session(**place) is None:
        await service.create_session(**place)
    app = App(name="app", root_agent=agent, plugins=plugins)
    runner = Runner(app=app, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=prompt)])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    async for event in runner.run_async(
        user_id="user", session_id="session", new_message=message, run_config=config
    ):
        if event.partial and event.content and event.content.parts:
            case.shown(event.content.parts[0].text or "")


async def agent_framework(case: Case, prompt: str) -> None:
    from agent_framework import FileHistoryProvider

    provider = FileHistoryProvider(case.folder / "history")
    agent = _framework_agent(case, [], context_providers=[provider])
    running = agent.run(prompt, session=agent.create_session(session_id="session"), stream=True)
    async for update in running:
        case.shown(update.text)


async def agent_framework_killick(case: Case, prompt: str) -> None:
    """The same agent, recorded by Killick's adapter."""
    from killick import AsyncStore
    from killick.adapters.agent_framework import Recorder, history

    recorder = Recorder()
    agent = _framework_agent(case, recorder.middleware)
    async with AsyncStore(case.folder / "work.db") as store:
        session = await store.open_session("session")
        async with session.turn(prompt) as turn:
            with recorder.recording(turn):
                running = agent.run(
                    await history(session), stream=True, middleware=recorder.middleware
                )
                async for update in running:
                    case.shown(update.text)
                await recorder.pause(await running.get_final_response())


def _framework_agent(case: Case, middleware: list[Any], **given: Any) -> Any:
    from agent_framework import Agent
    from agent_framework import tool as as_tool
    from agent_framework.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(model="m", base_url=case.provider.url, api_key="none")
    tools: list[Any] = list(case.tools.all())
    if case.provider.scenario == "sub":
        helper = Agent(client, name="helper", tools=tools, middleware=middleware)
        tools = [helper.as_tool(arg_name="input")]
    if case.provider.scenario == "wait":
        tools.append(as_tool(approval_mode="always_require")(case.tools.t4))
    return Agent(client, name="agent", tools=tools, **given)


async def strands(case: Case, prompt: str) -> None:
    from strands.session.file_session_manager import FileSessionManager

    manager = FileSessionManager("session", storage_dir=str(case.folder / "sessions"))
    agent = _strands_agent(case, [], session_manager=manager)
    async for event in agent.stream_async(prompt):
        case.shown(event.get("data") or "")


async def strands_killick(case: Case, prompt: str) -> None:
    """The same agent, recorded by Killick's adapter."""
    from killick import AsyncStore
    from killick.adapters.strands import Recorder, history

    recorder = Recorder()
    agent = _strands_agent(case, [recorder])
    async with AsyncStore(case.folder / "work.db") as store:
        session = await store.open_session("session")
        async with session.turn(prompt) as turn:
            with recorder.recording(turn):
                agent.messages = await history(session)
                async for event in agent.stream_async():
                    case.shown(event.get("data") or "")
                    if "result" in event:
                        await recorder.pause(event["result"])


def _strands_agent(case: Case, plugins: list[Any], **given: Any) -> Any:
    from strands import Agent, tool
    from strands.hooks import BeforeToolCallEvent
    from strands.models.openai import OpenAIModel

    client = {"base_url": case.provider.url, "api_key": "none"}
    model = OpenAIModel(client_args=client, model_id="m")
    shared: dict[str, Any] = {"model": model, "callback_handler": None, "plugins": plugins}
    tools: list[Any] = [tool(one) for one in case.tools.all()]
    if case.provider.scenario == "sub":
        tools = [Agent(name="helper", description="Helps.", tools=tools, **shared)]
    if case.provider.scenario == "wait":
        tools.append(tool(case.tools.t4))
    agent = Agent(tools=tools, **shared, **given)

    def ask(event: BeforeToolCallEvent[Any]) -> None:
        if event.tool_use["name"] == "t4":
            event.interrupt("approval", reason="May it?")

    agent.hooks.add_callback(BeforeToolCallEvent, ask)
    return agent


def _as_chat(contents: Any) -> list[dict[str, Any]]:
    """What Gemini would be sent, in the shape that all are compared in.

    Ids that the ADK minted are not sent: such calls and responses belong together by their order.
    """
    chat: list[dict[str, Any]] = []
    called, answered = count(), count()
    for content in contents:
        for part in content.parts or ():
            if part.function_response is not None:
                answer = part.function_response
                result = str((answer.response or {}).get("result", answer.response))
                call_id = answer.id or f"call {next(answered)}"
                chat.append({"role": "tool", "tool_call_id": call_id, "content": result})
            elif part.function_call is not None:
                made = part.function_call
                call_id = made.id or f"call {next(called)}"
                call = {"id": call_id, "function": {"name": made.name}}
                chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
            elif part.text:
                role = "assistant" if content.role == "model" else "user"
                chat.append({"role": role, "content": part.text})
    return chat


class Peer(NamedTuple):
    """What is run: its name for people, the packages whose versions are told, where it runs."""

    label: str
    packages: tuple[str, ...]
    environment: str
    run: Subject


_OPENAI = ("pydantic_ai.models.openai", "pydantic_ai.providers.openai")
_ADAPTERS = "killick.adapters"
MODULES: dict[str, tuple[str, ...]] = {
    ".peersvenv": (*_OPENAI, f"{_ADAPTERS}.pydantic_ai"),
    ".adaptersvenv/pydantic_ai": (*_OPENAI, "pydantic_ai_harness.step_persistence"),
    ".adaptersvenv/openai_agents": ("agents", "openai", f"{_ADAPTERS}.openai_agents"),
    ".adaptersvenv/langgraph": (
        *("langchain.agents.middleware", "langchain_openai", "langgraph.checkpoint.sqlite.aio"),
        *(f"{_ADAPTERS}.langchain", f"{_ADAPTERS}.langgraph"),
    ),
    ".adaptersvenv/google_adk": (
        *("google.adk.apps", "google.adk.runners", "google.adk.tools"),
        *("google.adk.sessions.sqlite_session_service", f"{_ADAPTERS}.google_adk"),
    ),
    ".adaptersvenv/agent_framework": (
        "agent_framework.openai",
        f"{_ADAPTERS}.agent_framework",
    ),
    ".adaptersvenv/strands": (
        *("strands.models.openai", "strands.session.file_session_manager"),
        f"{_ADAPTERS}.strands",
    ),
    ".adaptersvenv/claude_agent_sdk": ("claude_agent_sdk", f"{_ADAPTERS}.claude_agent_sdk"),
}
"""What the agents of an environment import: once, before each is a process of its own."""
_PYDANTIC = ("pydantic-ai-slim",)
_HARNESS = ("pydantic-ai-harness",)
_FRAMEWORK = ("agent-framework-core",)
_GRAPH = ("langgraph", "langchain", "langchain-core")
SUBJECTS: dict[str, Peer] = {
    "killick": Peer("pydantic-ai with Killick", _PYDANTIC, ".peersvenv", pydantic.killick),
    "pydantic_ai": Peer(
        "pydantic-ai, history saved after the run", _PYDANTIC, ".peersvenv", pydantic.pydantic_ai
    ),
    "pydantic_ai_saving": Peer(
        "pydantic-ai, history saved in `finally`",
        _PYDANTIC,
        ".peersvenv",
        pydantic.pydantic_ai_saving,
    ),
    "step_persistence": Peer(
        "pydantic-ai, StepPersistence",
        _HARNESS,
        ".adaptersvenv/pydantic_ai",
        pydantic.step_persistence,
    ),
    "step_persistence_interrupted": Peer(
        "pydantic-ai, StepPersistence, its rescue points mended",
        _HARNESS,
        ".adaptersvenv/pydantic_ai",
        pydantic.step_persistence_interrupted,
    ),
    "openai_agents_killick": Peer(
        "openai-agents with Killick",
        ("openai-agents",),
        ".adaptersvenv/openai_agents",
        openai_agents_killick,
    ),
    "openai_agents": Peer(
        "openai-agents, SQLiteSession",
        ("openai-agents",),
        ".adaptersvenv/openai_agents",
        openai_agents,
    ),
    "langgraph_killick": Peer(
        "LangGraph, create_agent, with Killick",
        _GRAPH,
        ".adaptersvenv/langgraph",
        langgraph_killick,
    ),
    "langgraph": Peer(
        "LangGraph, create_agent, AsyncSqliteSaver",
        _GRAPH,
        ".adaptersvenv/langgraph",
        langgraph,
    ),
    "google_adk_killick": Peer(
        "google-adk with Killick", ("google-adk",), ".adaptersvenv/google_adk", google_adk_killick
    ),
    "google_adk": Peer(
        "google-adk, SqliteSessionService",
        ("google-adk",),
        ".adaptersvenv/google_adk",
        google_adk,
    ),
    "agent_framework_killick": Peer(
        "agent-framework with Killick",
        _FRAMEWORK,
        ".adaptersvenv/agent_framework",
        agent_framework_killick,
    ),
    "agent_framework": Peer(
        "agent-framework, FileHistoryProvider",
        _FRAMEWORK,
        ".adaptersvenv/agent_framework",
        agent_framework,
    ),
    "claude_agent_sdk_killick": Peer(
        "claude-agent-sdk with Killick",
        ("claude-agent-sdk",),
        ".adaptersvenv/claude_agent_sdk",
        claude.claude_agent_sdk_killick,
    ),
    "claude_agent_sdk": Peer(
        "claude-agent-sdk, its own files",
        ("claude-agent-sdk",),
        ".adaptersvenv/claude_agent_sdk",
        claude.claude_agent_sdk,
    ),
    "strands_killick": Peer(
        "Strands with Killick", ("strands-agents",), ".adaptersvenv/strands", strands_killick
    ),
    "strands": Peer(
        "Strands, FileSessionManager", ("strands-agents",), ".adaptersvenv/strands", strands
    ),
}
