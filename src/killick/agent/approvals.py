"""Calls that wait for a person, and those that a person has allowed for good in one session.

An allowance is a note in the session: one tool, the hash of one call's arguments, nothing wider. A
fork inherits its origin's notes and none of its allowances.
"""

from typing import Final

import msgspec

from killick.model import entries as e
from killick.model.messages import ToolCall
from killick.session.aio import AsyncSession

ALWAYS: Final = "always"
"""Who decides where an allowance does."""

_NOTE: Final = "allowed_always"
_SHOWN_CHARS: Final = 300


class Pending(msgspec.Struct, frozen=True):
    """A call that waits. `session.decide_approval(pending.asked, approved=…)` decides."""

    asked: e.ApprovalAsked
    call: ToolCall


class Allowance(msgspec.Struct, frozen=True):
    """A call that runs unasked in its session. `arguments` are cut, for a person to recognise."""

    tool: str
    arguments_hash: str
    arguments: str
    by: str | None = None


async def pending_approvals(session: AsyncSession) -> list[Pending]:
    """Return the calls that wait for a decision, of the running turn or of one that ended."""
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


async def allow_always(session: AsyncSession, pending: Pending, by: str | None = None) -> None:
    """Allow exactly this call in this session from now on; the question itself waits on.

    If interrupted: it is allowed from now on, or it is not.
    """
    call = pending.call
    made = Allowance(call.name, pending.asked.arguments_hash, call.arguments[:_SHOWN_CHARS], by)
    await _put(session, made, allowed=True)


async def ask_again(session: AsyncSession, tool: str, arguments_hash: str) -> bool:
    """Take an allowance back; False when there is none.

    If interrupted: it is taken back or it is not.
    """
    return await _put(session, Allowance(tool, arguments_hash, ""), allowed=False)


async def allowances(session: AsyncSession) -> list[Allowance]:
    """Return what is allowed for good in this session, the oldest first. Reads all its notes."""
    allowed: dict[tuple[str, str], Allowance] = {}
    for note in await session.notes(name=_NOTE):
        if note.data.get("session") == session.id:
            made = msgspec.convert(note.data["call"], Allowance)
            allowed.pop((made.tool, made.arguments_hash), None)
            if note.data["allowed"]:
                allowed[made.tool, made.arguments_hash] = made
    return list(allowed.values())


async def decide_allowed(session: AsyncSession) -> list[Pending]:
    """Allow what waits in the running turn and was allowed for good; return the rest.

    A question that its turn did not outlive is left to a person: allowing it begins a turn.

    If interrupted: each question is decided, or it waits on.
    """
    rest = []
    for pending in await pending_approvals(session):
        call, asked = pending.call, pending.asked
        turn = (await session.turns())[-1]
        runs = turn.id == asked.turn_id and turn.status == "running"
        if runs and (await _newest(session, call.name, asked.arguments_hash))[1]:
            await session.decide_approval(asked, approved=True, by=ALWAYS)
        else:
            rest.append(pending)
    return rest


async def _put(session: AsyncSession, made: Allowance, *, allowed: bool) -> bool:
    count, before = await _newest(session, made.tool, made.arguments_hash)
    if before == allowed:
        return False
    data = {"session": session.id, "call": msgspec.to_builtins(made), "allowed": allowed}
    await session.note(_NOTE, data, key=_key(session, made.tool, made.arguments_hash, count + 1))
    return True


async def _newest(session: AsyncSession, tool: str, arguments_hash: str) -> tuple[int, bool]:
    """Return how many notes there are on a call, and whether the newest allows it.

    By their keys, so that a question costs the same in a session of any length.
    """
    count, allowed = 0, False
    while notes := await session.notes(key=_key(session, tool, arguments_hash, count + 1)):
        count, allowed = count + 1, bool(notes[-1].data["allowed"])
    return count, allowed


def _key(session: AsyncSession, tool: str, arguments_hash: str, number: int) -> str:
    return f"{_NOTE}/{session.id}/{arguments_hash}/{number}/{tool}"
