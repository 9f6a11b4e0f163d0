"""Answers: every way in which a request can fail, with its status, code and sentence."""

import gzip
import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from killick import errors as e
from killick.model.sessions import TurnInfo
from killick.server.schemas import Failure

JSON: Final = "application/json"

KINDS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (e.InvalidCursor, 400, "invalid_cursor"),
    (e.InvalidQuery, 400, "invalid_query"),
    (e.BudgetTooSmall, 400, "budget_too_small"),
    (e.InvalidEntry, 422, "invalid_entry"),
    (e.SessionDeleted, 410, "session_deleted"),
    (e.SessionNotFound, 404, "session_not_found"),
    (e.TurnNotFound, 404, "turn_not_found"),
    (e.SeqNotFound, 404, "seq_not_found"),
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
_WORTH_PACKING: Final = 1_024
_LEVEL: Final = 5
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

    def tell(self, turn: TurnInfo) -> None:
        """Add what is known of the turn that it is about."""
        self.failure = msgspec.structs.replace(
            self.failure,
            turn_id=turn.id,
            status=turn.status,
            reason=turn.reason,
            cause=turn.cause,
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
        return Failure(
            code=code,
            message=message,
            status=error.status,
            reason=error.reason,
            cause=error.cause,
        )
    if isinstance(error, e.SeqNotFound):
        return Failure(code=code, message=message, head=error.head)
    if isinstance(error, e.StoreError):
        # The driver's words may name files of this machine.
        return Failure(code=code, message="The store cannot serve this now; the log says why.")
    if code == "failed":  # the client may not even have shown a token
        return Failure(code=code, message=_FAILED)
    return Failure(code=code, message=message)


_LINE_ENDS: Final = "\u0085\u2028\u2029"


def sentence(text: str) -> str:
    """Words of an error as a sentence in one line."""
    text = re.sub(r"\s+", " ", text).strip() or "It was refused."
    text = text.encode("utf-8", "replace").decode()
    text = text[:500]
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def encode(value: object) -> bytes:
    """Any value as JSON; what is no text, as lone surrogates are not, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def encode_line(value: object) -> bytes:
    """The same, in one line also for a client that reads lines as Python does."""
    line = encode(value)
    for mark in _LINE_ENDS:
        line = line.replace(mark.encode(), b"\\u%04x" % ord(mark))
    return line


def respond(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    # A browser keeps some answers unasked, a 410 among them, and then shows what is no longer so.
    return Response(encode(value), status, {"Cache-Control": "no-store", **(headers or {})}, JSON)


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether a client takes gzip; one that says q=0 does not."""
    for wanted in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = wanted.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0")
    return False


def compressed(response: Response, headers: Mapping[str, str]) -> Response:
    """Pack a JSON answer for a client that takes it; others, and small ones, go as they are."""
    body = getattr(response, "body", b"")
    if response.media_type != JSON or len(body) < _WORTH_PACKING or not accepts_gzip(headers):
        return response
    response.body = gzip.compress(body, _LEVEL, mtime=0)
    response.headers["content-encoding"] = "gzip"
    response.headers["content-length"] = str(len(response.body))
    response.headers["vary"] = "Accept-Encoding"
    return response


def refuse(error: Exception) -> Response:
    status, failure = explain(error)
    headers = error.headers if isinstance(error, Refused) else {}
    return respond(status, failure, headers)
