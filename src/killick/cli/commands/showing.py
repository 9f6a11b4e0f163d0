"""One session, as a person reads it."""

from collections.abc import Iterable
from typing import NamedTuple

import click

from killick.cli.failing import IN_PART
from killick.cli.frame import Frame, command, find
from killick.cli.printing import complain
from killick.cli.render.conversation import conversation, heading
from killick.cli.render.timing import timing
from killick.cli.shapes import session_shape, shown_shape, turn_shape
from killick.cli.types import local_now, session_argument
from killick.errors import SessionDamaged
from killick.model import entries as e
from killick.model.parts import Part, ToolCall
from killick.model.sessions import Description, SessionInfo
from killick.session.examining import Finding, Salvaged
from killick.session.store import Store
from killick.views.timeline import TimedTurn, timeline
from killick.views.transcript import Shown, transcript


@command(
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
@session_argument
def show(frame: Frame, session_id: str, *, unfold: bool, timed: bool, last: int | None) -> int:
    """Show a session: its transcript, or with --timeline its turns.

    Each message has the number of its place (#4), which compact, rewind, fork and hide take.
    A damaged session is shown as far as it can be read, with exit code 3.
    """
    with frame.open() as store:
        found = _read(store, find(store, session_id))
    shown, turns = found.shown, found.turns
    if last is not None:
        shown, turns = shown[-last:], turns[-last:]
    now = local_now()
    if frame.json:
        value = session_shape(found.info)
        value["transcript"] = [shown_shape(one) for one in shown]
        if timed:
            value["turns"] = [turn_shape(one) for one in turns]
        value["damage"] = found.damage
        frame.out.json(value)
    else:
        frame.out.lines(heading(found.info))
        if timed:
            frame.out.lines(timing(turns, tool_names(found.entries), now))
        else:
            frame.out.lines(conversation(shown, now, unfold=unfold))
    if not found.damage:
        return 0
    complain(f"{found.damage[0].what}; what can be read of it is shown")
    return IN_PART


class Found(NamedTuple):
    """A session as it is shown. `damage` are the places that cannot be read."""

    info: SessionInfo
    shown: list[Shown]
    turns: list[TimedTurn]
    entries: list[e.Entry]
    damage: list[Finding]


def _read(store: Store, session_id: str) -> Found:
    """The session; one that is damaged as far as it can be read."""
    try:
        session = store.session(session_id)
        info, shown, turns = session.info(), session.transcript(), session.timeline()
        return Found(info, shown, turns, session.entries(), [])
    except SessionDamaged as damage:
        left = store.salvage(session_id)
        found = left.damage or [Finding("derived", str(damage), session_id, damage.seq)]
        shown = transcript(left.entries, lambda seq: ())
        return Found(_info(store, left), shown, timeline(left.entries), left.entries, found)


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
    """What tools are called, by message and call."""
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
