"""Recall over the Model Context Protocol: one client on standard input, or many over HTTP.

The tools are those of `killick.recall`. They only read, and each call runs on a thread, so that a
search does not keep other clients waiting.
"""

import contextlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from killick.errors import KillickError, StoreError
from killick.proxy import launch
from killick.proxy.forward import ProxySettings
from killick.recall import CALLS, INSTRUCTIONS, Recall, RecallCall, input_schema
from killick.server.auth import Guard, Tokens
from killick.server.connections import bind, check_exposure
from killick.server.log import Log, cause
from killick.server.responses import Refused, explain, refuse
from killick.views.escape import escape

PATH: Final = "/mcp"
_CALLS_AT_ONCE: Final = 4
_READS: Final = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


def make_server(recall: Recall) -> Server[Any]:
    """Return a server that answers from `recall`, for any transport."""
    threads = anyio.CapacityLimiter(_CALLS_AT_ONCE)
    log = Log(launch.LOGGER)

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(name, call) for name, call in CALLS.items()])

    async def call_tool(
        _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        def answer() -> tuple[str, bool]:
            try:
                return recall.call(params.name, params.arguments), False
            except KillickError as error:
                if isinstance(error, StoreError):  # its words may name files of this machine
                    log.warning("recall_failed", reason=str(error), **cause(error))
                return escape(explain(error)[1].message), True

        text, is_error = await anyio.to_thread.run_sync(answer, limiter=threads)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=is_error)

    return Server(
        "killick",
        version=version("killick"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(name: str, call: type[RecallCall]) -> types.Tool:
    return types.Tool(
        name=name,
        description=" ".join((call.__doc__ or "").split()),
        input_schema=input_schema(call),
        annotations=_READS,
    )


async def serve_stdio(recall: Recall) -> None:
    """Serve one client on standard input and output, until it closes the input."""
    server = make_server(recall)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(
    recall: Recall,
    tenant: str,
    settings: ProxySettings,
    tokens: Tokens,
    ready: Callable[[str], None],
) -> None:
    """Serve clients over streamable HTTP until SIGTERM or SIGINT.

    Without a token, only loopback clients are served; a token of another tenant than `tenant`,
    whose sessions these are, is refused. Raises UsageError.
    """
    check_exposure(settings.host, tokens)
    log = Log(launch.LOGGER)
    listener = bind(settings.host, settings.port)
    manager = StreamableHTTPSessionManager(make_server(recall), stateless=True, json_response=True)
    guard = Guard(settings.host, settings.allowed_hosts, tokens)
    with contextlib.closing(listener):
        async with manager.run():
            app = _Guarded(manager.handle_request, guard, tenant)
            await launch.run(app, listener, settings, log, lambda url: ready(f"{url}{PATH}"))


class _Guarded:
    """Lets a request in by the rules of `killick serve`: its host, its origin, its token."""

    def __init__(self, app: ASGIApp, guard: Guard, tenant: str) -> None:
        self._app = app
        self._guard = guard
        self._tenant = tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check(headers)
        except (Refused, KillickError) as error:
            await refuse(error)(scope, receive, send)
            return
        if scope["path"] == PATH:
            await self._app(scope, receive, send)
        else:
            missing = Refused(404, "not_found", f"The protocol is spoken at {PATH}.")
            await refuse(missing)(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        """Refuse a client that may not ask. Raises Refused and KillickError."""
        self._guard.check(headers, navigation=False)
        token = self._guard.authorise(headers, "read")
        if token.tenant not in (None, self._tenant):
            raise Refused(403, "other_tenant", "This token is for another tenant's sessions.")
