"""Operations: a request decoded, its handler called, its answer encoded."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from killick.server.auth import Token
from killick.server.hub import Client
from killick.server.responses import JSON, Refused, compressed, refuse, respond
from killick.server.service import ServerSettings, Service

SESSION: Final = "/api/sessions/{session_id}"
Scopes = Literal["open", "read", "write"]
HEADER: Final = "^[ -~]{1,1000}$"
"""What a header of ours may hold."""


_OF_FORMS: Final = frozenset(
    {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}
)
"""What a page of another site can send without asking first."""


class ApiCall(NamedTuple):
    """One request, decoded."""

    service: Service
    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any
    token: Token

    @property
    def session_id(self) -> str:
        return self.path["session_id"]

    def admit_stream(self) -> Client:
        """Take a place for a stream to this client. Raises Refused when there is none."""
        guard, headers = self.service.guard, self.request.headers
        return self.service.hub.admit(self.token.id, lambda: guard.still_may_read(headers))


class ApiAnswer(NamedTuple):
    """A handler's answer: a status and a value."""

    status: int
    value: object


Handler = Callable[[ApiCall], Awaitable["ApiAnswer | Response"]]


class Operation(NamedTuple):
    """One way to ask. `answers` are the types of what may come back, by status."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: Handler
    answers: Mapping[int, "type[msgspec.Struct] | str"]
    needs: Scopes = "read"
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    raw: bool = False
    """The body is a file, as it is."""

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


class Endpoint:
    """One operation as the router calls it."""

    def __init__(self, service: Service, operation: Operation) -> None:
        self._serving = service
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope["killick.route"] = self._operation.path
        async with AsyncExitStack() as part:
            try:
                response = compressed(await self._answer(request, part), request.headers)
            except Exception as error:  # noqa: BLE001  (told to the client, and to the log)
                response = refuse(error)
                if response.status_code >= 500:
                    scope.get("killick.log", self._serving.log).failed(request, error)
            await response(scope, receive, send)

    async def _answer(self, request: Request, part: AsyncExitStack) -> Response:
        """Answer a request; its tenant's part is open until what it answers was sent."""
        operation = self._operation
        token = self._serving.guard.authorise(request.headers, operation.needs)
        service = await part.enter_async_context(self._serving.of(token.tenant))
        request.scope["killick.log"] = service.log
        for name in operation.headers:
            if not re.search(HEADER, request.headers.get(name, "-")):
                raise Refused(400, "invalid_request", f"{name} is no such value.")
        call = ApiCall(
            service,
            request,
            request.path_params,
            _query(request, operation),
            await _body(request, operation, service.settings),
            token,
        )
        answer = await operation.handler(call)
        return answer if isinstance(answer, Response) else respond(*answer)


def _query(request: Request, operation: Operation) -> object:
    if operation.query is None:
        if request.query_params:
            raise Refused(400, "invalid_request", "This address takes no query.")
        return None
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if len(names) != len(set(names)):
        raise Refused(400, "invalid_request", "A name stands twice in the query.")
    query: object = msgspec.convert(dict(given), operation.query, strict=False)
    for name in names:
        if getattr(query, name) is None:  # the word "null" was taken for no value
            raise Refused(400, "invalid_request", f"`{name}` has no value.")
    return query


async def _body(request: Request, operation: Operation, settings: ServerSettings) -> object:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if operation.raw:
        if kind in _OF_FORMS:
            raise Refused(415, "not_a_file", "Send a file, as application/octet-stream.")
        return await _read(request, settings.import_bytes)
    data = await _read(request, settings.body_bytes)
    if operation.body is None:
        return None
    if data and kind != JSON:
        raise Refused(415, "not_json", "Send JSON, with Content-Type: application/json.")
    try:
        return msgspec.json.decode(data or b"{}", type=operation.body)
    except UnicodeDecodeError:
        raise Refused(400, "invalid_request", "The body is not UTF-8.") from None
    except RecursionError:
        raise Refused(400, "invalid_request", "The body is nested too deeply.") from None


async def _read(request: Request, limit: int) -> bytes:
    too_large = Refused(413, "body_too_large", f"The body is larger than {limit} bytes.")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)
