"""Whether this server lives, whether it takes work, and its figures for Prometheus."""

from starlette.responses import Response

from killick.server.failing import Refused
from killick.server.metrics import prometheus
from killick.server.shapes import Health
from killick.server.wire import Answer, Call, Operation


async def healthz(_call: Call) -> Answer:
    """The process lives."""
    return Answer(200, Health(status="ok"))


async def readyz(call: Call) -> Answer:
    """The server takes work: it is not shutting down, and its store can be written."""
    if call.serving.draining:
        raise Refused(503, "shutting_down", "This server is shutting down.")
    if call.serving.store.status != "ok":
        raise Refused(503, "store_unavailable", "The store cannot be written now.")
    await call.serving.store.sessions(limit=1)
    return Answer(200, Health(status="ok"))


async def metrics(call: Call) -> Response:
    """Figures in Prometheus' text format."""
    return Response(prometheus(call.serving), media_type="text/plain; version=0.0.4")


OPERATIONS = (
    Operation("GET", "/healthz", healthz, {200: Health}, "open"),
    Operation("GET", "/readyz", readyz, {200: Health}, "open"),
    Operation("GET", "/metrics", metrics, {200: "text/plain"}),
)
