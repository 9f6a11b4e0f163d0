"""What the chat agent can do, and what it may not."""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from killick import AsyncSession, AsyncStore, TurnStopped
from killick.agent import Agent, Workspace
from killick.agent.workspace import Excerpt
from killick.model import entries as e
from killick.model.messages import ToolResult
from tests.adapters.scripted import answered
from tests.waiting import is_over


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
    assert workspace.search_files("linker", path="src/main.c") == "src/main.c:2: int linker;"
    assert "none of the files" in workspace.search_files("lead")
    with pytest.raises(ToolFailed, match="there is no file"):
        workspace.search_files("linker", path="lib")
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


def test_two_writes_of_one_file_at_once_leave_one_of_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    contents = ["a" * 100_000, "b" * 100_000]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            list(pool.map(lambda content: workspace.write_file("x.txt", content), contents))
            assert (tmp_path / "x.txt").read_text("utf-8") in contents


def test_a_script_stays_one(workspace: Workspace, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old", "utf-8")
    script.chmod(0o755)
    workspace.write_file("run.sh", "new")
    assert (script.read_text("utf-8"), script.stat().st_mode & 0o777) == ("new", 0o755)


def test_what_cannot_be_written_leaves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="src"):
        workspace.write_file("src", "a folder is in the way")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["binary", "src"]


def test_nobody_waits_for_a_pipe(workspace: Workspace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "src" / "pipe")
    assert workspace.search_files("linker") == "src/main.c:2: int linker;"
    with pytest.raises(ToolFailed, match="no file"):
        workspace.read_file("src/pipe")


def test_of_a_file_of_any_size_a_part_is_read(workspace: Workspace, tmp_path: Path) -> None:
    line = "0123456789abcde\n"
    (tmp_path / "log").write_text("first\n" + line * 200_000 + "last\n", "utf-8")
    tracemalloc.start()
    shown = workspace.read_file("log", first_line=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown.startswith(line)
    assert shown.endswith("last\n")
    assert peak < 500_000


def test_names_of_files_are_what_a_provider_takes(workspace: Workspace, tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).touch()
    assert workspace.list_files().encode("utf-8").splitlines()[-1] == "\ufffd.txt".encode()


def test_what_is_shown_is_bounded() -> None:
    told = Excerpt(20)
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


@pytest.mark.parametrize("printed", [999_999, 1_000_000, 1_000_001, 3_000_000])
def test_what_a_command_prints_is_recorded_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: int
) -> None:
    """And if there was more, that is said; the model is told of the end all the same."""
    bound = 1_000_000
    monkeypatch.setattr("killick.agent.workspace.RECORDED_CHARS", bound)

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db", durability="normal") as store:
            session = await store.create_session()
            await run(session, tmp_path, f"yes 0123456789abcde | head -c {printed}; echo; echo end")
            result, output = result_of(await session.entries())
            assert output is not None
            kept, said, _ = output.partition("\n[What was printed after this is not recorded.]")
            whole = printed + len("\nend\n")
            assert len(kept) == min(whole, bound)
            assert bool(said) is (whole > bound)
            assert isinstance(result.content, str)
            assert len(result.content) < 20_000
            assert "characters are not shown" in result.content
            assert result.content.endswith("end\n")

    asyncio.run(main())


def test_a_command_is_over_when_its_shell_is(tmp_path: Path) -> None:
    """What it leaves in the background is ended; what has escaped is not waited for."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await run(
                session, tmp_path, "setsid sleep 50 & echo $! > escaped; yes & echo $! > child"
            )
            result, _ = result_of(await session.entries())
            assert not result.is_error

    asyncio.run(main())
    os.kill(int((tmp_path / "escaped").read_text("utf-8")), SIGKILL)
    assert is_over(int((tmp_path / "child").read_text("utf-8")))


def test_a_command_is_given_time_to_end(tmp_path: Path) -> None:
    """Stop lets it clean up; only what does not listen is killed."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            command = "trap 'touch cleaned; exit' TERM; echo ready; while :; do sleep 0.1; done"
            task = asyncio.create_task(run(session, tmp_path, command))
            async for item in session.follow():
                if isinstance(item, e.FollowedDelta) and item.call_id is not None:
                    break
            await session.stop()
            with pytest.raises(TurnStopped):
                await task
            assert (tmp_path / "cleaned").exists()

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
            child = int(printed.split()[1])
            await session.stop(reason="enough")
            with pytest.raises(TurnStopped):
                await task
            assert is_over(child), "what the command had started in the background still runs"
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
