"""One query of the SDK in a process of its own: STORE PROMPT [SESSION to resume]."""

import asyncio
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, query

from killick import AsyncStore
from killick.adapters.claude_agent_sdk import session_options


async def main(path: str, prompt: str, resume: str | None = None) -> None:
    async with AsyncStore(path) as store:
        options: dict[str, Any] = {"permission_mode": "bypassPermissions", "resume": resume}
        async for message in query(
            prompt=prompt, options=ClaudeAgentOptions(**options, **session_options(store))
        ):
            print(type(message).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
