"""The programs of the how-to page run."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("strands", reason="strands-agents is not installed here: make adapters")

HELLO_WORLD = """
import asyncio
from strands import Agent
from strands.models.openai import OpenAIModel
agent = Agent(model=OpenAIModel(model_id="gpt-5.5"), callback_handler=None)
async def main() -> None:
    print(await agent.invoke_async("Tell me about agentic AI."))
asyncio.run(main())
"""


def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    check_page("strands", tmp_path, hello_world=HELLO_WORLD)
