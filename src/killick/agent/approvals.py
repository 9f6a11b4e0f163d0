"""What waits for a person's decision, so that any client can show it and decide."""

import msgspec

from killick.model import entries as e
from killick.model.parts import ToolCall
from killick.session.aio import AsyncSession


class Pending(msgspec.Struct, frozen=True):
    """A call that waits. `session.decide_approval(pending.asked, approved=…)` decides."""

    asked: e.ApprovalAsked
    call: ToolCall


async def pending_approvals(session: AsyncSession) -> list[Pending]:
    """The calls that wait for a decision: of the turn that runs, or of one that ended waiting."""
    asked = await session.approvals()
    if not asked:
        return []
    turn = (await session.turns())[-1]
    calls = {
        (message.id, call.id): call
        for message in await session.messages(after=turn.seq)
        for call in message.tool_calls
    }
    return [
        Pending(question, call)
        for question in asked
        if (call := calls.get((question.message_id, question.call_id))) is not None
    ]
