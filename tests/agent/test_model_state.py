"""The state of the model on board after its examples is computed once, and read from disk."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import ToolDefinition
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters

from killick.agent import agent_for, embedded
from killick.agent.constrained import ConstrainedModel
from killick.cli import main

pytestmark = pytest.mark.skipif(
    embedded.model_file() is None, reason="the model on board is not installed"
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    ToolDefinition(name="list_files", description="Lists files.", parameters_json_schema=SCHEMA)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    found = embedded.state_folder()
    assert found is not None
    assert found.is_relative_to(tmp_path)
    return found


def choose(asked: str) -> list[str]:
    """Return the tools that a fresh model calls."""

    async def main(url: str) -> list[str]:
        async with ConstrainedModel(url) as model:
            request = [ModelRequest.user_text_prompt(asked)]
            parameters = ModelRequestParameters(function_tools=TOOLS)
            answer = await model.request(list(request), None, parameters)
            return [call.tool_name for call in answer.tool_calls]

    with embedded.serving_model() as url:
        return asyncio.run(main(url))


@pytest.mark.slow
def test_the_state_is_kept_read_again_and_replaced_when_it_is_torn(folder: Path) -> None:
    """The choice is the same with it, and a torn file costs nothing but time."""
    assert choose("What files are here?") == ["list_files"]
    (state,) = folder.iterdir()
    whole = state.read_bytes()
    written = state.stat().st_mtime_ns
    assert choose("What files are here?") == ["list_files"]
    assert state.stat().st_mtime_ns == written, "it was computed again"
    state.write_bytes(whole[:1000])
    assert choose("What files are here?") == ["list_files"]
    assert state.read_bytes()[:1000] == whole[:1000]
    assert state.stat().st_size == len(whole)
    assert b"What files are here?" not in whole
    assert oct(folder.stat().st_mode)[-3:] == "700"


@pytest.mark.slow
def test_installing_the_model_computes_the_state_of_a_first_prompt(folder: Path) -> None:
    """A new home's first prompt reads it: it was computed for the chat's own tools."""
    assert main(["model", "install"]) == 0
    (state,) = folder.iterdir()
    written = state.stat().st_mtime_ns

    async def prepare() -> None:
        async with agent_for(embedded.ON_BOARD) as agent:
            await agent.prepare()

    asyncio.run(prepare())
    assert [state] == list(folder.iterdir())
    assert state.stat().st_mtime_ns == written, "it was computed again"


def test_an_environment_that_cannot_be_written_leaves_the_state_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = embedded.state_folder()
    assert found is not None
    assert found.is_relative_to(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert embedded.state_folder() is None
