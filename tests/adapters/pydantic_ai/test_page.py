"""The program of the how-to page runs."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("pydantic_ai_harness", reason="the harness is not installed: make adapters")

HELLO_WORLD = """
import asyncio
from pydantic_ai import Agent
from pydantic_ai_harness import StepPersistence
from pydantic_ai_harness.step_persistence import InMemoryStepStore
store = InMemoryStepStore()
agent = Agent("openai-chat:gpt-5.5", capabilities=[StepPersistence(store=store)])
print(agent.run_sync("Write a haiku about recursion in programming.").output)
"""


def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    check_page("step-store", tmp_path, hello_world=HELLO_WORLD)
