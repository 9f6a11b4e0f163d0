"""What waits for a person's decision, so that any client can show it and decide."""

import msgspec

from holdfast.model import entries as e
from holdfast.model.parts import ToolCall
from holdfast.session.aio import AsyncSession


class Pending(msgspec.Struct, frozen=True):
    """A call that waits. `session.decide_approval(pending.asked, approved=…)` decides."""

    asked: e.ApprovalAsked
    call: ToolCall


async def pending_approvals(session: AsyncSession) -> list[Pending]:
    """The calls that wait for a decision: of a turn that runs, or of one that was interrupted."""
    return find_pending(await session.entries())


def find_pending(entries: list[e.Entry]) -> list[Pending]:
    """The same, of a journal that was read. Pure."""
    asked: dict[str, e.ApprovalAsked] = {}
    calls: dict[tuple[str, str], ToolCall] = {}
    over: set[str] = set()
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked() as body:
                asked[body.id] = body
            case e.ApprovalDecided() as body:
                asked.pop(body.id, None)
            case e.MessageRecorded() | e.MessageEnded() as body:
                parts = (part for part in body.parts if isinstance(part, ToolCall))
                calls.update({(body.id, part.id): part for part in parts})
            case e.TurnStarted(continues=str() as before):
                over.discard(before)
            case e.TurnEnded(turn_id=turn_id, status=status) if status != "interrupted":
                over.add(turn_id)
            case _:
                pass
    found = []
    for question in asked.values():
        call = calls.get((question.message_id, question.call_id))
        if call is not None and question.turn_id not in over:
            found.append(Pending(question, call))
    return found
