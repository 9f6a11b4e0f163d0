"""What the chat agent can do, and what it may not."""

import asyncio
import os
import select
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from holdfast import AsyncSession, AsyncStore, TurnStopped
from holdfast.agent import Agent, Workspace
from holdfast.agent.tools import Told
from holdfast.model import entries as e
from holdfast.model.parts import ToolResult
from tests.adapters.scripted import answered


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.c").write_text("int main;\nint linker;\n", "utf-8")
    (tmp_path / "binary").write_bytes(b"linker\0")
    return Workspace(tmp_path, shown_chars=200)


def test_files_are_listed_read_searched_and_written(workspace: Workspace, tmp_path: Path) -> None:
    assert workspace.list_files() == "binary\nsrc/"
    assert workspace.read_file("src/main.c", first_line=2) == "int linker;\n"
    assert workspace.search_files("linker") == "src/main.c:2: int linker;"
    assert "none of the files" in workspace.search_files("lead")
    workspace.write_file("new/file.txt", "text")
    assert (tmp_path / "new" / "file.txt").read_text("utf-8") == "text"
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["file.txt"]


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "src/../../x", "link"])
def test_no_path_leads_out_of_the_folder(workspace: Workspace, tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(ToolFailed, match="outside"):
        workspace.read_file(path)
    with pytest.raises(ToolFailed, match="outside"):
        workspace.write_file(path, "x")


def test_what_is_shown_is_bounded() -> None:
    told = Told(20)
    for _ in range(1000):
        told.add("0123456789")
    assert told.text() == "0123456789\n[… 9980 characters are not shown …]\n0123456789"


def commanding(command: str) -> FunctionModel:
    async def model(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        if answered(messages):
            yield "Done."
        else:
            json_args = f'{{"command": "{command}"}}'
            yield {0: DeltaToolCall(name="run_command", json_args=json_args, tool_call_id="c1")}

    return FunctionModel(stream_function=model)


async def run(session: AsyncSession, root: Path, command: str) -> None:
    made = Agent(commanding(command), tools=Workspace(root).tools(), allowed=["run_command"])
    async with session.turn("Run it.") as turn:
        await made.answer(session, turn)


def result_of(entries: list[e.Entry]) -> tuple[ToolResult, str | None]:
    (found,) = [one.body for one in entries if isinstance(one.body, e.ToolFinished)]
    return found.result, found.output


def test_a_command_that_prints_a_lot_is_recorded_and_shown_in_part(tmp_path: Path) -> None:
    megabytes = 8

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db", durability="normal") as store:
            session = await store.create_session()
            command = f"yes 0123456789abcde | head -c {megabytes * 1024 * 1024}"
            await run(session, tmp_path, command)
            result, output = result_of(await session.entries())
            assert output is not None
            assert len(output) == megabytes * 1024 * 1024
            assert isinstance(result.content, str)
            assert len(result.content) < 20_000
            assert "characters are not shown" in result.content

    asyncio.run(main())


def test_a_command_that_fails_is_told_to_the_model(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await run(session, tmp_path, "echo no; exit 3")
            result, _ = result_of(await session.entries())
            assert result.is_error
            assert result.content == "no\n\nThe command failed with exit code 3."
            assert (await session.turns())[-1].status == "completed"

    asyncio.run(main())


def test_stop_ends_a_command_and_all_it_has_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            command = "sleep 600 & echo child $!; wait"
            task = asyncio.create_task(run(session, tmp_path, command))
            printed = ""
            async for item in session.follow():
                if isinstance(item, e.FollowedDelta) and item.call_id is not None:
                    printed += item.text
                    if printed.endswith("\n"):
                        break
            child = os.pidfd_open(int(printed.split()[1]))
            await session.stop(reason="enough")
            with pytest.raises(TurnStopped):
                await task
            ended, _, _ = select.select([child], [], [], 10)
            os.close(child)
            assert ended, "what the command had started in the background still runs"
            (told,) = [
                one for one in (await session.context("neutral")).messages if one["role"] == "tool"
            ]
            assert "unknown" in told["parts"][0]["content"]
            assert printed in told["parts"][0]["content"]

    asyncio.run(main())


def test_a_tool_that_raises_does_not_end_the_turn(tmp_path: Path) -> None:
    def broken() -> str:
        raise OSError("the disk is on fire")

    async def model(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        if answered(messages):
            yield "I see."
        else:
            yield {0: DeltaToolCall(name="broken", json_args="{}", tool_call_id="c1")}

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            made = Agent(FunctionModel(stream_function=model), tools=[broken])
            async with session.turn("Try it.") as turn:
                await made.answer(session, turn)
            result, _ = result_of(await session.entries())
            assert (result.is_error, result.content) == (True, "OSError: the disk is on fire")
            assert (await session.turns())[-1].status == "completed"

    asyncio.run(main())
