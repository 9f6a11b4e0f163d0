"""The programs of the how-to page run."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("agents", reason="openai-agents is not installed here: make adapters")

HELLO_WORLD = """
from agents import Agent, Runner
agent = Agent(name="Assistant", instructions="You are a helpful assistant")
result = Runner.run_sync(agent, "Write a haiku about recursion in programming.")
print(result.final_output)
"""


def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    check_page("openai-agents", tmp_path, hello_world=HELLO_WORLD)
