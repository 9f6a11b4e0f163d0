"""What waits for a person's decision, so that any client can show it and decide."""

import msgspec

from holdfast.journal.closing import AWAITING_APPROVAL
from holdfast.model import entries as e
from holdfast.model.parts import ToolCall
from holdfast.session.aio import AsyncSession


class Pending(msgspec.Struct, frozen=True):
    """A call that waits. `session.decide_approval(pending.asked, approved=…)` decides."""

    asked: e.ApprovalAsked
    call: ToolCall


async def pending_approvals(session: AsyncSession) -> list[Pending]:
    """The calls that wait for a decision: of the turn that runs, or of one that ended waiting."""
    return find_pending(await session.entries())


def find_pending(entries: list[e.Entry]) -> list[Pending]:
    """The same, of a journal that was read. Pure."""
    asked: dict[str, e.ApprovalAsked] = {}
    calls: dict[tuple[str, str], ToolCall] = {}
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked() as body:
                asked[body.id] = body
            case e.ApprovalDecided() as body:
                asked.pop(body.id, None)
            case e.MessageRecorded() | e.MessageEnded() as body:
                parts = (part for part in body.parts if isinstance(part, ToolCall))
                calls.update({(body.id, part.id): part for part in parts})
            case e.TurnStarted():
                asked.clear()  # the conversation has gone on without them
            case e.TurnEnded(reason=reason) if reason != AWAITING_APPROVAL:
                asked.clear()  # whoever stopped it, or let it fail, did not want them
            case _:
                pass
    return [
        Pending(question, call)
        for question in asked.values()
        if (call := calls.get((question.message_id, question.call_id))) is not None
    ]
