"""The files of the page, as they are in the package: read once, checked by their hash."""

import asyncio
import contextlib
import gzip
import hashlib
import time
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from killick.server import events, run_routes, session_routes, view_routes
from killick.server.auth import HEADERS
from killick.server.endpoint import Endpoint, Operation
from killick.server.openapi import describe
from killick.server.responses import Refused, accepts_gzip, refuse, respond
from killick.server.runner import Recovery, StandingAllowances
from killick.server.service import Service
from killick.server.upkeep import StoreUpkeep
from killick.server.webhooks import WebhookSender
from killick.session.runtime import system_clock

_MEDIA: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class _File(NamedTuple):
    data: bytes
    packed: bytes
    media: str
    tag: str


class Pages:
    """The page is one document for every address of it; its own code shows what was asked for."""

    PATHS: ClassVar = (
        *("/", "/new", "/needs", "/s/{session_id:id}", "/figures", "/assets/{name:path}"),
    )

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        folder = files("killick.server").joinpath("page")
        for part in ("", "vendor"):
            for file in folder.joinpath(part).iterdir() if part else folder.iterdir():
                ending = file.name.rpartition(".")[2]
                if file.is_file() and ending in _MEDIA:
                    data = file.read_bytes()
                    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
                    name = f"{part}/{file.name}" if part else file.name
                    packed = gzip.compress(data, 9, mtime=0)
                    self._files[name] = _File(data, packed, _MEDIA[ending], tag)

    async def serve(self, request: Request) -> Response:
        return self.file(request.path_params.get("name", "index.html"), request)

    def file(self, name: str, request: Request, status: int = 200) -> Response:
        """Return a file of the page, packed if the client takes it. Raises HTTPException."""
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if status == 200 and request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if not accepts_gzip(request.headers):
            return Response(file.data, status, headers, file.media)
        return Response(file.packed, status, headers | {"Content-Encoding": "gzip"}, file.media)


OPERATIONS: Final[tuple[Operation, ...]] = (
    *session_routes.OPERATIONS,
    *view_routes.OPERATIONS,
    *events.OPERATIONS,
    *run_routes.OPERATIONS,
)

_WORDS: Final = {
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address takes no such request."),
}


def make_app(service: Service) -> ASGIApp:
    """The application of one server; its lifespan starts and ends what runs beside requests."""
    pages = Pages()
    document = describe(OPERATIONS)

    async def openapi(_request: Request) -> Response:
        return respond(200, document)

    async def nothing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404 and _is_for_people(request):
            return pages.file("index.html", request, 404)
        code, message = _WORDS.get(error.status_code, ("refused", "It was refused."))
        return refuse(Refused(error.status_code, code, message, headers=dict(error.headers or {})))

    routes = [
        Route(path.replace("}", ":id}"), _Methods(service, path), methods=None) for path in _paths()
    ]
    routes.append(Route("/openapi.json", openapi, methods=["GET"]))
    routes += [Route(path, pages.serve, methods=["GET"]) for path in pages.PATHS]
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: nothing},
        lifespan=lambda _app: beside_requests(service, {}),
    )
    return GuardMiddleware(app, service)


def _is_for_people(request: Request) -> bool:
    """Return whether a browser shows the answer as a page; programs are told in JSON."""
    path = request.url.path
    asked = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    return asked and not path.startswith(("/api/", "/assets/"))


def _paths() -> list[str]:
    return list(dict.fromkeys(operation.path for operation in OPERATIONS))


class _IdConvertor(Convertor[str]):
    """An id in an address: routes are matched before `%2F` becomes a slash."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("id", _IdConvertor())


class _Methods:
    """Everything that can be asked of one path."""

    def __init__(self, service: Service, path: str) -> None:
        self._endpoints: dict[str, Endpoint] = {
            file.method: Endpoint(service, file) for file in OPERATIONS if file.path == path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(self._endpoints)
            error = Refused(
                405, "method_not_allowed", f"This address takes {allowed}.",
                headers={"Allow": allowed},
            )  # fmt: skip
            await refuse(error)(scope, receive, send)
            return
        await endpoint(scope, receive, send)


@contextlib.asynccontextmanager
async def beside_requests(service: Service, upkept: dict[str, float]) -> AsyncIterator[None]:
    """Run what a tenant's part needs beside its requests: the feed, recovery, webhooks.

    `upkept` says when its upkeep is due, as of an opening before.
    If interrupted: turns that still run are ended as interrupted.
    """
    service.hub.start()
    recovery = Recovery(service.store, service.log)
    tasks = [
        asyncio.create_task(recovery.run(service.settings.look_seconds), name="killick-recovery"),
        asyncio.create_task(
            StandingAllowances(service.store, service.log).run(service.settings.look_seconds),
            name="killick-allowances",
        ),
        *(
            asyncio.create_task(
                WebhookSender(service.store, hook, service.log, system_clock).run(),
                name="killick-webhook",
            )
            for hook in service.settings.webhooks
        ),
    ]
    settings = service.settings

    def count_damaged(sessions: int) -> None:
        service.damaged_sessions = sessions

    upkeep = StoreUpkeep(service.store, service.log, upkept, count_damaged)
    if settings.verify_seconds is not None:
        verifying = upkeep.verify_every(settings.verify_seconds)
        tasks.append(asyncio.create_task(verifying, name="killick-verify"))
    if settings.retention_seconds is not None:
        removing = upkeep.apply_retention_every(settings.retention_seconds)
        tasks.append(asyncio.create_task(removing, name="killick-retention"))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await service.turns.drain(0)
        await service.hub.close()


class GuardMiddleware:
    """In front of everything: refuses what another site causes, adds headers, keeps the log."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._serving = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": scope["raw_path"].decode("ascii")}
        began = time.monotonic()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._serving.guard.check(headers, navigation=_is_navigation(scope, headers))
        except Refused as error:
            await refuse(error)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)
        self._log(scope, status, time.monotonic() - began)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Log the route, never the address: it may hold a search."""
        route: Any = scope.get("killick.route")
        if route is None:
            return
        scope.get("killick.log", self._serving.log).info(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            ms=round(seconds * 1000, 1),
            session=scope.get("path_params", {}).get("session_id"),
        )


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser follows a link to the page, of which the other site sees nothing."""
    path = scope["path"]
    return (
        scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and not path.startswith("/api/")
    )
