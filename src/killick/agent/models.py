"""Which model an agent gets: the one that is named, one there is a key for, or the one on board."""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from killick.agent import embedded
from killick.agent.agent import Agent
from killick.agent.embedded import ON_BOARD, ModelUnavailable
from killick.agent.tools import SHOWN_CHARS, Workspace
from killick.session.drive.drive_async import in_thread

VARIABLE: Final = "KILLICK_MODEL"

DEFAULTS: Final = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai:gpt-5.6-sol",
    "GEMINI_API_KEY": "google:gemini-flash-latest",
    "GOOGLE_API_KEY": "google:gemini-flash-latest",
}
"""What is used when a key is set and no model is named."""

_SMALL_SHOWN: Final = 1500


@asynccontextmanager
async def agent_for(
    model: str | None = None,
    *,
    root: Path | None = None,
    allowed: Sequence[str] = (),
    tools: Sequence[Any] | None = None,
    instructions: str | None = None,
) -> AsyncIterator[Agent]:
    """An agent, for as long as the block lasts; the embedded model is started and stopped with it.

    `model` is a name as pydantic-ai has them (`openai:…`, `anthropic:…`), the address of a server
    that speaks OpenAI's protocol (`http://host:port/v1`, with `#NAME` for one of its models), or
    `on-board`, also one that runs already (`on-board@http://host:port`). Without one KILLICK_MODEL
    is asked, then the keys in the environment, and then the model on board is taken. `root` is the
    folder its tools work in, `allowed` names the tools that need no approval. Raises
    ModelUnavailable.
    """
    name = model or os.environ.get(VARIABLE) or _by_key()
    folder = root or Path.cwd()
    settings: dict[str, Any] = {"allowed": allowed}
    if instructions is not None:
        settings["instructions"] = instructions
    if name is not None and not name.startswith(ON_BOARD):
        made = find_model(name)
        used = Workspace(folder).tools() if tools is None else tools
        async with made:  # closes its connections in the end
            yield Agent(made, tools=used, **settings)
        return
    if embedded.model_file() is None and "@" not in (name or ""):
        raise ModelUnavailable(
            "there is no model: name one with --model or KILLICK_MODEL, set ANTHROPIC_API_KEY, "
            "OPENAI_API_KEY or GEMINI_API_KEY, or fetch a small one with 'killick model install'"
        )
    from killick.agent.constrained import ConstrainedModel

    running = (name or "").partition("@")[2]
    serving = contextlib.nullcontext(running) if running else embedded.serving_model()
    with contextlib.ExitStack() as started:
        # Whoever is cancelled while it starts waits until it has: then it is ended.
        url = await in_thread(lambda: started.enter_context(serving))
        used = Workspace(folder, shown_chars=_SMALL_SHOWN).tools() if tools is None else tools
        async with ConstrainedModel(url) as small:
            yield Agent(small, tools=used, window=embedded.WINDOW, **settings)


def find_model(name: str) -> Model:
    """The model of this name. Raises ModelUnavailable, in one line."""
    try:
        if name.startswith(("http://", "https://")):
            return _at_address(name)
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        raise ModelUnavailable(_one_line(f"model {name!r}: {error}", SHOWN_CHARS)) from error


def _at_address(address: str) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    base, _, name = address.partition("#")
    key = os.environ.get("OPENAI_API_KEY") or "none"
    return OpenAIChatModel(name or "default", provider=OpenAIProvider(base_url=base, api_key=key))


def _by_key() -> str | None:
    return next((name for key, name in DEFAULTS.items() if os.environ.get(key)), None)


def _one_line(text: str, limit: int) -> str:
    return " ".join(text.split())[:limit]
