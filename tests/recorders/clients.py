"""The official SDKs, pointed at a server of ours, behind one way to ask."""

from typing import Any, Self

import anthropic
import openai
from google import genai
from google.genai import types

from tests.recorders.server import Scripted

TOOLS = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
REQUESTS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi."},
        ],
        "tools": [TOOLS],
        "temperature": 0.5,
    },
    "openai-responses": {
        "model": "gpt-x",
        "instructions": "Be brief.",
        "input": "Hi.",
        "tools": [{"type": "function", "name": "read", "parameters": {}, "strict": False}],
        "temperature": 0.5,
    },
    "anthropic": {
        "model": "claude-x",
        "system": [{"type": "text", "text": "Be brief."}],
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi."}],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "stop_sequences": ["END"],
    },
    "gemini": {
        "model": "gemini-x",
        "contents": "Hi.",
        "config": {
            "system_instruction": "Be brief.",
            "tools": [{"function_declarations": [{"name": "read"}]}],
            "temperature": 0.5,
        },
    },
}
SHAPES = tuple(REQUESTS)


class Clients:
    """One client of each SDK, as an application has them; none tries again by itself."""

    def __init__(self, server: Scripted) -> None:
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        self.google = google(server.url)

    def ask(self, shape: str, *, stream: bool = True) -> Any:
        """The SDK's stream, or its whole response."""
        request = REQUESTS[shape]
        match shape:
            case "openai-chat":
                return self.openai.chat.completions.create(stream=stream, **request)
            case "openai-responses":
                return self.openai.responses.create(stream=stream, **request)
            case "anthropic":
                return self.anthropic.messages.create(stream=stream, **request)
        models = self.google.models
        ask = models.generate_content_stream if stream else models.generate_content
        return ask(**request)

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()
        self.google.close()


class AsyncClients:
    """The same, for one event loop."""

    def __init__(self, url: str) -> None:
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
        self._google = google(url)
        self.google = self._google.aio

    async def ask(self, shape: str, *, stream: bool = True) -> Any:
        request = REQUESTS[shape]
        match shape:
            case "openai-chat":
                return await self.openai.chat.completions.create(stream=stream, **request)
            case "openai-responses":
                return await self.openai.responses.create(stream=stream, **request)
            case "anthropic":
                return await self.anthropic.messages.create(stream=stream, **request)
        models = self.google.models
        ask = models.generate_content_stream if stream else models.generate_content
        return await ask(**request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.openai.close()
        await self.anthropic.close()
        await self.google.aclose()


def google(url: str) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
