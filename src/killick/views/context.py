"""The context: what a model is sent now, computed from a journal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from killick.journal.visibility import Compaction, Hiding, History
from killick.model import entries as e
from killick.model.messages import Text
from killick.views import phrases
from killick.views.budget import Budget, Fitting, Prompt, with_given_ids
from killick.views.formats import anthropic, common, gemini, openai_chat, openai_responses
from killick.views.formats.common import (
    Blobs,
    Render,
    RenderOptions,
    clean,
    limit_media,
    without_media,
)
from killick.views.neutral import (
    Builder,
    Errors,
    Gone,
    Neutral,
    Partial,
    Repair,
)
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


class End(msgspec.Struct, frozen=True):
    """The end of a journal, from an entry on; others before it were not read.

    `names_provider` is False if no answer before it can have named the provider that gave it.
    """

    seq: int
    names_provider: bool = True


class EndTooShort(Exception):
    """The context of a whole journal may be another than that of its end."""


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
    end: End | None = None,
) -> Context:
    """Return the context of a journal. The same entries give the same bytes.

    The entries may leave out what `history` says need not be read; without a history, they hold
    it. `system` names the system prompt when no entry does. Of an `end`, the context is that of
    the whole journal, or EndTooShort is raised.
    """
    if format_ not in FORMATS:
        raise ValueError(f"format {format_!r}; it is one of {', '.join(FORMATS)}")
    if partial not in ("note", "plain", "omit"):
        raise ValueError(f'partial={partial!r}; it is "note", "plain" or "omit"')
    if errors not in ("type", "text"):
        raise ValueError(f'errors={errors!r}; it is "type" or "text"')
    choose(format_, profile)
    entries = list(entries)
    known = History(entries) if history is None else history

    def draft(*, by_place: bool) -> _Draft:
        gone = Gone()
        builder = Builder(gone, partial, errors, by_place=by_place)
        shown = _with_unread(for_model(known, entries, gone), builder, end)
        options = RenderOptions(blobs=blobs, repairs=[], reasoning=reasoning, format=format_)
        return _Draft(builder, shown, options, system, profile)

    made = draft(by_place=False)
    if end is not None:
        made.check_end(end, entries, known)
        fits = made.fitting(budget).fits(without_media(made.messages))
    else:
        made.messages = limit_media(made.messages, made.options)
        fits = not budget.is_given or made.fitting(budget).fits(made.messages)
    if not fits:
        made = draft(by_place=True)
        made.leave_out(budget)
    elif end is not None:
        raise EndTooShort
    rendered = FORMATS[format_](made.messages, made.options)
    return Context(
        format=format_,
        messages=rendered.messages,
        system=made.system,
        repairs=made.options.repairs,
        origins=rendered.origins,
    )


def _with_unread(shown: Iterable[e.Entry], builder: Builder, end: End | None) -> Iterator[e.Entry]:
    """Yield entries, and leave a place before the end for those that were not read."""
    for entry in shown:
        first = entry.body.first if isinstance(entry.body, e.Compacted) else entry.seq
        if end is not None and first >= end.seq:
            builder.skip()
            end = None
        yield entry


class _Draft:
    """The list of what could be sent, before it has a provider's shape."""

    def __init__(
        self,
        builder: Builder,
        entries: Iterable[e.Entry],
        options: RenderOptions,
        system: str | None,
        profile: str | None,
    ) -> None:
        self._asked = _Asked()
        self._builder = builder
        for entry in self._asked.watch(entries):
            builder.take(entry)
        messages = list(builder.finish())
        leading, self.messages = _split_system(messages, builder.repairs)
        self._leading = frozenset(
            seq
            for message in messages[: len(messages) - len(self.messages)]
            for seq in message.seqs
        )
        self.system = leading or _system_prompt(builder.system or system, options.blobs)
        self._is_system_known = builder.system is not None or system is None
        chosen = choose(options.format, profile, self._asked.provider, self._asked.model)
        self._is_profile_known = bool(
            profile or self._asked.provider or options.format == "neutral"
        )
        self.options = msgspec.structs.replace(options, repairs=builder.repairs, profile=chosen)
        if options.format == "openai-chat" and chosen.users != "apart":
            self.messages = self._asked.with_unanswered(self.messages)

    def check_end(self, end: End, entries: Sequence[e.Entry], history: History) -> None:
        """Raise EndTooShort if what is before the end may say more of what is sent."""
        prompt = self._asked.prompt()
        known = (
            bool(prompt.seqs)
            and min(prompt.seqs) >= end.seq
            and prompt.seqs.isdisjoint(c.seq for c in history.compactions)
            and (self._is_system_known or not history.takes_out("model"))
            and (self._is_profile_known or not end.names_provider)
            and not self._builder.unpaired
            and refers_to_itself(entry for entry in entries if entry.seq >= end.seq)
        )
        if not known:
            raise EndTooShort

    def fitting(self, budget: Budget) -> Fitting:
        return Fitting(budget, FORMATS[self.options.format], self.options, self.system)

    def leave_out(self, budget: Budget) -> None:
        """Leave out what is over the budget. Raises BudgetTooSmall; EndTooShort, if of an end."""
        messages = limit_media(self.messages, self.options, all_sent=False)
        kept = self.fitting(budget).leave_out(messages, self._asked.prompt())
        if kept.reaches_unread:
            raise EndTooShort
        repairs = self.options.repairs
        repairs[:] = [r for r in repairs if kept.tells(r) or r.seq in self._leading]
        repairs += kept.repairs
        sent = with_given_ids(kept.messages, self._builder.ids)
        self.messages = limit_media(sent, self.options)


def refers_to_itself(entries: Iterable[e.Entry]) -> bool:
    """Tell whether all that these entries speak of began in them."""
    turns: set[str | None] = set()
    messages: set[str | None] = {None}
    calls: set[str | None] = {None}
    for entry in entries:
        body = entry.body
        match body:
            case e.TurnStarted():
                turns.add(body.turn_id)
                if body.starts == "unseen" and body.continues not in (None, *turns):
                    return False
                continue
            case e.ModelCallStarted():
                calls.add(body.id)
            case e.MessageRecorded() | e.MessageStarted():
                messages.add(body.id)
                if body.model_call_id not in calls:
                    return False
            case e.MessageEnded():
                if body.id not in messages:
                    return False
            case e.TurnEnding() | e.ApprovalDecided():
                pass
            case (
                e.ToolCalled() | e.ToolStarted() | e.ToolOutput() | e.ToolFinished()
                | e.LateResult() | e.LateText() | e.Settled() | e.ApprovalAsked()
            ):  # fmt: skip
                if body.message_id not in messages:
                    return False
            case _:
                continue
        if body.turn_id not in turns:
            return False
    return True


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
