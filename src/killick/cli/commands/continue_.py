"""Going on with a session in another agent."""

import os
import shlex
import shutil
from pathlib import Path

import click

from killick.cli.invocation import Invocation, command, find, last_session_argument, project_of
from killick.errors import SessionNotFound
from killick.exchange.continuation import Continuing, continue_in
from killick.exchange.export.agents import AGENTS, FILE_ONLY, NotPlaced, not_installed
from killick.session.sync import Store


@command(
    ("killick continue --in claude-code", "go on with the last session of this folder"),
    ("killick continue ID --in codex", "go on with another"),
    ("killick continue ID --in codex --no-run", "put it there, and say how to go on"),
)
@click.option(
    "--in",
    "agent",
    required=True,
    type=click.Choice([*AGENTS, *FILE_ONLY]),
    metavar="AGENT",
    help=f"One of {', '.join(AGENTS)}.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A home folder in place of yours, in which the agent looks.",
)
@click.option("--no-run", is_flag=True, help="Put it there, and do not start the agent.")
@last_session_argument
def continue_(
    invocation: Invocation, session_id: str | None, agent: str, home: Path | None, *, no_run: bool
) -> int:
    """Go on with a session in another agent.

    The session is put where that agent looks for it, and the agent is started on it. What it cannot
    hold is said first. A session that has gone on there is never overwritten. What is said there
    comes back into this session with `killick import`.
    """
    with invocation.open() as store:
        full_id = _chosen(store, session_id)
        if agent not in AGENTS:
            raise NotPlaced(
                f"{agent} takes a file alone: `killick export {full_id} --to {agent} -o FILE`"
            )
        program = AGENTS[agent].program
        if not no_run and shutil.which(program) is None:
            raise not_installed(AGENTS[agent])
        done = continue_in(store, full_id, agent, home=home, environment=os.environ)
    for loss in done.losses:
        invocation.note(f"{agent} cannot hold: {loss}")
    if no_run or invocation.json:
        shown = {"id": done.placed.id, "path": str(done.placed.path)}
        invocation.answer(
            {**shown, "command": done.command, "losses": done.losses},
            f"{done.placed.path}",
            f"go on: {shlex.join(done.command)}",
        )
    if no_run:
        return 0
    return _run(done)


def _chosen(store: Store, prefix: str | None) -> str:
    if prefix is not None:
        return find(store, prefix)
    root = project_of(Path.cwd()).root
    infos = store.sessions(project=root, limit=1)
    if not infos:
        raise SessionNotFound(f"there is no session of {root}; name one: `killick sessions`")
    return infos[0].id


def _run(done: Continuing) -> int:
    """Become the agent; its exit code is ours."""
    pairs = (variable.split("=", 1) for variable in done.variables)
    os.chdir(done.folder)
    os.execvpe(done.placed.command[0], done.placed.command, {**os.environ, **dict(pairs)})
