"""Strands' sessions on a store: what it hands over is kept in notes, what was said as messages.

Each agent of a session has a session of the store. The notes give Strands exactly what it handed
over; the messages are for people, for a search and for other models. A session that a `Recorder`
records into is read from its journal, and nothing is written twice.
"""

from typing import Any, Final
from urllib.parse import quote

from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from killick.adapters.media import read_blobs_blocking
from killick.adapters.shared_store import both_faces
from killick.adapters.strands.contents import OURS, as_message, as_messages
from killick.adapters.strands.recorder import recorded_turn
from killick.errors import SessionNotFound
from killick.model import entries as e
from killick.session.aio import AsyncStore
from killick.session.sync import Session as StoredSession
from killick.session.sync import Store

SESSION: Final = "strands.session"
AGENT: Final = "strands.agent"
MESSAGE: Final = "strands.message"
MULTI_AGENT: Final = "strands.multi_agent"


class KillickSessionRepository(SessionRepository):
    """Keeps sessions, agents and messages in a store.

    Of what is updated the newest is read; what was before stays in the journal.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store, _ = both_faces(store)

    # -- sessions --------------------------------------------------------------------------------

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Begin a session. If interrupted: it exists or it does not."""
        if self.read_session(session.session_id) is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        kept = self._store.open_session(_name(session.session_id), type="hidden")
        kept.note(SESSION, session.to_dict())
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Return what is known of a session."""
        data = self._newest(_name(session_id), SESSION)
        return None if data is None else Session.from_dict(data)

    # -- agents ----------------------------------------------------------------------------------

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Begin an agent of a session. If interrupted: it exists or it does not."""
        self._existing_session(session_id)
        self._opened(session_id, session_agent.agent_id).note(AGENT, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Return the newest state of an agent."""
        return self._agent(session_id, agent_id)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Keep the state of an agent. If interrupted: it is kept or it is not."""
        before = self._existing_agent(session_id, session_agent.agent_id)
        session_agent.created_at = before.created_at
        self._opened(session_id, session_agent.agent_id).note(AGENT, session_agent.to_dict())

    # -- messages --------------------------------------------------------------------------------

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Keep a message. If interrupted: it is kept or it is not."""
        self._existing_agent(session_id, agent_id)
        session = self._opened(session_id, agent_id)
        if recorded_turn(session.id) is not None:
            return  # a recorder has it
        spoken = as_message(session_message.to_message())
        if spoken is not None:
            session.add_messages([spoken], source=OURS)
        session.note(MESSAGE, session_message.to_dict())

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """Return a message by its number; of a changed one the newest."""
        return self._messages(session_id, agent_id).get(message_id)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Keep another text of a message. If interrupted: it is kept or it is not."""
        before = self.read_message(session_id, agent_id, session_message.message_id)
        if before is None:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = before.created_at
        self._opened(session_id, agent_id).note(MESSAGE, session_message.to_dict())

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """Return messages in order; of a recorded session, what a model may be sent."""
        self._existing_agent(session_id, agent_id)
        kept = self._messages(session_id, agent_id)
        messages = [kept[number] for number in sorted(kept)][offset:]
        return messages if limit is None else messages[:limit]

    def _messages(self, session_id: str, agent_id: str) -> dict[int, SessionMessage]:
        session = self._existing(_name(session_id, agent_id))
        if session is None:
            return {}
        if any(isinstance(entry.body, e.MessageStarted) for entry in session.entries()):
            context = session.context("neutral", before_turn=recorded_turn(session.id))
            made = as_messages(context.messages, read_blobs_blocking(session, context.messages))
            return {
                number: SessionMessage.from_message(message, number)  # type: ignore[arg-type]
                for number, message in enumerate(made)
            }
        kept: dict[int, SessionMessage] = {}
        for note in session.notes(MESSAGE):
            message = SessionMessage.from_dict(note.data)
            kept[message.message_id] = message
        return kept

    # -- several agents --------------------------------------------------------------------------

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """Begin a group of agents. If interrupted: it exists or it does not."""
        self._existing_session(session_id)
        self._keep_group(session_id, multi_agent)

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> dict[str, Any] | None:
        """Return the newest state of a group of agents."""
        session = self._existing(_name(session_id))
        notes = [] if session is None else session.notes(MULTI_AGENT)
        states = [note.data["state"] for note in notes if note.data["id"] == multi_agent_id]
        return states[-1] if states else None

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """Keep the state of a group of agents. If interrupted: it is kept or it is not."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(
                f"MultiAgent {multi_agent.id} in session {session_id} does not exist"
            )
        self._keep_group(session_id, multi_agent)

    def _keep_group(self, session_id: str, multi_agent: Any) -> None:
        state = multi_agent.serialize_state()
        kept = self._store.session(_name(session_id))
        kept.note(MULTI_AGENT, {"id": multi_agent.id, "state": state})

    # -- the store -------------------------------------------------------------------------------

    def _existing_session(self, session_id: str) -> None:
        if self.read_session(session_id) is None:
            raise SessionException(f"Session {session_id} does not exist")

    def _agent(self, session_id: str, agent_id: str) -> SessionAgent | None:
        data = self._newest(_name(session_id, agent_id), AGENT)
        return None if data is None else SessionAgent.from_dict(data)

    def _existing_agent(self, session_id: str, agent_id: str) -> SessionAgent:
        """Return an agent that must be there; `read_agent` is only for Strands to call."""
        agent = self._agent(session_id, agent_id)
        if agent is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        return agent

    def _opened(self, session_id: str, agent_id: str) -> StoredSession:
        about = {"strands": session_id, "agent_id": agent_id}
        return self._store.open_session(_name(session_id, agent_id), extra=about)

    def _existing(self, name: str) -> StoredSession | None:
        try:
            return self._store.session(name)
        except SessionNotFound:
            return None

    def _newest(self, name: str, kind: str) -> Any:
        session = self._existing(name)
        notes = [] if session is None else session.notes(kind, last=1)
        return notes[0].data if notes else None


class KillickSessionManager(RepositorySessionManager):
    """Strands' session manager on a store: `Agent(session_manager=…)`."""

    def __init__(self, session_id: str, store: Store | AsyncStore, **kwargs: Any) -> None:
        super().__init__(session_id, KillickSessionRepository(store), **kwargs)

    def stored_id(self, agent_id: str = "default") -> str:
        """Return the id of the store's session of an agent, to record turns into."""
        return _name(self.session_id, agent_id)


def _name(session_id: str, agent_id: str | None = None) -> str:
    """Return the store's name of a session, or of an agent in it; no slash is left in either."""
    names = [session_id] if agent_id is None else [session_id, agent_id]
    return "/".join(quote(name, safe="@ ") for name in names)
