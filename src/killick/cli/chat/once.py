"""One turn without a conversation: a prompt in, an answer out, for a shell and for scripts."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from signal import SIGINT, SIGTERM
from typing import Final

from killick.agent import Agent
from killick.agent.approvals import decide_allowed
from killick.cli.chat.talk import STOPPED, TERMINATED, Left
from killick.cli.chat.view import AnswerView, call_text
from killick.cli.invocation import Invocation
from killick.cli.output import complain
from killick.errors import TurnStopped
from killick.model import entries as e
from killick.model.messages import ToolCall
from killick.model.sessions import TurnInfo
from killick.session.aio import AsyncSession

FAILED: Final = 1
WAITS: Final = 3
INTERRUPTED: Final = 130

NOT_ASKED: Final = Left("no person can be asked here", "terminated")
"""Why the turn ends at a call that needs an approval; the call waits on."""


class OneTurn:
    """One prompt and its answer. `quiet` prints the answer alone."""

    def __init__(self, invocation: Invocation, session: AsyncSession, *, quiet: bool) -> None:
        self._invocation = invocation
        self._session = session
        self._quiet = quiet or invocation.json
        self._calls: dict[str, ToolCall] = {}
        self._answers: dict[str, AnswerView] = {}
        self._stops: set[asyncio.Task[str | None]] = set()
        self._stopped = False
        self._ends_line = True

    async def run(self, agent: Agent, prompt: str) -> int:
        """Answer the prompt and print the answer as it comes; return the exit code.

        If interrupted: what came is stored, and the turn is interrupted.
        """
        follower = asyncio.create_task(self._follow(self._session.head))
        try:
            with self._stop_on_signals():
                await self._answer(agent, prompt)
                await follower
        finally:
            follower.cancel()
            await asyncio.gather(follower, *self._stops, return_exceptions=True)
        return await self._report((await self._session.turns())[-1])

    async def _answer(self, agent: Agent, prompt: str) -> None:
        with contextlib.suppress(TurnStopped):
            async with self._session.turn(prompt) as turn:
                await agent.answer(self._session, turn)

    async def _follow(self, after: int) -> None:
        async for item in self._session.follow(after=after):
            if isinstance(item, e.FollowedDelta):
                if item.delta.type == "text" and item.call_id is None:
                    answer = self._answers.setdefault(item.message_id, AnswerView())
                    answer.add(item.part, item.delta.text)
                    self._write(answer.all())
            elif await self._take(item.body):
                return

    async def _take(self, body: e.Body) -> bool:
        """Take an entry; return whether it is the turn's end."""
        match body:
            case e.MessageEnded():
                calls = [part for part in body.parts if isinstance(part, ToolCall)]
                self._calls |= {call.id: call for call in calls}
                self._write(self._answers.pop(body.id, AnswerView()).finish(body.parts))
                self._write("" if self._ends_line else "\n")
            case e.ToolStarted() if not self._quiet:
                if (call := self._calls.get(body.call_id)) is not None:
                    self._invocation.note(f"runs {call_text(call)}")
            case e.ApprovalAsked():
                if await decide_allowed(self._session):
                    self._stop(NOT_ASKED)
            case _:
                pass
        return isinstance(body, e.TurnEnding)

    def _write(self, text: str) -> None:
        if text and not self._invocation.json:
            self._invocation.out.write(text, "")
            sys.stdout.flush()
            self._ends_line = text.endswith("\n")

    async def _report(self, turn: TurnInfo) -> int:
        waiting = await self._session.approvals()
        if self._invocation.json:
            answers = [
                message.text
                for message in await self._session.messages(after=turn.seq)
                if message.role == "assistant"
            ]
            shown = {"session": self._session.id, "turn": turn.id, "status": turn.status}
            self._invocation.out.json(shown | {"cause": turn.cause, "text": "\n".join(answers)})
        elif not self._quiet:
            self._invocation.note(f"kept; 'killick chat --session {self._session.id}' goes on")
        if waiting:
            calls = [
                self._calls[asked.call_id] for asked in waiting if asked.call_id in self._calls
            ]
            complain(
                f"{', '.join(sorted({call.name for call in calls}))} waits for your approval: "
                f"'killick chat --session {self._session.id}' asks you, --allow lets it run"
            )
            return WAITS
        if self._stopped:
            return INTERRUPTED
        return 0 if turn.status == "completed" else FAILED

    # -- Stop ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        reasons = {SIGINT: Left(STOPPED, "stopped"), SIGTERM: TERMINATED}
        for number, why in reasons.items():
            loop.add_signal_handler(number, partial(self._stop, why))
        try:
            yield
        finally:
            for number in reasons:
                loop.remove_signal_handler(number)

    def _stop(self, why: Left) -> None:
        self._stopped = why is not NOT_ASKED
        stop = self._session.stop(reason=why.reason, cause=why.cause)
        self._stops.add(asyncio.ensure_future(stop))
