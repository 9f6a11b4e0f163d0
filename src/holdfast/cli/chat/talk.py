"""A chat: turns, the queue, Stop and approvals, one session at a time.

Three things run beside each other: the line that is typed in, the turn that is answered, and a
follower that shows the journal. They meet in the journal only.
"""

import asyncio
import time
from typing import Any, Final, Literal, Unpack

from holdfast.agent import Agent
from holdfast.agent.approvals import find_pending
from holdfast.cli.chat.screen import Screen
from holdfast.cli.chat.view import Shown, View, call_text
from holdfast.errors import HoldfastError, SessionBusy, TurnStopped
from holdfast.model import entries as e
from holdfast.model.messages import Message
from holdfast.session.aio import AsyncSession
from holdfast.session.options import TurnSettings

LEAVE_SECONDS: Final = 2.0
"""A second Ctrl+C within this time leaves."""

STOPPED: Final = "stopped by the user"


class Talk:
    """One chat in one terminal."""

    def __init__(self, session: AsyncSession, agent: Agent, *, url: str | None) -> None:
        self.session = session
        self.agent = agent
        self.url = url
        self.screen = Screen(View(), on_interrupt=self.interrupt)
        self._unsent: str | None = None
        self._turn: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[Any]] = set()
        self._interrupted_at = -LEAVE_SECONDS
        self._stopped = False
        self._leaving = False

    @property
    def view(self) -> View:
        return self.screen.view

    # -- the whole -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Talk until the person leaves."""
        await self.open(self.session)
        try:
            while not self._leaving:
                try:
                    text = await self.screen.line()
                except (EOFError, KeyboardInterrupt):
                    break
                try:
                    await self._take(text)
                except HoldfastError as error:
                    await self.say("warning", str(error))
        finally:
            await self._end()

    async def open(self, session: AsyncSession) -> None:
        """Go on with this session: show where it stands, and follow it from here."""
        if self._follower is not None:
            self._follower.cancel()
        self.session = session
        self.screen.view = View()  # nothing of another session counts
        entries = await session.entries()
        await self._recall(entries)
        self.view.pending = {one.asked.id: one for one in find_pending(entries)}
        self._follower = asyncio.create_task(self._follow(session, session.head))
        if self.view.running:
            await self._say_busy(self.view.holder)
        elif self.view.pending:
            await self.say("note", "A call waited for your approval when the program ended.")
        self._ask()

    async def _recall(self, entries: list[e.Entry]) -> None:
        """What is left from before: the last exchange, prompts that wait."""
        shown: list[Shown] = []
        starts = [number for number, one in enumerate(entries) if _starts(one)]
        last = starts[-1] if starts else len(entries)
        for number, entry in enumerate(entries):
            pieces = self.view.take(entry)
            if number >= last:
                shown += pieces
        if starts:
            title = f" of {self.session.title!r}" if self.session.title else ""
            await self.screen.show(Shown("note", f"The last turn{title}:"), *shown)

    async def _follow(self, session: AsyncSession, after: int) -> None:
        async for item in session.follow(after=after):
            shown = self.view.take(item)
            if shown:
                await self.screen.show(*shown)
            self._ask()
            self.screen.refresh()

    async def _end(self) -> None:
        """Leave: a turn that still runs is stopped first, and its ending is waited for."""
        if self._turn is not None and not self._turn.done():
            self._turn.cancel()
        waiting = [task for task in (self._turn, *self._asides) if task is not None]
        for task in self._asides:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def say(self, kind: Literal["note", "warning"], text: str) -> None:
        await self.screen.show(Shown(kind, text))

    # -- what is typed -------------------------------------------------------------------------

    async def _take(self, text: str) -> None:
        if self.view.pending:
            await self._decide(text)
        elif text.startswith("/"):
            from holdfast.cli.chat.slash import run_command

            await self.screen.show(Shown("prompt", text))
            await run_command(self, text)
        elif self.busy:
            if text:
                await self._queue(text)
        elif text:
            await self.screen.show(Shown("prompt", text))
            self.view.said.append(text)
            self.begin(text)
        elif self.view.queued:
            await self._send_queued()

    @property
    def busy(self) -> bool:
        """Whether a turn runs, here or elsewhere."""
        return self.view.running or (self._turn is not None and not self._turn.done())

    async def _queue(self, text: str) -> None:
        await self.session.queue(text)
        await self.say("note", f"Queued: {text}")

    async def _send_queued(self) -> None:
        for text in self.view.queued.values():
            await self.screen.show(Shown("prompt", text))
            self.view.said.append(text)
        self.begin(None)

    # -- turns ---------------------------------------------------------------------------------

    def begin(self, prompt: str | None, **settings: Unpack[TurnSettings]) -> None:
        """Run a turn beside everything else."""
        self._stopped = False
        self._turn = asyncio.create_task(self._answer(prompt, settings))

    async def _answer(self, prompt: str | None, settings: TurnSettings) -> None:
        try:
            async with self.session.turn(prompt, **settings) as turn:
                await self.agent.answer(self.session, turn)
        except TurnStopped:
            self._stopped = True
        except SessionBusy as busy:
            await self._meet_another(prompt, busy)
            return
        except Exception as error:  # noqa: BLE001  (the turn has failed, and the chat goes on)
            await self._failed(prompt, error)
            return
        await self._answered()

    async def _failed(self, prompt: str | None, error: Exception) -> None:
        if isinstance(error, HoldfastError):
            await self.say("warning", str(error))
        if prompt:
            self.screen.offer(prompt)

    async def _answered(self) -> None:
        if self._stopped:
            return  # Stop holds the queue
        if self.session.title is None:
            self._aside(self.agent.title(self.session))
        if await self._has_queued():
            await self._send_queued()

    async def _has_queued(self) -> bool:
        """The journal knows; the view may be a moment behind it."""
        waiting: dict[str, str] = {}
        for entry in await self.session.entries():
            if isinstance(entry.body, e.PromptQueued):
                waiting[entry.body.id] = Message("user", entry.body.parts).text
            elif isinstance(entry.body, e.PromptTaken | e.PromptWithdrawn):
                waiting.pop(entry.body.id, None)
        self.view.queued = waiting
        return bool(waiting)

    async def _meet_another(self, prompt: str | None, busy: SessionBusy) -> None:
        """Somebody else runs a turn of this session: the prompt waits, or takes the turn over."""
        self.view.said = [text for text in self.view.said if text != prompt]
        self._unsent = prompt
        await self._say_busy(busy.holder)

    async def _say_busy(self, holder: str | None) -> None:
        await self.say(
            "warning",
            f"This session is busy: {holder} runs a turn. You watch it here, and what you type is "
            "queued. /wait sends a prompt when it is over, /takeover ends it and sends now, "
            "Ctrl+C asks it to stop.",
        )

    async def resend(self, **settings: Unpack[TurnSettings]) -> None:
        """Send what was refused because the session was busy, or what is queued."""
        prompt, self._unsent = self._unsent, None
        if prompt:
            self.view.said.append(prompt)
        self.begin(prompt, **settings)

    def _aside(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._asides.add(task)
        task.add_done_callback(self._aside_over)

    def _aside_over(self, task: "asyncio.Task[Any]") -> None:
        self._asides.discard(task)
        if not task.cancelled():
            task.exception()  # a title that could not be made is not worth a word

    # -- Stop ----------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ctrl+C: stop the turn; a second one soon after, or one with nothing to stop, leaves."""
        now = time.monotonic()
        again = now - self._interrupted_at < LEAVE_SECONDS
        self._interrupted_at = now
        if again:
            self.leave()
        elif self.view.running or self.busy:
            self._stopped = True
            self._aside(self._stop())
        else:
            self._aside(self.say("note", "Ctrl+C again leaves."))

    def leave(self) -> None:
        """End the chat; a turn that runs here is interrupted, and says why."""
        self._leaving = True
        self.screen.leave()

    async def _stop(self) -> None:
        if not await self.session.stop(reason=STOPPED) and self._turn is not None:
            self._turn.cancel()  # it has not begun yet

    # -- approvals -----------------------------------------------------------------------------

    def _ask(self) -> None:
        pending = next(iter(self.view.pending.values()), None)
        self.screen.question = (
            f"Run {call_text(pending.call)} ? [y]es [n]o [a]lways" if pending else ""
        )

    async def _decide(self, text: str) -> None:
        pending = next(iter(self.view.pending.values()))
        word = text.lower()
        if word not in ("y", "yes", "n", "no", "a", "always"):
            await self.say("note", "Type y, n or a; Ctrl+C stops the turn.")
            return
        approved = word[0] in "ya"
        if word[0] == "a":
            self.agent.allowed.add(pending.call.name)
        await self.session.decide_approval(
            pending.asked, approved=approved, by="chat", reason=None if approved else "refused"
        )
        self.view.pending.pop(pending.asked.id, None)
        self._ask()
        if approved and not self.busy:
            # Its turn did not live to see it: the call runs, as approved, in one that continues it.
            self.begin(None, continues=pending.asked.turn_id)


def _starts(entry: e.Entry) -> bool:
    return isinstance(entry.body, e.TurnStarted)
