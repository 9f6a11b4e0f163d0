"""Every way in which a request can fail: its status, its stable code and a sentence. Pure."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from killick import errors as e
from killick.server.schemas import Failure

if TYPE_CHECKING:
    from killick.server.state import Serving

KINDS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (e.InvalidCursor, 400, "invalid_cursor"),
    (e.InvalidQuery, 400, "invalid_query"),
    (e.InvalidEntry, 422, "invalid_entry"),
    (e.SessionDeleted, 410, "session_deleted"),
    (e.SessionNotFound, 404, "session_not_found"),
    (e.TurnNotFound, 404, "turn_not_found"),
    (e.MessageNotFound, 404, "message_not_found"),
    (e.CallNotFound, 404, "call_not_found"),
    (e.BlobNotFound, 404, "blob_not_found"),
    (e.SessionBusy, 409, "session_busy"),
    (e.IdConflict, 409, "id_conflict"),
    (e.UndoRefused, 409, "undo_refused"),
    (e.SessionHasForks, 409, "session_has_forks"),
    (e.TurnEnded, 409, "turn_ended"),
    (e.ConflictError, 409, "conflict"),
    (e.UsageError, 422, "refused"),
    (e.SessionDamaged, 500, "session_damaged"),
    (e.SearchDamaged, 503, "search_damaged"),
    (e.StoreBusy, 503, "store_busy"),
    (e.StoreError, 503, "store_unavailable"),
    (e.KillickError, 500, "failed"),
    (ValueError, 422, "refused"),
)
"""The first that fits."""

UNEXPECTED: Final = "internal_error"
_FAILED: Final = "The server failed; its log says how."


class Refused(Exception):
    """A request that this server refuses, before or beside what the store says."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.failure = Failure(code=code, message=message)

    def tell(self, *, turn_id: str, status: str, reason: str | None) -> None:
        """Say what is known of the turn that it is about."""
        self.failure = msgspec.structs.replace(
            self.failure, turn_id=turn_id, status=status, reason=reason
        )


def explain(error: Exception) -> tuple[int, Failure]:
    """The status and what a client is told; nothing about the inside of the server."""
    if isinstance(error, Refused):
        return error.status, error.failure
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return 400, Failure(code="invalid_request", message=sentence(str(error)))
    for kind, status, code in KINDS:
        if isinstance(error, kind):
            return status, _failure(code, error)
    return 500, Failure(code=UNEXPECTED, message=_FAILED)


def _failure(code: str, error: Exception) -> Failure:
    message = sentence(str(error))
    if isinstance(error, e.SessionBusy):
        return Failure(code=code, message=message, turn_id=error.turn_id, holder=error.holder)
    if isinstance(error, e.TurnEnded):
        return Failure(code=code, message=message, status=error.status, reason=error.reason)
    if isinstance(error, e.StoreError):
        # The driver's words may name files of this machine.
        return Failure(code=code, message="The store cannot serve this now; the log says why.")
    if code == "failed":  # whoever is told may not even have shown a token
        return Failure(code=code, message=_FAILED)
    return Failure(code=code, message=message)


def sentence(text: str) -> str:
    """Words of an error as a sentence in one line."""
    text = re.sub(r"\s+", " ", text).strip() or "It was refused."
    text = text.encode("utf-8", "replace").decode()
    text = text[:500]
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


Scopes = Literal["open", "read", "write"]
JSON: Final = "application/json"
HEADER: Final = "^[ -~]{1,1000}$"
"""What a header of ours may hold."""


class ApiCall(NamedTuple):
    """One request, decoded."""

    serving: "Serving"
    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def session_id(self) -> str:
        return self.path["session_id"]


class ApiAnswer(NamedTuple):
    """What a handler answers with: a status and a value, or a response of its own making."""

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

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


def encode(value: object) -> bytes:
    """Any value as JSON; what is no text, as lone surrogates are not, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def respond(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    # A browser keeps some answers unasked, a 410 among them, and then shows what is no longer so.
    return Response(encode(value), status, {"Cache-Control": "no-store", **(headers or {})}, JSON)


def refuse(error: Exception) -> Response:
    status, failure = explain(error)
    headers = error.headers if isinstance(error, Refused) else {}
    return respond(status, failure, headers)


class Endpoint:
    """One operation as the router calls it."""

    def __init__(self, serving: "Serving", operation: Operation) -> None:
        self._serving = serving
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope["killick.route"] = self._operation.path
        try:
            response = await self._answer(request)
        except Exception as error:  # noqa: BLE001  (told to the client, and to the log)
            response = refuse(error)
            if response.status_code >= 500:
                self._serving.log.failed(request, error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        serving, operation = self._serving, self._operation
        serving.guard.authorise(request.headers, operation.needs)
        for name in operation.headers:
            if not re.search(HEADER, request.headers.get(name, "-")):
                raise Refused(400, "invalid_request", f"{name} is no such value.")
        call = ApiCall(
            serving,
            request,
            request.path_params,
            _query(request, operation),
            await _body(request, operation, serving.settings.body_bytes),
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
    return msgspec.convert(dict(given), operation.query, strict=False)


async def _body(request: Request, operation: Operation, limit: int) -> object:
    data = await _read(request, limit)
    if operation.body is None:
        return None
    if data and request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
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
