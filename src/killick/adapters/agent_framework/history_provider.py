"""The framework's `HistoryProvider` on a store: each message is a note, and what it says a message.

The notes give the framework exactly what it handed over; the messages are for people, for a search
and for other models. A session that a `Recorder` records into is read from its journal, and nothing
is written twice.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, Final

from agent_framework import HistoryProvider, Message

from killick.adapters.agent_framework.contents import OURS, as_message, history_with
from killick.adapters.agent_framework.recorder import recorded_turn
from killick.errors import SessionNotFound
from killick.model import entries as e
from killick.model.sessions import SessionNote
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.sync_blocks import plain

MESSAGE: Final = "agent_framework.message"


class KillickHistoryProvider(HistoryProvider):
    """Keeps the messages of an agent's sessions; give it in `context_providers`.

    The input is kept before the model is asked, the answer when the run is over. What happens in
    between is kept by a `Recorder`.
    """

    def __init__(
        self,
        store: AsyncStore,
        source_id: str = "killick",
        *,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._store = store

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return a session's messages; of a recorded one, what a model may be sent."""
        session = await self._existing(session_id)
        if session is None:
            return []
        turn_id = recorded_turn(session.id)
        if turn_id is not None:
            return await history_with(session, {"before_turn": turn_id})
        entries = await session.entries()
        if any(isinstance(entry.body, e.MessageStarted) for entry in entries):
            return await history_with(session, {})
        notes = await session.notes(MESSAGE)
        return [Message.from_dict(note.data) for note in notes if isinstance(note.data, dict)]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages. If interrupted: all of them are there, or none is read back."""
        if not messages or (session_id and recorded_turn(session_id) is not None):
            return  # a recorder has them
        session = await self._store.open_session(session_id or self.source_id)
        spoken = [made for message in messages if (made := as_message(message)) is not None]
        if spoken:
            await session.add_messages(spoken, source=OURS)
        notes = [SessionNote(MESSAGE, plain(message.to_dict())) for message in messages]
        await session.note_all(notes)

    async def before_run(
        self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]
    ) -> None:
        """Load the history, and keep the input before the model is asked.

        If interrupted: the input is kept or it is not.
        """
        await super().before_run(agent=agent, session=session, context=context, state=state)
        if self.store_inputs:
            inputs = list(context.input_messages)
            await self.save_messages(context.session_id, inputs, state=state)

    async def after_run(
        self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]
    ) -> None:
        """Keep the answer. If interrupted: it is kept or it is not."""
        if self.load_messages:  # else `before_run` was not called
            context = copy(context)
            context.input_messages = []
        await super().after_run(agent=agent, session=session, context=context, state=state)

    async def _existing(self, session_id: str | None) -> AsyncSession | None:
        try:
            return await self._store.session(session_id or self.source_id)
        except SessionNotFound:
            return None
