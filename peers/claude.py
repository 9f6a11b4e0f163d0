"""An agent of the Claude Agent SDK: its own command keeps files, and speaks to the model."""

from typing import Any

from peers.case import Case
from peers.messages import HELPERS, SERVER, named


async def claude_agent_sdk(case: Case, prompt: str) -> None:
    """Its own files, in the home directory that it had before."""
    found = sorted((case.folder / "home" / "projects").glob("*/*.jsonl"))
    await _run(case, prompt, "home", found[0].stem if found else None, {})


async def claude_agent_sdk_killick(case: Case, prompt: str) -> None:
    """The same agent with Killick's session store, and a fresh home each time."""
    from killick import AsyncStore
    from killick.adapters.claude_agent_sdk import session_options

    async with AsyncStore(case.folder / "work.db") as store:
        known = await store.sessions(type="user")
        resume = known[0].extra["session_id"] if known else None
        home = f"home-{len(known)}"
        await _run(case, prompt, home, resume, session_options(store))


async def _run(
    case: Case, prompt: str, home: str, resume: str | None, more: dict[str, Any]
) -> None:
    from claude_agent_sdk import (
        AgentDefinition,
        ClaudeAgentOptions,
        StreamEvent,
        create_sdk_mcp_server,
        query,
        tool,
    )
    from mcp.types import ToolAnnotations

    made = []
    for function in (*case.tools.all(), case.tools.t4):

        async def call(_: dict[str, Any], function: Any = function) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": await function()}]}

        asked = function.__name__ == "t4"
        read_only = ToolAnnotations(readOnlyHint=True)  # without, they run one after another
        about = (function.__name__, function.__doc__ or "", {})
        made.append(tool(*about, annotations=None if asked else read_only)(call))

    async def may_use(name: str, _: dict[str, Any], __: Any) -> Any:
        await case.tools.until_asked()

    folder = case.folder / "project"
    folder.mkdir(exist_ok=True)
    names = [named(f"t{number}") for number in range(1, 4)]
    options: dict[str, Any] = {
        "cwd": folder,
        "resume": resume,
        "include_partial_messages": True,
        "setting_sources": [],
        "mcp_servers": {SERVER: create_sdk_mcp_server(SERVER, tools=made)},
        "allowed_tools": [*names, *HELPERS],
        "agents": {"helper": AgentDefinition(description="Helps.", prompt="Help.", tools=names)},
        "can_use_tool": may_use,
        "env": {
            "CLAUDE_CONFIG_DIR": str(case.folder / home),
            "ANTHROPIC_BASE_URL": case.provider.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
    }

    async def said() -> Any:
        yield {"type": "user", "message": {"role": "user", "content": prompt}}

    async for message in query(prompt=said(), options=ClaudeAgentOptions(**options, **more)):
        if isinstance(message, StreamEvent) and message.parent_tool_use_id is None:
            case.shown(str(message.event.get("delta", {}).get("text") or ""))
