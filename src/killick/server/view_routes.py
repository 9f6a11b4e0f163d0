"""Reading: messages, transcript, context, exports, searches, figures, health."""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import anyio
import msgspec
from starlette.responses import Response, StreamingResponse

from killick.errors import BlobNotFound, BudgetTooSmall, SeqNotFound
from killick.exchange.export import export_session
from killick.exchange.importer import import_paths
from killick.exchange.records import Report
from killick.journal.summary import Total
from killick.model import entries as e
from killick.model.sessions import TurnInfo
from killick.server.endpoint import SESSION, ApiAnswer, ApiCall, Operation
from killick.server.metrics import FigureValues, by_label, histogram, render, single
from killick.server.responses import Refused, encode, sentence
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
    StatsOut,
    StatsQuery,
    TurnOut,
    UsageDay,
)
from killick.server.service import Service
from killick.server.view_schemas import (
    CallOut,
    CallsOut,
    ImportedOut,
    ImportQuery,
    JournalOut,
    SentMessage,
    SentOut,
    SentQuery,
    ShownOut,
    TimelineOut,
    ToolOut,
    ToolQuery,
    TranscriptOut,
    TranscriptQuery,
)
from killick.session.aio import AsyncSession, blocking
from killick.views.budget import estimate_tokens
from killick.views.context import Context, Format
from killick.views.formats.common import IMAGES, sniff
from killick.views.sent import hash_request
from killick.views.timeline import timeline
from killick.views.transcript import Shown

MEDIA: Final = {
    "killick": ("application/jsonl", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_UNDO_WITHIN: Final = 50
MESSAGE_FORMATS: Final[tuple[str, ...]] = get_args(Format)
_IMPORTED: Final = (".jsonl", ".json", ".md")
"""Endings of files that can be dropped on the page: text only, no database and nothing packed."""


async def get_messages(call: ApiCall) -> ApiAnswer:
    """Messages that began, grew, ended or got a result after a seq; all of them without one."""
    query: MessageQuery = call.query
    session = await call.service.store.session(call.session_id)
    changes = await session.changes(after=query.after)
    messages = [MessageOut.of(message) for message in changes.messages]
    return ApiAnswer(200, MessagesOut(messages=messages, head=changes.head, whole=changes.whole))


async def get_transcript(call: ApiCall) -> ApiAnswer:
    """Return the transcript, or a page of it; events after its cursor go on from there."""
    query: TranscriptQuery = call.query
    session = await call.service.store.session(call.session_id)
    cursor = str(session.head)  # before reading: what is read twice changes nothing
    shown = await session.transcript(at=query.at)
    if query.inside is not None:
        shown = _inside(shown, query.inside)
    page, earlier = _page(shown, query)
    turns = await session.turns()
    if query.at is not None:
        turns = [turn for turn in turns if turn.seq <= query.at]
    if query.last is not None:
        turns = _turns_of(page, turns)
    begin = min((turn.seq for turn in turns), default=1)
    timed = {turn.id: turn for turn in timeline(await session.entries(after=begin - 1))}
    value = TranscriptOut(
        shown=[ShownOut.of(item, query.text, folded=query.last is None) for item in page],
        turns=[TurnOut.of(turn, timed.get(turn.id)) for turn in turns],
        undoable=await _undoable(session),
        cursor=cursor,
        before=page[0].seq if page and earlier else None,
        earlier=earlier,
    )
    return ApiAnswer(200, value)


def _inside(shown: Sequence[Shown], seq: int) -> list[Shown]:
    """Return what the fold at a seq stands for, however deep it lies. Raises Refused."""
    folds = [item for item in shown if item.kind == "compaction"]
    for item in folds:
        if item.seq == seq:
            return list(item.folded)
    for item in folds:
        with contextlib.suppress(Refused):
            return _inside(item.folded, seq)
    raise Refused(404, "fold_not_found", "No summary stands at that seq.")


def _page(shown: Sequence[Shown], query: TranscriptQuery) -> tuple[Sequence[Shown], int]:
    """Return the page that was asked for, and how many things come before it."""
    if query.before is not None:
        shown = [item for item in shown if item.seq < query.before]
    start = 0
    if query.since is not None:
        start = sum(item.seq < query.since for item in shown)
    if query.last is not None:
        newest = max(0, len(shown) - query.last)
        start = newest if query.since is None else min(start, newest)
    return shown[start:], start


def _turns_of(page: Sequence[Shown], turns: Sequence[TurnInfo]) -> list[TurnInfo]:
    """Return the turns of a page, those that they repeat, and the newest."""
    wanted = {item.turn_id for item in page}
    chain = {turn.id: turn.retry_of for turn in turns}
    for turn_id in list(wanted):
        before = chain.get(turn_id or "")
        while before is not None and before not in wanted:
            wanted.add(before)
            before = chain.get(before)
    return [turn for turn in turns if turn.id in wanted or turn is turns[-1]]


async def get_tool(call: ApiCall) -> ApiAnswer:
    """Return one tool call with all that it printed and returned."""
    query: ToolQuery = call.query
    session = await call.service.store.session(call.session_id)
    waiting = list(await session.transcript())
    while waiting:
        item = waiting.pop()
        waiting += item.folded
        for tool in item.tools if item.id == query.message_id else ():
            if tool.call_id == query.call_id:
                return ApiAnswer(200, ToolOut.of(tool))
    raise Refused(404, "call_not_found", "No such call is shown in this session.")


async def get_timeline(call: ApiCall) -> ApiAnswer:
    """Return when everything happened: turns, model calls, tools, and what waited for a person."""
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, TimelineOut(turns=await session.timeline()))


async def get_journal(call: ApiCall) -> ApiAnswer:
    """Return the kinds and moments of all entries, for a person who looks for a place."""
    session = await call.service.store.session(call.session_id)
    entries = await session.entries()
    value = JournalOut(
        head=entries[-1].seq if entries else 0,
        kinds=[entry.kind for entry in entries],
        at_us=[entry.at_us for entry in entries],
        broke_off=[entry.seq for entry in entries if _broke_off(entry.body)],
    )
    return ApiAnswer(200, value)


def _broke_off(body: object) -> bool:
    return isinstance(body, e.TurnEnding) and body.status != "completed"


async def get_calls(call: ApiCall) -> ApiAnswer:
    """Return all requests to models, in order."""
    session = await call.service.store.session(call.session_id)
    entries = await session.entries()
    ends = {
        entry.body.id: entry.body for entry in entries if isinstance(entry.body, e.ModelCallEnded)
    }
    calls = [
        CallOut.of(entry, entry.body, ends.get(entry.body.id))
        for entry in entries
        if isinstance(entry.body, e.ModelCallStarted)
    ]
    return ApiAnswer(200, CallsOut(calls=calls))


async def get_sent(call: ApiCall) -> ApiAnswer:
    """Return what a model was sent in one call, computed from the journal, and its proof."""
    query: SentQuery = call.query
    session = await call.service.store.session(call.session_id)
    calls = [
        (entry.seq, entry.body)
        for entry in await session.entries()
        if isinstance(entry.body, e.ModelCallStarted)
    ]
    number = next((n for n, (_, body) in enumerate(calls) if body.id == call.path["call_id"]), None)
    if number is None:
        raise Refused(404, "call_not_found", "No such request was made in this session.")
    seq, body = calls[number]
    context = await _sent_context(session, seq, body, query.format)
    before: list[dict[str, Any]] = []
    if number:
        before = (await _sent_context(session, *calls[number - 1], context.format)).messages
    same = _shared(before, context.messages)
    proof: Literal["equal", "different", "not recorded"] = "not recorded"
    if body.request is not None and body.request.view is not None:
        again = hash_request(body, context.format, context.messages)
        proof = "equal" if again == body.request.hash else "different"
    value = SentOut(
        id=body.id,
        format=context.format,
        model=body.model,
        settings=body.settings,
        system=context.system,
        tools=await _tools(call, body),
        messages=[
            SentMessage(
                body=message, tokens=estimate_tokens(encode(message).decode()), new=at >= same
            )
            for at, message in enumerate(context.messages)
        ],
        repairs=context.repairs,
        proof=proof,
        dropped=len(before) - same,
    )
    return ApiAnswer(200, value)


def _shared(before: Sequence[object], now: Sequence[object]) -> int:
    """Return how many messages two requests have in common from their beginning."""
    count = 0
    for then, message in zip(before, now, strict=False):
        if then != message:
            break
        count += 1
    return count


async def _sent_context(
    session: AsyncSession, seq: int, body: e.ModelCallStarted, format_: Any
) -> Context:
    """Compute a request as its record says; without one, from all that was there by then."""
    sent = body.request
    if sent is None or sent.view is None:
        format_ = sent.format if sent is not None and sent.format in MESSAGE_FORMATS else format_
        return await session.context(format_, at=seq - 1)
    view = sent.view
    shown: Any = sent.format
    return await session.context(
        shown,
        at=view.through,
        before_turn=view.before_turn,
        max_messages=view.max_messages,
        max_tokens=view.max_tokens if view.counter is None else None,
        max_bytes=view.max_bytes,
        profile=view.profile,
        partial=cast("Any", view.partial),
        reasoning=view.reasoning,
        errors=cast("Any", view.errors),
    )


async def _tools(call: ApiCall, body: e.ModelCallStarted) -> Any:
    """Return the definitions of the tools that the model was told of, if they were recorded."""
    if body.tools is None:
        return None
    try:
        return msgspec.json.decode(await call.service.store.blob(body.tools))
    except (BlobNotFound, msgspec.DecodeError, UnicodeDecodeError):
        return None


async def import_file(call: ApiCall) -> ApiAnswer:
    """Bring in the sessions of a file: an export of ours, or one that another agent wrote."""
    query: ImportQuery = call.query
    store = blocking(call.service.store)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", query.name)
    if not name.lower().endswith(_IMPORTED):
        raise Refused(422, "refused", f"Files that end in {', '.join(_IMPORTED)} can be taken.")

    def work() -> Report:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "dropped" + name[-80:])
            path.write_bytes(call.body)
            return import_paths(store, [path], as_is=True)

    report = await anyio.to_thread.run_sync(work)
    brought = list(dict.fromkeys(outcome.session_id for outcome in report.sessions))
    problems = [problem.reason for problem in report.problems][:20]
    if not brought:
        why = problems[0] if problems else "no session of a known format is in it"
        raise Refused(422, "nothing_imported", sentence(why))
    call.service.log.info("imported", sessions=len(brought))
    return ApiAnswer(201, ImportedOut(sessions=brought, problems=[sentence(p) for p in problems]))


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
            at=query.at,
            profile=query.profile,
            max_messages=query.max_messages,
            max_tokens=query.max_tokens,
            max_bytes=query.max_bytes,
        )
    except (BudgetTooSmall, SeqNotFound):
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
    shown = [HitOut.of(hit) for hit in hits]
    return ApiAnswer(200, HitsOut(hits=shown, behind=hits.behind, ranked=hits.ranked))


async def stats(call: ApiCall) -> ApiAnswer:
    """Sessions, turns and interruptions, tokens and cost: day by day, and by model."""
    query: StatsQuery = call.query
    since, until = _day(query.since), _day(query.until)
    store = call.service.store
    activity = await store.activity(since=since, until=until)
    days = await store.usage("day", since=since, until=until)
    models = await store.usage("model", since=since, until=until)
    value = StatsOut(
        activity=list(activity),
        usage=[_usage(total) for total in days],
        models=[_usage(total) for total in models],
        behind=max(activity.behind, days.behind, models.behind),
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
    who = call.service.runner
    value = About(version=version("killick"), model=who.model, lacks=who.lacks, may=call.token.may)
    return ApiAnswer(200, value)


def families(service: Service) -> Iterator[FigureValues]:
    """Yield every figure of one tenant's part of this server."""
    figures, hub, turns = service.store.figures, service.hub, service.turns
    can_write = service.store.status == "ok"
    yield FigureValues("server", "info", "Version.", (("", f'version="{version("killick")}"', 1),))
    is_ready = can_write and not service.draining
    yield single("server_ready", "gauge", "1 while it takes work.", is_ready)
    yield single("store_writable", "gauge", "1 while the store can be written.", can_write)
    yield single("store_appends", "counter", "Writes handed to the store.", figures.operations)
    yield single("store_refused", "counter", "Writes that were refused.", figures.refused)
    yield single("store_followers", "gauge", "Who follows sessions in here.", figures.followers)
    damaged = service.damaged_sessions
    yield single("damaged_sessions", "gauge", "Found by the last verification.", damaged)
    yield single("open_turns", "gauge", "Turns that run in this process.", figures.turns)
    yield single("recovered_turns", "counter", "Turns closed for the dead.", figures.recovered)
    yield single("open_streams", "gauge", "Event streams of clients.", hub.streams)
    yield single("events", "counter", "Events handed to clients as they came.", hub.told)
    yield single("reloads", "counter", "Clients that were told to reload.", hub.reloads)
    yield histogram("store_commit_seconds", "How long commits took.", figures.commit_seconds)
    yield histogram("store_commit_size", "Writes in one commit.", figures.commit_sizes)
    yield by_label("turns", "counter", "Turns that ended here, by how.", "status", turns.outcomes)


async def livez(_call: ApiCall) -> ApiAnswer:
    """The process lives: its event loop answers. It may be that its store does not."""
    return ApiAnswer(200, Health(status="ok"))


async def healthz(call: ApiCall) -> ApiAnswer:
    """The process lives; the older name of /livez."""
    return await livez(call)


async def readyz(call: ApiCall) -> ApiAnswer:
    """The server takes work: it is not shutting down, and its store can be written."""
    if call.service.draining:
        raise Refused(503, "shutting_down", "This server is shutting down.")
    if call.service.store.status != "ok":
        raise Refused(503, "store_unavailable", "The store cannot be written now.")
    await call.service.store.sessions(limit=1)
    return ApiAnswer(200, Health(status="ok"))


async def metrics(call: ApiCall) -> Response:
    """Figures in OpenMetrics for a client that takes it, else in Prometheus' text format."""
    media, text = render(families(call.service), call.request.headers.get("accept", ""))
    return Response(text, media_type=media)


OPERATIONS = (
    Operation("GET", "/api/about", about, {200: About}),
    Operation("GET", SESSION + "/messages", get_messages, {200: MessagesOut}, query=MessageQuery,
              errors=(404, 410)),
    Operation("GET", SESSION + "/transcript", get_transcript, {200: TranscriptOut},
              query=TranscriptQuery, errors=(404, 410)),
    Operation("GET", SESSION + "/tool", get_tool, {200: ToolOut}, query=ToolQuery,
              errors=(404, 410)),
    Operation("GET", SESSION + "/timeline", get_timeline, {200: TimelineOut}, errors=(404, 410)),
    Operation("GET", SESSION + "/journal", get_journal, {200: JournalOut}, errors=(404, 410)),
    Operation("GET", SESSION + "/calls", get_calls, {200: CallsOut}, errors=(404, 410)),
    Operation("GET", SESSION + "/calls/{call_id}", get_sent, {200: SentOut}, query=SentQuery,
              errors=(404, 410)),
    Operation("POST", "/api/import", import_file, {201: ImportedOut}, "write", query=ImportQuery,
              raw=True, errors=(422,)),
    Operation("GET", SESSION + "/context", get_context, {200: ContextOut}, query=ContextQuery,
              errors=(404, 410)),
    Operation("GET", SESSION + "/export", export, {200: "*/*"}, query=ExportQuery,
              errors=(404, 410)),
    Operation("GET", "/api/blobs/{name}", get_blob, {200: "*/*"}, errors=(404,)),
    Operation("GET", "/api/search", search, {200: HitsOut}, query=SearchQuery, errors=(404,)),
    Operation("GET", "/api/stats", stats, {200: StatsOut}, query=StatsQuery),
    Operation("GET", "/livez", livez, {200: Health}, "open"),
    Operation("GET", "/healthz", healthz, {200: Health}, "open"),
    Operation("GET", "/readyz", readyz, {200: Health}, "open"),
    Operation("GET", "/metrics", metrics, {200: "*/*"}),
)  # fmt: skip
