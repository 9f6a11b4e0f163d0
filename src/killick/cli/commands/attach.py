"""Following other agents live."""

import signal
import threading
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

import click
import msgspec

from killick.cli.invocation import MOMENT, Invocation, command
from killick.cli.output import line
from killick.cli.render import counted
from killick.exchange import FORMATS
from killick.exchange.attach import Attachment, Seen, watch
from killick.model.sessions import microseconds

_TERMINATED: Final = 128 + signal.SIGTERM


@command(
    ("killick attach", "follow every agent that runs here, until Ctrl+C"),
    ("killick attach --from codex", "only Codex"),
    ("killick attach session.jsonl", "one session"),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--from", "only", type=click.Choice(FORMATS[1:]), help="Take only this format.")
@click.option("--since", type=MOMENT, help="Begin with files changed since then, not since a day.")
def attach(
    invocation: Invocation, paths: tuple[Path, ...], only: str | None, since: datetime | None
) -> None:
    """Follow the sessions of other agents as they write them.

    Without a PATH it looks where the agents of this machine keep theirs. A turn that an agent works
    on runs here, too: `sessions`, `tail` and `search` show it. It ends when the agent ends it or is
    gone. Ctrl+C leaves, with exit code 130; the agents are not touched by it, and the next attach
    goes on.
    """
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(2, "no such file or folder", str(path))
    stop = _StopSignal()
    with (
        invocation.open(create=True) as store,
        closing(
            Attachment(
                store,
                [path.absolute() for path in paths],
                only=only,
                since_us=None if since is None else microseconds(since),
            )
        ) as attachment,
    ):
        if not attachment.places():
            invocation.note("no agent keeps sessions here yet; waiting for one")
        watch(attachment, lambda seen: _tell(invocation, seen), stop.event)
    stop.leave()


class _StopSignal:
    """Ctrl+C and SIGTERM: the first is seen between two looks, the second ends the process."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._number = signal.SIGINT
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = signal.Signals(number)
        self.event.set()
        for known, handler in self._before.items():
            signal.signal(known, handler)

    def leave(self) -> None:
        """End the command as the signal would have done."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_TERMINATED)


def _tell(invocation: Invocation, seen: Seen) -> None:
    for outcome in seen.sessions:
        running = outcome.session_id in seen.running
        title = f"  {outcome.title}" if outcome.title else ""
        doing = "running" if running else outcome.action
        added = counted(outcome.entries, "entries")
        what = f"{doing}: {outcome.session_id}{title} ({outcome.source}, {added})"
        why = [line(outcome.why, "dim", indent=2)] if outcome.why else []
        invocation.answer(msgspec.to_builtins(outcome) | {"running": running}, what, *why)
    for problem in seen.problems:
        invocation.answer({"problem": str(problem)}, line(str(problem), "yellow"))
