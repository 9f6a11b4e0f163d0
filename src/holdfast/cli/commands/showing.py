"""One session, as a person reads it."""

from collections.abc import Iterable
from contextlib import suppress

import click

from holdfast.cli.failing import IN_PART
from holdfast.cli.frame import Frame, command, find
from holdfast.cli.printing import complain
from holdfast.cli.render.conversation import conversation, heading
from holdfast.cli.render.timing import timing
from holdfast.cli.shapes import session_shape, shown_shape, turn_shape
from holdfast.cli.types import local_now, session_argument
from holdfast.errors import SessionDamaged
from holdfast.model import entries as e
from holdfast.model.parts import Part, ToolCall
from holdfast.session.salvage import Salvaged, salvage
from holdfast.session.store import Store


@command(
    ("holdfast show ID", "what was said and done, broken turns included"),
    ("holdfast show ID --last 4", "the end of it"),
    ("holdfast show ID --all", "with compactions unfolded and tools' results whole"),
    ("holdfast show ID --timeline", "turns with durations, model calls, tools and tokens"),
    ("holdfast show ID --json", "the same for a program"),
)
@click.option("--all", "--open", "unfold", is_flag=True, help="Unfold compactions; cut no result.")
@click.option("--timeline", is_flag=True, help="When what happened, instead of what was said.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N things.")
@session_argument
def show(frame: Frame, session_id: str, *, unfold: bool, timeline: bool, last: int | None) -> int:
    """Show a session: its transcript, or with --timeline its turns.

    Each message has the number of its place (#4), which compact, rewind, fork and hide take.
    A damaged session is shown up to the damage, with exit code 3.
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
        if timeline:
            value["turns"] = [turn_shape(one) for one in turns]
        value["damage"] = str(found.damage) if found.damage else None
        frame.out.json(value)
    else:
        frame.out.lines(heading(found.info))
        if timeline:
            frame.out.lines(timing(turns, tool_names(found.entries), now))
        else:
            frame.out.lines(conversation(shown, now, unfold=unfold))
    if found.damage is None:
        return 0
    complain(f"{found.damage}; what stands before it is shown, nothing after it")
    return IN_PART


def _read(store: Store, session_id: str) -> Salvaged:
    """The session, opened as always, so that a turn whose process died is closed first."""
    with suppress(SessionDamaged):  # it is read as far as it can be
        store.session(session_id)
    return salvage(store, session_id)


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
