"""Several writes of one store in one commit, for a program that may wait for one alone."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from killick.errors import KillickError
from killick.model.causes import Cause
from killick.model.messages import Json, Message
from killick.model.sessions import Limits, Namer, Parent, Project, SessionNote
from killick.session.core.session import AddedMessages, Content, SessionCore, open_session
from killick.session.core.store import StoreCore
from killick.session.core.turn import TurnCore
from killick.session.drive.steps import Flow, Write, only, together
from killick.stores.engine.state import Receipt

T = TypeVar("T")


class _SessionFace(Protocol):
    _core: SessionCore


class _TurnFace(Protocol):
    _core: TurnCore


SessionT = TypeVar("SessionT", bound=_SessionFace)
TurnT = TypeVar("TurnT", bound=_TurnFace)


class BatchedWrite(Generic[T]):
    """One write of a batch; what came of it stands here once the batch is written."""

    __slots__ = ("_passed_over", "refusal", "result")

    def __init__(self) -> None:
        self.result: T | None = None
        self.refusal: KillickError | None = None
        self._passed_over: tuple[type[KillickError], ...] = ()

    def unless(self, *refusals: type[KillickError]) -> Self:
        """Have these refusals kept in `refusal`, and not raised by `write`."""
        self._passed_over = refusals
        return self

    def _flow(self, flow: Flow[T] | Write[T]) -> Flow[None]:
        try:
            self.result = yield from only(flow) if isinstance(flow, Write) else flow
        except self._passed_over as refused:
            self.refusal = refused


class BatchCore(Generic[SessionT, TurnT]):
    """Writes that are made in one commit, in the order in which they were given.

    Each does what the method of its name does on its own.
    """

    def __init__(self, store: StoreCore, face: Callable[[SessionCore], SessionT]) -> None:
        self._store = store
        self._face = face
        self._flows: list[Flow[None]] = []
        self._keys: set[int] = set()

    def create_session(
        self,
        *,
        id: str | None = None,
        title: str | None = None,
        titled_by: Namer = "person",
        type: str = "user",
        project: Project | None = None,
        tags: Sequence[str] = (),
        extra: dict[str, Any] | None = None,
        parent: Parent | None = None,
        limits: Limits | None = None,
    ) -> SessionT:
        """Begin a session. What this batch writes behind it may be about that session already."""
        core, create = self._store.plan_session(
            id,
            title=title,
            titled_by=titled_by,
            session_type=type,
            project=project,
            tags=tags,
            extra=extra,
            parent=parent,
            limits=limits,
        )
        self._add(None, _begun(core, create))
        return self._face(core)

    def put_blob(self, data: bytes) -> BatchedWrite[str]:
        """Keep the bytes of an image or a file; the result is its name."""
        return self._add(None, self._store.put_blob(data))

    def note_all(
        self, session: SessionT, notes: Sequence[SessionNote]
    ) -> BatchedWrite[list[Receipt]]:
        """Keep notes beside the conversation."""
        return self._add(session._core, session._core.note_all(notes))

    def add_messages(
        self, session: SessionT, messages: Sequence[Message], *, source: str, key: str | None = None
    ) -> BatchedWrite[AddedMessages]:
        """Append messages that were made elsewhere, as turns that are over."""
        return self._add(session._core, session._core.add_messages(messages, source, key))

    def finish_tool(
        self,
        session: SessionT,
        turn_id: str,
        call_id: str,
        content: Content,
        *,
        is_error: bool = False,
        structured: Json = None,
    ) -> BatchedWrite[Receipt]:
        """Record a tool's result from elsewhere."""
        flow = session._core.finish_tool(
            turn_id, call_id, content, is_error=is_error, structured=structured
        )
        return self._add(session._core, flow)

    def begin(self, turn: TurnT, also: Sequence[Message] = ()) -> BatchedWrite[None]:
        """Begin a turn, which `end` ends; `also` is recorded behind its prompt."""
        turn._core.held_by(turn)
        return self._add(turn._core.session, turn._core.enter(also))

    def record_all(self, turn: TurnT, messages: Sequence[Message]) -> BatchedWrite[list[Receipt]]:
        """Record whole messages in a turn that has begun before."""
        return self._add(turn._core.session, turn._core.record_all(messages))

    def end(
        self, turn: TurnT, error: BaseException | None = None, cause: Cause | None = None
    ) -> BatchedWrite[None]:
        """End a turn that has begun before."""
        return self._add(turn._core.session, turn._core.leave(error, cause))

    def _add(self, session: SessionCore | None, flow: Flow[T] | Write[T]) -> BatchedWrite[T]:
        if session is not None and session.key:
            self._keys.add(session.key)
        pending: BatchedWrite[T] = BatchedWrite()
        self._flows.append(pending._flow(flow))
        return pending

    def _taken(self) -> Flow[list[Any]]:
        flows, self._flows = self._flows, []
        keys, self._keys = self._keys, set()
        return together(flows, keys)


def _begun(core: SessionCore, create: Flow[bool]) -> Flow[None]:
    if not (yield from create):
        opened = yield from open_session(core.opening, core.id)
        core.saw(opened.head)
