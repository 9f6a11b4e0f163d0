"""The programs of the how-to page run."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("agent_framework", reason="agent-framework is not installed: make adapters")

HELLO_WORLD = """
import asyncio
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
client = OpenAIChatClient(model="gpt-5.5")
agent = Agent(client=client, instructions="You are good at telling jokes.")
async def main() -> None:
    result = await agent.run("Tell me a joke about a pirate.")
    print(result.text)
asyncio.run(main())
"""


def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    check_page("agent-framework", tmp_path, hello_world=HELLO_WORLD)
