"""The recording proxy between an editor and an agent of the Agent Client Protocol."""

import signal
import sys
from types import FrameType
from typing import Literal, NoReturn

import click

from killick.cli.invocation import Invocation, command, project_of
from killick.cli.output import complain


@command(
    ("killick acp -- opencode acp", "what an editor starts in place of 'opencode acp'"),
    ("killick acp --redact secrets -- gemini --acp", "without secrets"),
)
@click.argument("words", metavar="AGENT...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--redact", type=click.Choice(["secrets"]), help="Take secrets out of what is stored."
)
@click.option(
    "--when-degraded",
    type=click.Choice(["pass", "refuse"]),
    default="pass",
    show_default=True,
    help="What happens to prompts while the store cannot write.",
)
def acp(
    invocation: Invocation,
    words: tuple[str, ...],
    redact: Literal["secrets"] | None,
    when_degraded: Literal["pass", "refuse"],
) -> int:
    """Record what an editor and an ACP agent say as it passes.

    An editor starts it in place of the agent, which is given after --. It speaks the protocol on
    standard input and output, and writes what it could not record to standard error. Its exit code
    is the agent's.
    """
    from killick.proxy.acp_relay import AcpProxy, AcpRelay
    from killick.session.sync import Store

    where = invocation.where()
    invocation.warn_of_old_store()
    url = None if where.chosen_by == "default" else where.url
    signal.signal(signal.SIGTERM, _leave)
    with Store(url, redact=redact) as store:
        proxy = AcpProxy(store, words, project_of, when_degraded, complain)
        editor = sys.stdin.fileno(), sys.stdout.buffer
        try:
            return AcpRelay(proxy, words, editor).run()
        except OSError as error:
            complain(f"{words[0]!r} cannot be run: {error.strerror or error}")
            return 1


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
