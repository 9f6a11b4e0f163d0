"""A chat: turns, the queue, Stop and approvals, one session at a time.

Three things run beside each other: the line that is typed in, the turn that is answered, and a
follower that shows the journal. They meet in the journal only.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, signal
from typing import Any, Final, Literal, NamedTuple

from prompt_toolkit.patch_stdout import patch_stdout

from killick.adapters.pydantic_ai import granted
from killick.agent import Agent
from killick.agent.approvals import allow_always, decide_allowed
from killick.cli.chat.screen import Screen
from killick.cli.chat.view import View, ViewedMessage, call_text
from killick.cli.invocation import explain
from killick.errors import KillickError, SessionBusy, TurnStopped
from killick.model import entries as e
from killick.model.causes import Cause
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.drive.exit_guard import describe

LEAVE_SECONDS: Final = 2.0
"""A second Ctrl+C within this time leaves."""

STOPPED: Final = "stopped by the user"

RECALLED: Final = 10
"""Sessions whose prompts can be brought back with the arrow keys."""


class Left(NamedTuple):
    """Why a chat has ended, and its turn with it. A call that waits for approval waits on."""

    reason: str
    cause: Cause


LEFT: Final = Left("left", "terminated")
TERMINATED: Final = Left("terminated", "terminated")
TERMINAL_CLOSED: Final = Left("terminal_closed", "client_gone")


class Talk:
    """One chat in one terminal."""

    def __init__(
        self,
        store: AsyncStore,
        session: AsyncSession,
        agent: Agent,
        run_command: "RunCommand",
        *,
        url: str | None,
        typed: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.session = session
        self.agent = agent
        self._run_command = run_command
        self.url = url
        self.screen = Screen(View(), on_interrupt=self.interrupt, typed=typed)
        self._unsent: str | None = None
        self._turn: asyncio.Task[None] | None = None
        self._turn_id: str | None = None
        self._taking: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[Any]] = set()
        self._interrupted_at = -LEAVE_SECONDS
        self._stopped = False
        self._left: Left | None = None

    @property
    def view(self) -> View:
        return self.screen.view

    # -- the whole -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Talk until the person leaves."""
        try:
            await self.open(self.session)
            while self._left is None:
                try:
                    text = await self.screen.line()
                except (EOFError, KeyboardInterrupt):
                    break
                await self._carry_out(text)
        finally:
            await self._end()

    async def _carry_out(self, text: str) -> None:
        """Do what was typed, until it is done or Ctrl+C stops it. Whatever it is, the chat goes on.

        While it lasts there is no line to type in.
        """
        taking = self._taking = asyncio.ensure_future(self._take(text))
        await asyncio.wait({taking})
        if self._left is not None:
            return
        if taking.cancelled():
            await self.say("warning", "Stopped.")
            self.screen.offer(text)
        elif (error := taking.exception()) is not None:
            await self.say("warning", _explained(error))

    async def open(self, session: AsyncSession) -> None:
        """Go on with this session: show where it stands, and follow it from here."""
        if self._follower is not None:
            self._follower.cancel()
        self.session = session
        self.screen.view = View()  # nothing of another session counts
        entries = await session.entries()
        await self._recall(entries)
        self._follower = asyncio.create_task(self._follow(session, entries[-1].seq))
        if self.view.running:
            await self._say_busy(self.view.holder)
        elif self.view.pending:
            await self.say("note", "A call waited for your approval when the program ended.")
        self._ask()

    async def _recall(self, entries: list[e.Entry]) -> None:
        """Show the last exchange and the prompts that wait."""
        shown: list[ViewedMessage] = []
        starts = [number for number, entry in enumerate(entries) if _starts(entry)]
        last = starts[-1] if starts else len(entries)
        for number, entry in enumerate(entries):
            pieces = self.view.take(entry)
            if number >= last:
                shown += pieces
        if starts:
            title = f" of {self.session.title!r}" if self.session.title else ""
            await self.screen.show(ViewedMessage("note", f"The last turn{title}:"), *shown)

    async def _follow(self, session: AsyncSession, after: int) -> None:
        try:
            async for item in session.follow(after=after):
                shown = self.view.take(item)
                if shown:
                    await self.screen.show(*shown)
                if isinstance(item, e.Entry) and isinstance(item.body, e.ApprovalAsked):
                    waiting = {call.asked.id for call in await decide_allowed(session)}
                    if item.body.id not in waiting:
                        self.view.waiting.asked.pop(item.body.id, None)
                self._ask()
                self.screen.refresh()
        except KillickError as error:
            await self.say("warning", f"What happens is no longer shown here: {_explained(error)}")

    async def _end(self) -> None:
        """Leave: a turn that still runs is stopped first, and its ending is waited for."""
        tasks = [task for task in (self._turn, self._taking, *self._asides) if task is not None]
        if self._turn is not None and not self._turn.done():
            await self._stop_own(self._turn)
        for task in tasks:
            if task is not self._turn:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def _stop_own(self, turn: "asyncio.Task[None]") -> None:
        """Stop the turn that runs here, and only that; the journal says why."""
        # A terminal that is closed ends the input first, and says so a moment later.
        why = self._left or (LEFT if sys.stdin.isatty() else TERMINAL_CLOSED)
        stopped = None
        with contextlib.suppress(KillickError):  # a store that fails keeps no person here
            if self._turn_id is not None:
                stopped = await self.session.stop(self._turn_id, why.reason, why.cause)
        if not stopped:
            turn.cancel()

    async def say(self, kind: Literal["note", "warning"], text: str) -> None:
        await self.screen.show(ViewedMessage(kind, text))

    # -- what is typed -------------------------------------------------------------------------

    async def _take(self, text: str) -> None:
        if text.startswith("/"):
            await self.screen.show(ViewedMessage("prompt", text))
            await self._run_command(self, text)
        elif self.view.pending:
            await self._decide(text)
        elif self.busy:
            if text:
                await self._queue(text)
        elif text:
            await self.screen.show(ViewedMessage("prompt", text))
            self.view.said.append(text)
            self.begin(text)
        elif self.view.queued:
            await self._send_queued()

    @property
    def busy(self) -> bool:
        """True while a turn runs, here or elsewhere."""
        return self.view.running or (self._turn is not None and not self._turn.done())

    async def _queue(self, text: str) -> None:
        await self.session.queue(text)
        await self.say("note", f"Queued: {text}")
        if self._turn is None or self._stopped:
            return
        if (await self.session.turns())[-1].status == "completed":
            # It was typed as the turn ended, which may have looked for prompts already.
            await asyncio.wait({self._turn})
            if self._turn.done() and await self._has_queued():
                await self._send_queued()

    async def _send_queued(self) -> None:
        for prompt in list(self.view.queued.values()):  # others take them meanwhile
            await self.screen.show(ViewedMessage("prompt", prompt.text))
            self.view.said.append(prompt.text)
        self.begin(None)

    # -- turns ---------------------------------------------------------------------------------

    def begin(self, prompt: str | None, **settings: Any) -> None:
        """Run a turn beside everything else."""
        self._stopped = False
        self._turn = asyncio.create_task(self._answer(prompt, settings))

    async def _answer(self, prompt: str | None, settings: dict[str, Any]) -> None:
        try:
            async with self.session.turn(prompt, **settings) as turn:
                self._turn_id = turn.id
                if prompt or await self._is_about_something(turn.id, settings):
                    await self.agent.answer(self.session, turn)
        except TurnStopped:
            self._stopped = True
        except SessionBusy as busy:
            await self._meet_another(prompt, busy)
            return
        except Exception as error:  # noqa: BLE001  (the turn has failed, and the chat goes on)
            await self._failed(prompt, error)
            return
        finally:
            self._turn_id = None
        await self._answered()

    async def _is_about_something(self, turn_id: str, settings: dict[str, Any]) -> bool:
        """Return whether there is a prompt: another process may have taken what was queued."""
        if settings.get("continues") or settings.get("retry_of"):
            return True
        newest = await self.session.messages(last=1)
        return bool(newest) and newest[0].turn_id == turn_id

    async def _failed(self, prompt: str | None, error: Exception) -> None:
        if isinstance(error, KillickError):
            await self.say("warning", _explained(error))
        if prompt:
            self.screen.offer(prompt)
        else:
            await self.say("note", "/retry asks again.")

    async def _answered(self) -> None:
        if self._stopped:
            return  # Stop holds the queue
        if self.session.title is None:
            self._aside(self.agent.title(self.session))
        if await self._has_queued():
            await self._send_queued()

    async def _has_queued(self) -> bool:
        """The journal knows; the view may be a moment behind it."""
        waiting = await self.session.queued()
        self.view.queued = {message.id: message for message in waiting}
        return bool(waiting)

    async def _meet_another(self, prompt: str | None, busy: SessionBusy) -> None:
        """Keep the prompt: another process runs a turn of this session."""
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

    async def resend(self, **settings: Any) -> None:
        """Send what was refused because the session was busy, or what is queued."""
        if self._turn is not None and not self._turn.done():
            await self.say("warning", "Your own turn runs, or waits already. Ctrl+C stops it.")
            return
        if not self._unsent and not await self._has_queued():
            await self.say("warning", "Nothing waits to be sent. Type a prompt first.")
            return
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
        elif self.busy:
            self._stopped = True
            self._aside(self._stop())
        elif self._taking is not None and not self._taking.done():
            self._taking.cancel()
        else:
            self._aside(self.say("note", "Ctrl+C again leaves."))

    def leave(self, why: Left = LEFT) -> None:
        """End the chat; a turn that runs here is interrupted, and says why."""
        self._left = self._left or why
        self.screen.leave()
        if self._taking is not None:
            self._taking.cancel()

    async def _stop(self) -> None:
        stopped = None
        try:
            stopped = await self.session.stop(reason=STOPPED)
        except KillickError as error:
            await self.say("warning", _explained(error))
        if not stopped and self._turn is not None:
            self._turn.cancel()  # it has not begun yet, or the store failed

    # -- approvals -----------------------------------------------------------------------------

    def _ask(self) -> None:
        pending = next(iter(self.view.pending.values()), None)
        self.screen.question = (
            f"Run {call_text(pending.call)} ? [y]es [n]o [a]lways this call" if pending else ""
        )

    async def _decide(self, text: str) -> None:
        pending = next(iter(self.view.pending.values()))
        word, tool = text.lower(), pending.call.name
        every = f"every {tool}"
        if word not in ("y", "yes", "n", "no", "a", "always", every.lower()):
            await self.say(
                "note",
                f"Type y, n or a; Ctrl+C stops the turn. 'a' lets exactly this call run in this "
                f"session from now on; '{every}' lets every call of {tool} run until you leave, "
                "whatever its arguments.",
            )
            return
        approved = word[0] != "n"
        if word == every.lower():
            self.agent.allowed.add(tool)
        elif word[0] == "a":
            await allow_always(self.session, pending, "chat")
        await self.session.decide_approval(
            pending.asked, approved=approved, by="chat", reason=None if approved else "refused"
        )
        self.view.waiting.asked.pop(pending.asked.id, None)
        self._ask()
        if self.view.pending or self.busy:
            return  # more is to be decided, or the turn that asked goes on by itself
        asker = pending.asked.turn_id
        if await granted(self.session, asker):
            # Its turn did not live to see it: the call runs, as approved, in one that continues it.
            self.begin(None, continues=asker)


RunCommand = Callable[[Talk, str], Awaitable[None]]
"""Runs a line that begins with a slash."""


def _explained(error: BaseException) -> str:
    """Return an error in one line; a model's errors are pydantic-ai's, and say enough."""
    if isinstance(error, KillickError | OSError | ValueError):
        return explain(error)
    return describe(error)


async def typed_before(store: AsyncStore, project: str) -> list[str]:
    """Return what was asked in the newest sessions of a project, the oldest first."""
    texts: list[str] = []
    for info in reversed(await store.sessions(project=project, type="user", limit=RECALLED)):
        with contextlib.suppress(KillickError):  # one damaged session keeps no line from the others
            session = await store.session(info.id)
            messages = await session.messages(last=RECALLED * 5)
            texts += [message.text for message in messages if message.role == "user"]
    return [text for text in texts if text.strip()]


def _starts(entry: e.Entry) -> bool:
    return isinstance(entry.body, e.TurnStarted)


@contextlib.contextmanager
def leave_on_signals(talk: Talk) -> Iterator[None]:
    """Print above the line, and leave when the terminal is closed or the process is terminated.

    Ctrl+C is a key while a line is typed. While something is printed above it, the terminal makes
    a signal of it, which means the same.
    """
    loop = asyncio.get_running_loop()
    handlers: dict[int, Callable[[], None]] = {
        SIGTERM: partial(talk.leave, TERMINATED),
        SIGHUP: partial(talk.leave, TERMINAL_CLOSED),
        SIGINT: talk.interrupt,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        with patch_stdout(raw=True):
            yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
        # It is leaving already: one more Ctrl+C must not cut short what is being kept.
        signal(SIGINT, SIG_IGN)
