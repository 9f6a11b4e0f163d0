"""Put a session where another agent looks for it, and note where it went."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from killick.exchange.export.agents import AGENTS, AgentFormat, NotPlaced, Placed, places_of
from killick.exchange.export.handover import hand_over
from killick.exchange.formats import ReadOptions
from killick.exchange.importer import READERS
from killick.exchange.records import Source
from killick.exchange.rejoin import Continued, counted, remember
from killick.session.sync import Session, Store


class Continuing(msgspec.Struct, frozen=True):
    """A session that can go on elsewhere: what to run, in which folder, and what is lost."""

    placed: Placed
    folder: Path
    variables: list[str]
    losses: list[str]

    @property
    def command(self) -> list[str]:
        """Return the command that goes on, from whatever folder."""
        before = ["-C", str(self.folder)] if self.folder != Path.cwd() else []
        before += self.variables
        return [*(["env", *before] if before else []), *self.placed.command]


def continue_in(
    store: Store,
    session_id: str,
    agent_name: str,
    *,
    home: Path | None,
    environment: Mapping[str, str],
) -> Continuing:
    """Put a session where an agent looks for it. Raises SessionNotFound, NotPlaced.

    If interrupted: it is there whole or not at all; calling it again puts the same there.
    """
    agent = AGENTS[agent_name]
    session = store.session(session_id)
    _must_rest(session)
    folder = _folder(session)
    handover = hand_over(store, session_id, agent.holds, folder)
    if not handover.items:
        raise NotPlaced(f"nothing was said in session {session_id}; there is nothing to go on with")
    places, variables = places_of(agent, home, environment)
    placed = agent.put(handover, places)
    note = Continued(
        agent.name, placed.id, str(placed.path), handover.through, _count(agent, placed)
    )
    remember(session, note)
    return Continuing(placed, folder, variables, handover.losses)


def _must_rest(session: Session) -> None:
    for turn in session.turns():
        if turn.status == "running":
            raise NotPlaced(
                f"a turn of session {session.id} is running; wait for it, or stop it first: "
                f"`killick stop {session.id}`"
            )


def _folder(session: Session) -> Path:
    """Return the folder of the session, if it is here, or else this one."""
    project = session.info().project
    for named in (project.directory, project.root) if project is not None else ():
        if named and Path(named).is_dir():
            return Path(named)
    return Path.cwd()


def _count(agent: AgentFormat, placed: Placed) -> int | None:
    """Return how many records our reader finds in what was written; None without a reader."""
    reader = READERS.get(agent.source)
    if reader is None:
        return None
    for source in reader.read(placed.path, ReadOptions(0, settled=True)):
        if isinstance(source, Source) and source.native_id == placed.id:
            return counted(source.records)
    return None
