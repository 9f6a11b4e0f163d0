"""Which session a chat is about."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, signal
from typing import Any

import click
from prompt_toolkit.patch_stdout import patch_stdout

from killick.agent import agent_for
from killick.cli.chat.talk import TERMINAL_CLOSED, TERMINATED, Talk
from killick.cli.invocation import Frame
from killick.errors import SessionNotFound
from killick.model.sessions import Project, SessionInfo
from killick.session.aio import AsyncSession, AsyncStore

LISTED = 15


def project_of(directory: Path) -> Project:
    """The project that a directory lies in: the nearest one above it that git knows."""
    for place in (directory, *directory.parents):
        if (place / ".git").exists():
            return Project(str(place), str(directory))
    return Project(str(directory), str(directory))


async def find_session(
    store: AsyncStore, *, named: str | None, resume: bool, choose: bool, fork: bool
) -> AsyncSession | None:
    """The session that was asked for; None if that is a new one. Raises SessionNotFound."""
    if named is not None:
        session = await store.session(await store.resolve_id(named))
    elif resume or choose or fork:
        project = project_of(Path.cwd())
        session = await store.session(await _of_project(store, project, choose=choose))
    else:
        return None
    return await session.fork() if fork else session


async def new_session(store: AsyncStore) -> AsyncSession:
    """A session of the project that this folder lies in. If interrupted: it exists or not."""
    return await store.create_session(project=project_of(Path.cwd()))


async def _of_project(store: AsyncStore, project: Project, *, choose: bool) -> str:
    all_of_it = await store.sessions(project=project.root, type="user")
    # One in which nothing was said yet is what nobody means, unless there is no other.
    found = [one for one in all_of_it if one.status is not None][:LISTED] or all_of_it[:1]
    if not found:
        raise SessionNotFound(
            f"there is no session of {project.root}; 'killick chat' begins one, "
            "'killick sessions' lists those of other projects"
        )
    if not choose:
        return found[0].id
    for number, info in enumerate(found, 1):
        click.echo(f"{number:3}  {_described(info)}")
    number = click.prompt("Which", type=click.IntRange(1, len(found)), default=1)
    return found[number - 1].id


def _described(info: SessionInfo) -> str:
    from killick.cli.output import one_line

    when = info.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}  {one_line(info.title or '(no title)')}  {info.status or ''}"


async def run_chat(
    frame: Frame, *, model: str | None, allowed: Sequence[str], **which: Any
) -> None:
    """Talk until the person leaves, or the terminal does."""
    where = frame.where()
    frame.warn_of_old_store()
    url = None if where.chosen_by == "default" else where.url
    async with AsyncStore(url) as store:
        found = await find_session(store, **which)
        async with agent_for(model, root=Path.cwd(), allowed=allowed) as agent:
            # Not before there is somebody to talk to: a chat that cannot begin leaves nothing.
            session = found or await new_session(store)
            talk = Talk(session, agent, url=url)
            with patch_stdout(raw=True), ended_by_signals(talk):
                await talk.say("note", f"{agent.name}. /help lists what you can do.")
                await talk.run()
            head = f"killick chat --session {talk.session.id}"
            with contextlib.suppress(OSError):  # a terminal that was closed takes no note
                frame.note(f"kept; '{head}' goes on")


@contextlib.contextmanager
def ended_by_signals(talk: Talk) -> Iterator[None]:
    """A terminal that is closed, or a request to end: leave as the person would.

    Ctrl+C is a key while a line is typed. While something is printed above it, the terminal makes
    a signal of it, which means the same.
    """
    loop = asyncio.get_running_loop()
    handlers: dict[int, Callable[[], None]] = {
        SIGTERM: partial(talk.leave, TERMINATED),
        SIGHUP: partial(talk.leave, TERMINAL_CLOSED),
        SIGINT: talk.interrupt,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
        # It is leaving already: one more Ctrl+C must not cut short what is being kept.
        signal(SIGINT, SIG_IGN)
