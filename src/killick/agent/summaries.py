"""Summaries, so that a conversation fits the model, and titles.

Both ask the model something beside the conversation. It is not part of the conversation and not
recorded as one; a compaction says which model made its summary, and what that cost.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from killick.agent.workspace import Excerpt
from killick.errors import InvalidEntry
from killick.model.entries import Usage
from killick.model.sessions import TurnInfo
from killick.session.aio import AsyncSession
from killick.views.context import Context

FULL: Final = 0.6
"""The share of the window that a conversation may fill before it is compacted."""

_CHARS_PER_TOKEN: Final = 4
_SUMMARY_TOKENS: Final = 400
_TITLE_TOKENS: Final = 16
_TITLE_CHARS: Final = 60
_EXCERPT: Final = 400

_SUMMARISE: Final = (
    "Summarise the conversation below for the assistant who goes on with it: what the user wants, "
    "what was done and found, what is still open. Keep names, paths and numbers. Be short."
)
_ENTITLE: Final = "Write a title of at most six words for this conversation, and nothing else:"
_TITLES: Final = (
    ("How long do I boil an egg?\n\nAbout eight minutes.", "Boiling an egg"),
    ("Why does make fail?\n\nThe linker is missing. Install lld.", "make fails: missing linker"),
    ("Hello!\n\nHello! How can I help you?", "A greeting"),
)
"""Small models learn what is asked of them from examples."""


async def compact_if_long(session: AsyncSession, model: Model, window: int) -> bool:
    """Summarise what was before the running turn, if the whole nearly fills the window.

    If interrupted: it is compacted or it is not.
    """
    long = await _long(session, window)
    if long is None:
        return False
    _, turn = long
    return await _summarise_if_it_can(session, model, window, through=turn.seq - 1)


async def compact_turn_if_long(session: AsyncSession, model: Model, window: int) -> bool:
    """Summarise in the middle of a turn; its prompts and its last answer stay.

    If interrupted: it is compacted or it is not.
    """
    long = await _long(session, window)
    if long is None:
        return False
    context, turn = long
    prompts: list[int] = []
    last = 0
    for message, seqs in zip(context.messages, context.origins, strict=True):
        if not seqs or min(seqs) <= turn.seq or message["synthetic"]:
            continue
        if message["role"] == "user":
            prompts.append(min(seqs))
        elif message["role"] == "assistant":
            last = min(seqs)
    if not last:
        return False
    return await _summarise_if_it_can(session, model, window, through=last - 1, keep=prompts)


async def _long(session: AsyncSession, window: int) -> tuple[Context, TurnInfo] | None:
    """Return the context and the running turn, if the context nearly fills the window."""
    context = await session.context("neutral")
    if _tokens(context.messages) < window * FULL:
        return None
    turns = reversed(await session.turns())
    running = next((turn for turn in turns if turn.status == "running"), None)
    return None if running is None else (context, running)


async def _summarise_if_it_can(
    session: AsyncSession, model: Model, window: int, *, through: int, keep: Sequence[int] = ()
) -> bool:
    try:
        return await summarise(session, model, window, through=through, keep=keep)
    except AgentRunError:
        return False  # the answer will fail for the same reason, and say so; or it is cut to fit
    except InvalidEntry:
        return False  # what stands there is a summary already, and notes that nothing stands for


async def summarise(
    session: AsyncSession,
    model: Model,
    window: int,
    *,
    through: int | None = None,
    keep: Sequence[int] = (),
) -> bool:
    """Put a summary by the model in place of what was said through this seq, or through now.

    What began at a seq of `keep` stays. If interrupted: it is compacted or it is not.
    """
    await session.entries(after=session.head)  # the head is as of the last read
    head = session.head
    through = head if through is None else through
    context = await session.context("neutral")
    messages = [
        message
        for message, seqs in zip(context.messages, context.origins, strict=True)
        if seqs and max(seqs) <= through
    ]
    if len(messages) < 2:
        return False
    excerpt = Excerpt(int(window * FULL / 2) * _CHARS_PER_TOKEN)
    for message in messages:
        excerpt.add(_as_text(message))
    response = await _ask(model, f"{_SUMMARISE}\n\n{excerpt.text()}", _SUMMARY_TOKENS)
    summary = _text(response).strip()
    if not summary:
        return False
    usage = response.usage
    await session.compact(
        summary,
        through,
        as_of=head,
        keep=keep,
        model=model.model_name,
        provider=model.system,
        usage=Usage(input=usage.input_tokens, output=usage.output_tokens),
        tokens_before=_tokens(messages),
        tokens_after=len(summary) // _CHARS_PER_TOKEN + 1,
    )
    return True


async def title_of(session: AsyncSession, model: Model) -> str | None:
    """Return a title for the first exchange; None without one, or if the model gives none."""
    messages = await session.messages(limit=8)
    asked = next((message.text for message in messages if message.role == "user"), "")
    answer = next(
        (message.text for message in messages if message.role == "assistant" and message.text), ""
    )
    if not asked.strip() or not answer.strip():
        return None
    prompts = [
        *(message for asks, title in _TITLES for message in (_titling(asks), _answering(title))),
        _titling(f"{asked[:_EXCERPT]}\n\n{answer[:_EXCERPT]}"),
    ]
    settings = ModelSettings(max_tokens=_TITLE_TOKENS)
    try:
        return clean_title(_text(await model_request(model, prompts, model_settings=settings)))
    except AgentRunError:
        return None


def clean_title(text: str) -> str | None:
    """Return the title in a model's answer."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = line.strip().removeprefix("Title:").strip().strip("\"'*#` .").strip()
    if len(line) > _TITLE_CHARS:
        line = line[:_TITLE_CHARS].rsplit(" ", 1)[0] + "…"
    return line or None


def _titling(text: str) -> ModelRequest:
    return ModelRequest.user_text_prompt(f"{_ENTITLE}\n\n{text}")


def _answering(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


async def _ask(model: Model, prompt: str, limit: int) -> ModelResponse:
    request = ModelRequest.user_text_prompt(prompt)
    return await model_request(model, [request], model_settings=ModelSettings(max_tokens=limit))


def _text(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _as_text(message: dict[str, Any]) -> str:
    """Return a message of the neutral context as lines of a transcript."""
    texts: list[str] = []
    for part in message["parts"]:
        match part["type"]:
            case "text":
                texts.append(part["text"])
            case "tool_call":
                texts.append(f"[calls {part['name']} {part.get('arguments', '')}]")
            case "tool_result":
                excerpt = Excerpt(2 * _EXCERPT)
                excerpt.add(_result_text(part["content"]))
                texts.append(excerpt.text())
            case _:
                pass
    return f"{message['role'].capitalize()}: {' '.join(texts)}\n\n" if texts else ""


def _result_text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return " ".join(
        part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content
    )


def _tokens(messages: list[dict[str, Any]]) -> int:
    """Estimate tokens without a tokenizer, as the context does."""
    return len(json.dumps(messages, ensure_ascii=False, default=str)) // _CHARS_PER_TOKEN
