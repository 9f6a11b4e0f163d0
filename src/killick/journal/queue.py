"""Which prompts wait for the next turn: queued, and neither taken nor withdrawn."""

from collections.abc import Iterable

from killick.model import entries as e
from killick.model.messages import Message


def waiting(entries: Iterable[e.Entry]) -> dict[str, Message]:
    """What waits after these entries, by its id, in the order in which it came."""
    prompts: dict[str, Message] = {}
    for entry in entries:
        take(prompts, entry)
    return prompts


def take(prompts: dict[str, Message], entry: e.Entry) -> None:
    """What waits after one more entry."""
    match entry.body:
        case e.PromptQueued() as body:
            prompts[body.id] = Message(body.role, body.parts, body.id, seq=entry.seq)
        case e.PromptTaken() | e.PromptWithdrawn() as body:
            prompts.pop(body.id, None)
        case _:
            pass
