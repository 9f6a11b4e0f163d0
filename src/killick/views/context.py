"""The context: what a model is sent now, computed from a journal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from killick.journal.visibility import Compaction, Hiding, History
from killick.model import entries as e
from killick.model.messages import Opaque, Reasoning, Text
from killick.views import phrases
from killick.views.formats import anthropic, common, gemini, openai_chat, openai_responses
from killick.views.formats.common import Blobs, Render, RenderOptions, clean
from killick.views.neutral import Errors, Gone, Neutral, Partial, Repair, build


def for_model(
    history: History, entries: Iterable[e.Entry], gone: Gone | None = None
) -> Iterator[e.Entry]:
    """Yield entries in order, without what a model is not sent; `gone` is told of that.

    A compaction stands where its summary does, with the seq that it has in the journal.
    """
    hiding = Hiding(history.hides("model"), phrases.hidden_result())
    waiting = history.summaries()
    gone = gone or Gone()
    for entry in entries:
        if history.rewinds and not history.is_in_view(entry.seq):
            gone.take(entry, rewound=True)
            continue
        while waiting and waiting[0].body.first <= entry.seq:
            yield _in_place(waiting.pop(0))
        if isinstance(entry.body, e.Compacted):
            continue
        if history.compactions and history.compacted_by(entry.seq) is not None:
            gone.take(entry, rewound=False)
            if isinstance(entry.body, e.TurnStarted):
                yield entry  # the turn may go on behind the summary
        else:
            seen = hiding.see(entry)
            if seen is not None:
                yield seen
    yield from map(_in_place, waiting)


def _in_place(compaction: Compaction) -> e.Entry:
    return e.Entry(compaction.seq, 0, compaction.body)


Format = Literal["neutral", "openai-chat", "openai-responses", "anthropic", "gemini"]

FORMATS: Final[dict[str, Render]] = {
    "neutral": common.render,
    "openai-chat": openai_chat.render,
    "openai-responses": openai_responses.render,
    "anthropic": anthropic.render,
    "gemini": gemini.render,
}

_CHARS_PER_TOKEN: Final = 4
"""A rough measure that needs no tokenizer; it errs on the side of sending less."""


class Budget(msgspec.Struct, frozen=True):
    """The most that is sent: the newest is kept, and a call is never torn from its result."""

    messages: int | None = None
    tokens: int | None = None


class Context(msgspec.Struct, frozen=True):
    """A context. `messages` are JSON dicts, ready for the provider's SDK."""

    format: str
    messages: list[dict[str, Any]]
    system: str | None
    repairs: list[Repair]
    origins: list[tuple[int, ...]]

    def explain(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return each message's number and the seqs of the entries it comes from."""
        return list(enumerate(self.origins))


def compute(  # noqa: PLR0913  (what a caller may ask for)
    entries: Iterable[e.Entry],
    format_: str,
    *,
    blobs: Blobs,
    history: History | None = None,
    system: str | None = None,
    budget: Budget = Budget(),  # noqa: B008  (frozen)
    partial: Partial = "note",
    reasoning: bool = True,
    errors: Errors = "type",
) -> Context:
    """Return the context of a journal. The same entries give the same bytes.

    The entries may leave out what `history` says need not be read; without a history, they hold
    it. `system` names the system prompt when no entry does.
    """
    render = FORMATS.get(format_)
    if render is None:
        raise ValueError(f"format {format_!r}; it is one of {', '.join(FORMATS)}")
    if partial not in ("note", "plain", "omit"):
        raise ValueError(f'partial={partial!r}; it is "note", "plain" or "omit"')
    if errors not in ("type", "text"):
        raise ValueError(f'errors={errors!r}; it is "type" or "text"')
    if history is None:
        entries = list(entries)
        history = History(entries)
    gone = Gone()
    shown = for_model(history, entries, gone)
    builder = build(shown, partial=partial, errors=errors, gone=gone)
    repairs = builder.repairs
    leading, messages = _split_system(builder.finish(), repairs)
    kept = trim(messages, budget)
    if len(kept) < len(messages):
        repairs.append(Repair(0, "left out", f"{len(messages) - len(kept) + 1} over the budget"))
    rendered = render(kept, RenderOptions(blobs=blobs, repairs=repairs, reasoning=reasoning))
    return Context(
        format=format_,
        messages=rendered.messages,
        system=leading or _system_prompt(builder.system or system, blobs),
        repairs=repairs,
        origins=rendered.origins,
    )


def trim(messages: Sequence[Neutral], budget: Budget) -> list[Neutral]:
    """Return the newest messages that fit, beginning with one of the user."""
    if budget.messages is None and budget.tokens is None:
        return list(messages)
    groups = _groups(messages)
    kept: list[list[Neutral]] = []
    count = size = 0
    for group in reversed(groups):
        count += sum(_is_seen(message) for message in group)
        size += sum(_tokens(message) for message in group)
        over = (budget.messages is not None and count > budget.messages) or (
            budget.tokens is not None and size > budget.tokens
        )
        if over and any(_is_seen(message) for newer in kept for message in newer):
            break
        kept.append(group)
    if len(kept) == len(groups):
        return list(messages)
    while len(kept) > 1 and kept[-1][0].role != "user":
        kept.pop()
    note = Neutral("user", (Text(phrases.trimmed()),), (), synthetic=True)
    return [note, *(message for group in reversed(kept) for message in group)]


def _groups(messages: Sequence[Neutral]) -> list[list[Neutral]]:
    """Group messages that must stay together: a message with calls and its results."""
    groups: list[list[Neutral]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _is_seen(message: Neutral) -> bool:
    """Tell whether every provider is shown a part of it: some leave reasoning out."""
    return any(not isinstance(part, Reasoning | Opaque) for part in message.parts)


def _tokens(message: Neutral) -> int:
    return len(msgspec.json.encode(_plain(message))) // _CHARS_PER_TOKEN + 1


def _plain(message: Neutral) -> str:
    return repr(message.parts).encode("utf-8", "replace").decode()


def _split_system(
    messages: Sequence[Neutral], repairs: list[Repair]
) -> tuple[str | None, list[Neutral]]:
    """Split off the system messages at the beginning: they are the system prompt, as text."""
    texts: list[str] = []
    rest = list(messages)
    while rest and rest[0].role == "system":
        message = rest.pop(0)
        for part in message.parts:
            if isinstance(part, Text):
                texts.append(part.text)
            else:
                what = f"{type(part).__name__.lower()} in a system prompt, which is text"
                repairs.append(Repair(message.seqs[0] if message.seqs else 0, "left out", what))
    return clean("\n".join(texts)) or None, rest


def _system_prompt(name: str | None, blobs: Blobs) -> str | None:
    data = None if name is None else blobs(name)
    text = "" if data is None else data.decode("utf-8", "replace")
    return text if text.strip() else None
