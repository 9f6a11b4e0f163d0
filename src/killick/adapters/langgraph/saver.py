"""LangGraph's checkpoint saver on a store: a thread is a session, its checkpoints are notes.

Nothing is edited or deleted: what is pruned or deleted is out of every answer, and stays in the
journal until the session is erased.
"""

import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from killick.adapters.langgraph.thread_log import (
    CHECKPOINT,
    REMOVED,
    WRITES,
    NodePack,
    Saved,
    ThreadLog,
)
from killick.adapters.shared_store import both_faces
from killick.errors import SessionDeleted, SessionNotFound
from killick.model.sessions import SessionNote
from killick.session.aio import AsyncStore
from killick.session.sync import Store

Config = Any
_PAGE = 200


class KillickSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in a store; a thread's id is its session's id.

    Both the blocking and the asynchronous methods work, whichever face of a store is given.

    If interrupted: a checkpoint or a task's writes are stored as a whole, or not.
    """

    def __init__(self, store: Store | AsyncStore, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self._sync, self._async = both_faces(store)
        self._logs: dict[str, ThreadLog] = {}
        self._lock = threading.RLock()

    # -- a thread's log --------------------------------------------------------------------------

    def _log(self, thread_id: str) -> ThreadLog:
        """Return the thread's log as of now: only what is new in the journal is read."""
        with self._lock:
            log = self._logs.setdefault(thread_id, ThreadLog())
            seq = log.seq
        try:
            entries = self._sync.session(thread_id).entries(after=seq)
        except (SessionNotFound, SessionDeleted):
            entries = []
        return self._taken(log, entries)

    async def _alog(self, thread_id: str) -> ThreadLog:
        with self._lock:
            log = self._logs.setdefault(thread_id, ThreadLog())
            seq = log.seq
        try:
            session = await self._async.session(thread_id)
            entries = await session.entries(after=seq)
        except (SessionNotFound, SessionDeleted):
            entries = []
        return self._taken(log, entries)

    def _taken(self, log: ThreadLog, entries: list[Any]) -> ThreadLog:
        with self._lock:
            log.take(entry for entry in entries if entry.seq > log.seq)
        return log

    def _known(self, thread_id: str) -> dict[str, Any]:
        with self._lock:
            return dict.fromkeys(self._logs.setdefault(thread_id, ThreadLog()).nodes)

    # -- notes -----------------------------------------------------------------------------------

    def _checkpoint_note(
        self, config: Config, checkpoint: Any, metadata: Any, versions: Any
    ) -> tuple[SessionNote, Config]:
        keys = config["configurable"]
        thread_id, namespace = str(keys["thread_id"]), str(keys.get("checkpoint_ns", ""))
        pack = NodePack(self.serde, self._known(thread_id))
        values = [
            [channel, *pack.channel(value)]
            for channel, value in checkpoint["channel_values"].items()
        ]
        bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        kept = get_serializable_checkpoint_metadata(config, metadata)
        data = {
            "namespace": namespace,
            "id": checkpoint["id"],
            "parent": keys.get("checkpoint_id"),
            "checkpoint": pack.value(bare),
            "metadata": pack.value(kept),
            "values": values,
            "nodes": pack.dumped(),
        }
        return SessionNote(CHECKPOINT, data), {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint["id"],
            }
        }

    def _writes_note(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> SessionNote:
        keys = config["configurable"]
        pack = NodePack(self.serde, self._known(str(keys["thread_id"])))
        rows = [
            [task_id, path, WRITES_IDX_MAP.get(channel, index), channel, pack.value(value)]
            for index, (channel, value) in enumerate(writes)
        ]
        data = {
            "namespace": str(keys.get("checkpoint_ns", "")),
            "id": str(keys["checkpoint_id"]),
            "replace": all(channel in WRITES_IDX_MAP for channel, _ in writes),
            "writes": rows,
            "nodes": pack.dumped(),
        }
        return SessionNote(WRITES, data)

    def _write(self, thread_id: str, *notes: SessionNote) -> None:
        self._sync.open_session(thread_id).note_all(notes)
        self._log(thread_id)

    async def _awrite(self, thread_id: str, *notes: SessionNote) -> None:
        session = await self._async.open_session(thread_id)
        await session.note_all(notes)
        await self._alog(thread_id)

    # -- writing, blocking -----------------------------------------------------------------------

    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Config:
        note, stored = self._checkpoint_note(config, checkpoint, metadata, new_versions)
        self._write(stored["configurable"]["thread_id"], note)
        return stored

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        note = self._writes_note(config, writes, task_id, task_path)
        self._write(str(config["configurable"]["thread_id"]), note)

    def delete_thread(self, thread_id: str) -> None:
        if self._log(str(thread_id)).saved:
            self._write(str(thread_id), SessionNote(REMOVED, {"all": True}))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread_id in list(self._thread_ids()):
            note = self._removal(self._log(thread_id), self._of_runs(thread_id, run_ids))
            if note is not None:
                self._write(thread_id, note)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        notes = self._copied(self._log(str(source_thread_id)))
        if notes:
            self._write(str(target_thread_id), *notes)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in map(str, thread_ids):
            note = self._removal(self._log(thread_id), self._pruned(thread_id, strategy))
            if note is not None:
                self._write(thread_id, note)

    # -- writing, asynchronous -------------------------------------------------------------------

    async def aput(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Config:
        note, stored = self._checkpoint_note(config, checkpoint, metadata, new_versions)
        await self._awrite(stored["configurable"]["thread_id"], note)
        return stored

    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        note = self._writes_note(config, writes, task_id, task_path)
        await self._awrite(str(config["configurable"]["thread_id"]), note)

    async def adelete_thread(self, thread_id: str) -> None:
        if (await self._alog(str(thread_id))).saved:
            await self._awrite(str(thread_id), SessionNote(REMOVED, {"all": True}))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread_id in [name async for name in self._athread_ids()]:
            log = await self._alog(thread_id)
            note = self._removal(log, self._of_runs(thread_id, run_ids))
            if note is not None:
                await self._awrite(thread_id, note)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        notes = self._copied(await self._alog(str(source_thread_id)))
        if notes:
            await self._awrite(str(target_thread_id), *notes)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in map(str, thread_ids):
            log = await self._alog(thread_id)
            note = self._removal(log, self._pruned(thread_id, strategy))
            if note is not None:
                await self._awrite(thread_id, note)

    # -- what is removed or copied ---------------------------------------------------------------

    def _removal(self, log: ThreadLog, places: list[tuple[str, str]]) -> SessionNote | None:
        if not places:
            return None
        return SessionNote(REMOVED, {"checkpoints": [list(pair) for pair in places]})

    def _pruned(self, thread_id: str, strategy: str) -> list[tuple[str, str]]:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy {strategy!r}; it is keep_latest or delete")
        with self._lock:
            kept: set[str] = set()
            places: list[tuple[str, str]] = []
            for saved in self._logs[thread_id].visible():
                if strategy == "keep_latest" and saved.namespace not in kept:
                    kept.add(saved.namespace)
                else:
                    places.append((saved.namespace, saved.id))
            return places

    def _of_runs(self, thread_id: str, run_ids: Sequence[str]) -> list[tuple[str, str]]:
        with self._lock:
            log, wanted = self._logs[thread_id], set(map(str, run_ids))
            return [
                (saved.namespace, saved.id)
                for saved in log.visible()
                if str(log.load(self.serde, saved.metadata).get("run_id")) in wanted
            ]

    def _copied(self, log: ThreadLog) -> list[SessionNote]:
        """Return the notes that make another thread of this one: nodes first, in one note."""
        with self._lock:
            pack = NodePack(self.serde, ())
            pack.nodes = dict(log.nodes)
            notes: Any = []
            for saved in sorted(log.visible(), key=lambda saved: saved.id):
                keys = {"namespace": saved.namespace, "id": saved.id}
                data = {
                    **keys,
                    "parent": saved.parent,
                    "checkpoint": saved.checkpoint,
                    "metadata": saved.metadata,
                    "values": [[channel, *value] for channel, value in saved.values.items()],
                    "nodes": [] if notes else pack.dumped(),
                }
                notes.append(SessionNote(CHECKPOINT, data))
                pending = log.pending(saved.namespace, saved.id)
                if pending:
                    rows = [list(write) for write in pending]
                    notes.append(SessionNote(WRITES, {**keys, "replace": True, "writes": rows}))
            return notes

    # -- reading ---------------------------------------------------------------------------------

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        return self._newest(self._log(str(config["configurable"]["thread_id"])), config)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        log = await self._alog(str(config["configurable"]["thread_id"]))
        return self._newest(log, config)

    def _newest(self, log: ThreadLog, config: Config) -> CheckpointTuple | None:
        keys = config["configurable"]
        thread_id, wanted = str(keys["thread_id"]), get_checkpoint_id(config)
        with self._lock:
            for saved in log.visible(str(keys.get("checkpoint_ns", ""))):
                if wanted is None or saved.id == wanted:
                    return self._tuple(log, thread_id, saved)
        return None

    def _tuple(self, log: ThreadLog, thread_id: str, saved: Saved) -> CheckpointTuple:
        serde = self.serde
        checkpoint = log.load(serde, saved.checkpoint)
        checkpoint["channel_values"] = {
            channel: log.channel(serde, how, name) for channel, (how, name) in saved.values.items()
        }
        return CheckpointTuple(
            config=_config(thread_id, saved.namespace, saved.id),
            checkpoint=checkpoint,
            metadata=log.load(serde, saved.metadata),
            parent_config=None
            if saved.parent is None
            else _config(thread_id, saved.namespace, saved.parent),
            pending_writes=[
                (write.task_id, write.channel, log.load(serde, write.node))
                for write in log.pending(saved.namespace, saved.id)
            ],
        )

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        left = limit
        for thread_id in [_thread(config)] if config else self._thread_ids():
            tuples = self._listed(self._log(thread_id), thread_id, config, filter, before, left)
            yield from tuples
            left = None if left is None else left - len(tuples)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        left = limit
        names = [_thread(config)] if config else [name async for name in self._athread_ids()]
        for thread_id in names:
            log = await self._alog(thread_id)
            tuples = self._listed(log, thread_id, config, filter, before, left)
            for saved in tuples:
                yield saved
            left = None if left is None else left - len(tuples)

    def _listed(
        self,
        log: ThreadLog,
        thread_id: str,
        config: Config | None,
        wanted: dict[str, Any] | None,
        before: Config | None,
        limit: int | None,
    ) -> Any:
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        only = get_checkpoint_id(config) if config else None
        bound = get_checkpoint_id(before) if before else None
        listed: list[CheckpointTuple] = []  # type: ignore[valid-type]
        with self._lock:
            for saved in log.visible(namespace):
                if limit is not None and len(listed) >= limit:
                    break
                if (only and saved.id != only) or (bound and saved.id >= bound):
                    continue
                if wanted:
                    metadata = log.load(self.serde, saved.metadata)
                    if any(metadata.get(key) != value for key, value in wanted.items()):
                        continue
                listed.append(self._tuple(log, thread_id, saved))
        return listed

    def _thread_ids(self) -> Iterator[str]:
        page = self._sync.sessions(limit=_PAGE)
        while page:
            for info in page:
                if self._sync.session(info.id).notes(CHECKPOINT, last=1):
                    yield info.id
            page = self._sync.sessions(limit=_PAGE, before=page[-1])

    async def _athread_ids(self) -> AsyncIterator[str]:
        page = await self._async.sessions(limit=_PAGE)
        while page:
            for info in page:
                session = await self._async.session(info.id)
                if await session.notes(CHECKPOINT, last=1):
                    yield info.id
            page = await self._async.sessions(limit=_PAGE, before=page[-1])

    # -- channels that are rebuilt from writes ---------------------------------------------------

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        return self._history(self._log(_thread(config)), config, channels)

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        return self._history(await self._alog(_thread(config)), config, channels)

    def _history(self, log: ThreadLog, config: Config, channels: Sequence[str]) -> dict[str, Any]:
        """Walk up the parents once, also those that were pruned, for all channels."""
        namespace = str(config["configurable"].get("checkpoint_ns", ""))
        with self._lock:
            newest = next(iter(log.visible(namespace)), None)
            target = get_checkpoint_id(config) or (newest.id if newest else "")
            saved = log.saved.get((namespace, target))
            collected: dict[str, list[Any]] = {channel: [] for channel in channels}  # type: ignore[valid-type]
            seeds: dict[str, Any] = {}
            parent = saved.parent if saved is not None else None
            passed: set[str] = set()
            while parent is not None and parent not in passed and len(seeds) < len(collected):
                passed.add(parent)
                saved = log.saved.get((namespace, parent))
                if saved is None:
                    break
                for write in reversed(log.pending(namespace, parent)):
                    if write.channel in collected and write.channel not in seeds:
                        value = log.load(self.serde, write.node)
                        collected[write.channel].append((write.task_id, write.channel, value))
                for channel in collected:
                    if channel in saved.values and channel not in seeds:
                        seeds[channel] = log.channel(self.serde, *saved.values[channel])
                parent = saved.parent
        made: dict[str, Any] = {}
        for channel, writes in collected.items():
            made[channel] = {"writes": writes[::-1]}
            if channel in seeds:
                made[channel]["seed"] = seeds[channel]
        return made

    def get_next_version(self, current: Any, channel: None = None) -> str:
        """Return a version that sorts behind the current one."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}"


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> Config:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _thread(config: Config) -> str:
    return str(config["configurable"]["thread_id"])
