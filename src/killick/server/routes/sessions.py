"""Sessions: which there are, and what is changed about one as a whole."""

from collections.abc import Sequence

import msgspec

from killick.model.sessions import SessionInfo
from killick.server.endpoint import ApiAnswer, ApiCall, Operation
from killick.server.schemas import (
    ApprovalOut,
    Created,
    Done,
    ForkAt,
    MessageOut,
    NewSession,
    SessionChange,
    SessionDetail,
    SessionOut,
    SessionPage,
    SessionQuery,
    TurnOut,
)
from killick.session.aio import AsyncSession
from killick.session.options import CreateSettings, ListFilters


async def list_sessions(call: ApiCall) -> ApiAnswer:
    """Sessions, the last changed first."""
    query: SessionQuery = call.query
    filters = _filters(query)
    if query.before is not None:
        filters["before"] = await call.serving.store.session_info(query.before)
    filters["limit"] = query.limit + 1
    infos = await call.serving.store.sessions(**filters)
    page = infos[: query.limit]
    more = page[-1].id if len(infos) > query.limit else None
    return ApiAnswer(200, SessionPage(sessions=await _out(call, page), next=more))


async def _out(call: ApiCall, infos: Sequence[SessionInfo]) -> list[SessionOut]:
    """Sessions as they are shown; those without a title by how they begin."""
    nameless = [one.id for one in infos if one.title is None]
    openings = await call.serving.store.openings(nameless) if nameless else {}
    return [SessionOut.of(one, openings.get(one.id)) for one in infos]


async def _out_of(call: ApiCall, session: AsyncSession) -> SessionOut:
    [one] = await _out(call, [await session.info()])
    return one


def _filters(query: SessionQuery) -> ListFilters:
    """Only what was asked for: a filter that is not given filters nothing."""
    filters: ListFilters = {"archived": {"yes": True, "no": False, "all": None}[query.archived]}
    if query.q:
        filters["title"] = query.q
    if query.type is not None:
        filters["type"] = query.type
    if query.project is not None:
        filters["project"] = query.project
    if query.tag is not None:
        filters["tag"] = query.tag
    if query.model is not None:
        filters["model"] = query.model
    if query.fork_of is not None:
        filters["fork_of"] = query.fork_of
    if not isinstance(query.interrupted, msgspec.UnsetType):
        filters["interrupted"] = query.interrupted
    if not isinstance(query.pinned, msgspec.UnsetType):
        filters["pinned"] = query.pinned
    if query.deleted:
        filters["deleted"] = True
    return filters


async def create_session(call: ApiCall) -> ApiAnswer:
    """Begin a session."""
    new: NewSession = call.body
    settings: CreateSettings = {"tags": new.tags, "project": new.project}
    if new.title is not None:
        settings["title"] = new.title
    session = await call.serving.store.create_session(**settings)
    call.serving.log.info("session_created", session=session.id)
    return ApiAnswer(201, Created(id=session.id))


async def get_session(call: ApiCall) -> ApiAnswer:
    """A session as it is now: its newest turn, the prompts that wait, what waits for a person."""
    session = await call.serving.store.session(call.session_id)
    head = session.head  # before reading: what comes meanwhile comes after it
    turns = await session.turns()
    queued = await session.queued()
    approvals = await session.approvals()
    about = await _out_of(call, session)
    detail = SessionDetail(
        id=about.id,
        title=about.title,
        head=head,
        session=about,
        turn=TurnOut.of(turns[-1]) if turns else None,
        queued=[MessageOut.of(one) for one in queued],
        approvals=[ApprovalOut.of(one) for one in approvals],
    )
    return ApiAnswer(200, detail)


async def change_session(call: ApiCall) -> ApiAnswer:
    """Give a session a title, pin it, put it away, tag it."""
    change: SessionChange = call.body
    session = await call.serving.store.session(call.session_id)
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
    receipt = await call.serving.store.delete_session(call.session_id)
    call.serving.log.info("session_deleted", session=call.session_id)
    return ApiAnswer(200, Done(seq=receipt.seq))


async def restore_session(call: ApiCall) -> ApiAnswer:
    """Bring a deleted session back."""
    session = await call.serving.store.restore_session(call.session_id)
    return ApiAnswer(200, await _out_of(call, session))


async def fork_session(call: ApiCall) -> ApiAnswer:
    """A session of its own that begins like this one, up to a seq or with all of it."""
    fork: ForkAt = call.body
    session = await call.serving.store.session(call.session_id)
    made = await session.fork(fork.at)
    if fork.title is not None:
        await made.rename(fork.title)
    return ApiAnswer(201, Created(id=made.id))


ONE = "/api/sessions/{session_id}"

OPERATIONS = (
    Operation("GET", "/api/sessions", list_sessions, {200: SessionPage}, query=SessionQuery,
              errors=(404,)),
    Operation("POST", "/api/sessions", create_session, {201: Created}, "write", body=NewSession,
              errors=(422,)),
    Operation("GET", ONE, get_session, {200: SessionDetail}, errors=(404, 410)),
    Operation("PATCH", ONE, change_session, {200: SessionOut}, "write", body=SessionChange,
              errors=(404, 410, 422)),
    Operation("DELETE", ONE, delete_session, {200: Done}, "write", errors=(404, 410)),
    Operation("POST", ONE + "/restore", restore_session, {200: SessionOut}, "write",
              errors=(404,)),
    Operation("POST", ONE + "/fork", fork_session, {201: Created}, "write", body=ForkAt,
              errors=(404, 410, 422)),
)  # fmt: skip
