"""Turns: beginning one, stopping it, deciding what it asks; and changing what is in view."""

from typing import cast

import anyio

from killick.errors import KillickError, PromptQueued, TurnNotFound
from killick.model.sessions import Status, TurnInfo
from killick.server.endpoint import ApiAnswer, ApiCall, Operation, Refused
from killick.server.log import cause
from killick.server.routes.sessions import ONE
from killick.server.schemas import (
    Compact,
    Decision,
    Done,
    NewTurn,
    PromptKept,
    RewindTo,
    Stop,
    Stopping,
    TurnBegun,
)
from killick.session.aio import AsyncSession
from killick.session.options import TurnSettings

KEY = "Idempotency-Key"


async def begin_turn(call: ApiCall) -> ApiAnswer:
    """Ask: the prompt is durable when this answers, and the turn runs on by itself."""
    new: NewTurn = call.body
    key = call.request.headers.get(KEY)
    settings: TurnSettings = {
        "key": key,
        "if_busy": new.if_busy,
        "wait_seconds": new.wait_seconds,
        "continues": new.continues,
        "retry_of": new.retry_of,
    }
    try:
        begun = await call.serving.turns.begin(call.session_id, new.prompt, settings)
    except PromptQueued as kept:
        value = PromptKept(prompt_id=kept.prompt_id, turn_id=kept.turn_id, holder=kept.holder)
        return ApiAnswer(202, value)
    value_begun = TurnBegun(
        turn_id=begun.turn_id,
        status=cast("Status", begun.status),
        reason=begun.reason,
        repeated=begun.repeated,
    )
    return ApiAnswer(200 if begun.repeated else 201, value_begun)


async def stop_turn(call: ApiCall) -> ApiAnswer:
    """Stop the turn that runs, or the one that is named, in whatever process it runs."""
    stop: Stop = call.body
    session = await call.serving.store.session(call.session_id)
    turn_id = stop.turn_id
    if turn_id is None:
        running = [turn for turn in await session.turns() if turn.status == "running"]
        if not running:
            raise Refused(409, "not_running", "No turn of this session runs.")
        turn_id = running[-1].id
    if not await session.stop(turn_id, stop.reason):
        turn = await _turn(session, turn_id)
        refused = Refused(409, "not_running", f"The turn is over: it was {turn.status} already.")
        refused.tell(turn_id=turn.id, status=turn.status, reason=turn.reason)
        raise refused
    call.serving.log.info("stop_asked", session=session.id, turn=turn_id)
    with anyio.move_on_after(stop.wait_seconds):
        await _until_ended(session, turn_id)
    turn = await _turn(session, turn_id)
    return ApiAnswer(202, Stopping(turn_id=turn_id, status=turn.status, reason=turn.reason))


async def _until_ended(session: AsyncSession, turn_id: str) -> None:
    turn = await _turn(session, turn_id)
    async for item in session.follow(after=turn.seq):
        if item.kind == "turn_ended":
            return


async def _turn(session: AsyncSession, turn_id: str) -> TurnInfo:
    for turn in reversed(await session.turns()):
        if turn.id == turn_id:
            return turn
    raise TurnNotFound(f"session {session.id!r} has no turn {turn_id!r}")


async def withdraw(call: ApiCall) -> ApiAnswer:
    """Take a prompt that waits out of the queue."""
    session = await call.serving.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.withdraw(call.path["prompt_id"])).seq))


async def decide(call: ApiCall) -> ApiAnswer:
    """Allow or deny what a turn asks a person for."""
    decision: Decision = call.body
    session = await call.serving.store.session(call.session_id)
    wanted = call.path["approval_id"]
    asked = [one for one in await session.approvals() if one.id == wanted]
    if not asked:
        raise Refused(404, "approval_not_found", "Nothing of that id waits to be decided.")
    receipt = await session.decide_approval(
        asked[0], approved=decision.approved, by="page", reason=decision.reason
    )
    return ApiAnswer(200, Done(seq=receipt.seq))


async def rewind(call: ApiCall) -> ApiAnswer:
    """Take what began after a seq out of view; it stays in the journal."""
    target: RewindTo = call.body
    session = await call.serving.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.rewind(target.through)).seq))


async def undo(call: ApiCall) -> ApiAnswer:
    """Undo the newest rewind or compaction."""
    session = await call.serving.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.undo()).seq))


async def compact(call: ApiCall) -> ApiAnswer:
    """Put a summary in place of earlier messages, in what a model is sent."""
    wanted: Compact = call.body
    session = await call.serving.store.session(call.session_id)
    if wanted.summary is not None:
        through = session.head if wanted.through is None else wanted.through
        return ApiAnswer(200, Done(seq=(await session.compact(wanted.summary, through)).seq))
    if call.serving.answering.compact is None:
        raise Refused(422, "refused", "Nobody here can write a summary; send one.")
    try:
        done = await call.serving.answering.compact(session)
    except KillickError:
        raise
    except Exception as error:
        call.serving.log.warning("summary_failed", session=session.id, **cause(error))
        raise Refused(
            503, "model_failed", "The model wrote no summary; its error is in the log."
        ) from error
    if not done:
        raise Refused(422, "refused", "There is nothing to summarise.")
    await session.entries(after=session.head)  # so that its head is the one of now
    return ApiAnswer(200, Done(seq=session.head))


OPERATIONS = (
    Operation("POST", ONE + "/turns", begin_turn,
              {200: TurnBegun, 201: TurnBegun, 202: PromptKept}, "write", body=NewTurn,
              headers=(KEY,), errors=(404, 409, 410, 422)),
    Operation("POST", ONE + "/stop", stop_turn, {202: Stopping}, "write", body=Stop,
              errors=(404, 409, 410)),
    Operation("DELETE", ONE + "/queue/{prompt_id}", withdraw, {200: Done}, "write",
              errors=(404, 410)),
    Operation("POST", ONE + "/approvals/{approval_id}", decide, {200: Done}, "write",
              body=Decision, errors=(404, 409, 410, 422)),
    Operation("POST", ONE + "/rewind", rewind, {200: Done}, "write", body=RewindTo,
              errors=(404, 409, 410, 422)),
    Operation("POST", ONE + "/undo", undo, {200: Done}, "write", errors=(404, 409, 410, 422)),
    Operation("POST", ONE + "/compact", compact, {200: Done}, "write", body=Compact,
              errors=(404, 409, 410, 422)),
)  # fmt: skip
