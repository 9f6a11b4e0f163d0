"""A package that is not installed: one line, one exit code, whichever command needs it."""

from pathlib import Path

import pytest

from tests.cli.running import run_in_terminal, run_process


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """An environment in which no optional package can be imported."""
    for name in ("psycopg", "pydantic_ai", "prompt_toolkit", "starlette", "uvicorn", "mcp"):
        folder = tmp_path / "hidden" / name
        folder.mkdir(parents=True)
        error = f"ModuleNotFoundError({f'No module named {name!r}'!r}, name={name!r})"
        (folder / "__init__.py").write_text(f"raise {error}\n")
    return {"PYTHONPATH": str(tmp_path / "hidden"), "KILLICK_STORE": str(tmp_path / "work.db")}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("postgres", ["sessions", "--store", "postgresql://localhost/none"]),
        ("postgres", ["search", "x", "--store", "postgresql://localhost/none"]),
        ("server,chat", ["serve"]),
        ("mcp", ["mcp"]),
        ("mcp", ["mcp", "--http"]),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    without: dict[str, str], extra: str, words: list[str]
) -> None:
    done = run_process(*words, more=without)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done.err
    assert f"in a clone of Killick: pip install '.[{extra}]'" in done.err


def test_the_chat_says_the_same(without: dict[str, str]) -> None:
    done = run_in_terminal(200, "chat", more=without)
    assert done.code == 1
    assert "in a clone of Killick: pip install '.[chat]'" in done.out


def test_a_server_that_is_to_have_a_model_says_the_same(
    without: dict[str, str], tmp_path: Path
) -> None:
    for name in ("starlette", "uvicorn"):
        (tmp_path / "hidden" / name / "__init__.py").unlink()
        (tmp_path / "hidden" / name).rmdir()
    done = run_process("serve", "--port", "0", "--model", "openai:any", more=without)
    assert done.code == 1
    assert "in a clone of Killick: pip install '.[chat]'" in done.err
