"""The log of a server: one JSON object in each line, ids and figures, never content.

What is said of another tenant than the server's own names it: tenants may use the same ids.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request

LOGGER: Final = logging.getLogger("killick.server")


class Log:
    """Every line a server writes goes through here, so that none can carry what was said."""

    def __init__(self, logger: logging.Logger = LOGGER, *, tenant: str | None = None) -> None:
        self._logger = logger
        self._tenant: dict[str, object] = {} if tenant is None else {"tenant": tenant}

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={"fields": self._tenant | fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={"fields": self._tenant | fields})

    def failed(self, request: Request, error: BaseException) -> None:
        """A request failed for a reason that is the server's: where, and which error."""
        route = request.scope.get("killick.route")
        self.warning("request_failed", route=route, method=request.method, **cause(error))


def cause(error: BaseException) -> dict[str, object]:
    """An error by its name and place; its text may hold content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    location = None
    if trace is not None:
        location = f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
    return {"error": type(error).__name__, "place": location}


_LIBRARY: Final = logging.getLogger("killick")
_FIELDS: Final = {
    **{name: name for name in ("cause", "holder", "losses")},
    **{"session_id": "session", "turn_id": "turn"},
}
"""What a line of the package says beside its words; the text of an error may hold content."""


def _fields_of(record: logging.LogRecord) -> dict[str, Any] | None:
    """Return what a line of ours has beside its words; None for one of another library."""
    if record.name != _LIBRARY.name:
        return getattr(record, "fields", None)
    extras = record.__dict__
    return {shown: extras[name] for name, shown in _FIELDS.items() if name in extras}


class JsonLines(logging.Formatter):
    """One JSON object in each line.

    The text of another library is not written, since it may hold content; its location is.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = _fields_of(record)
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": "library" if fields is None else record.getMessage(),
            "logger": record.name,
        }
        line.update({"place": f"{record.module}:{record.lineno}"} if fields is None else fields)
        if record.exc_info and record.exc_info[1] is not None:
            line.update(cause(record.exc_info[1]))
        return json.dumps(line, default=str)


def configure() -> None:
    """Have this process's log written to standard error; for the command, never the library.

    Of other libraries, only warnings.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _LIBRARY.setLevel(logging.INFO)
