"""The `StepStore` of pydantic-ai-harness on a store: `StepPersistence(store=KillickStepStore(…))`.

Each run is a hidden session, and all that is handed over is a note in it. The messages of snapshots
are blobs, each stored once however many snapshots have it. What happens between two snapshots is
not handed over; `Recorder` records that.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessagesTypeAdapter

from killick.adapters.frameworks import tested
from killick.errors import IdConflict, SessionNotFound
from killick.model.sessions import SessionInfo, SessionNote
from killick.session.aio import AsyncSession, AsyncStore

tested("pydantic-ai-harness", "pydantic-ai-harness", at_least="0.62", below="0.63")

from pydantic_ai_harness.step_persistence import (  # noqa: E402
    ContinuableSnapshot,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)

RUN: Final = "pydantic_ai_harness.run"
EVENT: Final = "pydantic_ai_harness.event"
SNAPSHOT: Final = "pydantic_ai_harness.snapshot"
EFFECT: Final = "pydantic_ai_harness.effect"
_TAG: Final = "pydantic-ai-harness"
_PAGE: Final = 200

T = TypeVar("T")


class KillickStepStore:
    """Keeps runs, events, snapshots and tool effects in a store; nothing of them is ever edited."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    # -- runs ------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Keep what is known of a run; of a run that is registered again, the newest is read.

        If interrupted: it is kept or it is not.
        """
        await (await self._opened(record.run_id)).note(RUN, _plain(record))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return what is known of a run."""
        notes = await self._notes(run_id, RUN, last=1)
        return _read(RunRecord, notes[0].data) if notes else None

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return runs, the one that started first first."""
        records: list[RunRecord] = []
        last: SessionInfo | None = None
        while True:
            page = await self._store.sessions(
                type="hidden", tag=_TAG, limit=_PAGE, before=last, archived=None
            )
            for info in page:
                record = await self.get_run(run_id=info.extra["run_id"])
                if record is not None:
                    records.append(record)
            if len(page) < _PAGE:
                break
            last = page[-1]
        matching = [
            record
            for record in reversed(records)
            if parent_run_id in (None, record.parent_run_id)
            and conversation_id in (None, record.conversation_id)
        ]
        return sorted(matching, key=lambda record: record.started_at)

    # -- events ----------------------------------------------------------------------------------

    async def append_event(self, event: StepEvent) -> None:
        """Append an event; one whose key is there changes nothing.

        If interrupted: it is there or it is not.
        """
        await self._append(event.run_id, EVENT, _plain(event), event.idempotency_key)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return a run's events in order."""
        return [_read(StepEvent, note.data) for note in await self._notes(run_id, EVENT)]

    # -- snapshots -------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Keep a snapshot; one whose key is there, or older than the newest key, changes nothing.

        If interrupted: it is kept or it is not.
        """
        key = snapshot.idempotency_key
        if key is not None:
            kept = await self._notes(snapshot.run_id, SNAPSHOT)
            known = {note.data.get("idempotency_key") for note in kept} - {None}
            newest = max(map(_sequence, known), default=-1)
            if key in known or -1 < _sequence(key) < newest:
                return
        session = await self._opened(snapshot.run_id)
        messages = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
        names = [await self._store.put_blob(_bytes(message)) for message in messages]
        data = {**_plain(snapshot, leave_out="messages"), "messages": names}
        await session.note(SNAPSHOT, data, blobs=sorted(set(names)))

    async def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        """Return the newest snapshot, if nothing else is asked for one whose tools are settled."""
        for note in reversed(await self._notes(run_id, SNAPSHOT)):
            if include_interrupted or note.data.get("state") == "complete":
                return await self._snapshot(note.data)
        return None

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        """Return a run's snapshots in order."""
        return [
            await self._snapshot(note.data)
            for note in await self._notes(run_id, SNAPSHOT)
            if include_interrupted or note.data.get("state") == "complete"
        ]

    async def _snapshot(self, data: dict[str, Any]) -> ContinuableSnapshot:
        messages = [json.loads(await self._store.blob(name)) for name in data["messages"]]
        about = _read(ContinuableSnapshot, {**data, "messages": []})
        about.messages = ModelMessagesTypeAdapter.validate_python(messages)
        return about

    # -- tool effects ----------------------------------------------------------------------------

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Keep the state of a tool call. If interrupted: it is kept or it is not."""
        await (await self._opened(record.run_id)).note(EFFECT, _plain(record))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest state of a tool call."""
        return {effect.tool_call_id: effect for effect in await self._effects(run_id)}.get(
            tool_call_id
        )

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the calls that started and never ended."""
        return [effect for effect in await self._effects(run_id) if effect.status == "started"]

    async def _effects(self, run_id: str) -> Iterator[ToolEffectRecord]:
        newest: dict[str, ToolEffectRecord] = {}
        for note in await self._notes(run_id, EFFECT):
            record = _read(ToolEffectRecord, note.data)
            newest[record.tool_call_id] = record
        return iter(newest.values())

    # -- the store -------------------------------------------------------------------------------

    async def _append(self, run_id: str, name: str, data: Any, key: str | None) -> None:
        session = await self._opened(run_id)
        note = SessionNote(name, data, key=None if key is None else f"{name}:{key}")
        try:
            await session.note_all([note])
        except IdConflict:
            return  # it came before, and the first stays

    async def _opened(self, run_id: str) -> AsyncSession:
        about = {"run_id": run_id}
        return await self._store.open_session(
            _name(run_id), type="hidden", tags=[_TAG], extra=about
        )

    async def _notes(self, run_id: str, name: str, last: int | None = None) -> list[SessionNote]:
        try:
            session = await self._store.session(_name(run_id))
        except SessionNotFound:
            return []
        return await session.notes(name, last=last)


def _name(run_id: str) -> str:
    return f"pydantic-ai-harness/{quote(run_id, safe='@ ')}"


def _bytes(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False, sort_keys=True).encode()


def _plain(record: Any, *, leave_out: str | None = None) -> dict[str, Any]:
    fields = {key: value for key, value in vars(record).items() if key != leave_out}
    made: dict[str, Any] = TypeAdapter(dict[str, Any]).dump_python(fields, mode="json")
    return made


def _read(kind: type[T], data: Any) -> T:
    return TypeAdapter(kind).validate_python(data)


def _sequence(key: str) -> int:
    """Return the number that a key of `StepPersistence` begins with; -1 if it has none."""
    number, separator, _ = key.partition(":")
    return int(number) if separator and number.isdecimal() else -1
