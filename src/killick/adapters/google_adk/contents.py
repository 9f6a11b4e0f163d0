"""The ADK's responses to deltas, its events to messages, and a context as its contents."""

import json
from collections.abc import Iterator
from typing import Any, Final

from google.adk.flows.llm_flows.functions import remove_client_function_call_id
from google.genai import types

from killick.adapters.tool_journal import content_of
from killick.model.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.messages import plain as as_text
from killick.recorders.actions import ReasoningPiece, TextPiece
from killick.recorders.apply import DeltaApplier
from killick.recorders.model_call import call_settings, kind_of
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncStream, AsyncTurn
from killick.session.sync_blocks import plain

_OF_TEXT: Final = frozenset({"text", "thought"})
OURS: Final = "google-adk"
"""The source of messages that its session service was handed."""


async def history(session: AsyncSession, *, max_tokens: int | None = None) -> list[types.Content]:
    """Return what a model would be sent now, with the prompt of the running turn.

    It is valid whatever state the session was left in: every call has its result, or says that the
    outcome is unknown.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    context = await session.context("gemini", **settings)
    contents = [types.Content.model_validate(message) for message in context.messages]
    for content in contents:
        remove_client_function_call_id(content)  # ids that the ADK minted are not for the model
    return contents


class ResponseApplier:
    """Hands the responses of one answer over to a stream; the last one repeats the others' text."""

    def __init__(self, turn: AsyncTurn, reply: AsyncStream) -> None:
        self._turn = turn
        self._reply = reply
        self._applier = DeltaApplier(kind_of("gemini"), reply)
        self._pieces: dict[bool, list[str]] = {True: [], False: []}

    async def add(self, response: Any) -> None:
        """Write one chunk. Calls wait for the response that has them whole."""
        for part in _parts(response):
            if part.function_call is None and part.text:
                self._pieces[bool(part.thought)].append(part.text)
                if part.model_fields_set <= _OF_TEXT:  # nothing that the reader would look for
                    text = as_text(part.text)
                    self._applier.apply(ReasoningPiece(text) if part.thought else TextPiece(text))
                else:
                    await self._feed({"content": {"parts": [_dumped(part)]}})

    async def end(self, response: Any, call_ids: dict[str, str]) -> None:
        """Write what did not come in pieces, and the facts of the answer.

        `call_ids` has the ids that its calls are recorded under.
        """
        parts = []
        for part in _parts(response):
            made = _dumped(part)
            if part.function_call is not None:
                made["function_call"]["id"] = call_ids.get(part.function_call.id or "")
            if part.text is not None:
                made["text"] = self._rest(part.text, thought=bool(part.thought))
                if not made["text"] and "thought_signature" not in made:
                    continue
            parts.append(made)
        reason = getattr(response.finish_reason, "value", response.finish_reason)
        candidate = {"content": {"parts": parts}, "finish_reason": reason}
        if response.grounding_metadata is not None:
            candidate["grounding_metadata"] = response.grounding_metadata.model_dump(
                mode="json", exclude_none=True
            )
        tokens = response.usage_metadata
        beside = {} if tokens is None else {"usage_metadata": tokens.model_dump(exclude_none=True)}
        await self._feed(candidate, **beside)
        if reason:
            for media in self._applier.close():
                self._applier.place(media, await self._turn.put_blob(media.data))
        if response.error_code:
            words = response.error_message or response.error_code
            self._reply.cut_off(f"the model reported an error: {as_text(str(words))}")

    def _rest(self, text: str, *, thought: bool) -> str:
        """Return what of a text was not streamed."""
        streamed = "".join(self._pieces[thought])
        if streamed.startswith(text):
            self._pieces[thought] = [streamed[len(text) :]]
            return ""
        self._pieces[thought] = []
        return text.removeprefix(streamed) if streamed else text

    async def _feed(self, candidate: dict[str, Any], **beside: Any) -> None:
        for media in self._applier.feed({"candidates": [candidate], **beside}):
            self._applier.place(media, await self._turn.put_blob(media.data))


def _parts(response: Any) -> Iterator[types.Part]:
    content = response.content
    yield from (content.parts or ()) if content is not None else ()


def _dumped(part: types.Part) -> dict[str, Any]:
    made: dict[str, Any] = part.model_dump(exclude_none=True)
    return made


def request_facts(request: Any) -> dict[str, Any]:
    """Return provider, model, settings, system prompt and tools of a request."""
    name = request.model or ""
    config = None
    if request.config is not None:
        config = request.config.model_copy(update={"http_options": None, "labels": None})
    given = {"model": name, "config": config}
    return call_settings("gemini", "gemini" if "gemini" in name else OURS, given)


def _words(content: types.Content) -> str:
    return "\n".join(part.text for part in content.parts or () if part.text)


def last_prompt(contents: Any) -> str:
    """Return the newest words of a person, or of the agent that asks another."""
    for content in reversed(contents or ()):
        text = _words(content)
        if content.role == "user" and text:
            return as_text(text)
    return ""


def told(response: Any) -> tuple[str, Any]:
    """Return what a function responded, as text and as JSON; a single result stands alone."""
    if isinstance(response, dict) and len(response) == 1:
        [(name, value)] = response.items()
        if name in ("result", "output", "error"):
            return content_of(value)
    return content_of(response)


def is_failure(response: Any) -> bool:
    """Return whether this is what the ADK tells a model of a call that failed."""
    return isinstance(response, dict) and set(response) == {"error"}


def as_message(event: Any) -> Message | None:
    """Return what was said in an event; None if nothing was."""
    parts: list[Part] = []
    results: list[Part] = []
    for part in _parts(event):
        if part.text:
            words = as_text(part.text)
            parts.append(Reasoning(words) if part.thought else Text(words))
        elif part.function_call is not None and part.function_call.id:
            call = part.function_call
            arguments = json.dumps(plain(call.args or {}), ensure_ascii=False)
            parts.append(ToolCall(str(call.id), call.name or "tool", arguments))
        elif part.function_response is not None and part.function_response.id:
            answer = part.function_response
            text, structured = told(answer.response)
            failed = is_failure(answer.response)
            results.append(ToolResult(str(answer.id), text, is_error=failed, structured=structured))
    if results:
        return Message(role="tool", parts=results, id=event.id)
    if not parts:
        return None
    role: Any = "user" if event.author == "user" else "assistant"
    return Message(role=role, parts=parts, id=event.id)
