"""Reading: messages, the transcript, what a model is sent, exports, searches and figures."""

from datetime import date
from importlib.metadata import version
from typing import Final

from starlette.responses import Response, StreamingResponse

from killick.exchange.export import export_session
from killick.journal.summary import Total
from killick.model import entries as e
from killick.server.endpoint import ApiAnswer, ApiCall, Operation, Refused
from killick.server.routes.sessions import ONE
from killick.server.schemas import (
    About,
    ContextOut,
    ContextQuery,
    ExportQuery,
    HitOut,
    HitsOut,
    MessageOut,
    MessageQuery,
    MessagesOut,
    SearchQuery,
    ShownOut,
    StatsOut,
    StatsQuery,
    TranscriptOut,
    TurnOut,
    UsageDay,
)
from killick.session.aio import AsyncSession, blocking
from killick.session.core.queries import ActivityFilters
from killick.session.options import SearchFilters, UsageFilters
from killick.views.media import IMAGES, sniff

MEDIA: Final = {
    "killick": ("application/jsonl", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_UNDO_WITHIN: Final = 50


async def get_messages(call: ApiCall) -> ApiAnswer:
    """Messages that began, grew, ended or got a result after a seq; all of them without one."""
    query: MessageQuery = call.query
    session = await call.serving.store.session(call.session_id)
    changes = await session.changes(after=query.after)
    messages = [MessageOut.of(one) for one in changes.messages]
    return ApiAnswer(200, MessagesOut(messages=messages, head=changes.head, whole=changes.whole))


async def get_transcript(call: ApiCall) -> ApiAnswer:
    """What a person sees; events after its cursor go on from there."""
    session = await call.serving.store.session(call.session_id)
    cursor = str(session.head)  # before reading: what is read twice changes nothing
    shown = await session.transcript()
    turns = await session.turns()
    value = TranscriptOut(
        shown=[ShownOut.of(one) for one in shown],
        turns=[TurnOut.of(one) for one in turns],
        undoable=await _undoable(session),
        cursor=cursor,
    )
    return ApiAnswer(200, value)


async def _undoable(session: AsyncSession) -> int | None:
    """The rewind that nothing was said after yet, if it is among the newest entries."""
    found: int | None = None
    for entry in await session.entries(after=max(0, session.head - _UNDO_WITHIN)):
        if isinstance(entry.body, e.Rewound):
            found = entry.seq
        elif isinstance(entry.body, e.TurnStarted | e.Undone):
            found = None
    return found


async def get_context(call: ApiCall) -> ApiAnswer:
    """What a model would be sent now, in one provider's shape, and what was repaired in it."""
    query: ContextQuery = call.query
    session = await call.serving.store.session(call.session_id)
    context = await session.context(query.format)
    value = ContextOut(
        format=context.format,
        system=context.system,
        messages=context.messages,
        repairs=context.repairs,
    )
    return ApiAnswer(200, value)


async def export(call: ApiCall) -> Response:
    """The whole session as a file."""
    query: ExportQuery = call.query
    session = await call.serving.store.session(call.session_id)
    media, ending = MEDIA.get(query.to, ("application/json", "json"))
    name = "".join(one if one.isascii() and one.isalnum() else "-" for one in session.id)[:80]
    pieces = export_session(blocking(call.serving.store), session.id, query.to)
    # A page that was exported is a file: it never runs as a part of this site.
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return StreamingResponse(pieces, headers=headers, media_type=media)


async def get_blob(call: ApiCall) -> Response:
    """An image or a file that a message names; what is no image is only ever downloaded."""
    data = await call.serving.store.blob(call.path["name"])
    media = sniff(data)
    if media not in IMAGES:
        headers = {"Content-Disposition": "attachment"}
        return Response(data, headers=headers, media_type="application/octet-stream")
    return Response(data, media_type=media)


async def search(call: ApiCall) -> ApiAnswer:
    """Messages in which these words are."""
    query: SearchQuery = call.query
    filters: SearchFilters = {"order": query.order, "limit": query.limit}
    if query.session is not None:
        filters["session"] = query.session
    if query.role is not None:
        filters["role"] = query.role
    hits = await call.serving.store.search(query.q, **filters)
    return ApiAnswer(200, HitsOut(hits=[HitOut.of(one) for one in hits], behind=hits.behind))


async def stats(call: ApiCall) -> ApiAnswer:
    """Sessions, turns and interruptions, tokens and cost: day by day, and by model."""
    query: StatsQuery = call.query
    since, until = _day(query.since), _day(query.until)
    active: ActivityFilters = {}
    spent: UsageFilters = {}
    if since is not None:
        active["since"] = spent["since"] = since
    if until is not None:
        active["until"] = spent["until"] = until
    store = call.serving.store
    value = StatsOut(
        activity=await store.activity(**active),
        usage=[_usage(one) for one in await store.usage("day", **spent)],
        models=[_usage(one) for one in await store.usage("model", **spent)],
    )
    return ApiAnswer(200, value)


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Refused(400, "invalid_request", "There is no such day.") from None


def _usage(total: Total) -> UsageDay:
    return UsageDay(
        day=total.name,
        calls=total.calls,
        input=total.input,
        output=total.output,
        cost=total.cost,
    )


async def about(call: ApiCall) -> ApiAnswer:
    """Which Killick this is, which model answers, and what this client may do."""
    may = call.serving.guard.may(call.request.headers) or "read"
    who = call.serving.answering
    value = About(version=version("killick"), model=who.model, lacks=who.lacks, may=may)
    return ApiAnswer(200, value)


OPERATIONS = (
    Operation("GET", "/api/about", about, {200: About}),
    Operation("GET", ONE + "/messages", get_messages, {200: MessagesOut}, query=MessageQuery,
              errors=(404, 410)),
    Operation("GET", ONE + "/transcript", get_transcript, {200: TranscriptOut},
              errors=(404, 410)),
    Operation("GET", ONE + "/context", get_context, {200: ContextOut}, query=ContextQuery,
              errors=(404, 410)),
    Operation("GET", ONE + "/export", export, {200: "*/*"}, query=ExportQuery,
              errors=(404, 410)),
    Operation("GET", "/api/blobs/{name}", get_blob, {200: "*/*"}, errors=(404,)),
    Operation("GET", "/api/search", search, {200: HitsOut}, query=SearchQuery, errors=(404,)),
    Operation("GET", "/api/stats", stats, {200: StatsOut}, query=StatsQuery),
)  # fmt: skip
