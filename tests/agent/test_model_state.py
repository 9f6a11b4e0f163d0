"""The state of the model on board after its examples is computed once, and read from disk."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import ToolDefinition
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters

from killick.agent import embedded
from killick.agent.constrained import ConstrainedModel

pytestmark = pytest.mark.skipif(
    embedded.model_file() is None, reason="the model on board is not installed"
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    ToolDefinition(name="list_files", description="Lists files.", parameters_json_schema=SCHEMA)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = embedded.state_folder()
    assert found is not None
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


def test_where_no_folder_can_be_made_there_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert embedded.state_folder() is None
