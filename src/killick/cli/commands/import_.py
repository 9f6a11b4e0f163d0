"""Sessions in from other agents, and out to files."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from killick.cli.invocation import (
    IN_PART,
    MOMENT,
    Invocation,
    Where,
    command,
    find,
    progress,
    session_argument,
)
from killick.cli.output import OutputLine, Span, complain, line
from killick.cli.render import counted
from killick.errors import StoreError
from killick.exchange import (
    EXPORTS,
    FORMATS,
    NOT_TEXT,
    Outcome,
    Report,
    import_paths,
    prepare_export,
    usual_places,
)
from killick.exchange.copy import Copied, copy_sessions
from killick.exchange.importer import count_files
from killick.model.sessions import microseconds
from killick.session.sync import Store

_NAMED: Final = 8
_SETTLED_BY: Final = {
    "process": "whether its agent runs is known by its processes",
    "age": "whether its agent is done is guessed by the age of its file",
    "as-is": "taken as it stands",
}


@command(
    ("killick import session.jsonl", "a session, whatever agent wrote it"),
    ("killick import . --dry-run", "say what would come in, from every file below here"),
    ("killick import . --from codex --since 7d", "what Codex has written in a week"),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "only",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help=f"Take only this format: one of {', '.join(FORMATS)}.",
)
@click.option("--since", type=MOMENT, help="Only files that were changed since then.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--as-is", is_flag=True, help="Take unfinished sessions as they stand.")
@click.option("--empty", is_flag=True, help="Take sessions without a message, too.")
@click.option("--yes", is_flag=True, help="Without a PATH: do not ask.")
def import_(
    invocation: Invocation,
    paths: tuple[Path, ...],
    only: str | None,
    since: datetime | None,
    *,
    dry_run: bool,
    as_is: bool,
    empty: bool,
    yes: bool,
) -> int:
    """Bring in sessions of other agents, and our own.

    Without a PATH it looks where the agents of this machine keep theirs, says what it found, and
    asks. Importing again adds what is new. A last turn that an agent still works on is left for
    the next import. Exit code 3 says that records were skipped, or repaired in a way that may
    change their meaning; each is named with its file and line.
    """
    chosen = paths or _usual(invocation, only, yes=yes or dry_run)
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(2, "no such file or folder", str(path))
    opened = invocation.look() if dry_run else invocation.open(create=True)
    with opened as store, progress(invocation, "Files") as tell:
        report = import_paths(
            store,
            chosen,
            only=only,
            since_us=None if since is None else microseconds(since),
            dry_run=dry_run,
            as_is=as_is,
            empty=empty,
            progress=tell,
        )
    invocation.answer(_shape(report, dry_run=dry_run), *_lines(report, dry_run=dry_run))
    if report.exit_code:
        rest = "the others came in" if report.sessions else "nothing came in"
        repaired = sum(not problem.harmless for problem in report.repaired)
        done = [f"{counted(len(report.skipped), 'records')} skipped"] if report.skipped else []
        done += [f"{counted(repaired, 'records')} repaired"] if repaired else []
        complain(f"{', '.join(done)}; {rest}")
        return IN_PART
    return 0


def _usual(invocation: Invocation, only: str | None, *, yes: bool) -> tuple[Path, ...]:
    places = [
        (name, path) for name, path in usual_places(os.environ, Path.home()) if only in (None, name)
    ]
    if not places:
        raise click.ClickException("no agent's sessions were found here; name a file or a folder")
    for name, path in places:
        invocation.note(f"{name}: {path} ({counted(count_files(path), 'files')})")
    invocation.confirm("Bring these sessions in?", yes=yes)
    return tuple(path for _, path in places)


def _shape(report: Report, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "entries": report.entries,
        "sessions": report.sessions,
        "problems": [
            {
                "kind": problem.kind,
                "file": problem.location.file,
                "line": problem.location.line,
                "reason": problem.reason,
            }
            for problem in report.problems
        ],
        "unknown": report.unknown,
    }


def _lines(report: Report, *, dry_run: bool) -> Iterator[OutputLine | str]:
    for outcome in report.sessions:
        yield from _outcome(outcome)
    for problem in report.problems:
        style = "red" if problem.kind == "skipped" else "yellow"
        yield OutputLine(
            (Span(f"{problem.kind}: ", style), Span(f"{problem.location}: {problem.reason}"))
        )
    if report.unknown:
        shown = ", ".join(Path(name).name for name in report.unknown[:_NAMED])
        more = "" if len(report.unknown) <= _NAMED else ", …"
        yield line(
            f"{counted(len(report.unknown), 'files')} of no known format: {shown}{more}", "dim"
        )
    would = "would come in" if dry_run else "came in"
    changed = [
        outcome for outcome in report.sessions if outcome.action in ("new", "grown", "forked")
    ]
    yield (
        f"{counted(len(changed), 'sessions')} of {len(report.sessions)} {would}, "
        f"{counted(report.entries, 'entries')}"
    )


def _outcome(outcome: Outcome) -> Iterator[OutputLine | str]:
    if outcome.action == "unchanged" and outcome.why is None:
        return
    title = f"  {outcome.title}" if outcome.title else ""
    added = f", {outcome.entries} entries" if outcome.entries else ""
    yield f"{outcome.action}: {outcome.session_id}{title} ({outcome.source}{added})"
    more = [f"a fork of {outcome.fork_of}, which goes on differently"] if outcome.fork_of else []
    more += [outcome.why] if outcome.why else []
    if outcome.settled_by is not None and outcome.why is not None:
        more.append(_SETTLED_BY[outcome.settled_by])
    if outcome.action in ("left", "forked"):
        more.append(outcome.origin)
    if more:
        yield line("; ".join(more), "dim", indent=2)


@command(
    ("killick export ID", "everything, as JSON lines that can be imported again"),
    ("killick export ID --to markdown", "to read"),
    ("killick export ID --to html --output page.html", "one file that opens anywhere"),
    ("killick export ID --to openai-chat", "the messages that OpenAI would be sent"),
    ("killick export ID --to codex --redact", "to go on with it in Codex, without secrets"),
)
@click.option(
    "--to",
    type=click.Choice(list(EXPORTS)),
    metavar="FORMAT",
    default="killick",
    show_default=True,
    help=f"One of {', '.join(EXPORTS)}.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="A new file to write to.")
@click.option("--redact", is_flag=True, help="Put words in place of secrets.")
@session_argument
def export(
    invocation: Invocation, session_id: str, to: str, output: Path | None, *, redact: bool
) -> None:
    """Write a session to a file, or to where the output goes.

    What the format cannot hold is said before anything is written.
    """
    if to in NOT_TEXT and output is None and (invocation.json or invocation.out.terminal):
        raise click.UsageError(f"{to} keeps a database, which is no text: give --output FILE")
    with invocation.open() as store:
        full_id = find(store, session_id)
        done = prepare_export(store, full_id, to, redact=redact)
        for loss in done.losses:
            invocation.note(f"{to} cannot hold: {loss}")
        value: dict[str, object] = {"id": full_id, "to": to}
        if done.losses:
            value["losses"] = done.losses
        if output is not None:
            size = _write(output, done.pieces)
            invocation.answer(
                value | {"path": str(output), "bytes": size}, f"{output}: {size:,} bytes"
            )
        elif invocation.json:
            text = b"".join(done.pieces).decode("utf-8", "replace")
            invocation.out.json(value | {"content": text})
        else:
            _print(invocation, done.pieces)


def _write(output: Path, pieces: Iterator[bytes]) -> int:
    """Into a new file; one that could not be written whole is taken away again."""
    with output.open("xb") as file:
        try:
            return sum(file.write(piece) for piece in pieces)
        except BaseException:
            output.unlink()
            raise


def _print(invocation: Invocation, pieces: Iterator[bytes]) -> None:
    """A terminal is shown what was recorded made harmless; a program gets every byte."""
    for piece in pieces:
        if invocation.out.terminal:
            invocation.out.write(piece.decode("utf-8", "replace"))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


@command(
    ("killick copy work.db postgresql://db.example/agents", "all sessions of a file to a server"),
    ("killick copy postgresql://db.example/agents copy.db", "and back, into a file"),
    ("killick copy work.db other.db --session ID", "one of them"),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session.")
def copy(invocation: Invocation, source: str, target: str, sessions: tuple[str, ...]) -> int:
    """Copy sessions from one store to another, and compare them.

    FROM and TO are files or URLs. Entry by entry, nothing is changed on the way. Copying again goes
    on where it ended, and adds what is new. A turn that runs is left out. Exit code 3 says that a
    session could not be copied.
    """
    _must_exist(source)
    with Store(source) as ours, Store(target) as theirs, progress(invocation, "Sessions") as tell:
        ids = [ours.resolve_id(copied) for copied in sessions] or None
        done = list(copy_sessions(ours, theirs, ids, tell))
    failed = [copied for copied in done if copied.action == "failed"]
    entries = sum(copied.entries for copied in done)
    lines = [line for copied in done for line in _copied(copied)]
    summary = (
        f"{counted(len(done) - len(failed), 'sessions')}, {counted(entries, 'entries')} copied"
    )
    invocation.answer(
        {"entries": entries, "sessions": done}, *lines, f"{summary}; all were compared"
    )
    if failed:
        complain(f"{counted(len(failed), 'sessions')} could not be copied; the others were")
        return IN_PART
    return 0


def _must_exist(source: str) -> None:
    file = Where(source, "option").file
    if file is not None and not file.exists():
        raise StoreError(f"there is no store at {str(file)!r}")


def _copied(copied: Copied) -> Iterator[OutputLine]:
    if copied.action == "unchanged" and copied.why is None:
        return
    style = "red" if copied.action == "failed" else ""
    added = f", {copied.entries} entries" if copied.entries else ""
    more = f" ({copied.why})" if copied.why else ""
    yield OutputLine((Span(f"{copied.action}: ", style), Span(f"{copied.session_id}{added}{more}")))
