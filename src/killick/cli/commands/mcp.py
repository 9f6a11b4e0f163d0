"""Recall for every agent that speaks the Model Context Protocol."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import click

from killick.cli.commands.sessions import project_root
from killick.cli.invocation import Invocation, command, project_of, warn_of_old_tokens
from killick.errors import needs_extra


@command(
    ("killick mcp", "for an agent, which starts it and talks to it on its standard input"),
    ("killick mcp --project .", "of this project alone"),
    ("killick mcp --http", "for several agents, on port 8422"),
)
@click.option("--project", metavar="ROOT", help="Tell of the project with this root folder alone.")
@click.option("--tenant", metavar="NAME", help="Whose sessions it tells.")
@click.option("--http", is_flag=True, help="Serve over HTTP, in place of standard input.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8422,
    show_default=True,
    help="Where it listens; 0 takes a free one.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name this server goes by.")
def mcp(
    invocation: Invocation,
    project: str | None,
    tenant: str | None,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    *,
    http: bool,
) -> None:
    """Let agents recall what any agent did, over MCP; it only reads.

    Its tools search sessions, show one, tell the last interrupted turn of this project, and hand a
    session over. Every answer is bounded, and marked as quoted history. It creates no store.
    """
    with needs_extra("mcp", "recall over MCP"):
        from killick.proxy import mcp_server
    from killick.recall import Recall

    recall = Recall(
        lambda: invocation.look(tenant=tenant),
        only=None if project is None else project_root(project),
        here=None if http else project_of(Path.cwd()).root,
    )
    from killick.server.log import configure

    configure()
    if not http:
        if sys.stdin.isatty():
            invocation.note("an agent is meant to talk to this; Ctrl+C ends it")
        # Reading waits on a thread, which no exception ends; there is nothing to finish.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        asyncio.run(mcp_server.serve_stdio(recall))
        return
    from killick.proxy.forward import ProxySettings
    from killick.proxy.launch import LOGGER
    from killick.server.auth import Tokens, token_path
    from killick.session.open import DEFAULT_TENANT

    LOGGER.setLevel("INFO")
    warn_of_old_tokens(token_path())

    def ready(address: str) -> None:
        invocation.answer({"url": address}, f"Killick's recall is at {address}")

    settings = ProxySettings(
        upstream="http://none.invalid", host=host, port=port, allowed_hosts=allow_host
    )
    whose = tenant or os.environ.get("KILLICK_TENANT") or DEFAULT_TENANT
    asyncio.run(mcp_server.serve_http(recall, whose, settings, Tokens(token_path()), ready))
