"""Changes to what is known of a session: its title, tags and whether it is put away."""

import click

from killick.cli.frame import Frame, command, find, open_session
from killick.cli.shapes import session_shape
from killick.cli.types import session_argument
from killick.session.store import Store
from killick.stores.standing import Receipt


def tell(frame: Frame, store: Store, session_id: str, receipt: Receipt, said: str) -> None:
    """What is true of the session now, and the seq of the entry that says so."""
    info = store.session_info(session_id)
    frame.answer({**session_shape(info), "seq": receipt.seq}, f"{session_id}: {said}")


@command(
    ('killick rename ID "Fix the build"', "give it a title that no model replaces"),
    ("killick rename ID --none", "take its title away"),
)
@session_argument
@click.argument("title", required=False)
@click.option("--none", "none", is_flag=True, help="Take the title away.")
def rename(frame: Frame, session_id: str, title: str | None, *, none: bool) -> None:
    """Give a session a title."""
    if (title is None) != none:
        raise click.UsageError("give a title, or --none to take it away")
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.rename(title)
        said = "has no title now" if title is None else f"is called {title!r} now"
        tell(frame, store, session.id, receipt, said)


@command(
    ("killick tag ID release urgent", "put two tags on it"),
    ("killick tag ID --remove urgent", "take one off"),
)
@session_argument
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this one off.")
def tag(frame: Frame, session_id: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Put tags on a session, and take others off."""
    if not tags and not remove:
        raise click.UsageError("give a tag, or --remove TAG")
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.tag(*tags, remove=remove)
        now = ", ".join(session.info().tags) or "none"
        tell(frame, store, session.id, receipt, f"has these tags now: {now}")


@command(
    ("killick archive ID", "put it away: lists leave it out, --all shows it"),
    ("killick archive ID --off", "bring it back"),
)
@session_argument
@click.option("--off", is_flag=True, help="Bring it back.")
def archive(frame: Frame, session_id: str, *, off: bool) -> None:
    """Put a session away, or bring it back."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.archive(archived=not off)
        said = "is not archived any more" if off else "is archived"
        tell(frame, store, session.id, receipt, said)


@command(
    ("killick pin ID", "keep it from every rule that removes"),
    ("killick pin ID --off", "let it go"),
)
@session_argument
@click.option("--off", is_flag=True, help="Let it go.")
def pin(frame: Frame, session_id: str, *, off: bool) -> None:
    """Keep a session from every rule that removes."""
    with frame.open() as store:
        session = open_session(store, session_id)
        receipt = session.pin(pinned=not off)
        tell(frame, store, session.id, receipt, "is not pinned any more" if off else "is pinned")


@command(
    ("killick delete ID", "take it out of every list; it can be restored"),
    ('killick delete ID --reason "made by mistake"', "say why"),
)
@session_argument
@click.option("--reason", help="Recorded with the deletion.")
def delete(frame: Frame, session_id: str, reason: str | None) -> None:
    """Take a session out of every list. What runs in it is ended; it can be restored."""
    with frame.open() as store:
        found = find(store, session_id)
        receipt = store.delete_session(found, reason=reason)
        said = f"is deleted; 'killick restore {found}' brings it back"
        tell(frame, store, found, receipt, said)


@command(("killick restore ID", "bring a deleted session back"))
@session_argument
def restore(frame: Frame, session_id: str) -> None:
    """Bring a deleted session back. 'killick sessions --deleted' lists them."""
    with frame.open() as store:
        session = store.restore_session(find(store, session_id))
        tell(frame, store, session.id, Receipt(session.head), "is back")


@command(
    ("killick stop ID", "ask the turn that runs to end, in whatever process"),
    ('killick stop ID --reason "wrong branch"', "say why"),
)
@session_argument
@click.option("--reason", default="stopped", show_default=True, help="Recorded with the ending.")
def stop(frame: Frame, session_id: str, reason: str) -> None:
    """Ask whoever runs a session's turn to stop."""
    with frame.open() as store:
        session = open_session(store, session_id)
        if not session.stop(reason=reason):
            raise click.ClickException(f"no turn of {session.id} runs, so there is none to stop")
        said = f"{session.id}: its turn was asked to stop"
        frame.answer({"id": session.id, "asked": True, "reason": reason}, said)
