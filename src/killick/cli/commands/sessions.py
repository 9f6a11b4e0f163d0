"""Sessions listed and searched, what they cost, and where they lie."""

import contextlib
from typing import Any, Final

import click

from killick.cli.invocation import (
    DAY,
    IN_PART,
    LIMIT,
    MOMENT,
    SESSION,
    Invocation,
    command,
    find,
    local_now,
)
from killick.cli.output import OutputLine, Span, complain, line
from killick.cli.render import (
    SESSION_COLUMNS,
    Shape,
    counted,
    session_rows,
    session_shape,
    short_time,
    time_shape,
    usage_columns,
    usage_rows,
)
from killick.errors import KillickError
from killick.journal.summary import Total
from killick.model.sessions import SessionInfo
from killick.search.results import Hit
from killick.session.core.figures import UsageBy
from killick.session.open import mask_passwords
from killick.session.sync import Store

_INDEX_WAIT_SECONDS: Final = 3.0
"""How long a search waits for an index that is behind."""

_LOOKED_AT: Final = 10_000

CHOSEN_BY = {
    "option": "--store names it",
    "environment": "KILLICK_STORE names it",
    "default": "neither --store nor KILLICK_STORE is given, and this is the default",
}


@command(
    ("killick sessions", "the newest sessions"),
    ("killick sessions --interrupted --since 2d", "what was cut off in the last two days"),
    ("killick sessions --project . --tag release", "those about this project, with a tag"),
    ("killick sessions --limit 20 --before ID", "the next page, after the last one shown"),
    ("killick sessions --json", "the same for a program"),
)
@click.option("--type", "type_", metavar="TYPE", help="user, scheduled, subagent, hidden …")
@click.option("--project", metavar="ROOT", help="Of the project with this root folder.")
@click.option("--tag", metavar="TAG", help="With this tag.")
@click.option("--model", metavar="MODEL", help="That asked this model.")
@click.option(
    "--interrupted/--not-interrupted", default=None, help="Whose newest turn was, or was not."
)
@click.option("--archived", is_flag=True, help="Only those that were archived.")
@click.option("--all", "all_", is_flag=True, help="Archived ones too.")
@click.option("--pinned/--not-pinned", default=None, help="Pinned, or not.")
@click.option("--deleted", is_flag=True, help="Those that were deleted and can be restored.")
@click.option("--title", metavar="TEXT", help="With this text in the title.")
@click.option("--since", type=MOMENT, help="Changed at or after: 2026-11-15, yesterday, 2h …")
@click.option("--until", type=MOMENT, help="Changed at or before.")
@click.option("--parent", metavar="ID", type=SESSION, help="Subagents of this session.")
@click.option("--fork-of", metavar="ID", type=SESSION, help="Forks of this session.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", type=SESSION, help="The page after this session.")
def sessions(invocation: Invocation, limit: int, before: str | None, **filters: Any) -> None:
    """List sessions, the last changed first."""
    with invocation.look() as store:
        wanted = _filters(filters)
        for name in ("parent", "fork_of"):
            if name in wanted:
                wanted[name] = find(store, filters[name])
        if before is not None:
            wanted["before"] = store.session_info(find(store, before))
        wanted["limit"] = limit + 1
        infos = _listed(store, wanted)
        page = infos[:limit]
        openings = store.openings([info.id for info in page if info.title is None])
    if invocation.json:
        invocation.out.json([session_shape(info) for info in page])
        return
    rows = session_rows(page, openings, local_now(), short=invocation.out.terminal)
    invocation.out.table(SESSION_COLUMNS, rows)
    if not page:
        shown = invocation.where().shown
        invocation.note(f"no sessions in {shown}; other filters, --all or --deleted may show some")
    elif len(infos) > limit:
        invocation.note(f"there are more: --before {page[-1].id} shows the next page")


def _listed(store: Store, wanted: dict[str, Any]) -> list[SessionInfo]:
    """The sessions that are wanted. A turn whose process died is closed first, and says so."""
    asked = wanted.copy()
    if asked.pop("interrupted", None) is not None:
        asked["limit"] = _LOOKED_AT  # what is known as running may be one of them
    infos = store.sessions(**asked)
    running = [info.id for info in infos if info.status == "running"]
    for session_id in running:
        with contextlib.suppress(KillickError):  # it is listed as it is known
            store.session(session_id)
    return store.sessions(**wanted) if running or asked != wanted else infos


def _filters(given: dict[str, Any]) -> dict[str, Any]:
    """Only what was asked for: a filter that is not given filters nothing."""
    since, until = given["since"], given["until"]
    if since is not None and until is not None and until < since:
        raise click.UsageError("--until lies before --since, so nothing can match")
    wanted = {name: value for name, value in given.items() if value not in (None, False)}
    for name in ("interrupted", "pinned"):
        if given[name] is not None:
            wanted[name] = given[name]
    if wanted.pop("all_", False):
        wanted["archived"] = None
    if "type_" in wanted:
        wanted["type"] = wanted.pop("type_")
    if "project" in wanted:
        wanted["project"] = project_root(wanted["project"])
    return wanted


def project_root(project: str) -> str:
    """A path that is there is meant as one; a project may also lie on another machine."""
    path = click.Path(exists=True, resolve_path=True)
    try:
        return str(path.convert(project, None, None))
    except click.BadParameter:
        return project


@command(
    ("killick stats", "tokens and cost by model"),
    ("killick stats --by day --since 7d", "day by day, in the last week"),
    ("killick stats --session ID", "what one session has cost"),
)
@click.option(
    "--by",
    type=click.Choice(["model", "session", "project", "day", "all"]),
    default="model",
    show_default=True,
    help="A line for each of these.",
)
@click.option("--session", metavar="ID", type=SESSION, help="Of this session only.")
@click.option("--project", metavar="ROOT", help="Of the project with this root folder.")
@click.option("--model", metavar="MODEL", help="Of this model only.")
@click.option("--since", type=DAY, help="On or after this day, in UTC.")
@click.option("--until", type=DAY, help="On or before this day, in UTC.")
def stats(
    invocation: Invocation, by: UsageBy, session: str | None, project: str | None, **rest: Any
) -> None:
    """Add up what was stored and what model calls have cost.

    Interrupted and retried calls count; what a fork has inherited does not count twice.
    """
    filters = {name: value for name, value in rest.items() if value is not None}
    if project is not None:
        filters["project"] = project_root(project)
    with invocation.look() as store:
        if session is not None:
            filters["session"] = find(store, session)
        usage = store.usage(by, **filters)
        total = store.usage("all", **filters)
        counts = store.counts()
    whole = total[0] if total else Total("", 0, 0, 0, 0, 0, None)
    if invocation.json:
        figures = {"counts": counts, "by": by, "usage": list(usage), "total": whole}
        invocation.out.json({**figures, "behind": usage.behind})
        return
    invocation.out.lines([line(", ".join(counted(n, name) for name, n in counts.items()))])
    invocation.out.table(usage_columns(by), usage_rows(usage, whole))
    if not usage:
        invocation.note(f"no model calls in {invocation.where().shown}")
    if usage.behind:
        lacking = counted(usage.behind, "sessions")
        invocation.note(f"{lacking} still to be added up: these figures lack some of their calls")


@command(
    ("killick where", "which store is used, and why"),
    ("killick where --store work.db", "what a name stands for"),
)
def where(invocation: Invocation) -> None:
    """Say which store is used, and why. Nothing is opened or made."""
    chosen = invocation.where()
    invocation.warn_of_old_store()
    file = chosen.file
    exists = None if file is None else file.exists()
    size = file.stat().st_size if file is not None and exists else None
    named = str(file.absolute()) if file is not None else mask_passwords(chosen.url)
    value = {"store": named, "chosen_by": chosen.chosen_by, "exists": exists, "bytes": size}
    state = f"{size:,} bytes" if size is not None else "not there yet" if exists is False else ""
    why = line(f"because {CHOSEN_BY[chosen.chosen_by]}", "dim")
    invocation.answer(value, named, *([line(state, "dim")] if state else []), why)


@command(
    ("killick completion bash", 'for ~/.bashrc: eval "$(killick completion bash)"'),
    ("killick completion zsh", 'for ~/.zshrc: eval "$(killick completion zsh)"'),
    ("killick completion fish", "for ~/.config/fish/completions/killick.fish"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(invocation: Invocation, shell: str) -> None:
    """Print what makes a shell complete commands, options and ids."""
    from click.shell_completion import get_completion_class

    from killick.cli.argv import COMPLETE_VARIABLE, PROGRAM, make_group

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(make_group(), {}, PROGRAM, COMPLETE_VARIABLE).source()
    if invocation.json:
        invocation.out.json({"shell": shell, "script": script})
    else:
        invocation.out.write(script)


@command(
    ("killick search linker", "messages with this word, the newest first"),
    ("""killick search '"build fail" OR link*'""", "a phrase, or words that begin like this"),
    ("killick search linker --session ID --role tool", "in the tools' results of one session"),
    ("killick search linker --order best --since 7d", "the best of the last week"),
)
@click.argument("words", nargs=-1, required=True)
@click.option("--session", metavar="ID", type=SESSION, help="In this session only.")
@click.option(
    "--role",
    type=click.Choice(["user", "assistant", "tool", "system", "summary"]),
    help="Said by this role only.",
)
@click.option("--project", metavar="ROOT", help="Of the project with this root folder.")
@click.option("--interrupted/--not-interrupted", default=None, help="By the newest turn's ending.")
@click.option("--since", type=MOMENT, help="Said at or after: 2026-11-15, yesterday, 2h …")
@click.option("--until", type=MOMENT, help="Said at or before.")
@click.option("--no-reasoning", is_flag=True, help="Do not look in what models thought.")
@click.option(
    "--order",
    type=click.Choice(["newest", "best"]),
    default="newest",
    show_default=True,
    help="What comes first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most so many.",
)
def search(
    invocation: Invocation, words: tuple[str, ...], *, no_reasoning: bool, **filters: Any
) -> int:
    """Find messages by their words.

    All words must be there; "a phrase", begin*, AND, OR, NOT and parentheses are understood. Exit
    code 3 says that not all was looked at.
    """
    wanted = {name: value for name, value in filters.items() if value is not None}
    if "project" in wanted:
        wanted["project"] = project_root(wanted["project"])
    if no_reasoning:
        wanted["reasoning"] = False
    with invocation.look() as store:
        if "session" in wanted:
            wanted["session"] = find(store, wanted["session"])
        hits = store.search(" ".join(words), wait_seconds=_INDEX_WAIT_SECONDS, **wanted)
    now = local_now()
    if invocation.json:
        shown = [_shape(hit) for hit in hits]
        invocation.out.json({"hits": shown, "behind": hits.behind, "ranked": hits.ranked})
    for hit in () if invocation.json else hits:
        invocation.out.lines([*_lines(hit, short_time(hit.at, now)), OutputLine()])
    if not hits:
        invocation.note(f"nothing was found in {invocation.where().shown}")
    if hits.ranked:
        invocation.note(f"these are the best of the newest {counted(hits.ranked, 'matches')}")
    if hits.behind:
        complain(
            f"{counted(hits.behind, 'entries')} are not indexed yet and were not looked at; search "
            "again in a moment"
        )
    if hits.damaged:
        complain(f"found in sessions that are damaged: {', '.join(hits.damaged)}")
    return IN_PART if hits.damaged or hits.behind else 0


def _shape(hit: Hit) -> Shape:
    return {
        "session_id": hit.session_id,
        "title": hit.title,
        "seq": hit.seq,
        "message_id": hit.message_id,
        "turn_id": hit.turn_id,
        "role": hit.role,
        "state": hit.state,
        "at": time_shape(hit.at),
        "snippet": hit.snippet,
        "matches": [list(match) for match in hit.matches],
        "rewound": hit.rewound,
        "hidden": hit.hidden,
    }


def _lines(hit: Hit, at: str) -> list[OutputLine]:
    flags = ((hit.state == "partial", "partial"), (hit.rewound, "rewound"), (hit.hidden, "hidden"))
    marks = "".join(f"  [{name}]" for on, name in flags if on)
    head = OutputLine(
        (
            Span(hit.session_id, "cyan"),
            Span(f"  #{hit.seq} {hit.role}  {at}  {hit.title or '(no title)'}", "dim"),
            Span(marks, "yellow"),
        )
    )
    spans, done = [], 0
    for start, end in hit.matches:
        spans += [Span(hit.snippet[done:start]), Span(hit.snippet[start:end], "bold")]
        done = end
    return [head, OutputLine((*spans, Span(hit.snippet[done:])), 2)]
