"""Turns as runs of AG-UI, for front ends that speak it: begun, followed, resumed."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from killick.adapters.ag_ui import find_run, run_events, snapshot
from killick.model.limits import ID_BYTES_MAX
from killick.server.endpoint import SESSION, ApiAnswer, ApiCall, Operation
from killick.server.events import LAST_EVENT, PulledStream
from killick.server.responses import Refused
from killick.server.schemas import EventQuery, Failure
from killick.session.aio import AsyncSession

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_BYTES_MAX)]
_PROMPT_LAST: Final = "The last message is to be the user's, with text: that is the prompt."


class RunMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a front end; of those that it sends, only the newest is asked."""

    role: str
    content: str | list[dict[str, Any]] | None = None


class RunInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request of a front end, as AG-UI says. Other fields of it are left alone."""

    thread_id: Name
    run_id: Name
    messages: Annotated[list[RunMessage], msgspec.Meta(min_length=1)]


class SnapshotOut(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation so far, as one event of AG-UI."""

    type: str
    messages: list[dict[str, Any]]


async def begin_run(call: ApiCall) -> Response:
    """Ask as a front end of AG-UI does, and send the run's events.

    The thread is the session, which is made if there is none; the run's id is the turn's key, so
    that a run that is posted again is sent on, from `Last-Event-ID`, and never runs twice.
    """
    given: RunInput = call.body
    prompt = _prompt(given.messages[-1])
    session = await call.service.store.open_session(given.thread_id)
    begun = await call.service.turns.begin(session.id, prompt, {"key": given.run_id})
    return await _follow(call, session, begun.turn_id, call.request.headers.get(LAST_EVENT), given)


async def get_run(call: ApiCall) -> Response:
    """Send a turn as a run of AG-UI: live, from the middle on, or when it is over."""
    query: EventQuery = call.query
    session = await call.service.store.session(call.session_id)
    after = call.request.headers.get(LAST_EVENT) or query.after
    return await _follow(call, session, call.path["turn_id"], after, None)


async def get_snapshot(call: ApiCall) -> ApiAnswer:
    """Return the conversation so far, for a front end of AG-UI that comes anew."""
    session = await call.service.store.session(call.session_id)
    return ApiAnswer(200, msgspec.convert(snapshot(await session.messages()), SnapshotOut))


async def _follow(
    call: ApiCall, session: AsyncSession, turn_id: str, after: str | None, given: RunInput | None
) -> Response:
    await find_run(session, turn_id, after)  # refused before the answer begins
    run_id = None if given is None else given.run_id
    client = call.admit_stream()
    pieces = _pieces(session, turn_id, after, run_id)
    return PulledStream(call.service, pieces, client, failed=_run_error)


async def _pieces(
    session: AsyncSession, turn_id: str, after: str | None, run_id: str | None
) -> AsyncGenerator[bytes, None]:
    async with aclosing(run_events(session, turn_id, after=after, run_id=run_id)) as events:
        async for event in events:
            yield event.encode()


def _run_error(failure: Failure) -> bytes:
    """Say that the run cannot be followed; without an id, so that a client can come back."""
    event = {"type": "RUN_ERROR", "message": failure.message, "code": failure.code}
    return f"data: {json.dumps(event)}\n\n".encode()


def _prompt(message: RunMessage) -> str:
    """Return the text of the newest message. Raises Refused if it is none of the user's."""
    text = message.content
    if isinstance(text, list):
        text = "\n".join(str(part["text"]) for part in text if part.get("type") == "text")
    if message.role != "user" or not text:
        raise Refused(422, "refused", _PROMPT_LAST)
    return text


OPERATIONS = (
    Operation("POST", "/api/ag-ui", begin_run, {200: "text/event-stream"}, "write", body=RunInput,
              headers=(LAST_EVENT,), errors=(404, 409, 410, 422)),
    Operation("GET", SESSION + "/ag-ui", get_snapshot, {200: SnapshotOut}, errors=(404, 410)),
    Operation("GET", SESSION + "/turns/{turn_id}/ag-ui", get_run, {200: "text/event-stream"},
              query=EventQuery, headers=(LAST_EVENT,), errors=(404, 410)),
)  # fmt: skip
