"""The part of both faces that describes a session, changes its history, reads it in pages."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from inspect import isfunction
from typing import Any, TypeVar

from killick.model import entries as e
from killick.model.messages import Json, Message
from killick.model.sessions import Limits, Namer, Project, SessionNote
from killick.session.core.history import HistoryCore
from killick.session.core.session import PAGE, SessionCore
from killick.session.drive.steps import Flow
from killick.stores.engine.state import Receipt

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _methods_of(owner: str) -> Callable[[C], C]:
    """Call the methods of a class by that of its users: a wrong call is told so by Python."""

    def rename(part: C) -> C:
        for name, method in vars(part).items():
            if isfunction(method):
                method.__qualname__ = f"{owner}.{name}"
        return part

    return rename


class SessionAttributes:
    """Properties of a session, the same on both faces."""

    _core: SessionCore

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def title(self) -> str | None:
        return self._core.title

    @property
    def head(self) -> int:
        return self._core.head


@_methods_of("Session")
class Amend(SessionAttributes):
    """The synchronous face."""

    _core: SessionCore

    def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def iter_messages(self, *, after: int = 0) -> Iterator[Message]:
        """Yield messages in order, read in pages: a long session takes no more memory than a short.

        Each page is as of the moment at which it is read.
        """
        while page := self._run(self._core.messages(after, None, PAGE)):
            after = page[-1].seq
            yield from page

    def rename(self, title: str | None, *, by: Namer = "person") -> Receipt:
        """Give the session a title; a person's is never replaced by a generated one.

        If interrupted: it is renamed or it is not.
        """
        return self._run(self._core.rename(title, by))

    def limit(
        self,
        *,
        tokens: int | None = None,
        calls: int | None = None,
        seconds: float | None = None,
        cost: float | None = None,
    ) -> Receipt:
        """Limit what the session and its children may spend, in place of what was said before.

        None limits nothing. If interrupted: it is changed or it is not.
        """
        limits = Limits(tokens=tokens, calls=calls, seconds=seconds, cost=cost)
        return self._run(self._core.limit(limits))

    def archive(self, *, archived: bool = True) -> Receipt:
        """Put the session away, or bring it back. If interrupted: done or not."""
        return self._run(self._core.archive(archived=archived))

    def pin(self, *, pinned: bool = True) -> Receipt:
        """Keep the session from every rule that removes. If interrupted: done or not."""
        return self._run(self._core.pin(pinned=pinned))

    def tag(self, *add: str, remove: Sequence[str] = ()) -> Receipt:
        """Put tags on the session and take others off. If interrupted: done or not."""
        return self._run(self._core.tag(add, remove))

    def move(self, project: Project | None) -> Receipt:
        """Say where the work lies from now on. If interrupted: done or not."""
        return self._run(self._core.move(project))

    def compact(
        self,
        summary: str,
        through: int,
        *,
        first: int = 1,
        as_of: int | None = None,
        keep: Sequence[int] = (),
        provider: str | None = None,
        model: str | None = None,
        usage: e.Usage | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
    ) -> Receipt:
        """Put a summary in place of the messages up to `through`, in what a model is sent.

        `first` begins the range elsewhere, `keep` names messages that stay; so does, in a turn that
        still runs, what was not finished at `through`. Give `as_of`, the head when the summary was
        begun, if a turn may have ended since: what was not finished then stays.

        If interrupted: it is compacted or it is not.
        """
        flow = HistoryCore(self._core).compact(
            summary,
            through,
            first=first,
            as_of=as_of,
            keep=keep,
            provider=provider,
            model=model,
            usage=usage,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
        )
        return self._run(flow)

    def rewind(self, through: int) -> Receipt:
        """Take what began after `through` out of every view; it stays in the journal.

        What began by then is kept whole, a call with its result too. Raises SessionBusy while a
        turn runs. If interrupted: it is rewound or it is not.
        """
        return self._run(HistoryCore(self._core).rewind(through))

    def clear(self) -> Receipt:
        """Begin anew: a rewind to before the first message. If interrupted: done or not."""
        return self._run(HistoryCore(self._core).rewind(0))

    def undo(self, seq: int | None = None) -> Receipt:
        """Undo the compaction or rewind at this seq, or the newest one that is in effect.

        A rewind can be undone until something was said since. Raises UndoRefused afterwards, and
        when there is nothing to undo.
        If interrupted: it is undone or it is not.
        """
        return self._run(HistoryCore(self._core).undo(seq))

    def hide(self, message: int | Message, *, person: bool = True, model: bool = True) -> Receipt:
        """Hide a message from the person and the model, or one of them, until it is shown again.

        If interrupted: it is hidden or it is not.
        """
        see = HistoryCore(self._core).see(
            message, person=False if person else None, model=False if model else None
        )
        return self._run(see)

    def show(self, message: int | Message, *, person: bool = True, model: bool = True) -> Receipt:
        """Show a message again, to the person and the model, or to one of them.

        If interrupted: it is shown or it is not.
        """
        see = HistoryCore(self._core).see(message, person=person or None, model=model or None)
        return self._run(see)

    def note(
        self,
        name: str,
        data: Json = None,
        *,
        key: str | None = None,
        blobs: Sequence[str] = (),
    ) -> Receipt:
        """Keep something beside the conversation, and the blobs that it names.

        If interrupted: kept or not.
        """
        return self._run(self._core.note(SessionNote(name, data, key, blobs)))

    def note_all(self, notes: Sequence[SessionNote]) -> list[Receipt]:
        """Keep notes beside the conversation, in one commit: all of them or none.

        If interrupted: they are kept or they are not; those with a `key` tell.
        """
        return self._run(self._core.note_all(notes))

    def notes(
        self, name: str | None = None, key: str | None = None, last: int | None = None
    ) -> list[SessionNote]:
        """Return notes in order: all, those of a name, the one with a key, or the last few.

        They lie beside the conversation: rewinding it leaves them, and a fork has inherited them.
        """
        return self._run(self._core.notes(name, key, last))


@_methods_of("AsyncSession")
class AsyncAmend(SessionAttributes):
    """The asynchronous face."""

    _core: SessionCore

    def _run(self, flow: Flow[T]) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    async def iter_messages(self, *, after: int = 0) -> AsyncIterator[Message]:
        """Yield messages in order, read in pages: a long session takes no more memory than a short.

        Each page is as of the moment at which it is read.
        """
        while page := await self._run(self._core.messages(after, None, PAGE)):
            after = page[-1].seq
            for message in page:
                yield message

    async def rename(self, title: str | None, *, by: Namer = "person") -> Receipt:
        """Give the session a title; a person's is never replaced by a generated one.

        If interrupted: it is renamed or it is not.
        """
        return await self._run(self._core.rename(title, by))

    async def limit(
        self,
        *,
        tokens: int | None = None,
        calls: int | None = None,
        seconds: float | None = None,
        cost: float | None = None,
    ) -> Receipt:
        """Limit what the session and its children may spend, in place of what was said before.

        None limits nothing. If interrupted: it is changed or it is not.
        """
        limits = Limits(tokens=tokens, calls=calls, seconds=seconds, cost=cost)
        return await self._run(self._core.limit(limits))

    async def archive(self, *, archived: bool = True) -> Receipt:
        """Put the session away, or bring it back. If interrupted: done or not."""
        return await self._run(self._core.archive(archived=archived))

    async def pin(self, *, pinned: bool = True) -> Receipt:
        """Keep the session from every rule that removes. If interrupted: done or not."""
        return await self._run(self._core.pin(pinned=pinned))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> Receipt:
        """Put tags on the session and take others off. If interrupted: done or not."""
        return await self._run(self._core.tag(add, remove))

    async def move(self, project: Project | None) -> Receipt:
        """Say where the work lies from now on. If interrupted: done or not."""
        return await self._run(self._core.move(project))

    async def compact(
        self,
        summary: str,
        through: int,
        *,
        first: int = 1,
        as_of: int | None = None,
        keep: Sequence[int] = (),
        provider: str | None = None,
        model: str | None = None,
        usage: e.Usage | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
    ) -> Receipt:
        """Put a summary in place of the messages up to `through`, in what a model is sent.

        `first` begins the range elsewhere, `keep` names messages that stay; so does, in a turn that
        still runs, what was not finished at `through`. Give `as_of`, the head when the summary was
        begun, if a turn may have ended since: what was not finished then stays.

        If interrupted: it is compacted or it is not.
        """
        flow = HistoryCore(self._core).compact(
            summary,
            through,
            first=first,
            as_of=as_of,
            keep=keep,
            provider=provider,
            model=model,
            usage=usage,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
        )
        return await self._run(flow)

    async def rewind(self, through: int) -> Receipt:
        """Take what began after `through` out of every view; it stays in the journal.

        What began by then is kept whole, a call with its result too. Raises SessionBusy while a
        turn runs. If interrupted: it is rewound or it is not.
        """
        return await self._run(HistoryCore(self._core).rewind(through))

    async def clear(self) -> Receipt:
        """Begin anew: a rewind to before the first message. If interrupted: done or not."""
        return await self._run(HistoryCore(self._core).rewind(0))

    async def undo(self, seq: int | None = None) -> Receipt:
        """Undo the compaction or rewind at this seq, or the newest one that is in effect.

        A rewind can be undone until something was said since. Raises UndoRefused afterwards, and
        when there is nothing to undo.
        If interrupted: it is undone or it is not.
        """
        return await self._run(HistoryCore(self._core).undo(seq))

    async def hide(
        self, message: int | Message, *, person: bool = True, model: bool = True
    ) -> Receipt:
        """Hide a message from the person and the model, or one of them, until it is shown again.

        If interrupted: it is hidden or it is not.
        """
        see = HistoryCore(self._core).see(
            message, person=False if person else None, model=False if model else None
        )
        return await self._run(see)

    async def show(
        self, message: int | Message, *, person: bool = True, model: bool = True
    ) -> Receipt:
        """Show a message again, to the person and the model, or to one of them.

        If interrupted: it is shown or it is not.
        """
        see = HistoryCore(self._core).see(message, person=person or None, model=model or None)
        return await self._run(see)

    async def note(
        self,
        name: str,
        data: Json = None,
        *,
        key: str | None = None,
        blobs: Sequence[str] = (),
    ) -> Receipt:
        """Keep something beside the conversation, and the blobs that it names.

        If interrupted: kept or not.
        """
        return await self._run(self._core.note(SessionNote(name, data, key, blobs)))

    async def note_all(self, notes: Sequence[SessionNote]) -> list[Receipt]:
        """Keep notes beside the conversation, in one commit: all of them or none.

        If interrupted: they are kept or they are not; those with a `key` tell.
        """
        return await self._run(self._core.note_all(notes))

    async def notes(
        self, name: str | None = None, key: str | None = None, last: int | None = None
    ) -> list[SessionNote]:
        """Return notes in order: all, those of a name, the one with a key, or the last few.

        They lie beside the conversation: rewinding it leaves them, and a fork has inherited them.
        """
        return await self._run(self._core.notes(name, key, last))
