"""Messages found by their words."""

from typing import Any, cast

import click

from killick.cli.commands.listing import project_root
from killick.cli.failing import IN_PART
from killick.cli.frame import Frame, command, find
from killick.cli.moments import told
from killick.cli.printing import Line, Span, complain
from killick.cli.render.tables import counted
from killick.cli.shapes import Shape, time_shape
from killick.cli.types import MOMENT, SESSION, local_now
from killick.model.search import Hit
from killick.session.options import SearchFilters


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
def search(frame: Frame, words: tuple[str, ...], *, no_reasoning: bool, **filters: Any) -> int:
    """Find messages by their words.

    All words must be there; "a phrase", begin*, AND, OR, NOT and parentheses are understood.
    """
    wanted = {name: value for name, value in filters.items() if value is not None}
    if "project" in wanted:
        wanted["project"] = project_root(wanted["project"])
    if no_reasoning:
        wanted["reasoning"] = False
    with frame.open() as store:
        if "session" in wanted:
            wanted["session"] = find(store, wanted["session"])
        hits = store.search(" ".join(words), **cast("SearchFilters", wanted))
    now = local_now()
    if frame.json:
        frame.out.json([_shape(hit) for hit in hits])
    for hit in () if frame.json else hits:
        frame.out.lines([*_lines(hit, told(hit.at, now)), Line()])
    if not hits:
        frame.note("nothing was found")
    if hits.behind:
        complain(f"{counted(hits.behind, 'entries')} are not indexed yet and were not looked at")
    if hits.damaged:
        complain(f"found in sessions that are damaged: {', '.join(hits.damaged)}")
    return IN_PART if hits.damaged else 0


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


def _lines(hit: Hit, at: str) -> list[Line]:
    flags = ((hit.state == "partial", "partial"), (hit.rewound, "rewound"), (hit.hidden, "hidden"))
    marks = "".join(f"  [{name}]" for on, name in flags if on)
    head = Line(
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
    return [head, Line((*spans, Span(hit.snippet[done:])), 2)]
