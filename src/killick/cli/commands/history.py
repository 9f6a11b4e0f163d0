"""Changes to what is in view. Each appends an entry; nothing that was recorded is edited."""

from typing import Literal, TextIO

import click

from killick.cli.commands.describing import tell
from killick.cli.frame import Frame, command, open_session
from killick.cli.shapes import session_shape
from killick.cli.types import SEQ, session_argument
from killick.session.history import CompactSettings, ForkSettings

Audience = Literal["both", "person", "model"]

_audience = click.option(
    "--from",
    "audience",
    type=click.Choice(["both", "person", "model"]),
    default="both",
    show_default=True,
    help="Whom it concerns.",
)


@command(
    ('killick compact ID --through 8 --summary "The linker was missing."', "fold the first 8"),
    ("killick compact ID --through 8 --summary-file summary.txt", "with a summary from a file"),
    ('killick compact ID --through 8 --keep 4 --summary "…"', "but leave one message as it is"),
)
@session_argument
@click.option("--through", type=SEQ, required=True, help="The last seq that is folded.")
@click.option("--first", type=SEQ, default=1, show_default=True, help="The first one.")
@click.option("--keep", type=SEQ, multiple=True, help="A message that stays, by its seq.")
@click.option("--summary", help="What stands in their place.")
@click.option("--summary-file", type=click.File(encoding="utf-8"), help="The same; - for stdin.")
def compact(
    frame: Frame,
    session_id: str,
    through: int,
    first: int,
    keep: tuple[int, ...],
    summary: str | None,
    summary_file: TextIO | None,
) -> None:
    """Put a summary in place of messages. Models are sent it; 'undo' brings the messages back."""
    if (summary is None) == (summary_file is None):
        raise click.UsageError("give --summary or --summary-file, one of them")
    text = summary if summary_file is None else summary_file.read()
    if not text or not text.strip():
        raise click.UsageError("the summary is empty; it is all that a model will know of them")
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.compact(text, through, **CompactSettings(first=first, keep=keep))
        said = f"{first} to {through} are folded into a summary, at seq {receipt.seq}"
        tell(frame, store, session.id, receipt, said)


@command(
    ("killick rewind ID --through 4", "take what began after seq 4 out of view"),
    ("killick rewind ID --through 0", "begin anew"),
)
@session_argument
@click.option("--through", type=SEQ, required=True, help="The last seq that stays.")
def rewind(frame: Frame, session_id: str, through: int) -> None:
    """Take the end of a session out of view. It stays in the journal; 'undo' brings it back."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.rewind(through)
        tell(frame, store, session.id, receipt, f"is rewound to {through}, at seq {receipt.seq}")


@command(
    ("killick undo ID", "undo the newest compaction or rewind"),
    ("killick undo ID 12", "the one at this seq"),
)
@session_argument
@click.argument("seq", type=SEQ, required=False)
def undo(frame: Frame, session_id: str, seq: int | None) -> None:
    """Undo a compaction or a rewind."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.undo(seq)
        tell(frame, store, session.id, receipt, "that is undone")


@command(
    ("killick hide ID 4", "hide the message at seq 4 from everybody"),
    ("killick hide ID 4 --from model", "from models only"),
)
@session_argument
@click.argument("seq", type=SEQ)
@_audience
def hide(frame: Frame, session_id: str, seq: int, audience: Audience) -> None:
    """Hide a message from the person, from models, or both."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.hide(seq, person=audience != "model", model=audience != "person")
        tell(frame, store, session.id, receipt, f"the message at {seq} is hidden")


@command(
    ("killick unhide ID 4", "show the message at seq 4 again"),
    ("killick unhide ID 4 --from person", "to the person only"),
)
@session_argument
@click.argument("seq", type=SEQ)
@_audience
def unhide(frame: Frame, session_id: str, seq: int, audience: Audience) -> None:
    """Show a message again that was hidden."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.show(seq, person=audience != "model", model=audience != "person")
        tell(frame, store, session.id, receipt, f"the message at {seq} is shown again")


@command(
    ("killick fork ID", "a session of its own that begins with all of this one"),
    ('killick fork ID --at 8 --title "Another way"', "with its first 8 entries"),
)
@session_argument
@click.option("--at", type=SEQ, help="The last seq that both share; the newest if not given.")
@click.option("--title", help="A title is not inherited.")
@click.option("--tag", "tags", multiple=True, help="Put this tag on it.")
def fork(
    frame: Frame, session_id: str, at: int | None, title: str | None, tags: tuple[str, ...]
) -> None:
    """Begin a session that shares another one's beginning. Nothing is copied."""
    with frame.open() as store:
        session = open_session(store, session_id)
        made = session.fork(at, **ForkSettings(title=title, tags=tags))
        info = made.info()
        reach = info.fork.at if info.fork is not None else session.head
    frame.answer(session_shape(info), f"{info.id}: begins with {session.id} up to {reach}")
