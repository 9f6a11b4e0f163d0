"""Killing and stopping a real agent, to show that nothing is lost."""

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from killick.cli.invocation import Invocation, command, local_now
from killick.cli.output import OutputLine, Span, line
from killick.cli.render import FollowRenderer, conversation
from killick.model import entries as e
from killick.session.sync import Store

Followed = e.Entry | e.FollowedDelta
Seen = Callable[[Followed], bool]

_WORDS: Final = 8
"""How much of an answer has come when it is interrupted."""

_SECONDS: Final = 300.0
"""How long an agent may take to end; a slow machine is no failure."""


@command(("killick demo", "in a folder of its own, which is left for you to look at"))
def demo(invocation: Invocation) -> None:
    """See an agent killed twice and stopped once, and nothing lost.

    It has three tools, and needs no model. The first time it is killed with -9 while one tool hangs
    and two have returned; the second time, and when it is stopped, in the middle of a sentence.
    Then its journal is shown and what a model would be sent, and the turn is continued to its end.
    Everything that is printed is read back from the store.
    """
    path = Path(tempfile.mkdtemp(prefix="killick-demo-")) / "work.db"
    with Store(path) as store:
        Demonstration(invocation, store, path).run()


class Demonstration:
    """One run of it."""

    def __init__(self, invocation: Invocation, store: Store, path: Path) -> None:
        self._invocation = invocation
        self._store = store
        self._path = path
        self._session = store.create_session(title="A storm is coming")

    def run(self) -> None:
        self._act("1. Three tools run at once; two have returned, one hangs: kill -9.")
        self._killed(_Tools())
        self._act("2. The next process opens the session, goes on, and speaks: kill -9 again.")
        self._killed(_Speech())
        self._act("3. The next one goes on, and speaks: a person presses Stop.")
        self._stopped()
        self._act("4. The journal, as it is read back:")
        self._journal()
        self._act("5. What a model would be sent now:")
        self._context()
        self._act("6. The turn is continued, to its end:")
        self._continued()
        self._act("Everything above was read from the store. Look for yourself:")
        self._say(f"  killick show {self._session.id} --store {self._path}")

    # -- the acts ------------------------------------------------------------------------------

    def _killed(self, seen: Seen) -> None:
        with self._victim() as process:
            self._until(seen, process)
            process.kill()
        self._ending()

    def _stopped(self) -> None:
        with self._victim() as process:
            self._until(_Speech(), process)
            self._session.stop(reason="stopped by the user")
            process.wait(_SECONDS)
        self._ending()

    def _continued(self) -> None:
        before = len(self._session.entries())
        with self._victim() as process:
            process.wait(_SECONDS)
        self._session = self._store.session(self._session.id)
        shown = [item for item in self._session.transcript() if item.seq > before]
        self._invocation.out.lines(conversation(shown, local_now(), unfold=False))

    @contextlib.contextmanager
    def _victim(self) -> Iterator["subprocess.Popen[bytes]"]:
        """The agent in a process of its own, going on with the last turn."""
        turns = self._session.turns()
        self._session.entries(after=self._session.head)  # what it is going to do comes after this
        command = [sys.executable, "-m", "killick.cli.demo_agent", str(self._path)]
        command += [self._session.id, turns[-1].id if turns else ""]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.kill()

    def _until(self, seen: Seen, process: "subprocess.Popen[bytes]") -> None:
        """Show the journal as it grows, until this has happened, or nothing more can."""
        renderer = FollowRenderer(local_now())
        following = self._session.follow(after=self._session.head)

        def close_when_over() -> None:
            process.wait()
            following.close()

        threading.Thread(target=close_when_over, daemon=True).start()
        for item in following:
            for span in renderer.render(item):
                self._invocation.out.write(span.text, span.style)
            if seen(item):
                self._invocation.out.write("\n", "")
                return
            if isinstance(item, e.Entry) and isinstance(item.body, e.TurnEnding):
                break
        if not self._session.turns():
            raise click.ClickException(f"the agent has ended by itself (code {process.wait()})")
        self._say("  It came to its end first.", "dim")

    def _ending(self) -> None:
        self._session = self._store.session(self._session.id)  # opening it closes a dead turn
        turn = self._session.turns()[-1]
        self._say(f"  The turn is {turn.status}, reason: {turn.reason}.", "yellow")

    # -- what is read back ---------------------------------------------------------------------

    def _journal(self) -> None:
        shown = self._session.transcript()
        self._invocation.out.lines(conversation(shown, local_now(), unfold=False))

    def _context(self) -> None:
        context = self._session.context("openai-chat")
        for message in context.messages:
            text = message.get("content") or ""
            calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
            called = f"calls {', '.join(calls)} " if calls else ""
            self._invocation.out.lines(
                [OutputLine((Span(f"  {message['role']:>9}  ", "bold"), Span(f"{called}{text}")))]
            )
        for repair in context.repairs:
            self._say(f"  repaired   #{repair.seq}: {repair.action}, {repair.reason}", "dim")

    def _act(self, text: str) -> None:
        self._invocation.out.lines([OutputLine(), line(text, "bold")])

    def _say(self, text: str, style: str = "") -> None:
        self._invocation.out.lines([line(text, style)])


class _Tools:
    """Until two of three tools have returned."""

    def __init__(self) -> None:
        self._started = self._returned = 0

    def __call__(self, item: Followed) -> bool:
        if isinstance(item, e.Entry):
            self._started += isinstance(item.body, e.ToolStarted)
            self._returned += isinstance(item.body, e.ToolFinished)
        return (self._started, self._returned) == (3, 2)


class _Speech:
    """Until a few words of an answer have come."""

    def __init__(self) -> None:
        self._text = ""

    def __call__(self, item: Followed) -> bool:
        if isinstance(item, e.FollowedDelta) and item.delta.type == "text":
            self._text += item.text
        return self._text.count(" ") >= _WORDS
