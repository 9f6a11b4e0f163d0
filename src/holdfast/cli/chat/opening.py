"""Which session a chat is about."""

from pathlib import Path

import click

from holdfast.errors import SessionNotFound
from holdfast.model.sessions import Project, SessionInfo
from holdfast.session.aio import AsyncSession, AsyncStore

LISTED = 15


def project_of(directory: Path) -> Project:
    """The project that a directory lies in: the nearest one above it that git knows."""
    for place in (directory, *directory.parents):
        if (place / ".git").exists():
            return Project(str(place), str(directory))
    return Project(str(directory), str(directory))


async def open_session(
    store: AsyncStore, *, named: str | None, resume: bool, choose: bool, fork: bool
) -> AsyncSession:
    """The session that was asked for, or a new one. Raises SessionNotFound."""
    project = project_of(Path.cwd())
    if named is not None:
        session = await store.session(await store.resolve_id(named))
    elif resume or choose or fork:
        session = await store.session(await _of_project(store, project, choose=choose))
    else:
        return await store.create_session(project=project)
    return await session.fork() if fork else session


async def _of_project(store: AsyncStore, project: Project, *, choose: bool) -> str:
    found = await store.sessions(project=project.root, type="user", limit=LISTED)
    if not found:
        raise SessionNotFound(
            f"there is no session of {project.root}; 'holdfast chat' begins one, "
            "'holdfast sessions' lists those of other projects"
        )
    if not choose:
        return found[0].id
    for number, info in enumerate(found, 1):
        click.echo(f"{number:3}  {_described(info)}")
    number = click.prompt("Which", type=click.IntRange(1, len(found)), default=1)
    return found[number - 1].id


def _described(info: SessionInfo) -> str:
    from holdfast.cli.safety import one_line

    when = info.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}  {one_line(info.title or '(no title)')}  {info.status or ''}"
