"""Which stored conversation a request continues, and what of it is new. Pure functions.

An agent sends its whole history each time, and not always the same: it drops an answer that it
never got, clears old results, puts a summary in the place of what was said, or goes back.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from killick.proxy.request import Brought, ModelRequest, RequestUnit, same

Relation = Literal["new", "continues", "retries", "forks", "compacts"]

_SUMMARY_CHARS: Final = 40
"""A summary is not shorter; a short answer may stand in anything by chance."""


class Comparison(msgspec.Struct, frozen=True):
    """How a request's history stands to a stored one."""

    relation: Relation
    shared: int
    """How many stored units it has in common, from the first on; where it forks."""
    fresh: tuple[Brought, ...] = ()
    """What the store does not have yet, in order."""
    summary: str | None = None
    """The text in the place of what was said before."""


def shared_units(stored: Sequence[RequestUnit], brought: Sequence[Brought]) -> int:
    """Count how many units are the same, from the first on."""
    count = 0
    for kept, other in zip(stored, brought, strict=False):
        if not same(kept, other.unit):
            break
        count += 1
    return count


def conversation(request: ModelRequest) -> tuple[Brought, ...]:
    """Return the units that are compared: all but instructions."""
    return tuple(piece for piece in request.units if piece.unit.role != "system")


def compare(
    stored: Sequence[RequestUnit], request: ModelRequest, last_answers: Sequence[str] = ()
) -> Comparison:
    """Decide how a request stands to a stored conversation.

    `last_answers` are the texts that a summary may have been made of: the newest answers.
    """
    brought = conversation(request)
    if request.after is not None:
        return Comparison("continues", len(stored), _with_system(request, brought))
    count = shared_units(stored, brought)
    rest, tail = brought[count:], stored[count:]
    if not tail:
        relation: Relation = "continues" if rest or not stored else "retries"
        return Comparison(relation, count, _with_system(request, rest))
    if not any(unit.role == "user" for unit in tail):
        return _after_newest_prompt(request, stored, count, rest)
    return _changed(request, stored, brought, count, last_answers)


def _after_newest_prompt(
    request: ModelRequest, stored: Sequence[RequestUnit], count: int, rest: tuple[Brought, ...]
) -> Comparison:
    """Decide where only what was answered to the newest prompt differs."""
    if not rest:
        return Comparison("retries", count)
    last = _last_answer(rest)
    known = [unit for unit in stored[count:] if unit.role == "result"]
    fresh = [
        piece
        for piece in rest[last + 1 :]
        if piece.unit.role != "result" or not any(same(piece.unit, unit) for unit in known)
    ]
    if not fresh and last < 0:
        return Comparison("retries", count)
    return Comparison("continues", count, _with_system(request, fresh))


def _changed(
    request: ModelRequest,
    stored: Sequence[RequestUnit],
    brought: tuple[Brought, ...],
    count: int,
    last_answers: Sequence[str],
) -> Comparison:
    """Decide where an earlier part of the conversation differs."""
    summary = summary_in(stored, brought, last_answers)
    last = _last_answer(brought)
    position = _place_of(stored, brought[last].unit) if last >= 0 else -1
    fresh = brought[last + 1 :]
    if position >= 0 and last >= count:
        later = stored[position + 1 :]
        prompts = [unit for unit in later if unit.role == "user"]
        known = sum(1 for kept, other in zip(later, fresh, strict=False) if same(kept, other.unit))
        if not prompts or known == len(later):
            fresh = fresh[known:] if known == len(later) else fresh
            made = summary if last < position else None
            relation: Relation = "compacts" if made is not None else "continues"
            return Comparison(relation, position + 1, _with_system(request, fresh), made)
        return Comparison("forks", position + 1, _with_system(request, fresh))
    if summary is not None:
        return Comparison("compacts", len(stored), _with_system(request, brought[1:]), summary)
    if count == 0:
        return Comparison("new", 0, _with_system(request, brought))
    return Comparison("forks", count, _with_system(request, brought[count:]))


def _last_answer(units: Sequence[Brought]) -> int:
    return max((i for i, piece in enumerate(units) if piece.unit.role == "assistant"), default=-1)


def _place_of(stored: Sequence[RequestUnit], answer: RequestUnit) -> int:
    return max((i for i, unit in enumerate(stored) if same(unit, answer)), default=-1)


def summary_in(
    stored: Sequence[RequestUnit], brought: Sequence[Brought], last_answers: Sequence[str]
) -> str | None:
    """Return the text that stands in the place of what was said, if it can be recognised.

    It is what the model wrote as a summary a moment ago, in what the user's side says first; or,
    before an answer that is known, something that the user's side has never said.
    """
    first = brought[0] if brought else None
    if first is None or first.unit.role != "user" or any(same(u, first.unit) for u in stored):
        return None
    text = first.text
    for answer in last_answers:
        words = answer.strip()
        if len(words) >= _SUMMARY_CHARS and words in text:
            return words
    last = _last_answer(brought)
    return text if last >= 0 and _place_of(stored, brought[last].unit) >= last else None


def _with_system(request: ModelRequest, fresh: Sequence[Brought]) -> tuple[Brought, ...]:
    """Return what is new with the instructions that stand among it."""
    if not any(piece.unit.role == "system" for piece in request.units):
        return tuple(fresh)
    everything = list(request.units)
    if not fresh:
        return ()
    wanted = {id(piece) for piece in fresh}
    begin = next((i for i, piece in enumerate(everything) if id(piece) in wanted), None)
    if begin is None:
        return tuple(fresh)
    while begin > 0 and everything[begin - 1].unit.role == "system":
        begin -= 1
    return tuple(
        piece for piece in everything[begin:] if id(piece) in wanted or piece.unit.role == "system"
    )


# -- what a request is for -------------------------------------------------------------------------

Purpose = Literal["conversation", "beside"]


def purpose_of(request: ModelRequest, *, agent: str | None, known: bool) -> Purpose:
    """Tell a call for a title or a judgement from one of the conversation itself.

    An agent that names its session offers tools in every call of the conversation; one that asks
    for JSON of a given form without tools asks a judge. `known`: it continues a conversation that
    is stored, and never had tools.
    """
    if request.offers_tools or known:
        return "conversation"
    return "beside" if agent is not None or request.wants_format else "conversation"


class Fresh(msgspec.Struct, frozen=True):
    """The new pieces of a request, sorted by what is done with them."""

    unseen: tuple[Brought, ...] = ()
    """Pieces said elsewhere: answers that did not pass here, and all before them."""
    results: tuple[Brought, ...] = ()
    said: tuple[Brought, ...] = ()
    """What the user's side says now, with instructions among it."""

    @property
    def prompt(self) -> tuple[Brought, ...]:
        return tuple(piece for piece in self.said if piece.unit.role == "user")


def sort_fresh(fresh: Sequence[Brought]) -> Fresh:
    last = _last_answer(fresh)
    now = fresh[last + 1 :]
    unseen = tuple(fresh[: last + 1])
    results = tuple(piece for piece in now if piece.unit.role == "result")
    spoken = tuple(piece for piece in now if piece.unit.role != "result")
    if unseen:  # results of calls that never passed here belong with them
        made = {call.id for piece in unseen for call in piece.unit.calls}
        unseen += tuple(piece for piece in results if piece.unit.call_id in made)
        results = tuple(piece for piece in results if piece.unit.call_id not in made)
    return Fresh(unseen, results, spoken)
