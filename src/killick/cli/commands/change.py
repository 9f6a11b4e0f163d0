"""Changes to what is known of a session: its title, tags and whether it is put away."""

from typing import Literal, TextIO

import click

from killick.cli.invocation import SEQ, Invocation, command, find, open_session, session_argument
from killick.cli.render import counted, session_shape
from killick.journal.visibility import History
from killick.session.sync import Session, Store
from killick.stores.engine.state import Receipt


def tell(
    invocation: Invocation, store: Store, session_id: str, receipt: Receipt, text: str
) -> None:
    """Print the session as it is now, and the seq of the entry that was appended."""
    info = store.session_info(session_id)
    invocation.answer({**session_shape(info), "seq": receipt.seq}, f"{session_id}: {text}")


@command(
    ('killick rename ID "Fix the build"', "give it a title that no model replaces"),
    ("killick rename ID --none", "take its title away"),
)
@session_argument
@click.argument("title", required=False)
@click.option("--none", "none", is_flag=True, help="Take the title away.")
def rename(invocation: Invocation, session_id: str, title: str | None, *, none: bool) -> None:
    """Give a session a title."""
    if (title is None) != none:
        raise click.UsageError("give a title, or --none to take it away")
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.rename(title)
        text = "has no title now" if title is None else f"is called {title!r} now"
        tell(invocation, store, session.id, receipt, text)


@command(
    ("killick tag ID release urgent", "put two tags on it"),
    ("killick tag ID --remove urgent", "take one off"),
)
@session_argument
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this one off.")
def tag(
    invocation: Invocation, session_id: str, tags: tuple[str, ...], remove: tuple[str, ...]
) -> None:
    """Put tags on a session, and take others off."""
    if not tags and not remove:
        raise click.UsageError("give a tag, or --remove TAG")
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.tag(*tags, remove=remove)
        now = ", ".join(session.info().tags) or "none"
        tell(invocation, store, session.id, receipt, f"has these tags now: {now}")


@command(
    ("killick archive ID", "put it away: lists leave it out, --all shows it"),
    ("killick archive ID --off", "bring it back"),
)
@session_argument
@click.option("--off", is_flag=True, help="Bring it back.")
def archive(invocation: Invocation, session_id: str, *, off: bool) -> None:
    """Put a session away, or bring it back."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.archive(archived=not off)
        text = "is not archived any more" if off else "is archived"
        tell(invocation, store, session.id, receipt, text)


@command(
    ("killick pin ID", "keep it from every rule that removes"),
    ("killick pin ID --off", "let it go"),
)
@session_argument
@click.option("--off", is_flag=True, help="Let it go.")
def pin(invocation: Invocation, session_id: str, *, off: bool) -> None:
    """Keep a session from every rule that removes."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.pin(pinned=not off)
        tell(
            invocation, store, session.id, receipt, "is not pinned any more" if off else "is pinned"
        )


@command(
    ("killick delete ID", "take it out of every list; it can be restored"),
    ('killick delete ID --reason "made by mistake"', "say why"),
)
@session_argument
@click.option("--reason", help="Recorded with the deletion.")
def delete(invocation: Invocation, session_id: str, reason: str | None) -> None:
    """Take a session out of every list. What runs in it is ended; it can be restored."""
    with invocation.open() as store:
        full_id = find(store, session_id)
        receipt = store.delete_session(full_id, reason=reason)
        text = f"is deleted; 'killick restore {full_id}' brings it back"
        tell(invocation, store, full_id, receipt, text)


@command(("killick restore ID", "bring a deleted session back"))
@session_argument
def restore(invocation: Invocation, session_id: str) -> None:
    """Bring a deleted session back. 'killick sessions --deleted' lists them."""
    with invocation.open() as store:
        session = store.restore_session(find(store, session_id))
        tell(invocation, store, session.id, Receipt(session.head), "is back")


@command(
    ("killick stop ID", "ask the turn that runs to end, in whatever process"),
    ('killick stop ID --reason "wrong branch"', "say why"),
)
@session_argument
@click.option("--reason", default="stopped", show_default=True, help="Recorded with the ending.")
def stop(invocation: Invocation, session_id: str, reason: str) -> None:
    """Ask the process that runs a session's turn to stop it."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        if not session.stop(reason=reason):
            raise click.ClickException(f"no turn of {session.id} runs, so there is none to stop")
        text = f"{session.id}: its turn was asked to stop"
        shape = {"id": session.id, "asked": True, "reason": reason, "cause": "stopped"}
        invocation.answer(shape, text)


@command(
    ('killick steer ID "also check the tests"', "say something to the turn that runs"),
    ('killick steer ID "use the other branch" --json', "and say whether one ran"),
)
@session_argument
@click.argument("text")
def steer(invocation: Invocation, session_id: str, text: str) -> None:
    """Say something to the turn that runs, before its next model call.

    Where no turn runs, or it ends first, it is a prompt that waits for the next turn.
    """
    with invocation.open() as store:
        session = open_session(store, session_id)
        steered = session.steer(text)
        where = "no turn runs, so it waits for the next" if steered.queued else "the turn was told"
        shape = {"id": session.id, "prompt_id": steered.id, "turn_id": steered.turn_id}
        invocation.answer({**shape, "queued": steered.queued}, f"{session.id}: {where}")


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
    invocation: Invocation,
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
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.compact(text, through, first=first, keep=keep)
        message = f"{first} to {through} are folded into a summary, at seq {receipt.seq}"
        tell(invocation, store, session.id, receipt, message)


@command(
    ("killick rewind ID --through 4", "take what began after seq 4 out of view"),
    ("killick rewind ID --through 0", "begin anew"),
    ("killick rewind ID --last 1", "take the last turn out of view"),
)
@session_argument
@click.option("--through", type=SEQ, help="The last seq that stays.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Take the last N turns out.")
def rewind(invocation: Invocation, session_id: str, through: int | None, last: int | None) -> None:
    """Take the end of a session out of view. It stays in the journal; 'undo' brings it back."""
    if (through is None) == (last is None):
        raise click.UsageError("give --through SEQ or --last N, one of them")
    with invocation.open() as store:
        session = open_session(store, session_id)
        if last is not None:
            through = _before_the_last(session, last)
        assert through is not None
        receipt = session.rewind(through)
        tell(
            invocation, store, session.id, receipt, f"is rewound to {through}, at seq {receipt.seq}"
        )


def _before_the_last(session: Session, number: int) -> int:
    """Return the last seq in view before the last turns in view."""
    entries = session.entries()
    history = History(entries)
    seqs = [entry.seq for entry in entries if history.is_in_view(entry.seq)]
    began = [turn.seq for turn in session.turns() if history.is_in_view(turn.seq)]
    if number > len(began):
        raise click.UsageError(f"{session.id} has {counted(len(began), 'turns')} in view")
    return max((seq for seq in seqs if seq < began[-number]), default=0)


@command(
    ("killick undo ID", "undo the newest compaction or rewind"),
    ("killick undo ID 12", "the one at this seq"),
)
@session_argument
@click.argument("seq", type=SEQ, required=False)
def undo(invocation: Invocation, session_id: str, seq: int | None) -> None:
    """Undo a compaction or a rewind."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.undo(seq)
        tell(invocation, store, session.id, receipt, "that is undone")


@command(
    ("killick hide ID 4", "hide the message at seq 4 from the person and from models"),
    ("killick hide ID 4 --from model", "from models only"),
)
@session_argument
@click.argument("seq", type=SEQ)
@_audience
def hide(invocation: Invocation, session_id: str, seq: int, audience: Audience) -> None:
    """Hide a message from the person, from models, or both."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.hide(seq, person=audience != "model", model=audience != "person")
        tell(invocation, store, session.id, receipt, f"the message at {seq} is hidden")


@command(
    ("killick unhide ID 4", "show the message at seq 4 again"),
    ("killick unhide ID 4 --from person", "to the person only"),
)
@session_argument
@click.argument("seq", type=SEQ)
@_audience
def unhide(invocation: Invocation, session_id: str, seq: int, audience: Audience) -> None:
    """Show a message again that was hidden."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        receipt = session.show(seq, person=audience != "model", model=audience != "person")
        tell(invocation, store, session.id, receipt, f"the message at {seq} is shown again")


@command(
    ("killick fork ID", "a session of its own that begins with all of this one"),
    ('killick fork ID --at 8 --title "Another way"', "with its first 8 entries"),
)
@session_argument
@click.option("--at", type=SEQ, help="The last seq that both share; the newest if not given.")
@click.option("--title", help="A title is not inherited.")
@click.option("--tag", "tags", multiple=True, help="Put this tag on it.")
def fork(
    invocation: Invocation,
    session_id: str,
    at: int | None,
    title: str | None,
    tags: tuple[str, ...],
) -> None:
    """Begin a session that shares another one's beginning. Nothing is copied."""
    with invocation.open() as store:
        session = open_session(store, session_id)
        made = session.fork(at, title=title, tags=tags)
        info = made.info()
        reach = info.fork.at if info.fork is not None else session.head
    invocation.answer(session_shape(info), f"{info.id}: begins with {session.id} up to {reach}")
