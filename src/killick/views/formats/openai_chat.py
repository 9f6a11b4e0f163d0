"""OpenAI Chat Completions: a list of messages; results are messages of role `tool`."""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from killick.model.messages import File, Image, Opaque, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.common import (
    Json,
    Rendered,
    RenderOptions,
    arguments_text,
    clean,
    is_clean,
    result_text,
    sent_back,
)
from killick.views.neutral import Neutral
from killick.views.profiles import Profile, normal

_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9]+")

Piece = str | Json
"""A text, or an image or a file as a block."""


def render(neutral: Sequence[Neutral], options: RenderOptions) -> Rendered:
    rendered = Rendered()
    for message in neutral:
        if message.role == "tool":
            _add_results(rendered, message, options)
        elif message.role == "assistant":
            answer = _assistant(message, options)
            if answer is not None:
                rendered.add(answer, message.seqs)
        elif message.role == "user":
            _add_user(rendered, _pieces(message, options), message.seqs, options.profile)
        else:
            texts = [clean(part.text) for part in message.parts if isinstance(part, Text)]
            if texts:
                rendered.add({"role": message.role, "content": "\n".join(texts)}, message.seqs)
    return rendered


def _assistant(message: Neutral, options: RenderOptions) -> Json | None:
    profile = options.profile
    texts = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(clean(part.text))
        elif isinstance(part, Image | File):
            texts.append(phrases.left_out(f"Something of type {part.media_type}"))
        elif isinstance(part, Opaque):
            sentence = options.hosted(part, message)
            texts += [sentence] if sentence else []
        elif isinstance(part, Reasoning) and not _goes_back(message, options):
            options.left_out(message, "reasoning has no place in this format")
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    answer: Json = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        answer["content"] = "\n".join(texts) or profile.no_words
        answer["tool_calls"] = [
            {
                "id": _call_id(call.id, profile),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
                **sent_back(call, "openai-chat", "extra_content"),
            }
            for call in calls
        ]
    if not texts and not calls:
        return None
    answer.update(_reasoning(message, options, calls=bool(calls)))
    return answer


def _goes_back(message: Neutral, options: RenderOptions) -> bool:
    """Tell whether the server takes an answer's reasoning back: of its own answers."""
    profile = options.profile
    ours = message.provider is None or normal(message.provider) in profile.providers
    return options.reasoning and ours and bool(profile.reasoning or profile.details)


def _reasoning(message: Neutral, options: RenderOptions, *, calls: bool) -> Json:
    """Return the keys under which the server wants its reasoning back, where it wants it."""
    profile, fields = options.profile, {}
    if _goes_back(message, options):
        details = _details(message)
        if profile.details and details:
            return {"reasoning_details": details}
        thoughts = [part.text for part in message.parts if isinstance(part, Reasoning)]
        thought = "".join(thoughts)
        if profile.reasoning and thought and is_clean(thought):
            fields[profile.reasoning] = thought
    if calls and profile.reasoning and profile.no_reasoning is not None and not fields:
        fields[profile.reasoning] = profile.no_reasoning  # without the key it refuses the request
    return fields


def _details(message: Neutral) -> list[Json]:
    """Return `reasoning_details` as one list: a stream brings a text in pieces."""
    details: list[Json] = []
    for piece in _detail_pieces(message):
        last = details[-1] if details else {}
        same = all(last.get(key) == piece.get(key) for key in ("type", "index"))
        grows = next((key for key in ("text", "summary") if isinstance(piece.get(key), str)), None)
        if details and same and grows and isinstance(last.get(grows), str):
            joined = last[grows] + piece[grows]
            details[-1] = {
                **last,
                **{k: v for k, v in piece.items() if v is not None},
                grows: joined,
            }
        else:
            details.append(dict(piece))
    return details


def _detail_pieces(message: Neutral) -> Iterator[Json]:
    for part in message.parts:
        if not isinstance(part, Opaque):
            continue
        try:
            kept: Any = json.loads(part.data)
        except ValueError:
            continue
        held = kept.get("extra") if isinstance(kept, dict) else None
        for field in [kept, *(held if isinstance(held, list) else [])]:
            pieces = field.get("reasoning_details") if isinstance(field, dict) else None
            if isinstance(pieces, list):
                yield from (piece for piece in pieces if isinstance(piece, dict))


def _call_id(call_id: str, profile: Profile) -> str:
    """Return an id of the length that the server takes: the same for a call and its result."""
    size = profile.call_id
    if size is None or (len(call_id) == size and _PLAIN_ID.fullmatch(call_id)):
        return call_id
    digest = blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)


def _add_results(rendered: Rendered, message: Neutral, options: RenderOptions) -> None:
    shown: list[Piece] = []
    for result in message.parts:
        assert isinstance(result, ToolResult)
        call_id = _call_id(result.call_id, options.profile)
        rendered.add(
            {"role": "tool", "tool_call_id": call_id, "content": result_text(result, message)},
            message.seqs,
        )
        if not isinstance(result.content, str):
            media = [part for part in result.content if isinstance(part, Image | File)]
            shown += [_piece(part, message, options) for part in media]
    if shown:  # a tool message takes text only, so what else there is follows the results
        _add_user(rendered, shown, message.seqs, options.profile)


def _pieces(message: Neutral, options: RenderOptions) -> list[Piece]:
    pieces: list[Piece] = []
    for part in message.parts:
        if isinstance(part, Text | Image | File):
            pieces.append(_piece(part, message, options))
        elif isinstance(part, Opaque) and (sentence := options.hosted(part, message)):
            pieces.append(sentence)
    return pieces


def _piece(part: Text | Image | File, message: Neutral, options: RenderOptions) -> Piece:
    if isinstance(part, Text):
        return clean(part.text)
    loaded = options.load(part, message)
    if isinstance(loaded, str):
        return loaded
    if loaded.text is not None:
        return clean(loaded.as_text)
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": loaded.url}}
    return {"type": "file", "file": {"filename": loaded.name or "file", "file_data": loaded.url}}


def _add_user(
    rendered: Rendered, pieces: list[Piece], seqs: tuple[int, ...], profile: Profile
) -> None:
    """Add what the user said; to the user's message before it, as templates refuse two in a row."""
    if not pieces:
        return
    last = rendered.messages[-1] if rendered.messages else {}
    if profile.bridge and last.get("role") == "tool":
        rendered.add({"role": "assistant", "content": phrases.no_answer()}, ())
    if profile.users != "apart" and last.get("role") == "user":
        before = last["content"]
        held = [before] if isinstance(before, str) else [_unblocked(block) for block in before]
        last["content"] = _content([*held, *pieces], profile)
        rendered.extend_last(seqs)
    else:
        rendered.add({"role": "user", "content": _content(pieces, profile)}, seqs)


def _content(pieces: list[Piece], profile: Profile) -> str | list[Json]:
    """Return one text with blank lines between, or blocks where there are images or files."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces) and (profile.users == "one" or len(pieces) == 1):
        return "\n\n".join(texts)
    return [{"type": "text", "text": p} if isinstance(p, str) else p for p in pieces]


def _unblocked(block: Json) -> Piece:
    return str(block["text"]) if block["type"] == "text" else block
