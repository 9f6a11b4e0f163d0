"""The context: what a model is sent now, computed from a journal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from killick.journal.visibility import Compaction, Hiding, History
from killick.model import entries as e
from killick.model.messages import Text
from killick.views import phrases
from killick.views.budget import Budget, Fitting, Prompt
from killick.views.formats import anthropic, common, gemini, openai_chat, openai_responses
from killick.views.formats.common import Blobs, Render, RenderOptions, clean, limit_media
from killick.views.neutral import Errors, Gone, Neutral, Partial, Repair, build
from killick.views.profiles import choose


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
            if isinstance(entry.body, e.TurnStarted | e.TurnEnding):
                yield entry  # it may go on behind the summary, or a tool that stays may end with it
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


class Context(msgspec.Struct, frozen=True):
    """A context. `messages` are JSON dicts, ready for the provider's SDK.

    Their type is left open, so that each SDK's own type takes them and none need be installed.
    """

    format: str
    messages: list[Any]
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
    profile: str | None = None,
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
    choose(format_, profile)
    if history is None:
        entries = list(entries)
        history = History(entries)
    asked, gone = _Asked(), Gone()
    shown = asked.watch(for_model(history, entries, gone))
    builder = build(shown, partial=partial, errors=errors, gone=gone)
    repairs = builder.repairs
    leading, messages = _split_system(builder.finish(), repairs)
    leading = leading or _system_prompt(builder.system or system, blobs)
    options = RenderOptions(
        blobs=blobs,
        repairs=repairs,
        reasoning=reasoning,
        format=format_,
        profile=choose(format_, profile, asked.provider, asked.model),
    )
    if format_ == "openai-chat" and options.profile.users != "apart":
        messages = asked.with_unanswered(messages)
    fitting = Fitting(budget, render, options, leading)
    rendered = render(fitting.fit(limit_media(messages, options), asked.prompt()), options)
    return Context(
        format=format_,
        messages=rendered.messages,
        system=leading,
        repairs=repairs,
        origins=rendered.origins,
    )


class _Asked:
    """Watches the entries on their way into the list: which prompts there are, of which turns."""

    def __init__(self) -> None:
        self.provider: str | None = None
        self.model: str | None = None
        self._turns: dict[int, str] = {}
        self._answered: set[str] = set()
        self._prompts: list[int] = []
        self._summaries: list[int] = []
        self._first: dict[str, str] = {}

    def watch(self, entries: Iterable[e.Entry]) -> Iterator[e.Entry]:
        for entry in entries:
            match entry.body:
                case e.TurnStarted(continues=str() as first, starts="unseen") as body:
                    self._first[body.turn_id] = self._first.get(first, first)
                case e.MessageRecorded(role="user", turn_id=turn_id):
                    turn_id = self._first.get(turn_id, turn_id)
                    self._turns[entry.seq] = turn_id
                    if turn_id not in self._answered:
                        self._prompts.append(entry.seq)
                case e.MessageRecorded(role="assistant", turn_id=turn_id):
                    self._answered.add(turn_id)
                    if entry.body.provider is not None:
                        self.provider, self.model = entry.body.provider, None
                case e.MessageStarted(turn_id=turn_id):
                    self._answered.add(turn_id)
                case e.Compacted():
                    self._summaries.append(entry.seq)
                    self._prompts = [entry.seq]  # it has what was asked before
                    self._turns[entry.seq] = ""
                case e.ModelCallStarted(provider=str() as provider, model=model):
                    self.provider, self.model = provider, model
                case _:
                    pass
            yield entry

    def prompt(self) -> Prompt:
        """Return what the newest turn that asked for something has asked; else a summary."""
        newest = self._turns[self._prompts[-1]] if self._prompts else ""
        seqs = frozenset(seq for seq in self._prompts if self._turns[seq] == newest)
        return Prompt(seqs, frozenset(self._summaries) - seqs)

    def with_unanswered(self, messages: Sequence[Neutral]) -> list[Neutral]:
        """Say between prompts of two turns that the first was not answered."""
        sent: list[Neutral] = []
        before: str | None = None
        for message in messages:
            now = self._turns.get(message.seqs[0]) if message.seqs else None
            now = now if message.role == "user" and not message.synthetic else None
            if before and now and before != now:
                sent.append(Neutral("user", (Text(phrases.unanswered()),), (), synthetic=True))
            sent.append(message)
            before = now
        return sent


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
