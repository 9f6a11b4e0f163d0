"""Calls that a person must be asked about, decided in the journal.

The question is an entry, and so is the answer: a chat in a terminal, a page of a server and a
script can decide alike, and a decision outlives the process that asked for it.
"""

import json
from collections.abc import Collection
from typing import Any

import msgspec
from pydantic_ai import RunContext, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved

from killick.adapters.pydantic_ai.recorder import Recorder
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.model import entries as e
from killick.model.messages import ToolCall
from killick.session.aio import AsyncSession

REFUSED = "The user refused this call."


class Approvals(AbstractCapability[Any]):
    """Asks about the calls of tools that are made with `requires_approval=True`, and waits.

    Tools that are named in `allowed` run without asking.

    If interrupted: what was asked for stays asked for; a decision can still be made, and `granted`
    gives the calls that it allows.
    """

    def __init__(
        self, session: AsyncSession, recorder: Recorder, *, allowed: Collection[str] = ()
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._allowed = allowed

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask about each call, all at once, and wait until all are decided."""
        recorder, after = self._recorder, self._session.head
        results = DeferredToolResults()
        waiting: dict[str, str] = {}
        for call in requests.approvals:
            call_id = call.tool_call_id
            if call.tool_name in self._allowed:
                results.approvals[call_id] = ToolApproved()
                continue
            made = recorder.arguments.get(call_id, "")
            asked = await recorder.turn.ask_approval(call_id, made)
            waiting[asked.id] = call_id
        if not waiting:
            return results if results.approvals else None
        async for followed in self._session.follow(after=after):
            if not isinstance(followed, e.Entry) or not isinstance(
                followed.body, e.ApprovalDecided
            ):
                continue
            decided = followed.body
            if decided.id in waiting:
                results.approvals[waiting.pop(decided.id)] = (
                    ToolApproved() if decided.approved else ToolDenied(decided.reason or REFUSED)
                )
            if not waiting:
                break
        return results


class Granted(msgspec.Struct, frozen=True):
    """A call that was approved, and that its turn did not live to run."""

    turn_id: str
    call: ToolCall

    def arguments(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.call.arguments or "{}")
        return made


async def granted(session: AsyncSession, turn_id: str) -> list[Granted]:
    """The approved calls of a turn that has ended, as far as they were never started.

    A call is among them only if what was approved is what was asked for: the hash of the arguments
    that are recorded is that of the decision.
    """
    return find_granted(await session.entries(), turn_id)


def find_granted(entries: list[e.Entry], turn_id: str) -> list[Granted]:
    """The same, of a journal that was read. Pure."""
    asked: dict[str, e.ApprovalAsked] = {}
    approved: list[str] = []
    calls: dict[tuple[str, str], ToolCall] = {}
    touched: set[tuple[str, str]] = set()
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked(turn_id=asker) as body if asker == turn_id:
                asked[body.id] = body
            case e.ApprovalDecided(id=name, approved=True) as body if name in asked:
                if body.arguments_hash == asked[name].arguments_hash:
                    approved.append(name)
            case e.MessageRecorded() | e.MessageEnded() as body:
                parts = (part for part in body.parts if isinstance(part, ToolCall))
                calls.update({(body.id, part.id): part for part in parts})
            case e.ToolStarted() as body:
                touched.add((body.message_id, body.call_id))
            case e.ToolFinished() | e.LateResult() as body:
                touched.add((body.message_id, body.result.call_id))
            case _:
                pass
    found = []
    for name in approved:
        question = asked[name]
        place = (question.message_id, question.call_id)
        call = calls.get(place)
        if call is None or place in touched:
            continue
        if digest(to_bytes(call.arguments)) == question.arguments_hash:
            found.append(Granted(turn_id, call))
    return found
