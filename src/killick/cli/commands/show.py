"""One session, as a person reads it."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import click
import msgspec

from killick.cli.invocation import (
    IN_PART,
    SEQ,
    Invocation,
    command,
    find_or_last,
    last_session_argument,
    local_now,
)
from killick.cli.output import Column, block, complain, plain
from killick.cli.render import (
    FollowRenderer,
    context_shape,
    conversation,
    followed_shape,
    heading,
    session_shape,
    shown_shape,
    timing,
    turn_shape,
)
from killick.errors import SessionDamaged
from killick.maintenance.examine import Finding, Salvaged
from killick.model import entries as e
from killick.model.messages import Part, ToolCall
from killick.model.sessions import Description, SessionInfo
from killick.session.news import News
from killick.session.sync import Session, Store
from killick.views.context import FORMATS, Format
from killick.views.escape import escape_json
from killick.views.neutral import Errors, Partial
from killick.views.timeline import TimedTurn, timeline
from killick.views.transcript import Shown, transcript


@command(
    ("killick show", "the last session of this folder, or of all"),
    ("killick show ID", "what was said and done, broken turns included"),
    ("killick show ID --last 4", "the end of it"),
    ("killick show ID --all", "with compactions unfolded and tools' results whole"),
    ("killick show ID --timeline", "turns with durations, model calls, tools and tokens"),
    ("killick show ID --json", "the same for a program"),
)
@click.option("--all", "--open", "unfold", is_flag=True, help="Unfold compactions; cut no result.")
@click.option(
    "--timeline", "timed", is_flag=True, help="When what happened, in place of what was said."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N things.")
@last_session_argument
def show(
    invocation: Invocation, session_id: str | None, *, unfold: bool, timed: bool, last: int | None
) -> int:
    """Show a session: its transcript, or with --timeline its turns.

    Without ID, the last changed session of this folder's project; if it has none, of all.
    Each message has the number of its place (#4), which compact, rewind, fork and hide take.
    A damaged session is shown as far as it can be read, with exit code 3.
    """
    with invocation.open() as store:
        session = _read(store, find_or_last(invocation, store, session_id))
    shown, turns = session.shown, session.turns
    if last is not None:
        shown, turns = shown[-last:], turns[-last:]
    now = local_now()
    if invocation.json:
        value = session_shape(session.info)
        value["transcript"] = [shown_shape(item) for item in shown]
        if timed:
            value["turns"] = [turn_shape(item) for item in turns]
        value["damage"] = session.damage
        invocation.out.json(value)
    else:
        invocation.out.lines(heading(session.info))
        if timed:
            invocation.out.lines(timing(turns, tool_names(session.entries), now))
        else:
            invocation.out.lines(conversation(shown, now, unfold=unfold))
    if not session.damage:
        return 0
    complain(f"{session.damage[0].what}; what can be read of it is shown")
    return IN_PART


class FoundSession(NamedTuple):
    """A session as it is shown. `damage` are the places that cannot be read."""

    info: SessionInfo
    shown: list[Shown]
    turns: list[TimedTurn]
    entries: list[e.Entry]
    damage: list[Finding]


def _read(store: Store, session_id: str) -> FoundSession:
    """The session; one that is damaged as far as it can be read."""
    try:
        session = store.session(session_id)
        info, shown, turns = session.info(), session.transcript(), session.timeline()
        return FoundSession(info, shown, turns, session.entries(), [])
    except SessionDamaged as damage:
        left = store.salvage(session_id)
        findings = left.damage or [Finding("derived", str(damage), session_id, damage.seq)]
        shown = transcript(left.entries, lambda seq: ())
        return FoundSession(
            _info(store, left), shown, timeline(left.entries), left.entries, findings
        )


def _info(store: Store, left: Salvaged) -> SessionInfo:
    try:
        return store.session_info(left.session_id)
    except SessionDamaged:  # not even its line in the list
        times = [entry.at_us for entry in left.entries] or [0]
        return SessionInfo(
            id=left.session_id,
            about=Description(title=left.title),
            tenant="",
            created_at_us=times[0],
            updated_at_us=times[-1],
        )


def tool_names(entries: Iterable[e.Entry]) -> dict[tuple[str, str], str]:
    """Return the names of tools, by message and call."""
    names: dict[tuple[str, str], str] = {}
    for entry in entries:
        match entry.body:
            case e.MessageRecorded() | e.MessageEnded() as body:
                names.update(((body.id, call.id), call.name) for call in _calls(body.parts))
            case e.ToolCalled() as body:
                names[body.message_id, body.call_id] = body.name
            case _:
                pass
    return names


def _calls(parts: Iterable[Part]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


@command(
    ("killick tail --until-end", "the last session of this folder, or of all"),
    ("killick tail ID --until-end", "follow the turn that runs, and leave when it ends"),
    ("killick tail ID --after 0 --until-end", "from the beginning of the session"),
    ("killick tail ID --until-end --json", "one JSON object in each line, for a program"),
)
@last_session_argument
@click.option("--after", type=SEQ, help="Begin after this seq; with the newest turn if not given.")
@click.option("--until-end", is_flag=True, help="Leave when no turn runs any more.")
def tail(
    invocation: Invocation, session_id: str | None, after: int | None, *, until_end: bool
) -> None:
    """Follow a session live, as text.

    Without ID, the last changed session of this folder's project; if it has none, of all.
    Entries and deltas are shown as they come, from whatever process writes them. Ctrl+C leaves,
    with exit code 130; the session is not touched by it. A session that is deleted ends it too.
    """
    with invocation.open() as store:
        session = store.session(find_or_last(invocation, store, session_id))
        begin = _newest_turn(session) if after is None else after
        renderer = FollowRenderer(local_now())
        if until_end and _is_over(session, begin):
            return
        for item in session.follow(after=begin):
            if invocation.json:
                invocation.out.json(followed_shape(item))
            else:
                for span in renderer.render(item):
                    invocation.out.write(span.text, span.style)
            if isinstance(item, e.Entry) and isinstance(item.body, e.Deleted):
                return
            if until_end and isinstance(item, e.Entry) and _is_over(session, item.seq):
                return


_NEWS = (Column("SESSION"), Column("SEQ", right=True), Column("WHAT"), Column("CAUSE"))


@command(
    ("killick news", "what waits for a person in any session: approvals, unknown outcomes …"),
    ("killick news --after 0 --json", "all there is, one JSON object in each line"),
)
@click.option("--after", metavar="CURSOR", help="Go on after this line; 0 begins with the first.")
@click.option("--follow", is_flag=True, help="Go on with what happens from now on.")
def news(invocation: Invocation, after: str | None, *, follow: bool) -> None:
    """Tell what happened in all sessions that a person acts on.

    Turns that ended, with their causes; approvals asked and decided; outcomes of tools that are
    unknown or were settled. Without --after, only what waits now. Each line of --json has a
    `cursor` for --after.
    """
    with invocation.open() as store:
        cursor = 0 if after in (None, "0") else after
        following = store.follow(after=cursor, waiting=after is None)
        while page := following.now():
            _tell_news(invocation, page)
        if follow:
            for line in following:
                _tell_news(invocation, [line])


def _tell_news(invocation: Invocation, lines: Sequence[News]) -> None:
    if invocation.json:
        for line in lines:
            invocation.out.json(msgspec.to_builtins(line))
    else:
        rows = [(line.session_id, str(line.seq), line.kind, line.cause or "") for line in lines]
        invocation.out.table(_NEWS, rows)


def _newest_turn(session: Session) -> int:
    turns = session.turns()
    return turns[-1].seq - 1 if turns else 0


def _is_over(session: Session, seq: int) -> bool:
    """Return whether no turn runs and everything was shown; in this order, none is missed."""
    return session.info().status != "running" and not session.entries(after=seq, limit=1)


_REPAIRS = (Column("SEQ", right=True), Column("DONE"), Column("WHY", flexible=True))


@command(
    ("killick context --format anthropic", "of the last session of this folder, or of all"),
    ("killick context ID --format anthropic", "what would be sent to Anthropic now"),
    ("killick context ID --format openai-chat --repairs", "what was repaired in it, and why"),
    ("killick context ID --format gemini --max-tokens 4000", "the newest that fit"),
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    default="neutral",
    show_default=True,
    help="Whose shape it has.",
)
@click.option("--repairs", is_flag=True, help="List what was repaired instead, and why.")
@click.option("--max-messages", type=click.IntRange(min=1), help="The newest N messages.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="The newest that fit, roughly.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="The newest that fit in a request.")
@click.option("--profile", help="The server that is asked, such as deepseek, mistral or vllm.")
@click.option(
    "--partial",
    type=click.Choice(["note", "plain", "omit"]),
    default="note",
    show_default=True,
    help="What becomes of an answer that was cut off.",
)
@click.option("--no-reasoning", is_flag=True, help="Leave reasoning out.")
@click.option(
    "--errors",
    type=click.Choice(["type", "text"]),
    default="type",
    show_default=True,
    help="How much of a failed turn's exception is told.",
)
@last_session_argument
def context(
    invocation: Invocation,
    session_id: str | None,
    format_: str,
    *,
    repairs: bool,
    no_reasoning: bool,
    **rest: Any,
) -> None:
    """Print what a model would be sent now.

    Without ID, of the last changed session of this folder's project; if it has none, of all.
    It is repaired, and in one provider's shape. The messages and the system prompt are JSON
    either way; --json prints them in one line, together with the repairs and the seqs that each
    message comes from.
    """
    with invocation.open() as store:
        session = store.session(find_or_last(invocation, store, session_id))
        computed = session.context(
            cast("Format", format_),
            max_messages=rest["max_messages"],
            max_tokens=rest["max_tokens"],
            max_bytes=rest["max_bytes"],
            profile=rest["profile"],
            partial=cast("Partial", rest["partial"]),
            reasoning=not no_reasoning,
            errors=cast("Errors", rest["errors"]),
        )
    if invocation.json:
        invocation.out.json(context_shape(computed))
    elif repairs:
        rows = [(str(repair.seq), repair.action, repair.reason) for repair in computed.repairs]
        invocation.out.table(_REPAIRS, rows)
        if not rows:
            invocation.note("nothing had to be repaired")
    else:
        value = {"system": computed.system, "messages": plain(computed.messages)}
        text = json.dumps(value, indent=2, ensure_ascii=False)
        invocation.out.lines(block(escape_json(text)))
