"""Figures of a server and its store, in Prometheus' text format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.responses import Response

from killick.server.endpoint import ApiAnswer, ApiCall, Operation, Refused
from killick.server.schemas import Health
from killick.stores.ops import Histogram

if TYPE_CHECKING:
    from killick.server.state import Serving


def prometheus(serving: "Serving") -> str:
    """Every figure, with what it means."""
    return "\n".join(_lines(serving)) + "\n"


def _lines(serving: "Serving") -> Iterator[str]:
    figures, hub, turns = serving.store.figures, serving.hub, serving.turns
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
    if call.serving.draining:
        raise Refused(503, "shutting_down", "This server is shutting down.")
    if call.serving.store.status != "ok":
        raise Refused(503, "store_unavailable", "The store cannot be written now.")
    await call.serving.store.sessions(limit=1)
    return ApiAnswer(200, Health(status="ok"))


async def metrics(call: ApiCall) -> Response:
    """Figures in Prometheus' text format."""
    return Response(prometheus(call.serving), media_type="text/plain; version=0.0.4")


OPERATIONS = (
    Operation("GET", "/healthz", healthz, {200: Health}, "open"),
    Operation("GET", "/readyz", readyz, {200: Health}, "open"),
    Operation("GET", "/metrics", metrics, {200: "text/plain"}),
)
