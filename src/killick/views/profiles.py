"""Profiles: needs of the servers behind a format, as one table.

A format is a provider's published shape. Servers that speak it differ: one refuses two user
messages in a row, one wants its reasoning back, one takes a hundred images. A new server is a row.
Where each row is from, and when it was looked up, stands in `source` and `read`; the how-to says
which figures were not found again then.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

_CHAT: Final = ("openai-chat",)
_MB: Final = 1024 * 1024


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One server's needs. Every field that is not given is what the published format says.

    `users` is how neighbouring user messages are sent: as one text, as one message of text parts,
    or apart. `call_id` is the length of a tool call's id, in letters and digits. `no_words` is the
    content of an answer that only calls tools. `reasoning` is the key under which an answer's own
    reasoning goes back, `no_reasoning` its value where an answer with calls has none; `details`
    sends `reasoning_details` back. `bridge` puts an answer in brackets between results and a user's
    message. `images` and `request_bytes` are the most of a request. A server that `hosts` models
    of many makers has the row whose `models` has a word of the model's name.
    """

    formats: tuple[str, ...]
    providers: tuple[str, ...] = ()
    users: Literal["one", "parts", "apart"] = "one"
    call_id: int | None = None
    no_words: str | None = None
    reasoning: str | None = None
    no_reasoning: str | None = None
    details: bool = False
    bridge: bool = False
    hosts: bool = False
    models: tuple[str, ...] = ()
    images: int | None = None
    request_bytes: int | None = None
    tokens: Literal["anthropic", "openai", "gemini"] = "openai"
    source: str
    read: str = "2026-11-16"


PROFILES: Final[Mapping[str, Profile]] = {
    "openai": Profile(
        formats=("openai-chat", "openai-responses"),
        providers=("openai",),
        images=500,
        request_bytes=50 * _MB,
        source="developers.openai.com/api/docs/guides/images-vision",
    ),
    "azure": Profile(
        formats=("openai-chat", "openai-responses"),
        providers=("azure", "azure-openai"),
        images=50,
        request_bytes=50 * _MB,
        source="learn.microsoft.com/azure/ai-foundry/openai/quotas-limits",
    ),
    "anthropic": Profile(
        formats=("anthropic",),
        providers=("anthropic",),
        images=100,
        request_bytes=32 * _MB,
        tokens="anthropic",
        source="platform.claude.com/docs/en/build-with-claude/vision",
    ),
    "bedrock": Profile(
        formats=("anthropic",),
        providers=("bedrock", "amazon-bedrock", "aws-bedrock"),
        images=20,
        request_bytes=20 * _MB,
        tokens="anthropic",
        source="docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html",
    ),
    "vertex": Profile(
        formats=("anthropic", "gemini"),
        providers=("vertex", "vertex-ai", "google-vertex"),
        images=100,
        request_bytes=20 * _MB,
        tokens="gemini",
        source="docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/image-understanding",
    ),
    "gemini": Profile(
        formats=("gemini",),
        providers=("gemini", "google", "google-gla"),
        images=900,
        request_bytes=20 * _MB,
        tokens="gemini",
        source="ai.google.dev/gemini-api/docs/image-understanding",
    ),
    "deepseek": Profile(
        formats=_CHAT,
        providers=("deepseek",),
        no_words="",
        reasoning="reasoning_content",
        no_reasoning="",
        images=0,
        source="api-docs.deepseek.com/guides/thinking_mode",
    ),
    "kimi": Profile(
        formats=_CHAT,
        providers=("kimi", "moonshot", "moonshotai"),
        no_words="",
        reasoning="reasoning_content",
        no_reasoning=".",
        source="platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
    ),
    "qwen": Profile(
        formats=_CHAT,
        providers=("qwen", "dashscope", "alibaba"),
        no_words="",
        reasoning="reasoning_content",
        source="alibabacloud.com/help/en/model-studio/deep-thinking",
    ),
    "openrouter": Profile(
        formats=_CHAT,
        providers=("openrouter",),
        reasoning="reasoning",
        details=True,
        source="openrouter.ai/docs/use-cases/reasoning-tokens",
    ),
    "mistral": Profile(
        formats=_CHAT,
        providers=("mistral", "mistralai"),
        models=("mistral", "ministral", "devstral", "magistral", "codestral", "pixtral"),
        call_id=9,
        no_words="",
        bridge=True,
        images=8,
        source="mistralai.github.io/mistral-common/usage/tools; docs.mistral.ai: vision",
    ),
    "vllm": Profile(
        formats=_CHAT,
        providers=("vllm",),
        hosts=True,
        no_words="",
        source="ggml-org/llama.cpp models/templates at b21e4de",
    ),
    "llama.cpp": Profile(
        formats=_CHAT,
        providers=("llama.cpp", "llamacpp", "llama-cpp"),
        hosts=True,
        no_words="",
        source="ggml-org/llama.cpp models/templates at b21e4de",
    ),
    "parts": Profile(
        formats=_CHAT,
        users="parts",
        source="the caller's wish: neighbouring prompts as text parts of one message",
    ),
    "apart": Profile(
        formats=_CHAT,
        users="apart",
        source="the caller's wish: each prompt and each note as a message of its own",
    ),
}

DEFAULTS: Final[Mapping[str, str]] = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
NEUTRAL: Final = Profile(formats=("neutral",), source="no server")
"""The neutral list is made for no server."""

SIGNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": (
        "anthropic", "bedrock", "amazon-bedrock", "aws-bedrock", "vertex", "vertex-ai",
        "google-vertex", "azure", "azure-ai", "azure-foundry",
    ),
    "gemini": ("gemini", "google", "google-gla", "vertex", "vertex-ai", "google-vertex"),
    "openai": ("openai", "azure", "azure-openai", "azure-ai", "azure-foundry", "bedrock"),
}  # fmt: skip
"""Providers that count as the one that signed: they pass its models' signatures on."""

_MAKERS: Final = (("claude", "anthropic"), ("gemini", "gemini"), ("gpt", "openai"))
"""Words in a model's name: where one provider serves models of several makers."""


def normal(name: str) -> str:
    """Return a provider's name as the tables have it: without case, with hyphens."""
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


def is_signed_by(signer: str, provider: str | None, model: str | None = None) -> bool:
    """Tell whether an answer's signatures are this signer's, who alone takes them back.

    An answer whose provider was not named is taken to be from the one that is asked.
    """
    if provider is None:
        return True
    if normal(provider) not in SIGNERS[signer]:
        return False
    maker = next((maker for word, maker in _MAKERS if word in (model or "").casefold()), signer)
    return maker == signer


def choose(
    format_: str, name: str | None, provider: str | None = None, model: str | None = None
) -> Profile:
    """Return the profile of this name; without one, of the provider that answered last.

    Raises ValueError, with the list, if there is none of this name or it is of another format.
    """
    fitting = {key: row for key, row in PROFILES.items() if format_ in row.formats}
    if name is not None:
        if name not in fitting:
            known = ", ".join(fitting) or "none"
            raise ValueError(f"profile {name!r}; for the format {format_!r} it is one of: {known}")
        return fitting[name]
    if format_ not in DEFAULTS:
        return NEUTRAL
    wanted = normal(provider) if provider else None
    named = (row for row in fitting.values() if wanted in row.providers)
    chosen = next(named, PROFILES[DEFAULTS[format_]])
    if not chosen.hosts:
        return chosen
    called = (model or "").casefold()
    made = (row for row in fitting.values() if any(word in called for word in row.models))
    return next(made, chosen)
