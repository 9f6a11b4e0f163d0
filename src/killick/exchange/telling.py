"""Records out of the content of one message: what was bad in it, results, and what was said."""

from collections.abc import Iterable, Iterator

from killick.exchange import content as c
from killick.exchange import records as r
from killick.exchange.report import Place
from killick.model.messages import Role
from killick.model.parts import Part, Text


def told(  # noqa: PLR0913  (what there is to say of a message)
    place: Place,
    at_us: int | None,
    role: Role,
    found: c.Content,
    *,
    key: str,
    prompt: bool = False,
    asked: r.Asked | None = None,
    person: bool = True,
    model: bool = True,
    partial: bool = False,
) -> Iterator[r.Record]:
    """Everything that a message says. One that says nothing at all is reported."""
    for what in found.bad:
        yield r.Bad(place=place, reason=what)
    for result in found.results:
        yield r.Answered(
            place=place,
            at_us=at_us,
            result=result,
            blobs=c.blobs_in(result, found.blobs),
            person=person,
            model=model,
        )
    if found.parts:
        yield r.Said(
            place=place,
            at_us=at_us,
            role=role,
            parts=tuple(found.parts),
            key=key,
            blobs=found.blobs,
            begins_turn=prompt and role == "user",
            partial=partial,
            asked=asked if role == "assistant" else None,
            person=person,
            model=model,
        )
    elif not found.results and not found.bad:
        yield r.Bad(place=place, reason="a message without content", repaired=True)


def words(parts: Iterable[Part]) -> str:
    """The text of parts."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def title_of(text: object, most: int = 80) -> str | None:
    """The first line of a text that can be a title."""
    if not isinstance(text, str) or not text.strip():
        return None
    return text.strip().splitlines()[0][:most]
