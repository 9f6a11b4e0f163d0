"""The SDK's session store on a Killick store; the real command is killed and resumed elsewhere."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: make adapters")

from claude_agent_sdk import __file__ as sdk
from claude_agent_sdk.testing import run_session_store_conformance

from killick import AsyncStore, Store
from killick.adapters.claude_agent_sdk import KillickSessionStore
from tests.adapters.claude_agent_sdk.provider import Provider
from tests.waiting import until

ROOT = Path(__file__).parents[3]
KEY: dict[str, str] = {"project_key": "p", "session_id": "s"}


def test_its_fourteen_contracts(tmp_path: Path) -> None:
    async def main() -> None:
        stores: list[AsyncStore] = []

        def make() -> Any:
            stores.append(AsyncStore(tmp_path / f"{len(stores)}.db"))
            return KillickSessionStore(stores[-1])

        await run_session_store_conformance(make)
        for store in stores:
            await store.close()

    asyncio.run(main())


def lines() -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
    return [
        {"type": "summary", "summary": "Files"},
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Which files?"}},
        {"type": "assistant", "uuid": "u2", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "uuid": "u3", "message": {"role": "user", "content": [result]}},
    ]


def test_a_transcript_can_be_read_searched_and_sent_to_another_model(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            kept = KillickSessionStore(store)
            for _ in range(2):  # handed over again, it changes nothing
                await kept.append(KEY, lines()[1:])
            session = await store.session("p/s")
            roles = [message.role for message in await session.messages()]
            assert roles == ["user", "assistant", "tool"]
            assert "a.txt" in json.dumps((await session.context("openai-chat")).messages)
            assert await kept.load(KEY) == lines()[1:]

    asyncio.run(main())


def test_a_line_that_comes_again_with_another_content_keeps_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            kept = KillickSessionStore(store)
            first = {"type": "mode", "uuid": "m1", "mode": "plan"}
            await kept.append(KEY, [first])
            await kept.append(KEY, [{**first, "mode": "other"}, {"type": "mode", "uuid": "m2"}])
            assert await kept.load(KEY) == [first, {"type": "mode", "uuid": "m2"}]

    asyncio.run(main())


def run(tmp_path: Path, provider: Provider, home: str, *given: str) -> "subprocess.Popen[str]":
    (tmp_path / home).mkdir(exist_ok=True)
    (tmp_path / "project").mkdir(exist_ok=True)
    env = os.environ | {
        "HOME": str(tmp_path / home),
        "ANTHROPIC_BASE_URL": provider.url,
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.adapters.claude_agent_sdk.agent"]
    return subprocess.Popen(
        [*command, str(tmp_path / "w.db"), *given],
        cwd=tmp_path / "project",
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.timeout(150)
def test_the_real_command_is_killed_and_goes_on_with_a_fresh_home(tmp_path: Path) -> None:
    if not (Path(sdk).parent / "_bundled" / "claude").exists():
        pytest.skip("this wheel of claude-agent-sdk brings no command")
    provider = Provider("hang")
    with run(tmp_path, provider, "first", "PROMPT-1") as child:
        assert provider.reached.wait(60), child.poll()

        def stored() -> bool:
            with Store(tmp_path / "w.db") as store:
                return "result-1" in str([store.session(i.id).entries() for i in store.sessions()])

        until(stored, seconds=30)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(30)
    provider.over.set()
    with Store(tmp_path / "w.db") as store:
        [info] = store.sessions(type="user")
        session_id = info.extra["session_id"]
    second = Provider("ask")
    with run(tmp_path, second, "second", "PROMPT-2", session_id) as child:
        out, err = child.communicate(timeout=90)
    assert child.returncode == 0, err[-2000:]
    assert "ResultMessage" in out
    sent = json.dumps(second.requests[-1]["messages"])
    assert "PROMPT-1" in sent
    assert "result-1" in sent
    assert "PROMPT-2" in sent
