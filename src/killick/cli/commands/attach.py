"""Following other agents live."""

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

import click
import msgspec

from killick.cli.invocation import MOMENT, Invocation, command
from killick.cli.output import line
from killick.cli.render import counted
from killick.exchange import FORMATS
from killick.exchange.attachment import Attachment, Seen, watch
from killick.model.sessions import microseconds


@command(
    ("killick attach", "follow every agent that runs here, until Ctrl+C"),
    ("killick attach --from codex", "only Codex"),
    ("killick attach session.jsonl", "one session"),
    ("killick attach . --until-end", "those below this folder, as long as an agent is at work"),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "only",
    type=click.Choice(FORMATS[1:]),
    metavar="FORMAT",
    help=f"Take only this format: one of {', '.join(FORMATS[1:])}.",
)
@click.option("--since", type=MOMENT, help="Begin with files changed since then, not since a day.")
@click.option("--until-end", is_flag=True, help="Leave when no agent is at work any more.")
def attach(
    invocation: Invocation,
    paths: tuple[Path, ...],
    only: str | None,
    since: datetime | None,
    *,
    until_end: bool,
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
    since_us = None if since is None else microseconds(since)
    asked = [path.absolute() for path in paths]
    with _stop_signals() as stop, invocation.open(create=True) as store:
        attachment = Attachment(store, asked, only=only, since_us=since_us)
        with closing(attachment):
            if not attachment.places():
                invocation.note("no agent keeps sessions here yet; waiting for one")
            watch(attachment, lambda seen: _tell(invocation, seen), stop, until_end=until_end)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set the event at Ctrl+C or SIGTERM, and end as the signal would; a second one ends at once.

    So no signal cuts a look off.
    """
    stop, received = threading.Event(), list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        stop.set()
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
    if received[:1] == [signal.SIGINT]:
        raise KeyboardInterrupt
    if received:
        raise SystemExit(128 + received[0])


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
