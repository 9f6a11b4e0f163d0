"""Give the journal's context as LangChain's messages, also to an agent that has a checkpointer."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from killick.adapters.langchain.chunks import OURS
from killick.adapters.media import read_blobs, read_blobs_blocking
from killick.errors import needs_extra
from killick.model.messages import File, Image
from killick.session.aio import AsyncSession
from killick.session.sync import Session
from killick.views.formats.common import Media, clean, is_clean, load_media

with needs_extra("langchain", "JournalView"):
    from langchain.agents.middleware import AgentMiddleware

Neutral = dict[str, Any]


class _Request(Protocol):
    def override(self, **changes: Any) -> Any: ...


async def history(session: AsyncSession, *, max_tokens: int | None = None) -> list[AnyMessage]:
    """Return what a model would be sent now, with the prompt of the running turn.

    It is valid whatever state the session was left in: every call has its result, or says that the
    outcome is unknown.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    context = await session.context("neutral", **settings)
    return as_messages(context.messages, await read_blobs(session, context.messages))


def blocking_history(session: Session, *, max_tokens: int | None = None) -> list[AnyMessage]:
    """Return the same, for programs that block."""
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    context = session.context("neutral", **settings)
    return as_messages(context.messages, read_blobs_blocking(session, context.messages))


def as_messages(
    messages: Sequence[Neutral], data: Mapping[str, bytes] | None = None
) -> list[AnyMessage]:
    """Return the neutral context as LangChain's messages."""
    names = {
        part["id"]: part["name"]
        for message in messages
        for part in message["parts"]
        if part["type"] == "tool_call"
    }
    made: list[AnyMessage] = []
    for message in messages:
        role = message["role"]
        if role == "assistant":
            made.append(_answer(message))
        elif role == "tool":
            made += [_result(part, names, data or {}) for part in message["parts"]]
        elif role == "system":
            made.append(SystemMessage(_joined(message)))
        else:
            made.append(HumanMessage(_shown(message["parts"], data or {})))
    return made


def _joined(message: Neutral) -> str:
    return "\n\n".join(clean(part["text"]) for part in message["parts"] if "text" in part)


def _answer(message: Neutral) -> AIMessage:
    blocks: list[Any] = []
    calls: list[Any] = []
    for part in message["parts"]:
        match part["type"]:
            case "text" if part["text"]:
                blocks.append({"type": "text", "text": clean(part["text"])})
            case "reasoning" if part.get("signature") and message.get("provider") == "anthropic":
                if is_clean(part["text"], part["signature"]):
                    signed = {"thinking": part["text"], "signature": part["signature"]}
                    blocks.append({"type": "thinking", **signed})
            case "tool_call":
                text = clean(part.get("arguments") or "{}")
                calls.append({"id": part["id"], "name": part["name"], "args": _arguments(text)})
            case "opaque" if part["provider"] == OURS:
                blocks += _block(part["data"])
            case _:
                pass
    plain = all(block["type"] == "text" for block in blocks)
    content: Any = "".join(block["text"] for block in blocks) if plain else blocks
    return AIMessage(content, tool_calls=calls)


def _block(data: Any) -> list[Any]:
    kept = json.loads(b64decode(data) if isinstance(data, str) else data)
    block = kept.get("block")
    return [block] if isinstance(block, dict) and "type" in block else []


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _result(part: Neutral, names: dict[str, str], data: Mapping[str, bytes]) -> ToolMessage:
    content = part["content"]
    given: Any = clean(content) if isinstance(content, str) else _shown(content, data)
    return ToolMessage(
        given,
        tool_call_id=part["call_id"],
        name=names.get(part["call_id"]),
        status="error" if part.get("is_error") else "success",
    )


def _shown(parts: Sequence[Neutral], data: Mapping[str, bytes]) -> Any:
    """Return text alone as a string, and with images or files as a list of blocks."""
    blocks: list[Any] = []
    for part in parts:
        if part["type"] == "text" and part["text"]:
            blocks.append({"type": "text", "text": clean(part["text"])})
        elif part["type"] in ("image", "file"):
            media = load_media(msgspec.convert(part, Image | File), data.get)
            if not isinstance(media, Media):
                blocks.append({"type": "text", "text": media})
            elif media.text is not None:
                blocks.append({"type": "text", "text": clean(media.as_text)})
            else:
                kind = "image" if media.media_type.startswith("image/") else "file"
                about = {"base64": media.data, "mime_type": media.media_type}
                blocks.append({"type": kind, **about})
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


class JournalView(AgentMiddleware[Any, Any]):
    """Gives the model the journal's view of the conversation; the checkpoint stays as it is.

    For agents of `create_agent` with a checkpointer: `middleware=[JournalView(session)]`, beside a
    `Recorder`. What a checkpoint lost, left without a result or cannot know is in the journal.
    """

    def __init__(self, session: AsyncSession | Session) -> None:
        super().__init__()
        self._session = session

    def wrap_model_call(self, request: _Request, handler: Any) -> Any:
        if not isinstance(self._session, Session):
            raise TypeError("invoke() needs JournalView of a Session; ainvoke() takes both")
        return handler(request.override(messages=_said(blocking_history(self._session))))

    async def awrap_model_call(self, request: _Request, handler: Any) -> Any:
        session = self._session
        if isinstance(session, Session):
            messages = blocking_history(session)
        else:
            messages = await history(session)
        return await handler(request.override(messages=_said(messages)))


def _said(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Leave the system prompt out: a request has the agent's own."""
    return [message for message in messages if message.type != "system"]
