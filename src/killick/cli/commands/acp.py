"""The chat agent for editors, and the recording proxy between an editor and another agent."""

import asyncio
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from killick.cli.commands.chat import allow_option
from killick.cli.invocation import Invocation, command, project_of
from killick.cli.output import complain
from killick.errors import needs_extra

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from killick.agent import Agent


@command(
    ("killick acp", "what an editor starts to talk to the chat agent"),
    ("killick acp --model openai:gpt-5.6-sol --allow read_file", "with another model"),
    ("killick acp -- opencode acp", "what an editor starts in place of 'opencode acp'"),
    ("killick acp --redact secrets -- gemini --acp", "without secrets"),
)
@click.argument("words", metavar="[AGENT]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", metavar="NAME", help="The model of the chat agent; KILLICK_MODEL too.")
@allow_option
@click.option(
    "--redact", type=click.Choice(["secrets"]), help="Take secrets out of what is stored."
)
@click.option(
    "--when-degraded",
    type=click.Choice(["pass", "refuse"]),
    default="pass",
    show_default=True,
    help="What happens to an agent's prompts while the store cannot write.",
)
def acp(
    invocation: Invocation,
    words: tuple[str, ...],
    model: str | None,
    allow: tuple[str, ...],
    redact: Literal["secrets"] | None,
    when_degraded: Literal["pass", "refuse"],
) -> int:
    """Serve the chat agent to an editor, or record another ACP agent.

    An editor starts it, and it speaks the protocol on standard input and output. Alone it is the
    agent of 'killick chat'. With an agent after -- it records what the two say as it passes, and
    writes what it could not record to standard error; its exit code is the agent's.
    """
    if words and (model is not None or allow):
        raise click.UsageError("--model and --allow are for the chat agent, not for another one")
    where = invocation.where()
    invocation.warn_of_old_store()
    url = None if where.chosen_by == "default" else where.url
    if not words:
        return asyncio.run(_serve(url, model, allow, redact))
    return _relay(url, words, redact, when_degraded)


async def _serve(
    url: str | None, model: str | None, allow: tuple[str, ...], redact: Literal["secrets"] | None
) -> int:
    with needs_extra("acp", "the agent for editors"):
        from killick.agent import agent_for
        from killick.proxy.acp_agent import serve_editor
    from killick.session.aio import AsyncStore

    def open_agent(folder: Path) -> "AbstractAsyncContextManager[Agent]":
        return agent_for(model, root=folder, allowed=allow)

    async with AsyncStore(url, redact=redact) as store:
        serving = asyncio.ensure_future(serve_editor(store, open_agent, project_of))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        finally:
            serving.cancel()
    return 0


def _relay(
    url: str | None,
    words: tuple[str, ...],
    redact: Literal["secrets"] | None,
    when_degraded: Literal["pass", "refuse"],
) -> int:
    from killick.proxy.acp_relay import AcpProxy, AcpRelay
    from killick.session.sync import Store

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
