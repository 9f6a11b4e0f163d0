"""Reading: messages, transcript, context, exports, searches, figures, health."""

from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from typing import Final

from starlette.responses import Response, StreamingResponse

from killick.errors import BudgetTooSmall
from killick.exchange.export import export_session
from killick.journal.summary import Total
from killick.model import entries as e
from killick.server.endpoint import SESSION, ApiAnswer, ApiCall, Operation
from killick.server.responses import Refused
from killick.server.schemas import (
    About,
    ContextOut,
    ContextQuery,
    ExportQuery,
    Health,
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
from killick.server.service import Service
from killick.session.aio import AsyncSession, blocking
from killick.stores.contract import Histogram
from killick.views.formats.common import IMAGES, sniff

MEDIA: Final = {
    "killick": ("application/jsonl", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_UNDO_WITHIN: Final = 50


async def get_messages(call: ApiCall) -> ApiAnswer:
    """Messages that began, grew, ended or got a result after a seq; all of them without one."""
    query: MessageQuery = call.query
    session = await call.service.store.session(call.session_id)
    changes = await session.changes(after=query.after)
    messages = [MessageOut.of(message) for message in changes.messages]
    return ApiAnswer(200, MessagesOut(messages=messages, head=changes.head, whole=changes.whole))


async def get_transcript(call: ApiCall) -> ApiAnswer:
    """Return the transcript; events after its cursor go on from there."""
    session = await call.service.store.session(call.session_id)
    cursor = str(session.head)  # before reading: what is read twice changes nothing
    shown = await session.transcript()
    turns = await session.turns()
    value = TranscriptOut(
        shown=[ShownOut.of(item) for item in shown],
        turns=[TurnOut.of(turn) for turn in turns],
        undoable=await _undoable(session),
        cursor=cursor,
    )
    return ApiAnswer(200, value)


async def _undoable(session: AsyncSession) -> int | None:
    """The rewind that nothing was said after yet, if it is among the newest entries."""
    seq: int | None = None
    for entry in await session.entries(after=max(0, session.head - _UNDO_WITHIN)):
        if isinstance(entry.body, e.Rewound):
            seq = entry.seq
        elif isinstance(entry.body, e.TurnStarted | e.Undone):
            seq = None
    return seq


async def get_context(call: ApiCall) -> ApiAnswer:
    """Return what a model would be sent now, in one provider's shape, and its repairs."""
    query: ContextQuery = call.query
    session = await call.service.store.session(call.session_id)
    try:
        context = await session.context(
            query.format,
            profile=query.profile,
            max_messages=query.max_messages,
            max_tokens=query.max_tokens,
            max_bytes=query.max_bytes,
        )
    except BudgetTooSmall:
        raise
    except ValueError as error:  # a profile that is not there, or not of this format
        raise Refused(400, "invalid_query", str(error)) from error
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
    session = await call.service.store.session(call.session_id)
    media, ending = MEDIA.get(query.to, ("application/json", "json"))
    name = "".join(
        letter if letter.isascii() and letter.isalnum() else "-" for letter in session.id
    )[:80]
    pieces = export_session(blocking(call.service.store), session.id, query.to)
    # A page that was exported is a file: it never runs as a part of this site.
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return StreamingResponse(pieces, headers=headers, media_type=media)


async def get_blob(call: ApiCall) -> Response:
    """An image or a file that a message names; what is no image is only ever downloaded."""
    data = await call.service.store.blob(call.path["name"])
    media = sniff(data)
    if media not in IMAGES:
        headers = {"Content-Disposition": "attachment"}
        return Response(data, headers=headers, media_type="application/octet-stream")
    return Response(data, media_type=media)


async def search(call: ApiCall) -> ApiAnswer:
    """Messages in which these words are."""
    query: SearchQuery = call.query
    hits = await call.service.store.search(
        query.q, session=query.session, role=query.role, order=query.order, limit=query.limit
    )
    return ApiAnswer(200, HitsOut(hits=[HitOut.of(hit) for hit in hits], behind=hits.behind))


async def stats(call: ApiCall) -> ApiAnswer:
    """Sessions, turns and interruptions, tokens and cost: day by day, and by model."""
    query: StatsQuery = call.query
    since, until = _day(query.since), _day(query.until)
    store = call.service.store
    value = StatsOut(
        activity=await store.activity(since=since, until=until),
        usage=[_usage(total) for total in await store.usage("day", since=since, until=until)],
        models=[_usage(total) for total in await store.usage("model", since=since, until=until)],
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
    """Return the version, the model that answers, and what this client may do."""
    may = call.service.guard.may(call.request.headers) or "read"
    who = call.service.runner
    value = About(version=version("killick"), model=who.model, lacks=who.lacks, may=may)
    return ApiAnswer(200, value)


def prometheus(service: Service) -> str:
    """Every figure, with what it means."""
    return "\n".join(_lines(service)) + "\n"


def _lines(service: Service) -> Iterator[str]:
    figures, hub, turns = service.store.figures, service.hub, service.turns
    for name, kind, text, value in (
        ("store_appends_total", "counter", "Writes handed to the store.", figures.operations),
        ("store_refused_total", "counter", "Writes that were refused.", figures.refused),
        ("store_followers", "gauge", "Who follows sessions in here.", figures.followers),
        ("open_turns", "gauge", "Turns that run in this process.", figures.turns),
        ("recovered_turns_total", "counter", "Turns closed for the dead.", figures.recovered),
        ("open_streams", "gauge", "Event streams of clients.", hub.streams),
        ("events_total", "counter", "Events handed to clients as they came.", hub.told),
        ("reloads_total", "counter", "Clients that were told to reload.", hub.reloads),
    ):
        yield from _one(name, kind, text, value)
    yield from _histogram("store_commit_seconds", "How long commits took.", figures.commit_seconds)
    yield from _histogram("store_commit_size", "Writes in one commit.", figures.commit_sizes)
    yield "# HELP killick_turns_total Turns that ended here, by how."
    yield "# TYPE killick_turns_total counter"
    for status, count in turns.outcomes.items():
        yield f'killick_turns_total{{status="{status}"}} {count}'


def _one(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield f"# HELP killick_{name} {text}"
    yield f"# TYPE killick_{name} {kind}"
    yield f"killick_{name} {value:g}"


def _histogram(name: str, text: str, values: Histogram) -> Iterator[str]:
    yield f"# HELP killick_{name} {text}"
    yield f"# TYPE killick_{name} histogram"
    so_far = 0
    for bound, count in zip((*values.bounds, None), values.counts, strict=True):
        so_far += count
        label = "+Inf" if bound is None else f"{bound:g}"
        yield f'killick_{name}_bucket{{le="{label}"}} {so_far}'
    yield f"killick_{name}_sum {values.total:g}"
    yield f"killick_{name}_count {so_far}"


async def healthz(_call: ApiCall) -> ApiAnswer:
    """The process lives."""
    return ApiAnswer(200, Health(status="ok"))


async def readyz(call: ApiCall) -> ApiAnswer:
    """The server takes work: it is not shutting down, and its store can be written."""
    if call.service.draining:
        raise Refused(503, "shutting_down", "This server is shutting down.")
    if call.service.store.status != "ok":
        raise Refused(503, "store_unavailable", "The store cannot be written now.")
    await call.service.store.sessions(limit=1)
    return ApiAnswer(200, Health(status="ok"))


async def metrics(call: ApiCall) -> Response:
    """Figures in Prometheus' text format."""
    return Response(prometheus(call.service), media_type="text/plain; version=0.0.4")


OPERATIONS = (
    Operation("GET", "/api/about", about, {200: About}),
    Operation("GET", SESSION + "/messages", get_messages, {200: MessagesOut}, query=MessageQuery,
              errors=(404, 410)),
    Operation("GET", SESSION + "/transcript", get_transcript, {200: TranscriptOut},
              errors=(404, 410)),
    Operation("GET", SESSION + "/context", get_context, {200: ContextOut}, query=ContextQuery,
              errors=(404, 410)),
    Operation("GET", SESSION + "/export", export, {200: "*/*"}, query=ExportQuery,
              errors=(404, 410)),
    Operation("GET", "/api/blobs/{name}", get_blob, {200: "*/*"}, errors=(404,)),
    Operation("GET", "/api/search", search, {200: HitsOut}, query=SearchQuery, errors=(404,)),
    Operation("GET", "/api/stats", stats, {200: StatsOut}, query=StatsQuery),
    Operation("GET", "/healthz", healthz, {200: Health}, "open"),
    Operation("GET", "/readyz", readyz, {200: Health}, "open"),
    Operation("GET", "/metrics", metrics, {200: "text/plain"}),
)  # fmt: skip
