"""The programs of the how-to page run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: make adapters")

from tests.adapters.claude_agent_sdk.provider import Provider
from tests.adapters.pages import SAID, blocks, lines_of

HELLO_WORLD = """
import anyio
from claude_agent_sdk import query
async def main():
    async for message in query(prompt="What is 2 + 2?"):
        print(message)
anyio.run(main)
"""


@pytest.mark.timeout(120)
def test_the_page_runs_and_begins_with_a_short_program(tmp_path: Path) -> None:
    programs = blocks("claude-agent-sdk")
    assert lines_of(programs[0]) <= lines_of(HELLO_WORLD) + 12
    provider = Provider("ask")
    env = os.environ | {
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": provider.url,
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(programs)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(SAID) == 2
