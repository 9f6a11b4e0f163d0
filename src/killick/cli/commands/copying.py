"""Sessions from one store to another."""

from collections.abc import Iterator

import click

from killick.cli.failing import IN_PART
from killick.cli.frame import Frame, Where, command
from killick.cli.printing import Line, Span, complain
from killick.cli.progress import progress
from killick.cli.render.tables import counted
from killick.errors import StoreError
from killick.exchange.copying import Copied, copy_sessions
from killick.session.store import Store


@command(
    ("killick copy work.db postgresql://db.example/agents", "all sessions of a file to a server"),
    ("killick copy postgresql://db.example/agents copy.db", "and back, into a file"),
    ("killick copy work.db other.db --session ID", "one of them"),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session.")
def copy(frame: Frame, source: str, target: str, sessions: tuple[str, ...]) -> int:
    """Copy sessions from one store to another, and compare them.

    FROM and TO are files or URLs. Entry by entry, nothing is changed on the way. Copying again goes
    on where it ended, and adds what is new. A turn that runs is left out. Exit code 3 says that a
    session could not be copied.
    """
    _must_exist(source)
    with Store(source) as ours, Store(target) as theirs, progress(frame, "Sessions") as tell:
        ids = [ours.resolve_id(one) for one in sessions] or None
        done = list(copy_sessions(ours, theirs, ids, tell))
    failed = [one for one in done if one.action == "failed"]
    entries = sum(one.entries for one in done)
    told = [line for one in done for line in _told(one)]
    said = f"{counted(len(done) - len(failed), 'sessions')}, {counted(entries, 'entries')} copied"
    frame.answer({"entries": entries, "sessions": done}, *told, f"{said}; all were compared")
    if failed:
        complain(f"{counted(len(failed), 'sessions')} could not be copied; the others were")
        return IN_PART
    return 0


def _must_exist(source: str) -> None:
    file = Where(source, "option").file
    if file is not None and not file.exists():
        raise StoreError(f"there is no store at {str(file)!r}")


def _told(one: Copied) -> Iterator[Line]:
    if one.action == "unchanged" and one.why is None:
        return
    style = "red" if one.action == "failed" else ""
    added = f", {one.entries} entries" if one.entries else ""
    more = f" ({one.why})" if one.why else ""
    yield Line((Span(f"{one.action}: ", style), Span(f"{one.session_id}{added}{more}")))
