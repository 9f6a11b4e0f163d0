"""The recording proxy."""

import asyncio

import click

from killick.cli.invocation import Invocation, command, warn_of_old_tokens
from killick.errors import needs_extra


@command(
    ("killick proxy --upstream https://api.openai.com", "record what passes, on port 8421"),
    ("killick proxy --upstream https://api.anthropic.com --redact secrets", "without secrets"),
    ("killick proxy --replay ID", "answer requests from a recorded session"),
)
@click.option("--upstream", metavar="URL", help="The model's server; paths are put behind it.")
@click.option("--replay", metavar="ID", help="Answer from this session instead of a server.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8421,
    show_default=True,
    help="Where it listens; 0 takes a free one.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name this proxy goes by.")
@click.option(
    "--redact", type=click.Choice(["secrets"]), help="Take secrets out of what is stored."
)
@click.option(
    "--when-degraded",
    type=click.Choice(["pass", "refuse"]),
    default="pass",
    show_default=True,
    help="What happens to requests while the store cannot write.",
)
@click.option("--cancel-upstream", is_flag=True, help="Give an answer up whose client is gone.")
@click.option(
    "--abandon-after",
    type=click.FloatRange(min=0, min_open=True),
    default=1_800.0,
    show_default=True,
    help="Seconds without a request after which a turn has ended.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 600),
    default=5.0,
    show_default=True,
    help="Seconds that answers have to finish when it ends.",
)
def proxy(
    invocation: Invocation,
    upstream: str | None,
    replay: str | None,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    **options: object,
) -> None:
    """Record what an agent and its model say on the way between them.

    It prints its address, which takes the place of the model's server in the agent's base URL, and
    a log to standard error. Neither the agent nor what passes is changed. Ctrl+C ends it.
    """
    with needs_extra("proxy", "the proxy"):
        from killick.proxy import launch
        from killick.proxy.forward import ProxySettings
    from killick.proxy.wire import check_upstream
    from killick.server.auth import Tokens, is_loopback, token_path
    from killick.server.log import configure
    from killick.session.aio import AsyncStore

    if (upstream is None) == (replay is None):
        raise click.UsageError("give --upstream URL, or --replay ID")
    if replay is not None and not is_loopback(host):
        raise click.UsageError("--replay asks for no token, so it serves loopback clients only")
    configure()
    launch.LOGGER.setLevel("INFO")
    settings = ProxySettings(
        upstream="http://replay.invalid" if upstream is None else check_upstream(upstream),
        host=host,
        port=port,
        allowed_hosts=allow_host,
        needs_token=not is_loopback(host),
        when_degraded=options["when_degraded"],  # type: ignore[arg-type]
        cancel_upstream=bool(options["cancel_upstream"]),
        abandon_seconds=float(options["abandon_after"]),  # type: ignore[arg-type]
        drain_seconds=float(options["drain"]),  # type: ignore[arg-type]
    )
    where = invocation.where()
    invocation.warn_of_old_store()
    warn_of_old_tokens(token_path())
    url = None if where.chosen_by == "default" else where.url
    redact = options["redact"]

    def ready(address: str) -> None:
        invocation.answer({"url": address}, f"Killick's proxy is at {address}")

    if replay is not None:
        from killick.proxy.replay import serve_replay

        with invocation.open() as store:
            session = store.session(store.resolve_id(replay))
            asyncio.run(serve_replay(session, settings, ready))
        return
    asyncio.run(
        launch.serve(
            lambda: AsyncStore(url, redact=redact),  # type: ignore[arg-type]
            settings,
            Tokens(token_path()),
            ready,
        )
    )
