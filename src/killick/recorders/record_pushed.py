"""Record an answer whose bytes are pushed in, for a program that passes them on itself."""

from typing import Any

import anyio

from killick.errors import KillickError
from killick.recorders.actions import MediaPiece
from killick.recorders.apply import DeltaApplier
from killick.recorders.model_call import Handle, Plan
from killick.session.aio_blocks import AsyncTurn
from killick.session.drive.drive_async import settle
from killick.session.drive.steps import Write


class PushedRecording(Handle):
    """One model call whose answer is handed over piece by piece, as it came on the wire.

    Begin it, feed it bytes of server-sent events (or one whole response), and end it.
    """

    def __init__(self, turn: AsyncTurn, plan: Plan) -> None:
        self._turn = turn
        self._stream = turn.stream(**plan.settings)
        super().__init__(plan, self._stream)
        self._applier = DeltaApplier(plan.kind, self._stream)

    @property
    def ended(self) -> bool:
        """Return True once the shape's end mark came."""
        return self._applier.ended

    @property
    def provider_ids(self) -> dict[str, str]:
        """Return the ids that the provider gave the answer so far, by their names."""
        return self._core.ended.provider_ids

    async def begin(self) -> None:
        """Record that the model is asked; durable on return.

        If interrupted: the call is recorded as begun or it is not; the turn's end closes it.
        """
        await self._stream.begin()

    async def feed(self, piece: bytes) -> None:
        """Record a piece of the stream; waits only where an image or a file must be stored."""
        for media in self._applier.feed(piece):
            await self._place(media)

    async def feed_event(self, event: dict[str, Any]) -> None:
        """Record one event of the stream that was parsed already."""
        for media in self._applier.feed(event):
            await self._place(media)

    async def feed_response(self, response: dict[str, Any]) -> None:
        """Record one whole response, which was not streamed."""
        for media in self._applier.feed_response(response):
            await self._place(media)

    async def until_durable(self) -> None:
        """Wait until the calls that are whole so far are durable: their tools may start now.

        If interrupted: they are written all the same; only the wait for it is given up.
        """
        # Behind them in the writer's queue, and in their commit or a later one.
        await settle(self._turn._core.runtime, Write(lambda _engine: None))

    async def end(self, error: BaseException | None = None, why: str | None = None) -> None:
        """Keep the message: complete if its end mark came, otherwise partial. Durable on return.

        If interrupted: what came is written all the same; only the wait for it is given up.
        """
        try:
            for media in self._applier.close(why):
                await self._place(media)
        except KillickError as refused:
            error = error or refused
        with anyio.CancelScope(shield=True):
            await self._stream.end(error)

    async def _place(self, media: MediaPiece) -> None:
        self._applier.place(media, await self._turn.put_blob(media.data))
