"""Budgets: which messages are sent when not all of them may be.

Kept, in this order: the running turn's prompt; the newest step; older messages, newest first, each
call with its result; summaries. Results are cut in the middle before a step is left out, and the
text of the newest step before it is. A sentence stands at each gap.

All of it can be computed from the end of a journal: ids of calls do not depend on what is left out.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from killick.errors import BudgetTooSmall
from killick.journal.checks import check_count, check_counts
from killick.model.messages import File, Image, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.call_ids import CallIds, replaced
from killick.views.formats.common import Json, RenderOptions, named_media, result_text
from killick.views.neutral import UNREAD, Neutral, Repair

CountTokens = Callable[[str], int]
"""Counts the tokens of a text, as the caller's model does."""

_MESSAGE_TOKENS: Final = 4
"""What a message costs beside its words: role and marks."""

_KINDS: Final = re.compile(
    r"[A-Za-z]+|[0-9]+|[ \t]+|\s+|[\u00c0-\u024f]+|[\u0370-\u1fff]+|[\x21-\x7e]|."
)


_CAREFUL: Final = 1.15
"""It errs on the side of sending less."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer; docs/how-to states its error."""
    count = 0.0
    for run in _KINDS.findall(text):
        first, size = run[0], len(run)
        if first.isascii():
            if first.isalpha():
                count += 1 + max(size - 5, 0) / 5
            elif first.isdigit():
                count += size * 0.75
            elif first.isspace():
                count += 0.5 if size > 1 or first == "\n" else 0
            else:
                count += 0.8
        else:
            count += size * (0.4 if first <= "\u1fff" else 1)
    return int(count * _CAREFUL) + 1


class Budget(msgspec.Struct, frozen=True):
    """The most that is sent, with the system prompt. Raises where a limit is below 1."""

    messages: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    count_tokens: CountTokens = estimate_tokens

    def __post_init__(self) -> None:
        limits = {
            "max_messages": self.messages, "max_tokens": self.tokens, "max_bytes": self.bytes
        }  # fmt: skip
        check_counts(**limits)
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ValueError(f"{name}={limit}; a limit is 1 or more")
        if not callable(self.count_tokens):
            raise TypeError(f"count_tokens is a function, and this is {self.count_tokens!r}")

    @property
    def is_given(self) -> bool:
        return (self.messages, self.tokens, self.bytes) != (None, None, None)

    def counted(self, text: str) -> int:
        """Return the tokens of a text. Raises what the counter raises, and where it gave none."""
        count = self.count_tokens(text)
        check_count("what count_tokens returned", count)
        return count

    def over(self, size: "Size") -> str | None:
        """Name the limit that a size is over, with both figures."""
        for limit, needed, unit in (
            (self.messages, size.messages, "messages"),
            (self.tokens, size.tokens, "tokens"),
            (self.bytes, size.bytes, "bytes"),
        ):
            if limit is not None and needed > limit:
                return f"{needed} {unit} are needed, and the limit is {limit}"
        return None


class Size(msgspec.Struct, frozen=True):
    """How much messages are: in number, tokens, and bytes of JSON."""

    messages: int = 0
    tokens: int = 0
    bytes: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(
            self.messages + other.messages, self.tokens + other.tokens, self.bytes + other.bytes
        )


class Prompt(msgspec.Struct, frozen=True):
    """The seqs of the running turn's prompt, and of all summaries."""

    seqs: frozenset[int] = frozenset()
    summaries: frozenset[int] = frozenset()


Render = Callable[[Sequence[Neutral], RenderOptions], Any]


class Fitting:
    """Makes one list fit a budget, for one provider's shape."""

    def __init__(
        self, budget: Budget, render: Render, options: RenderOptions, system: str | None
    ) -> None:
        self._budget = budget
        self._render = render
        self._options = options
        self._neutral = options.format == "neutral"
        self._system = Size()
        if system:
            tokens = 0 if budget.tokens is None else budget.counted(system) + _MESSAGE_TOKENS
            self._system = Size(0, tokens, len(json.dumps(system)))

    def leave_out(self, messages: Sequence[Neutral], prompt: Prompt) -> "Kept":
        """Return what is sent when not all fits. Raises BudgetTooSmall if the prompt does not."""
        units = _units(messages, prompt)
        asked = [unit for unit in units if unit.rank == 0]
        over = self._budget.over(self._size(_joined(asked)) + self._system)
        if over is not None:
            raise BudgetTooSmall(f"the running turn's prompt does not fit: {over}")
        kept, total = list(asked), self._size(_joined(asked)) + self._system
        full = False
        for unit in sorted(units, key=lambda unit: (unit.rank, -unit.index)):
            if unit.rank == 0 or (full and unit.rank != _SUMMARY):
                continue
            more = self._added(units, kept, unit, total)
            if more is not None:
                kept, total = [*kept, unit], more
                continue
            cut = None if unit.rank == _SUMMARY else self._cut(units, kept, unit)
            if cut is not None:
                kept, total = [*kept, cut], total + self._size(cut.messages)
            full = True  # nothing older is sent without what came after it
        while len(kept) > len(asked) and not self.fits(self._assembled(units, kept)):
            kept.pop()
        return self._told(units, kept)

    def _added(
        self, units: "list[_Unit]", kept: "list[_Unit]", unit: "_Unit", total: Size
    ) -> Size | None:
        """Return the size with one unit more, or None if it is too much.

        Units are measured alone first, which is never less than in their place.
        """
        more = total + self._size(unit.messages)
        if self._budget.over(more) is not None:
            more = self._size(self._assembled(units, [*kept, unit])) + self._system
        return None if self._budget.over(more) is not None else more

    def _told(self, units: "list[_Unit]", kept: "list[_Unit]") -> "Kept":
        sent = self._assembled(units, kept)
        if not self.fits(sent):  # not even a sentence fits beside the prompt
            sent = _joined(sorted(kept, key=lambda unit: unit.index))
        chosen = {unit.index: unit for unit in kept}
        repairs: list[Repair] = []
        for unit in units:
            if unit.index not in chosen:
                continue
            if unit.index and unit.index - 1 not in chosen:
                repairs.append(_repair(unit.messages[0], "left out", "what is before it: too much"))
            for before, after in zip(unit.messages, chosen[unit.index].messages, strict=True):
                if before != after:
                    repairs.append(_repair(before, "cut", "in the middle, to fit the budget"))
        if len(units) - 1 not in chosen:
            last = units[max(chosen)].messages[-1] if chosen else None
            repairs.append(_repair(last, "left out", "what comes after it: too much"))
        return Kept(
            sent,
            repairs,
            frozenset(_seqs(unit for unit in units if unit.index not in chosen)),
            min(_seqs(unit for unit in kept if unit.rank != _SUMMARY), default=0),
            _reaches_unread(units, chosen),
        )

    # -- sizes ---------------------------------------------------------------------------------

    def fits(self, messages: Sequence[Neutral]) -> bool:
        return self._budget.over(self._size(messages) + self._system) is None

    def _size(self, messages: Sequence[Neutral]) -> Size:
        """Return what these messages cost once they are rendered."""
        options = msgspec.structs.replace(self._options, repairs=[])
        rendered: list[Json] = self._render(messages, options).messages
        count = len(rendered)
        if self._neutral:  # where no server counts, the sentences at gaps are not counted
            count -= sum(message in (_GAP, _AFTER) for message in messages)
        tokens = size = 0
        if self._budget.tokens is not None:
            for message in rendered:
                tokens += self._budget.counted("\n".join(_texts(message))) + _MESSAGE_TOKENS
            tokens += sum(
                options.media_tokens(part, self._budget.counted) for part in _media(messages)
            )
        if self._budget.bytes is not None:
            size = len(json.dumps(rendered))
            if self._neutral:
                size += sum(options.media_bytes(part) for part in _media(messages))
        return Size(count, tokens, size)

    # -- assembling ----------------------------------------------------------------------------

    def _assembled(self, units: "list[_Unit]", kept: "list[_Unit]") -> list[Neutral]:
        """Return the kept units in order, with a sentence at each gap."""
        chosen = {unit.index: unit for unit in kept}
        sent: list[Neutral] = []
        gap = False
        for unit in units:
            if unit.index in chosen:
                if gap:
                    sent.append(_GAP)
                sent += chosen[unit.index].messages
            gap = unit.index not in chosen
        if gap:
            sent.append(_AFTER)
        return sent if self._neutral else _attached(sent)

    # -- cutting -------------------------------------------------------------------------------

    def _cut(self, units: "list[_Unit]", kept: "list[_Unit]", unit: "_Unit") -> "_Unit | None":
        """Return the unit with as much of its results as fits, then of its text; None if none."""

        def fits(results: int, texts: int) -> "_Unit | None":
            cut = unit.cut(results, texts)
            return cut if self.fits(self._assembled(units, [*kept, cut])) else None

        longest = unit.longest_result()
        if longest and (cut := _most(lambda keep: fits(keep, _ALL), longest)):
            return cut
        if unit.rank != _STEP:
            return None
        return _most(lambda keep: fits(0, keep), unit.longest_text())


def _repair(message: Neutral | None, action: str, reason: str) -> Repair:
    return Repair(message.seqs[0] if message is not None and message.seqs else 0, action, reason)


def _seqs(units: "Iterable[_Unit]") -> Iterator[int]:
    return (seq for unit in units for message in unit.messages for seq in message.seqs)


def _reaches_unread(units: "list[_Unit]", chosen: "Mapping[int, _Unit]") -> bool:
    """Return True unless a unit that was read is left out behind what was not read."""
    unread = next((unit.index for unit in units if UNREAD in unit.messages), None)
    return unread is not None and (unread in chosen or unread + 1 in chosen)


_ALL: Final = 1 << 60
_STEP, _OLDER, _SUMMARY = 1, 2, 3
_GAP: Final = Neutral("user", (Text(phrases.trimmed()),), (), synthetic=True)
_AFTER: Final = Neutral("user", (Text(phrases.trimmed_after()),), (), synthetic=True)


def _most(fits: "Callable[[int], _Unit | None]", top: int) -> "_Unit | None":
    """Return what fits with the largest number of characters, to within a fiftieth."""
    whole = fits(top)
    best, low = whole or fits(0), 0 if whole is None else top
    while best is not None and top - low > max(16, low // 50):
        middle = (low + top) // 2
        better = fits(middle)
        if better is None:
            top = middle
        else:
            best, low = better, middle
    return best


class Kept(msgspec.Struct, frozen=True):
    """The messages that are sent of a list, and their repairs.

    `left_out` are the seqs of what is not sent, `since` is the first that is, but for summaries.
    It `reaches_unread` entries if it may be another once those are read.
    """

    messages: list[Neutral]
    repairs: list[Repair]
    left_out: frozenset[int]
    since: int
    reaches_unread: bool

    def tells(self, repair: Repair) -> bool:
        """Return True for a repair of what is sent."""
        seq = repair.seq
        if seq in self.left_out:
            return False
        return not seq or seq >= self.since or any(seq in each.seqs for each in self.messages)


class _Unit(msgspec.Struct, frozen=True):
    """Messages that are kept together, their place, and how soon they are kept."""

    index: int
    rank: int
    messages: tuple[Neutral, ...]

    def longest_result(self) -> int:
        results = [part for message in self.messages for part in _results(message)]
        return max((len(result_text(result)) + 1 for result in results), default=0)

    def longest_text(self) -> int:
        parts = [part for message in self.messages for part in message.parts]
        return max((len(part.text) + 1 for part in parts if isinstance(part, Text)), default=0)

    def cut(self, results: int, texts: int) -> "_Unit":
        """Return it with at most so many characters of each result and text."""
        cut = []
        for message in self.messages:
            parts = tuple(_cut_part(part, results, texts) for part in message.parts)
            cut.append(msgspec.structs.replace(message, parts=parts))
        return msgspec.structs.replace(self, messages=tuple(cut))


def with_given_ids(messages: Sequence[Neutral], ids: CallIds) -> list[Neutral]:
    """Return the messages with their providers' ids, but for one that an earlier call has."""
    calls = (part.id for each in messages for part in each.parts if isinstance(part, ToolCall))
    given = ids.to_given(calls)
    return [_with_ids(message, given) for message in messages]


def _with_ids(message: Neutral, ids: Mapping[str, str]) -> Neutral:
    parts: list[Any] = []
    for part in message.parts:
        match part:
            case ToolCall():
                part = msgspec.structs.replace(part, id=ids.get(part.id, part.id))
            case Text() if message.synthetic:
                part = msgspec.structs.replace(part, text=replaced(part.text, ids))
            case ToolResult(call_id=call_id, content=content):
                if isinstance(content, str) and call_id in content:
                    content = replaced(content, ids)
                call_id = ids.get(call_id, call_id)
                part = msgspec.structs.replace(part, call_id=call_id, content=content)
            case _:
                pass
        parts.append(part)
    made_up = frozenset(ids.get(call_id, call_id) for call_id in message.made_up)
    return msgspec.structs.replace(message, parts=tuple(parts), made_up=made_up)


def _cut_part(part: Any, results: int, texts: int) -> Any:
    if isinstance(part, ToolResult):
        text = result_text(part)
        media = not isinstance(part.content, str) and any(
            isinstance(inner, Image | File) for inner in part.content
        )
        if len(text) <= results and not media:
            return part
        note = phrases.cut_result(part.call_id, max(len(text) - results, 0), len(text), media=media)
        return ToolResult(part.call_id, _middle(text, results, note), part.is_error)
    if isinstance(part, Text) and len(part.text) > texts:
        note = phrases.cut_text(len(part.text) - texts, len(part.text))
        return Text(_middle(part.text, texts, note))
    return part


def _middle(text: str, keep: int, note: str) -> str:
    """Return the beginning and the end of a text, and between them what is missing."""
    if len(text) <= keep:
        return f"{text}\n{note}"
    head, tail = text[: (keep + 1) // 2], text[len(text) - keep // 2 :]
    return "\n".join(piece for piece in (head, note, tail) if piece)


def _results(message: Neutral) -> Iterator[ToolResult]:
    return (part for part in message.parts if isinstance(part, ToolResult))


def _units(messages: Sequence[Neutral], prompt: Prompt) -> list[_Unit]:
    """Group messages: a call with its results, and what was noted of them."""
    groups: list[list[Neutral]] = []
    asked: list[bool] = []
    alone = True
    for message in messages:
        is_prompt = message.role == "user" and not prompt.seqs.isdisjoint(message.seqs)
        summary = message.synthetic and not prompt.summaries.isdisjoint(message.seqs)
        joins = message.role == "tool" or (message.synthetic and not summary)
        if joins and not is_prompt and not alone:
            groups[-1].append(message)
        else:
            groups.append([message])
            asked.append(is_prompt)
            alone = is_prompt or summary
    answers = [
        index
        for index, group in enumerate(groups)
        if any(each.role == "assistant" for each in group)
    ]
    last_prompt = max((index for index, is_one in enumerate(asked) if is_one), default=-1)
    step = answers[-1] if answers and answers[-1] > last_prompt else last_prompt + 1
    units = []
    for index, group in enumerate(groups):
        summary = group[0].synthetic and not prompt.summaries.isdisjoint(group[0].seqs)
        rank = 0 if asked[index] else _SUMMARY if summary else _STEP if index >= step else _OLDER
        units.append(_Unit(index, rank, tuple(group)))
    return units


def _joined(units: Sequence[_Unit]) -> list[Neutral]:
    return list(chain.from_iterable(unit.messages for unit in units))


def _attached(messages: Sequence[Neutral]) -> list[Neutral]:
    """Put a sentence at a gap into the user's message beside it, where there is one."""
    sent: list[Neutral] = []
    waiting: Neutral | None = None
    for message in messages:
        if message in (_GAP, _AFTER):
            if sent and sent[-1].role == "user":
                sent[-1] = _with_parts(sent[-1], (*sent[-1].parts, *message.parts))
            else:
                waiting = message
            continue
        if waiting is not None and message.role == "user":
            message = _with_parts(message, (*waiting.parts, *message.parts))
        elif waiting is not None:
            sent.append(waiting)
        waiting = None
        sent.append(message)
    return sent if waiting is None else [*sent, waiting]


def _media(messages: Sequence[Neutral]) -> list[Image | File]:
    return [part for message in messages for part in named_media(message)]


def _with_parts(message: Neutral, parts: tuple[Any, ...]) -> Neutral:
    return msgspec.structs.replace(message, parts=parts)


_NO_WORDS: Final = frozenset({"type", "role", "blob", "media_type", "mime_type", "detail"})


def _texts(value: object, key: str = "") -> Iterator[str]:
    """Yield what a model reads of a rendered message; images and files are counted apart."""
    if isinstance(value, str):
        if key not in _NO_WORDS and not value.startswith("data:"):
            yield value
    elif isinstance(value, dict):
        encoded = ("media_type" in value or "mime_type" in value) and value.get("type") != "text"
        for name, inner in value.items():
            if not (encoded and name == "data"):
                yield from _texts(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
