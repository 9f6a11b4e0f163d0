"""The ADK's sessions on a store: each event is a note, and what was said in it a message.

The notes give the ADK exactly what it handed over. The messages are for people, for a search and
for other models; where a `Recorder` records the run, it has written them already. States of an app
and of its users are notes in a hidden session of the app's.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import Session
from google.adk.sessions._session_util import extract_json_safe_state_delta
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.state import State

from killick.adapters.google_adk.contents import OURS, as_message
from killick.adapters.google_adk.recorder import recorded_session
from killick.errors import IdConflict, SessionNotFound
from killick.model.messages import Json, Message
from killick.model.sessions import SessionNote
from killick.session.aio import AsyncSession, AsyncStore

BEGUN: Final = "google_adk.session"
EVENT: Final = "google_adk.event"
DELETED: Final = "google_adk.deleted"
APP: Final = "google_adk.app_state"
USER: Final = "google_adk.user_state"
_PAGE: Final = 200


class KillickSessionService(BaseSessionService):
    """Keeps sessions, events and states in a store; give it as `session_service`.

    What is deleted is out of every answer here and of every view, and stays in the journal until
    the session is erased.
    """

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def journal(self, *, app_name: str, user_id: str, session_id: str) -> AsyncSession:
        """Open the store's session of one of the ADK's, to record turns into; it may be new.

        If interrupted: it exists or it does not; call it again.
        """
        name = _name(app_name, user_id, session_id)
        about = {"google_adk": app_name, "user_id": user_id, "session_id": session_id.strip()}
        return await self._store.open_session(name, tags=[_tag(app_name)], extra=about)

    # -- the interface ---------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session. If interrupted: it exists or it does not; a given id tells which."""
        given = session_id.strip() if session_id else ""
        named = given or platform_uuid.new_uuid()
        journal = await self.journal(app_name=app_name, user_id=user_id, session_id=named)
        notes = await journal.notes()
        exists = AlreadyExistsError(f"Session with id {named} already exists.")
        if _fold(notes) is not None:
            raise exists
        # Of two that begin a session at once, one is refused: both count the same beginnings.
        key = f"{BEGUN}:{sum(note.name == BEGUN for note in notes)}"
        deltas = extract_json_safe_state_delta(state or {})
        begun = {"state": deltas["session"], "time": platform_time.get_time()}
        batch = self._store.batch()
        written = batch.note_all(journal, [SessionNote(BEGUN, begun, key=key)]).unless(IdConflict)
        shared = _shared_notes(user_id, deltas, f"{journal.id}:{key}")
        if shared:
            batch.note_all(await self._states(app_name), shared).unless(IdConflict)
        await batch.write()
        if written.refusal is not None or (written.result and written.result[0].repeated):
            raise exists
        made = await self.get_session(app_name=app_name, user_id=user_id, session_id=named)
        assert made is not None
        return made

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events, all or those that `config` asks for."""
        journal = await self._existing(_name(app_name, user_id, session_id))
        kept = None if journal is None else _fold(await journal.notes())
        if kept is None:
            return None
        events = kept.events
        if config is not None and config.num_recent_events is not None:
            wanted = config.num_recent_events
            events = events[-wanted:] if wanted else []
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        shared = await self._shared(app_name)
        return Session(
            app_name=app_name,
            user_id=user_id,
            id=session_id.strip(),
            state={**kept.state, **shared.of(user_id)},
            events=events,
            last_update_time=kept.updated,
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List sessions, the one that changed first first, without their events."""
        shared = await self._shared(app_name)
        sessions: list[Session] = []
        last = None
        while True:
            page = await self._store.sessions(tag=_tag(app_name), limit=_PAGE, before=last)
            for info in page:
                owner = str(info.extra.get("user_id"))
                if info.extra.get("google_adk") != app_name or user_id not in (None, owner):
                    continue
                kept = _fold(await (await self._store.session(info.id)).notes())
                if kept is not None:
                    sessions.append(
                        Session(
                            app_name=app_name,
                            user_id=owner,
                            id=info.extra["session_id"],
                            state={**kept.state, **shared.of(owner)},
                            last_update_time=kept.updated,
                        )
                    )
            if len(page) < _PAGE:
                break
            last = page[-1]
        sessions.sort(key=lambda made: (made.last_update_time, made.user_id, made.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Take a session out of every answer and every view. If interrupted: call it again."""
        journal = await self._existing(_name(app_name, user_id, session_id))
        if journal is not None and _fold(await journal.notes()) is not None:
            await journal.clear()
            await journal.note(DELETED)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share."""
        return (await self._shared(app_name)).users.get(user_id, {})

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to a session; the same event again changes nothing.

        If interrupted: it is there or it is not; append it again.
        """
        if event.partial:
            return event
        name = _name(session.app_name, session.user_id, session.id)
        journal = await self._existing(name)
        if journal is None or not await _is_there(journal):
            raise SessionNotFoundError(f"Session {session.id} not found.")
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        data = event.model_dump(mode="json", exclude_none=True, by_alias=False)
        if event.actions is not None and event.actions.state_delta:
            deltas = extract_json_safe_state_delta(event.actions.state_delta)
            for note in _shared_notes(session.user_id, deltas, f"{journal.id}:{event.id}"):
                await _note_again(await self._states(session.app_name), note)
        message = as_message(event) if recorded_session() != journal.id else None
        if not await _add(journal, event.id, data, message):
            return event
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    # -- states ----------------------------------------------------------------------------------

    async def _shared(self, app_name: str) -> "_Shared":
        shared = _Shared()
        states = await self._existing(_shared_name(app_name))
        for note in await states.notes() if states is not None else ():
            if note.name == APP and isinstance(note.data, dict):
                shared.app.update(note.data)
            elif note.name == USER and isinstance(note.data, dict):
                shared.users.setdefault(note.data["user_id"], {}).update(note.data["state"])
        return shared

    async def _states(self, app_name: str) -> AsyncSession:
        return await self._store.open_session(_shared_name(app_name), type="hidden")

    async def _existing(self, name: str) -> AsyncSession | None:
        try:
            return await self._store.session(name)
        except SessionNotFound:
            return None


async def _add(journal: AsyncSession, event_id: str, data: Json, message: Message | None) -> bool:
    """Add an event and its message; return False if it is there already.

    Another event with the same id, or one whose id a deleted session had, is kept as well.
    """
    try:
        if message is not None:
            await journal.add_messages([message], source=OURS)
        [receipt] = await journal.note_all([SessionNote(EVENT, data, f"{EVENT}:{event_id}")])
    except IdConflict:
        pass
    else:
        if not receipt.repeated:
            return True
        kept = _fold(await journal.notes())
        if kept is not None and any(event.id == event_id for event in kept.events):
            return False
    if message is not None:
        await journal.add_messages([msgspec.structs.replace(message, id="")], source=OURS)
    await journal.note(EVENT, data)
    return True


async def _note_again(journal: AsyncSession, note: SessionNote) -> None:
    """Write a note; another one with the same key is kept as well."""
    try:
        await journal.note_all([note])
    except IdConflict:
        await journal.note(note.name, note.data)


def _shared_notes(user_id: str, deltas: dict[str, Any], key: str) -> list[SessionNote]:
    """Return the notes about the states of an app and of a user; a key is written once. Pure."""
    notes = []
    if deltas["app"]:
        notes.append(SessionNote(APP, deltas["app"], key=f"{APP}:{key}"))
    if deltas["user"]:
        data = {"user_id": user_id, "state": deltas["user"]}
        notes.append(SessionNote(USER, data, key=f"{USER}:{key}"))
    return notes


class _Shared:
    """The states of an app and of its users."""

    def __init__(self) -> None:
        self.app: dict[str, Any] = {}
        self.users: dict[str, dict[str, Any]] = {}

    def of(self, user_id: str) -> dict[str, Any]:
        """Return both under the prefixes that the ADK gives them."""
        app = {f"{State.APP_PREFIX}{key}": value for key, value in self.app.items()}
        own = self.users.get(user_id, {})
        return app | {f"{State.USER_PREFIX}{key}": value for key, value in own.items()}


class _Kept:
    """A session's events, its own state and the time of its last event."""

    def __init__(self, begun: Any) -> None:
        self.state: dict[str, Any] = dict(begun["state"])
        self.updated: float = begun["time"]
        self.events: list[Event] = []

    def add(self, data: Any) -> None:
        event = Event.model_validate(data)
        self.events.append(event)
        self.updated = event.timestamp
        if event.actions is not None and event.actions.state_delta:
            self.state |= extract_json_safe_state_delta(event.actions.state_delta)["session"]


def _fold(notes: list[SessionNote]) -> _Kept | None:
    """Return a session from its notes; None if it was never begun, or is deleted. Pure."""
    kept: _Kept | None = None
    for note in notes:
        if note.name == BEGUN:
            kept = _Kept(note.data)
        elif note.name == DELETED:
            kept = None
        elif note.name == EVENT and kept is not None:
            kept.add(note.data)
    return kept


async def _is_there(journal: AsyncSession) -> bool:
    """Return whether a session was begun and not deleted; its newest note mostly tells."""
    newest = await journal.notes(last=1)
    if newest and newest[0].name in (BEGUN, EVENT):
        return True
    return _fold(await journal.notes()) is not None


def _name(app_name: str, user_id: str, session_id: str) -> str:
    """Return the store's name of a session: three names, in which no slash is left."""
    return "/".join(quote(name, safe="@ ") for name in (app_name, user_id, session_id.strip()))


def _shared_name(app_name: str) -> str:
    return f"{quote(app_name, safe='@ ')}/google-adk-states"


def _tag(app_name: str) -> str:
    return f"google-adk:{app_name}"
