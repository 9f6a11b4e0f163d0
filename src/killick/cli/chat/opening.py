"""Which session a chat is about."""

from pathlib import Path

import click

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
    from killick.cli.safety import one_line

    when = info.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}  {one_line(info.title or '(no title)')}  {info.status or ''}"
