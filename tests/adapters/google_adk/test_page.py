"""The programs of the how-to page run."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("google.adk", reason="google-adk is not installed here: make adapters")

HELLO_WORLD = """
import asyncio
from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types
agent = Agent(name="assistant", model="gemini-2.5-flash", instruction="Be helpful.")
async def ask(question: str) -> None:
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ann")
    async for event in runner.run_async(
        user_id="ann", session_id=session.id, new_message=types.UserContent(question)
    ):
        if event.is_final_response():
            print(event.content.parts[0].text)
asyncio.run(ask("Write a haiku about recursion in programming."))
"""


def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    check_page("google-adk", tmp_path, hello_world=HELLO_WORLD)
