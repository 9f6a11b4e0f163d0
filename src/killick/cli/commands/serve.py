"""The server and its page, and the tokens that let others in."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from killick.cli.commands.chat import allow_option
from killick.cli.invocation import LENGTH, Invocation, command, warn_of_old_tokens
from killick.cli.output import Column
from killick.errors import needs_extra
from killick.session.open import DEFAULT_TENANT
from killick.session.runtime import system_clock

if TYPE_CHECKING:
    from killick.server.auth import Token, Tokens


@command(
    ("killick serve", "the page on this machine"),
    ("killick serve --port 8500 --model openai:gpt-5.6-sol", "elsewhere, with another model"),
    ("killick serve --host 0.0.0.0 --allow-host box.lan", "for others; needs a token"),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8420,
    show_default=True,
    help="Where it listens; 0 takes a free one.",
)
@click.option("--model", metavar="NAME", help="Which model answers; KILLICK_MODEL sets it too.")
@click.option(
    "--root",
    metavar="FOLDER",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="The folder that its tools work in.",
)
@allow_option
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name this server goes by.")
@click.option(
    "--drain",
    type=click.FloatRange(0, 5),
    default=5.0,
    show_default=True,
    help="Seconds that turns have to finish when it ends.",
)
@click.option("--streams", type=click.IntRange(1), default=1_000, show_default=True,
              help="How many event streams may be open.")  # fmt: skip
@click.option("--token-streams", type=click.IntRange(1), default=200, show_default=True,
              help="How many of them one token may have.")  # fmt: skip
@click.option("--token-requests", type=click.FloatRange(0, min_open=True), default=100.0,
              show_default=True, help="Requests a second of one token.")  # fmt: skip
@click.option("--tenants", type=click.IntRange(1), default=32, show_default=True,
              help="How many other tenants' stores may be open at once.")  # fmt: skip
@click.option("--verify-every", type=LENGTH, metavar="LENGTH",
              help="Read all sessions again so often, at a bounded rate.")  # fmt: skip
@click.option("--apply-retention", is_flag=True,
              help="Apply the rules of retention in the store, once a day.")  # fmt: skip
@click.option("--webhook", "webhooks", multiple=True, metavar="URL",
              help="Post what happens in all sessions to this URL.")  # fmt: skip
@click.option("--webhook-secret", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
              help="Signs webhooks; KILLICK_WEBHOOK_SECRET holds one too.")  # fmt: skip
@click.option("--webhook-private", is_flag=True, help="Let webhooks point at private addresses.")
def serve(
    invocation: Invocation,
    host: str,
    port: int,
    model: str | None,
    root: str,
    allow: tuple[str, ...],
    allow_host: tuple[str, ...],
    **options: Any,
) -> None:
    """Serve the sessions over HTTP, with a page to talk in.

    It prints its address, and a log to standard error. Ctrl+C ends it: turns that run may finish,
    for a while, then they are stopped. Other machines are served only when a token is set.
    """
    with needs_extra("server,chat", "the server"):
        from killick.server.launch import serve as serve_forever
        from killick.server.runner import agent_runner
    from killick.server.auth import Tokens, token_path
    from killick.server.log import configure
    from killick.server.service import ServerSettings
    from killick.server.webhooks import Webhook, check_webhook
    from killick.session.aio import AsyncStore

    verify_every: timedelta | None = options["verify_every"]
    configure()
    secret = _secret(options["webhook_secret"])
    settings = ServerSettings(
        host=host,
        port=port,
        allowed_hosts=allow_host,
        drain_seconds=options["drain"],
        streams=options["streams"],
        token_streams=options["token_streams"],
        token_requests=options["token_requests"],
        tenant=os.environ.get("KILLICK_TENANT") or DEFAULT_TENANT,
        tenants=options["tenants"],
        verify_seconds=None if verify_every is None else verify_every.total_seconds(),
        retention_seconds=86_400.0 if options["apply_retention"] else None,
        webhooks=tuple(
            Webhook(url=url, secret=secret, private=options["webhook_private"])
            for url in options["webhooks"]
        ),
    )
    for hook in settings.webhooks:
        check_webhook(hook)
    where = invocation.where()
    invocation.warn_of_old_store()
    warn_of_old_tokens(token_path())
    url = None if where.chosen_by == "default" else where.url

    def ready(address: str) -> None:
        invocation.answer({"url": address}, f"Killick is at {address}")

    asyncio.run(
        serve_forever(
            lambda tenant: AsyncStore(url, tenant=tenant),
            agent_runner(model=model, root=Path(root), allowed=allow),
            settings,
            Tokens(token_path()),
            ready,
        )
    )


def _secret(file: str | None) -> bytes | None:
    """Return the secret that signs webhooks, from a file or the environment."""
    if file is not None:
        return Path(file).read_bytes().strip()
    named = os.environ.get("KILLICK_WEBHOOK_SECRET")
    return named.encode() if named else None


@command(
    ("killick token make laptop", "let a client read and write; the token is shown once"),
    ("killick token make dashboard --read", "let a client read"),
    ("killick token make acme-app --tenant acme", "let a client see the sessions of one tenant"),
    ("killick token list", "which there are"),
    ("killick token revoke laptop", "take one away; a running server notices at once"),
)
@click.argument("action", type=click.Choice(["make", "list", "revoke"]))
@click.argument("name", required=False)
@click.option("--read", is_flag=True, help="A token that may only read.")
@click.option("--tenant", metavar="NAME", help="The tenant whose sessions it is for.")
def token(
    invocation: Invocation, action: str, name: str | None, *, read: bool, tenant: str | None
) -> None:
    """Make, list and revoke the tokens that a server asks for.

    Without any, a server serves this machine alone. With one, every client needs it.
    """
    from killick.server.auth import Tokens, token_path

    tokens = Tokens(token_path())
    warn_of_old_tokens(tokens.path)
    if action == "list":
        _list(invocation, tokens)
        return
    if name is None:
        raise click.UsageError(f"'{action}' needs a name")
    if action == "revoke":
        gone = tokens.revoke(name)
        invocation.answer({"id": gone.id, "name": gone.name}, f"{gone.name} ({gone.id}) is revoked")
        return
    made, secret = tokens.make(name, "read" if read else "write", system_clock(), tenant)
    shape = {**_shape(made), "token": secret}
    invocation.answer(shape, secret)
    invocation.note(f"{made.name} may {made.may}; this is shown once, only its hash is kept")


def _shape(token: "Token") -> dict[str, str | None]:
    return {
        "id": token.id,
        "name": token.name,
        "may": token.may,
        "made_at": token.made_at,
        "tenant": token.tenant,
    }


def _list(invocation: Invocation, tokens: "Tokens") -> None:
    listed = tokens.all()
    if invocation.json:
        invocation.out.json([_shape(token) for token in listed])
        return
    rows = [
        (token.id, token.name, token.may, token.made_at, token.tenant or "") for token in listed
    ]
    names = ("ID", "NAME", "MAY", "MADE AT", "TENANT")
    invocation.out.table([Column(name) for name in names], rows)
    if not listed:
        invocation.note("no tokens: a server serves this machine alone, and asks for none")
