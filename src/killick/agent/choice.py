"""Which model an agent gets: the named one, the one a key is for, or the one on board."""

import os
from typing import Final

from killick.agent.embedded import ON_BOARD

VARIABLE: Final = "KILLICK_MODEL"

DEFAULTS: Final = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai:gpt-5.6-sol",
    "GEMINI_API_KEY": "google:gemini-flash-latest",
    "GOOGLE_API_KEY": "google:gemini-flash-latest",
}
"""What is used when a key is set and no model is named."""


def chosen_model(named: str | None) -> str:
    """Return the name of the model to use: what is named, or what the environment says."""
    by_key = (name for key, name in DEFAULTS.items() if os.environ.get(key))
    return named or os.environ.get(VARIABLE) or next(by_key, ON_BOARD)
