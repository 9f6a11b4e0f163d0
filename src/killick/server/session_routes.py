"""Sessions and their turns: listed, begun, stopped, decided on and changed."""

import contextlib
from collections.abc import Sequence
from typing import Any, Final, cast

import anyio
import msgspec

from killick.agent.approvals import allow_always, allowances, ask_again, pending_approvals
from killick.errors import KillickError, PromptQueued, SessionNotFound, TurnNotFound
from killick.exchange.export.endings import ending_words
from killick.model import entries as e
from killick.model.sessions import SessionInfo, Status, TurnInfo
from killick.server.endpoint import SESSION, ApiAnswer, ApiCall, Operation
from killick.server.log import cause
from killick.server.responses import Refused
from killick.server.schemas import (
    ApprovalOut,
    AskAgain,
    Compact,
    Created,
    Decision,
    Done,
    ForkAt,
    MessageOut,
    NewSession,
    NewTurn,
    PromptKept,
    RewindTo,
    SessionChange,
    SessionDetail,
    SessionOut,
    SessionPage,
    SessionQuery,
    Settle,
    Steered,
    SteerTurn,
    Stop,
    Stopping,
    TurnBegun,
    TurnOut,
)
from killick.server.view_schemas import (
    AllowedOut,
    UnknownOut,
    WaitingLine,
    WaitingOut,
)
from killick.session.aio import AsyncSession
from killick.session.news import News
from killick.views.timeline import timeline

_WAITING_SHOWN: Final = 100


async def list_sessions(call: ApiCall) -> ApiAnswer:
    """Sessions, the last changed first."""
    query: SessionQuery = call.query
    filters = _filters(query)
    if query.before is not None:
        filters["before"] = await call.service.store.session_info(query.before)
    filters["limit"] = query.limit + 1
    infos = await call.service.store.sessions(**filters)
    page = infos[: query.limit]
    more = page[-1].id if len(infos) > query.limit else None
    return ApiAnswer(200, SessionPage(sessions=await _out(call, page), next=more))


async def _out(call: ApiCall, infos: Sequence[SessionInfo]) -> list[SessionOut]:
    """Sessions as they are shown; those without a title by how they begin."""
    nameless = [info.id for info in infos if info.title is None]
    openings = await call.service.store.openings(nameless) if nameless else {}
    return [SessionOut.of(info, openings.get(info.id)) for info in infos]


async def _out_of(call: ApiCall, session: AsyncSession) -> SessionOut:
    [shown] = await _out(call, [await session.info()])
    return shown


def _filters(query: SessionQuery) -> dict[str, Any]:
    """The parameters of `store.sessions`; None filters nothing."""
    return {
        "archived": {"yes": True, "no": False, "all": None}[query.archived],
        "title": query.q or None,
        "type": query.type,
        "project": query.project,
        "tag": query.tag,
        "model": query.model,
        "fork_of": query.fork_of,
        "interrupted": None if query.interrupted is msgspec.UNSET else query.interrupted,
        "pinned": None if query.pinned is msgspec.UNSET else query.pinned,
        "deleted": query.deleted,
    }


async def create_session(call: ApiCall) -> ApiAnswer:
    """Begin a session."""
    new: NewSession = call.body
    store = call.service.store
    session = await store.create_session(title=new.title, tags=new.tags, project=new.project)
    call.service.log.info("session_created", session=session.id)
    return ApiAnswer(201, Created(id=session.id))


async def get_session(call: ApiCall) -> ApiAnswer:
    """A session as it is now: its newest turn, the prompts that wait, what waits for a person."""
    session = await call.service.store.session(call.session_id)
    head = session.head  # before reading: what comes meanwhile comes after it
    turns = await session.turns()
    timed = timeline(await session.entries(after=turns[-1].seq - 1)) if turns else []
    queued = await session.queued()
    about = await _out_of(call, session)
    detail = SessionDetail(
        id=about.id,
        title=about.title,
        head=head,
        session=about,
        turn=TurnOut.of(turns[-1], timed[-1] if timed else None) if turns else None,
        queued=[MessageOut.of(message) for message in queued],
        approvals=await _approvals(session, turns),
    )
    return ApiAnswer(200, detail)


async def _approvals(session: AsyncSession, turns: list[TurnInfo]) -> list[ApprovalOut]:
    """Return what waits for a person, each with the arguments that were asked about."""
    waiting = await session.approvals()
    if not waiting:
        return []
    began = {turn.id: turn.seq for turn in turns}
    messages = await session.messages(after=min(began[asked.turn_id] for asked in waiting))
    arguments = {
        (message.id, call.id): call.arguments for message in messages for call in message.tool_calls
    }
    return [
        ApprovalOut.of(asked, arguments.get((asked.message_id, asked.call_id))) for asked in waiting
    ]


async def list_waiting(call: ApiCall) -> ApiAnswer:
    """Return what waits for a person in all sessions: questions, unknown outcomes, endings."""
    following = call.service.store.follow(waiting=True)
    try:
        lines = await following.now()
    finally:
        await following.aclose()
    waiting = []
    for line in lines[-_WAITING_SHOWN:]:
        with contextlib.suppress(SessionNotFound):
            waiting.append(await _waiting_line(call, line))
    return ApiAnswer(200, WaitingOut(waiting=waiting[::-1], count=len(lines)))


async def _waiting_line(call: ApiCall, line: News) -> WaitingLine:
    session = await call.service.store.session(line.session_id)
    entries = await session.entries(after=line.seq - 1, limit=1)
    body = entries[0].body if entries else None
    asked, tool = None, None
    if isinstance(body, e.ApprovalAsked):
        approvals = await _approvals(session, await session.turns())
        asked = next((waits for waits in approvals if waits.id == body.id), None)
        tool = await _tool_name(session, line.seq, body)
    words = None
    if isinstance(body, e.TurnEnding):
        words = ending_words(body.status, body.cause, body.reason, body.detail)
    turn_id = getattr(body, "turn_id", None)
    unknown = await _unknown(session, turn_id) if line.kind == "outcome_unknown" else []
    return WaitingLine(
        session=await _out_of(call, session),
        seq=line.seq,
        kind=line.kind,
        cause=line.cause,
        words=words,
        turn_id=turn_id,
        tool=tool,
        approval=asked,
        unknown=unknown,
    )


async def _tool_name(session: AsyncSession, seq: int, asked: e.ApprovalAsked) -> str | None:
    began = max((turn.seq for turn in await session.turns() if turn.seq < seq), default=0)
    for message in await session.messages(after=began):
        for part in message.tool_calls if message.id == asked.message_id else ():
            if part.id == asked.call_id:
                return part.name
    return None


async def _unknown(session: AsyncSession, turn_id: str | None) -> list[UnknownOut]:
    return [
        UnknownOut(
            turn_id=item.turn_id or "",
            call_id=tool.call_id,
            name=tool.name,
            arguments=tool.arguments,
        )
        for item in await session.transcript()
        for tool in item.tools
        if item.turn_id == turn_id and tool.state == "unknown" and tool.settled is None
    ]


async def change_session(call: ApiCall) -> ApiAnswer:
    """Give a session a title, pin it, put it away, tag it."""
    change: SessionChange = call.body
    session = await call.service.store.session(call.session_id)
    if not isinstance(change.title, msgspec.UnsetType):
        await session.rename(change.title)
    if not isinstance(change.pinned, msgspec.UnsetType):
        await session.pin(pinned=change.pinned)
    if not isinstance(change.archived, msgspec.UnsetType):
        await session.archive(archived=change.archived)
    if change.add_tags or change.remove_tags:
        await session.tag(*change.add_tags, remove=change.remove_tags)
    return ApiAnswer(200, await _out_of(call, session))


async def delete_session(call: ApiCall) -> ApiAnswer:
    """Take a session out of every list, ending what runs in it; it can be restored."""
    receipt = await call.service.store.delete_session(call.session_id)
    call.service.log.info("session_deleted", session=call.session_id)
    return ApiAnswer(200, Done(seq=receipt.seq))


async def restore_session(call: ApiCall) -> ApiAnswer:
    """Bring a deleted session back."""
    session = await call.service.store.restore_session(call.session_id)
    return ApiAnswer(200, await _out_of(call, session))


async def fork_session(call: ApiCall) -> ApiAnswer:
    """A session of its own that begins like this one, up to a seq or with all of it."""
    fork: ForkAt = call.body
    session = await call.service.store.session(call.session_id)
    made = await session.fork(fork.at)
    if fork.title is not None:
        await made.rename(fork.title)
    return ApiAnswer(201, Created(id=made.id))


KEY = "Idempotency-Key"


async def begin_turn(call: ApiCall) -> ApiAnswer:
    """Ask: the prompt is durable when this answers, and the turn runs on by itself."""
    new: NewTurn = call.body
    key = call.request.headers.get(KEY)
    settings: dict[str, Any] = {
        "key": key,
        "if_busy": new.if_busy,
        "wait_seconds": new.wait_seconds,
        "continues": new.continues,
        "retry_of": new.retry_of,
    }
    try:
        begun = await call.service.turns.begin(call.session_id, new.prompt, settings)
    except PromptQueued as kept:
        value = PromptKept(prompt_id=kept.prompt_id, turn_id=kept.turn_id, holder=kept.holder)
        return ApiAnswer(202, value)
    value_begun = TurnBegun(
        turn_id=begun.turn_id,
        status=cast("Status", begun.status),
        reason=begun.reason,
        cause=begun.cause,
        repeated=begun.repeated,
    )
    return ApiAnswer(200 if begun.repeated else 201, value_begun)


async def stop_turn(call: ApiCall) -> ApiAnswer:
    """Stop the turn that runs, or the one that is named, in whatever process it runs."""
    stop: Stop = call.body
    session = await call.service.store.session(call.session_id)
    turn_id = await session.stop(stop.turn_id, stop.reason, stop.cause)
    if turn_id is None:
        if stop.turn_id is None:
            raise Refused(409, "not_running", "No turn of this session runs.")
        turn = await _turn(session, stop.turn_id)
        refused = Refused(409, "not_running", f"The turn is over: it was {turn.status} already.")
        refused.tell(turn)
        raise refused
    call.service.log.info("stop_asked", session=session.id, turn=turn_id)
    with anyio.move_on_after(stop.wait_seconds):
        await _until_ended(session, turn_id)
    turn = await _turn(session, turn_id)
    stopping = Stopping(turn_id=turn_id, status=turn.status, reason=turn.reason, cause=turn.cause)
    return ApiAnswer(202, stopping)


async def steer_turn(call: ApiCall) -> ApiAnswer:
    """Say something to the turn that runs, in whatever process it runs."""
    words: SteerTurn = call.body
    session = await call.service.store.session(call.session_id)
    steered = await session.steer(words.prompt, key=call.request.headers.get(KEY))
    return ApiAnswer(202, Steered(prompt_id=steered.id, turn_id=steered.turn_id))


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
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.withdraw(call.path["prompt_id"])).seq))


async def settle(call: ApiCall) -> ApiAnswer:
    """Record what a person found out about a call whose outcome is unknown."""
    finding: Settle = call.body
    session = await call.service.store.session(call.session_id)
    receipt = await session.settle(
        finding.turn_id,
        finding.call_id,
        finding.outcome,
        result=finding.result,
        evidence=finding.evidence,
        replaces=finding.replaces,
    )
    return ApiAnswer(200, Done(seq=receipt.seq))


async def decide(call: ApiCall) -> ApiAnswer:
    """Allow or deny what a turn asks a person for."""
    decision: Decision = call.body
    session = await call.service.store.session(call.session_id)
    wanted = call.path["approval_id"]
    asked = [approval for approval in await session.approvals() if approval.id == wanted]
    if not asked:
        raise Refused(404, "approval_not_found", "Nothing of that id waits to be decided.")
    if decision.arguments_hash is None:
        raise Refused(
            422, "refused", "Send the arguments_hash of the approval whose arguments were shown."
        )
    if decision.arguments_hash != asked[0].arguments_hash:
        raise Refused(
            409, "other_arguments", "Other arguments were asked about; read the session again."
        )
    if decision.always:
        await _allow_always(session, wanted, approved=decision.approved)
    receipt = await session.decide_approval(
        asked[0], approved=decision.approved, by="page", reason=decision.reason
    )
    return ApiAnswer(200, Done(seq=receipt.seq))


async def _allow_always(session: AsyncSession, wanted: str, *, approved: bool) -> None:
    pending = [call for call in await pending_approvals(session) if call.asked.id == wanted]
    if not pending or not approved:
        raise Refused(
            422, "refused", "Only a call that is allowed now, and is in the journal, is always."
        )
    await allow_always(session, pending[0], "page")


async def list_allowances(call: ApiCall) -> ApiAnswer:
    """The calls that a person has allowed for good in this session."""
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, AllowedOut(allowed=await allowances(session)))


async def ask_about_again(call: ApiCall) -> ApiAnswer:
    """Ask about a call again that was allowed for good."""
    wanted: AskAgain = call.body
    session = await call.service.store.session(call.session_id)
    if not await ask_again(session, wanted.tool, wanted.arguments_hash):
        raise Refused(404, "allowance_not_found", "No such call is allowed for good here.")
    return ApiAnswer(200, Done(seq=session.head))


async def rewind(call: ApiCall) -> ApiAnswer:
    """Take what began after a seq out of view; it stays in the journal."""
    target: RewindTo = call.body
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.rewind(target.through)).seq))


async def undo(call: ApiCall) -> ApiAnswer:
    """Undo the newest rewind or compaction."""
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, Done(seq=(await session.undo()).seq))


async def compact(call: ApiCall) -> ApiAnswer:
    """Put a summary in place of earlier messages, in what a model is sent."""
    wanted: Compact = call.body
    session = await call.service.store.session(call.session_id)
    if wanted.summary is not None:
        through = session.head if wanted.through is None else wanted.through
        return ApiAnswer(200, Done(seq=(await session.compact(wanted.summary, through)).seq))
    if call.service.runner.compact is None:
        raise Refused(422, "refused", "No model here can write a summary; send one.")
    try:
        done = await call.service.runner.compact(session)
    except KillickError:
        raise
    except Exception as error:
        call.service.log.warning("summary_failed", session=session.id, **cause(error))
        raise Refused(
            503, "model_failed", "The model wrote no summary; its error is in the log."
        ) from error
    if not done:
        raise Refused(422, "refused", "There is nothing to summarise.")
    await session.entries(after=session.head)  # so that its head is the one of now
    return ApiAnswer(200, Done(seq=session.head))


OPERATIONS = (
    Operation("GET", "/api/waiting", list_waiting, {200: WaitingOut}),
    Operation("GET", "/api/sessions", list_sessions, {200: SessionPage}, query=SessionQuery,
              errors=(404,)),
    Operation("POST", "/api/sessions", create_session, {201: Created}, "write", body=NewSession,
              errors=(422,)),
    Operation("GET", SESSION, get_session, {200: SessionDetail}, errors=(404, 410)),
    Operation("PATCH", SESSION, change_session, {200: SessionOut}, "write", body=SessionChange,
              errors=(404, 410, 422)),
    Operation("DELETE", SESSION, delete_session, {200: Done}, "write", errors=(404, 410)),
    Operation("POST", SESSION + "/restore", restore_session, {200: SessionOut}, "write",
              errors=(404,)),
    Operation("POST", SESSION + "/fork", fork_session, {201: Created}, "write", body=ForkAt,
              errors=(404, 410, 422)),
    Operation("POST", SESSION + "/turns", begin_turn,
              {200: TurnBegun, 201: TurnBegun, 202: PromptKept}, "write", body=NewTurn,
              headers=(KEY,), errors=(404, 409, 410, 422)),
    Operation("POST", SESSION + "/stop", stop_turn, {202: Stopping}, "write", body=Stop,
              errors=(404, 409, 410)),
    Operation("POST", SESSION + "/steer", steer_turn, {202: Steered}, "write", body=SteerTurn,
              headers=(KEY,), errors=(404, 409, 410, 422)),
    Operation("DELETE", SESSION + "/queue/{prompt_id}", withdraw, {200: Done}, "write",
              errors=(404, 410)),
    Operation("POST", SESSION + "/approvals/{approval_id}", decide, {200: Done}, "write",
              body=Decision, errors=(404, 409, 410, 422)),
    Operation("GET", SESSION + "/allowed", list_allowances, {200: AllowedOut}, errors=(404, 410)),
    Operation("POST", SESSION + "/ask-again", ask_about_again, {200: Done}, "write",
              body=AskAgain, errors=(404, 409, 410, 422)),
    Operation("POST", SESSION + "/settle", settle, {200: Done}, "write", body=Settle,
              errors=(404, 409, 410, 422)),
    Operation("POST", SESSION + "/rewind", rewind, {200: Done}, "write", body=RewindTo,
              errors=(404, 409, 410, 422)),
    Operation("POST", SESSION + "/undo", undo, {200: Done}, "write", errors=(404, 409, 410, 422)),
    Operation("POST", SESSION + "/compact", compact, {200: Done}, "write", body=Compact,
              errors=(404, 409, 410, 422)),
)  # fmt: skip
