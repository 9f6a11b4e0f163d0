"""A session as it happens."""

import click

from killick.cli.frame import Frame, command, open_session
from killick.cli.render.following import Teller
from killick.cli.shapes import followed_shape
from killick.cli.types import SEQ, local_now, session_argument
from killick.model import entries as e
from killick.session.store import Session


@command(
    ("killick tail ID --until-end", "follow the turn that runs, and leave when it ends"),
    ("killick tail ID --after 0 --until-end", "from the beginning of the session"),
    ("killick tail ID --until-end --json", "one JSON object in each line, for a program"),
)
@session_argument
@click.option("--after", type=SEQ, help="Begin after this seq; with the newest turn if not given.")
@click.option("--until-end", is_flag=True, help="Leave when no turn runs any more.")
def tail(frame: Frame, session_id: str, after: int | None, *, until_end: bool) -> None:
    """Follow a session live, as text.

    Entries and deltas are shown as they come, from whatever process writes them. Ctrl+C leaves,
    with exit code 130; the session is not touched by it. A session that is deleted ends it too.
    """
    with frame.open() as store:
        session = open_session(store, session_id)
        begin = _newest_turn(session) if after is None else after
        teller = Teller(local_now())
        if until_end and _is_over(session, begin):
            return
        for item in session.follow(after=begin):
            if frame.json:
                frame.out.json(followed_shape(item))
            else:
                for span in teller.tell(item):
                    frame.out.write(span.text, span.style)
            if isinstance(item, e.Entry) and isinstance(item.body, e.Deleted):
                return
            if until_end and isinstance(item, e.Entry) and _is_over(session, item.seq):
                return


def _newest_turn(session: Session) -> int:
    turns = session.turns()
    return turns[-1].seq - 1 if turns else 0


def _is_over(session: Session, seq: int) -> bool:
    """Whether no turn runs and everything was shown; asked in this order, none is missed."""
    return session.info().status != "running" and not session.entries(after=seq, limit=1)
