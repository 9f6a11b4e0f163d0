"""The embedded model as an agent's model: it cannot call tools by itself, so it is asked to choose.

The choice, and then the arguments, are requests of their own whose answers a JSON schema
constrains, so both are valid whatever a model of this size thinks. An answer in words is streamed
as it comes. What it is sent has no tool calls in it, since its template knows none: what a tool
gave is told as text.

The choice begins with the same examples every time. The model's state after them is computed once
and read from disk afterwards: on a busy machine they take longer than an answer.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, cast

from openai import APIError, AsyncOpenAI
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from killick.agent import embedded
from killick.views import phrases

NAME: Final = "smollm2-135m"
_NO_TOOL: Final = "answer"
_ANSWER_TOKENS: Final = 600
_CHOICE_TOKENS: Final = 24
_ARGUMENT_TOKENS: Final = 200
_ASKED_CHARS: Final = 1000
"""Of a long prompt, what is looked at to choose a tool."""

_EXAMPLES: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("What is the capital of France?", _NO_TOOL, {}),
    ("List the files in src", "list_files", {"path": "src"}),
    ("Hello!", _NO_TOOL, {}),
    ("Show me notes.txt", "read_file", {"path": "notes.txt"}),
    ("Explain what a journal is", _NO_TOOL, {}),
    ("Find the word TODO in the code", "search_files", {"text": "TODO", "path": "."}),
    ("Write a poem about the sea", _NO_TOOL, {}),
    ("Run make test", "run_command", {"command": "make test"}),
    ("Tell me a story", _NO_TOOL, {}),
    ("Write the text hi to hello.txt", "write_file", {"path": "hello.txt", "content": "hi"}),
    ("Read setup.cfg", "read_file", {"path": "setup.cfg"}),
    ("What files are here?", "list_files", {"path": "."}),
    ("What can you do?", _NO_TOOL, {}),
    ("What does main.py say?", "read_file", {"path": "main.py"}),
    ("Thank you", _NO_TOOL, {}),
    ("List the files", "list_files", {"path": "."}),
    ("Why is the sky blue?", _NO_TOOL, {}),
)
"""A model of this size learns what is asked of it from examples, not from a description."""


class ConstrainedModel(WrapperModel):
    """A small model on loopback that calls tools because a schema makes it."""

    def __init__(self, url: str) -> None:
        provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
        settings = OpenAIChatModelSettings(max_tokens=_ANSWER_TOKENS, frequency_penalty=0.2)
        super().__init__(OpenAIChatModel(NAME, provider=provider, settings=settings))
        self._client: AsyncOpenAI = provider.client
        self._url = url

    @property
    def system(self) -> str:
        """Return the provider's name: the protocol is OpenAI's, the model is not."""
        return embedded.ON_BOARD

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        called = await self._call(messages, model_request_parameters)
        if called is not None:
            return called
        plain = _without_tools(model_request_parameters)
        return await super().request(flat(messages), model_settings, plain)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        called = await self._call(messages, model_request_parameters)
        if called is not None:
            yield CompletedStreamedResponse(
                called, model_request_parameters=model_request_parameters, replay_events=True
            )
            return
        plain = _without_tools(model_request_parameters)
        async with super().request_stream(
            flat(messages), model_settings, plain, run_context
        ) as response:
            yield response

    async def _call(
        self, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse | None:
        """Return a tool call, if the model chooses one; after a result it answers in words."""
        asked = _asked(messages)
        tools = {tool.name: tool for tool in parameters.function_tools}
        if asked is None or not tools:
            return None
        usage = RequestUsage()
        chosen = await self._choose(asked, tools, usage)
        if chosen is None:
            return None
        dialogue = [{"role": "system", "content": f"{chosen.description} Find its arguments."}]
        for question, tool, example in _EXAMPLES:
            if tool == chosen.name:
                dialogue += _exchange(question, example)
        dialogue.append({"role": "user", "content": asked})
        arguments = await self._constrained(
            dialogue, chosen.parameters_json_schema, _ARGUMENT_TOKENS, usage
        )
        return ModelResponse(
            parts=[ToolCallPart(chosen.name, json.dumps(arguments, ensure_ascii=False))],
            model_name=NAME,
            provider_name=self.system,
            usage=usage,
            finish_reason="tool_call",
        )

    async def _choose(
        self, asked: str, tools: dict[str, ToolDefinition], usage: RequestUsage
    ) -> ToolDefinition | None:
        examples = _choices(list(tools.values()))
        schema = {
            "type": "object",
            "properties": {"tool": {"enum": [_NO_TOOL, *tools]}},
            "required": ["tool"],
            "additionalProperties": False,
        }
        recalled = await self._recall(examples)
        messages = [*examples, {"role": "user", "content": asked}]
        choice = await self._constrained(
            messages, schema, _CHOICE_TOKENS, usage, {"id_slot": embedded.CHOICE_SLOT}
        )
        if not recalled:
            await self._keep(examples)
        return tools.get(str(choice.get("tool")))

    async def prepare(self, tools: Sequence[ToolDefinition]) -> None:
        """Compute the state after the examples of these tools now, unless it is on disk.

        If interrupted: the state is on disk or it is not.
        """
        examples = _choices(tools)
        if not await self._recall(examples):
            await self._keep(examples)

    async def _recall(self, examples: list[dict[str, str]]) -> bool:
        """Read the model's state after the examples from disk; return whether it was there."""
        folder = embedded.state_folder()
        name = _state_name(examples)
        if folder is None or not (folder / name).exists():
            return False
        try:
            await self._slot("restore", name)
        except APIError:  # torn, or of another server: it is computed anew
            return False
        return True

    async def _keep(self, examples: list[dict[str, str]]) -> None:
        """Write the model's state after the examples, without the request, for the next time.

        If interrupted, or the disk is full: no file has the name yet.
        """
        folder = embedded.state_folder()
        if folder is None:
            return
        name, asked = _state_name(examples), cast("Any", examples)
        with contextlib.suppress(APIError, OSError):
            await self._client.chat.completions.create(
                model=NAME,
                messages=asked,
                max_completion_tokens=1,
                extra_body={"id_slot": embedded.CHOICE_SLOT},
            )
            partial = f"{name}-{os.getpid()}"
            await self._slot("save", partial)
            (folder / partial).replace(folder / name)
            for other in folder.iterdir():
                if other.name != name:
                    other.unlink(missing_ok=True)

    async def _slot(self, action: str, filename: str) -> None:
        """Read or write the choice's slot. Raises APIError."""
        await self._client.with_options(max_retries=0).post(
            f"{self._url}/slots/{embedded.CHOICE_SLOT}?action={action}",
            cast_to=object,
            body={"filename": filename},
        )

    async def _constrained(
        self,
        messages: list[dict[str, str]],
        schema: dict[str, Any],
        limit: int,
        usage: RequestUsage,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return an object of this schema; an empty one if the answer was cut off."""
        shape: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        asked: Any = messages
        answer = await self._client.chat.completions.create(
            model=NAME,
            messages=asked,
            max_completion_tokens=limit,
            temperature=0,
            response_format=shape,
            extra_body=extra,
        )
        if answer.usage is not None:
            usage.input_tokens += answer.usage.prompt_tokens
            usage.output_tokens += answer.usage.completion_tokens
        try:
            value = json.loads(answer.choices[0].message.content or "")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def _choices(tools: Sequence[ToolDefinition]) -> list[dict[str, str]]:
    """Return the dialogue that shows by examples which of these tools a request needs."""
    known = "\n".join(f"{tool.name}: {tool.description}" for tool in tools)
    content = f"Say which tool the request needs.\n{known}\n{_NO_TOOL}: no tool"
    messages = [{"role": "system", "content": content}]
    names = {_NO_TOOL, *(tool.name for tool in tools)}
    for question, tool, _ in _EXAMPLES:
        if tool in names:
            messages += _exchange(question, {"tool": tool})
    return messages


def _state_name(examples: list[dict[str, str]]) -> str:
    """Name the state after all that it depends on: the examples, and the model's file."""
    file = embedded.model_file()
    size = file.stat().st_size if file else 0
    text = json.dumps([NAME, size, examples])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _exchange(question: str, answer: dict[str, str]) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": json.dumps(answer)},
    ]


def _without_tools(parameters: ModelRequestParameters) -> ModelRequestParameters:
    return replace(parameters, function_tools=[], output_tools=[])


def _asked(messages: Sequence[ModelMessage]) -> str | None:
    """Return the person's request, if the newest message ends with one."""
    newest = messages[-1] if messages else None
    if not isinstance(newest, ModelRequest) or not newest.parts:
        return None
    last = newest.parts[-1]
    if not isinstance(last, UserPromptPart):
        return None
    asked = _words(last)
    if asked.startswith("["):  # a note about what happened is no request
        return None
    return asked[-_ASKED_CHARS:]


def _words(part: UserPromptPart) -> str:
    """Return the text; the model cannot see, so a note stands for each image or file."""
    if isinstance(part.content, str):
        return part.content
    texts = [item for item in part.content if isinstance(item, str)]
    unseen = len(part.content) - len(texts)
    return "\n".join([*texts, *[phrases.left_out("Something that you cannot see")] * unseen])


# -- a history without tool calls --------------------------------------------------------------


def flat(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation without calls, and with results as text."""
    plain: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            asked = [_as_prompt(part) for part in message.parts]
            plain.append(ModelRequest(parts=asked, instructions=message.instructions))
        else:
            texts = [part for part in message.parts if isinstance(part, TextPart)]
            if texts:
                plain.append(ModelResponse(parts=texts))
    return plain


def _as_prompt(part: ModelRequestPart) -> ModelRequestPart:
    if isinstance(part, UserPromptPart):
        return UserPromptPart(_words(part))
    if not isinstance(part, ToolReturnPart):
        return part
    text = part.model_response_str(wrap_if_error=False)
    return UserPromptPart(f"{part.tool_name} found this:\n{text}\nSay what it means, briefly.")
