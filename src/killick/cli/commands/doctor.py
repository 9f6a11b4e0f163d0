"""Keeping a store safe: examine it, copy it, and remove what should be gone."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from killick.cli.invocation import (
    IN_PART,
    LENGTH,
    Invocation,
    command,
    find,
    local_now,
    progress,
    session_argument,
)
from killick.cli.output import OutputLine, Span, complain, line
from killick.cli.render import counted, time_shape
from killick.errors import SessionNotFound, needs_extra
from killick.maintenance.erase import Erasure
from killick.maintenance.examine import Finding
from killick.maintenance.retention import DELETED_DAYS, Removal, RetentionRule
from killick.model.sessions import ErasureNote, moment
from killick.session.open import SERVERS


@command(
    ("killick doctor", "look at the file, every session, and what models would be sent"),
    ("killick doctor --quick", "without judging what models would be sent"),
    ("killick doctor --rebuild", "make anew what is derived and wrong"),
)
@click.option("--rebuild", is_flag=True, help="Make anew what is derived and wrong.")
@click.option("--rebuild-search", is_flag=True, help="Make the search index anew first.")
@click.option("--quick", is_flag=True, help="Do not judge the contexts of all sessions.")
def doctor(invocation: Invocation, *, rebuild: bool, rebuild_search: bool, quick: bool) -> int:
    """Look for damage in a store. Exit code 3 says that something is wrong."""
    from killick.maintenance.doctor import examine

    with invocation.open() as store:
        if rebuild_search:
            with progress(invocation, "Search index") as tell:
                store.rebuild_search(progress=tell)
        with progress(invocation, "Sessions") as tell:
            result = examine(store, rebuild=rebuild, contexts=not quick, progress=tell)
    value = {
        "sound": result.sound,
        "sessions": result.sessions,
        "contexts": result.contexts,
        "findings": result.findings,
    }
    looked = f"{counted(result.sessions, 'sessions')}, {counted(result.contexts, 'contexts')}"
    verdict = "everything is sound" if not result.findings else ""
    invocation.answer(
        value,
        *(item for finding in result.findings for item in _finding(finding)),
        f"looked at {looked}" + (f": {verdict}" if verdict else ""),
    )
    if result.sound:
        return 0
    wrong = sum(not item.mended for item in result.findings)
    complain(f"{counted(wrong, 'things')} wrong; other sessions work")
    return IN_PART


def _finding(finding: Finding) -> list[OutputLine]:
    where = " ".join(
        [
            *([finding.session_id] if finding.session_id else []),
            *([f"#{finding.seq}"] if finding.seq else []),
        ]
    )
    state = "mended" if finding.mended else finding.kind
    head = OutputLine(
        (Span(f"{state}: ", "green" if finding.mended else "red"), Span(finding.what))
    )
    more = [f"in {where}"] if where and where not in finding.what else []
    more += [finding.remedy] if finding.remedy and not finding.mended else []
    return [head, *([line("; ".join(more), "dim", indent=2)] if more else [])]


@command(
    ("killick verify", "prove that no stored entry was changed, removed, reordered or cut"),
    ("killick verify --json > links.json", "keep the newest links, somewhere else"),
    ("killick verify --expect links.json", "compare with the links that were kept"),
    ("killick verify --rate 20", "read no more than 20 megabytes a second"),
    ("killick verify --erased", "look again whether bytes of erased sessions are left"),
)
@click.argument("what", required=False, metavar="[ID | FILE]")
@click.option(
    "--expect",
    type=click.File("rb"),
    metavar="FILE",
    help="Compare with the links that an earlier 'verify --json' printed.",
)
@click.option("--erased", is_flag=True, help="Look for bytes of erased sessions instead.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="MB/S",
              help="Read no more than so many megabytes in a second.")  # fmt: skip
def verify(
    invocation: Invocation,
    *,
    what: str | None,
    expect: BinaryIO | None,
    erased: bool,
    rate: float | None,
) -> int:
    """Read everything again: links, checksums, digests. Exit code 3 says that something is wrong.

    Reads only, and stops no session. Who can write the store can make new links: keep what --json
    prints elsewhere, and compare with --expect.

    --erased finishes erasures that were interrupted or not looked at, and clears what is left of
    them in the store's file. Exit code 2 says that a session was not erased from this store.
    """
    if erased:
        return _verify_erased(invocation, what, with_links=expect is not None)
    if what is not None:
        raise click.UsageError("an ID or a receipt is given with --erased only")
    from killick.maintenance.verify import read_expected
    from killick.maintenance.verify import verify as prove

    expected = None if expect is None else read_expected(expect.read())
    with invocation.open() as store, progress(invocation, "Sessions") as tell:
        speed = None if rate is None else rate * 1e6
        result = prove(store, expect=expected, progress=tell, rate=speed)
    linked = sum(verified.linked for verified in result.sessions)
    unlinked = sum(verified.unlinked for verified in result.sessions)
    lines = [f"{linked:,} entries with links"]
    if unlinked:
        lines.append(f"{unlinked:,} from before there were links")
    counts: dict[str, int] = {}
    for verified in result.sessions:
        for name, count in verified.requests.items():
            counts[name] = counts.get(name, 0) + count
    if counts:
        requests = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        lines.append(f"requests of model calls: {requests}")
    verdict = "" if result.findings else ": everything fits"
    invocation.answer(
        {
            "proved": not result.findings,
            "sessions": result.sessions,
            "missing": result.missing,
            "erased": result.erased,
        },
        *(item for finding in result.findings for item in _finding(finding)),
        f"looked at {counted(len(result.sessions), 'sessions')}, {', '.join(lines)}{verdict}",
    )
    if not result.findings:
        return 0
    complain(f"{counted(len(result.findings), 'things')} wrong; no session is stopped by it")
    return IN_PART


@command(
    ("killick backup", "a copy beside the store, named after the time"),
    ("killick backup copy.db", "to a file of this name, which must not exist"),
    ("killick backup copy.db --renew", "write what has changed since into a backup that is there"),
)
@click.argument("target", required=False, metavar="[FILE]")
@click.option("--renew", is_flag=True, help="Bring a backup of this store up to date.")
def backup(invocation: Invocation, target: str | None, *, renew: bool) -> None:
    """Copy the store while it is in use, and check the copy."""
    with invocation.open() as store:
        file = target if target is not None else _beside(invocation)
        receipt = store.backup(file, renew=renew)
    text = (
        f"{receipt.path}: {receipt.bytes:,} bytes, {counted(receipt.sessions, 'sessions')}, "
        f"{receipt.entries:,} entries, checked; {receipt.written:,} bytes written"
    )
    invocation.answer(receipt, text)


def _beside(invocation: Invocation) -> Path:
    file = invocation.where().file
    if file is None:
        raise click.UsageError("name the file that the copy goes to")
    return file.with_name(f"{file.name}-backup-{local_now():%Y%m%dT%H%M%S}")


@command(
    ("killick restore-backup copy.db", "put a copy of this backup in the place of the store"),
    ("killick restore-backup copy.db --store new.db", "or where there is none yet"),
)
@click.argument("backup", metavar="FILE")
def restore_backup(invocation: Invocation, backup: str) -> None:
    """Put a backup in the place of a store that no process has open.

    What was there is kept beside it under another name, with its log. ('restore' brings back a
    deleted session.)
    """
    from killick.maintenance.restore import restore_backup as restore

    where = invocation.where()
    with progress(invocation, "Backup") as tell:
        store = None if where.chosen_by == "default" else where.url
        receipt = restore(backup, store, progress=tell)
    kept = f"what was there is kept as {receipt.replaced}" if receipt.replaced else "it is new"
    text = (
        f"{receipt.path}: {counted(receipt.sessions, 'sessions')}, {receipt.entries:,} entries, "
        f"checked; {kept}"
    )
    invocation.answer(receipt, text)


@command(
    ("killick erase ID --yes", "remove a session for good, and check that it is gone"),
    ("killick erase ID --forks --yes", "with the sessions that were forked from it"),
)
@session_argument
@click.option("--forks", is_flag=True, help="Also what is made of it: its forks.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-verify", is_flag=True, help="Leave looking at the file to 'verify --erased'.")
def erase(
    invocation: Invocation, session_id: str, *, forks: bool, yes: bool, no_verify: bool
) -> int:
    """Remove a session for good. This cannot be undone; 'delete' can.

    The store's file is read afterwards, and bytes that no session accounts for are cleared. Exit
    code 3 says that something is left. On PostgreSQL it says what is left to do on the server.
    """
    with invocation.open() as store:
        try:
            full_id = find(store, session_id)
        except SessionNotFound:
            full_id = session_id  # its rows may be gone and its bytes not; else this raises again
        else:
            invocation.confirm(f"Erase {full_id} for good?", yes=yes)
        receipt = store.erase_session(full_id, forks=forks, verify=not no_verify)
    return _answer_erased(invocation, receipt, "erased ")


def _verify_erased(invocation: Invocation, what: str | None, *, with_links: bool) -> int:
    if with_links:
        raise click.UsageError("--erased looks for bytes, --expect for links; give one of them")
    with invocation.open() as store:
        if what is not None and Path(what).is_file():
            receipt = store.verify_erased(receipt=_read_receipt(Path(what)))
        else:
            receipt = store.verify_erased(what)
    if not receipt.sessions:
        invocation.note("no erasure waits to be verified; the file was looked at all the same")
    return _answer_erased(invocation, receipt, "looked again at ")


def _read_receipt(file: Path) -> Erasure:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Erasure)
    except (OSError, msgspec.DecodeError) as error:
        raise click.UsageError(
            f"{file} is not what 'killick erase --json' prints: {error}"
        ) from error


def _answer_erased(invocation: Invocation, receipt: Erasure, verb: str) -> int:
    invocation.answer(receipt, *_erased(receipt, verb))
    if receipt.verified is not False:
        return 0
    complain(_not_gone(receipt))
    return IN_PART


def _not_gone(receipt: Erasure) -> str:
    again = "then 'killick verify --erased' looks again"
    if receipt.remaining:
        return f"erased, but still found in {', '.join(receipt.remaining)}: remove that, {again}"
    copies = [name for name in receipt.unverified if name in receipt.files]
    if copies:
        return f"erased, but it may be in {', '.join(copies)}: remove that, {again}"
    return f"erased, but another process keeps the log of the store open: let it end, {again}"


def _erased(receipt: Erasure, verb: str) -> list[OutputLine]:
    text = (
        f"{verb}{', '.join(receipt.sessions) or 'the file'}: {receipt.entries:,} entries, "
        f"{counted(receipt.blobs, 'blobs')}"
    )
    checked = (
        f"looked at {receipt.pages:,} pages in {', '.join(receipt.files)} and cleared "
        f"{receipt.cleared:,} bytes that no session accounts for"
    )
    if receipt.pieces:
        checked += f"; searched copies for {counted(receipt.pieces, 'pieces')} of it"
    if receipt.verified is None:
        checked = "not verified: the rows are gone, and no file was looked at"
    unknown = "cannot be checked from here: " + "; ".join(receipt.unverified)
    left = [line(f"left to do: {each}") for each in receipt.to_do]
    return [line(text), line(checked, "dim"), line(unknown, "dim"), *left]


@command(
    ("killick clean", "say what the rule for deleted sessions would remove; nothing is removed"),
    ("killick clean --idle-after 90d --archived-after 30d", "with other rules"),
    ("killick clean --do --yes", "remove it"),
)
@click.option(
    "--deleted-after",
    type=LENGTH,
    default=f"{DELETED_DAYS}d",
    show_default=True,
    help="Erase what was deleted so long ago.",
)
@click.option("--idle-after", type=LENGTH, help="Delete what was not touched for so long.")
@click.option("--archived-after", type=LENGTH, help="Delete what was archived and idle so long.")
@click.option("--do", "do_", is_flag=True, help="Do it; without, it is only said.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(invocation: Invocation, *, do_: bool, yes: bool, **rules: timedelta | None) -> None:
    """Remove old sessions by rule, or say what would be removed.

    Deleted sessions are erased, idle and archived ones are deleted. Pinned ones are kept, and
    those that forks are made of.
    """
    given = _rules(rules)
    with invocation.open() as store:
        _remove(
            invocation, lambda dry_run: store.clean_up(**given, dry_run=dry_run), do_=do_, yes=yes
        )


def _remove(
    invocation: Invocation, apply: Callable[..., list[Removal]], *, do_: bool, yes: bool
) -> None:
    """Say what is due, and remove it if the person wants that."""
    planned = apply(dry_run=True)
    due = [removal for removal in planned if removal.kept_because is None]
    if do_ and due:
        invocation.confirm(f"Remove {counted(len(due), 'sessions')}?", yes=yes)
        planned = apply(dry_run=False)
    if not planned:
        invocation.answer([], "nothing is due")
        return
    invocation.answer(
        [_removal_shape(removal) for removal in planned],
        *(_removal(removal) for removal in planned),
    )
    if not do_:
        invocation.note("nothing was removed; --do removes it")


@command(
    ("killick retention", "the rules that are kept in the store"),
    ("killick retention set --idle-after 365d --deleted-after 30d", "keep a rule for all sessions"),
    ("killick retention set --project . --idle-after 30d", "and one for those of this folder"),
    ("killick retention drop --project .", "forget it again"),
    ("killick retention apply", "say what the rules would remove; nothing is removed"),
    ("killick retention apply --do --yes", "remove it"),
    ("killick retention receipts", "what was erased, when, and by what rule"),
)
@click.argument(
    "action",
    type=click.Choice(["show", "set", "drop", "apply", "receipts"]),
    default="show",
)
@click.option("--project", metavar="FOLDER", help="The sessions whose project lies in this folder.")
@click.option("--deleted-after", type=LENGTH, help="Erase what was deleted so long ago.")
@click.option("--idle-after", type=LENGTH, help="Delete what was not touched for so long.")
@click.option("--archived-after", type=LENGTH, help="Delete what was archived and idle so long.")
@click.option("--do", "do_", is_flag=True, help="Do it; without, it is only said.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def retention(
    invocation: Invocation,
    action: str,
    project: str | None,
    *,
    do_: bool,
    yes: bool,
    **rules: timedelta | None,
) -> None:
    """Keep rules of retention in the store; apply them when asked.

    The rule of the nearest folder counts for a session, the one without a project for all others;
    a rule without a time keeps everything. Pinned sessions are kept, and those that forks are made
    of.
    """
    folder = None if project is None else str(Path(project).expanduser().absolute())
    with invocation.open() as store:
        if action == "set":
            store.set_retention(folder, **_rules(rules))
        elif action == "drop":
            store.drop_retention(folder)
        elif action == "apply":
            _remove(invocation, store.apply_retention, do_=do_, yes=yes)
            return
        elif action == "receipts":
            notes = store.erasures()
            invocation.answer(
                [_note_shape(note) for note in notes],
                *(_note(note) for note in notes),
                *(() if notes else ("nothing was erased",)),
            )
            return
        kept = store.retention()
    invocation.answer(
        [_rule_shape(rule) for rule in kept],
        *(_rule(rule) for rule in kept),
        *(() if kept else ("no rules: everything is kept",)),
    )


def _rule(rule: RetentionRule) -> OutputLine:
    times = [f"{name} {_days(after)}" for name, after in _times(rule).items() if after is not None]
    return line(f"{rule.project or 'all others'}: {', '.join(times) or 'kept for good'}")


def _times(rule: RetentionRule) -> dict[str, timedelta | None]:
    return {
        "deleted after": rule.deleted_after,
        "idle after": rule.idle_after,
        "archived after": rule.archived_after,
    }


def _days(after: timedelta) -> str:
    if after == timedelta(after.days):
        return counted(after.days, "days")
    return f"{after.total_seconds() / 3_600:.4g} hours"


def _rule_shape(rule: RetentionRule) -> dict[str, Any]:
    seconds = {
        name.replace(" ", "_"): None if after is None else after.total_seconds()
        for name, after in _times(rule).items()
    }
    return {"project": rule.project, **seconds}


def _note(note: ErasureNote) -> OutputLine:
    gone = "" if note.scrubbed_at_us is not None else ", not verified"
    why = "" if note.because is None else f", {note.because}"
    at = time_shape(moment(note.at_us))
    return line(f"{note.session_id}: {note.entries:,} entries, {at}{why}{gone}")


def _note_shape(note: ErasureNote) -> dict[str, Any]:
    scrubbed = note.scrubbed_at_us
    return {
        "session_id": note.session_id,
        "entries": note.entries,
        "at": time_shape(moment(note.at_us)),
        "verified_at": None if scrubbed is None else time_shape(moment(scrubbed)),
        "because": note.because,
    }


def _rules(rules: dict[str, timedelta | None]) -> dict[str, Any]:
    return {name: rules[name] for name in ("deleted_after", "idle_after", "archived_after")}


def _removal(removal: Removal) -> OutputLine:
    if removal.kept_because is not None:
        return line(f"kept: {removal.session_id}, {removal.kept_because}", "dim")
    verb = {"erase": "erase", "delete": "delete"}[removal.action]
    action = f"{verb}d" if removal.done else f"would {verb}"
    return line(
        f"{action}: {removal.session_id}, {removal.because}, {removal.title or '(no title)'}"
    )


def _removal_shape(removal: Removal) -> dict[str, Any]:
    return {
        "session_id": removal.session_id,
        "title": removal.title,
        "action": removal.action,
        "because": removal.because,
        "last_activity": time_shape(removal.last_activity),
        "done": removal.done,
        "kept_because": removal.kept_because,
    }


@command(
    ("killick grant program --store postgresql://db.example/agents", "let a role use the store"),
    ("killick grant acme --tenant acme --store postgresql://db.example/agents", "as one tenant"),
)
@click.argument("role")
@click.option("--tenant", metavar="NAME", help="The one tenant that the role is for.")
def grant(invocation: Invocation, role: str, tenant: str | None) -> None:
    """Give a role of a PostgreSQL server its part in the store.

    Row security binds it: it sees the rows of the tenant that its store names, and no others. The
    store's URL must name the owner of the tables.
    """
    url = invocation.where().url
    if not url.startswith(SERVERS):
        raise click.UsageError("only a store on PostgreSQL has roles; --store names one")
    with needs_extra("postgres", "a store on PostgreSQL"):
        from killick.stores.postgres import PostgresDatabase
    database = PostgresDatabase(url)
    try:
        database.grant(role, tenant)
    finally:
        database.close()
    rows = "the rows of the tenant that it names" if tenant is None else f"the rows of {tenant}"
    invocation.answer({"role": role, "tenant": tenant}, f"{role} sees {rows}, and no others")
