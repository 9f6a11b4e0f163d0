"""settle, work: what keeps a run from its end, and who goes on with it."""

import os
import shutil
import subprocess
import threading
from typing import Any, Final

import click

from killick.cli.invocation import (
    IN_PART,
    STORE_VARIABLE,
    Invocation,
    command,
    open_session,
    session_argument,
)
from killick.errors import CallNotFound, SessionDamaged, SessionNotFound
from killick.session.sync import Session, Store
from killick.stores.engine.turn_ops import DueWork

_SESSION_VARIABLE: Final = "KILLICK_SESSION"
_WORK_VARIABLE: Final = "KILLICK_WORK"


@command(
    ("killick settle ID call_1 --ran", "you looked: it had its effect"),
    ('killick settle ID call_1 --ran --result "receipt 7"', "and this is what it gave"),
    ('killick settle ID call_1 --did-not-run --evidence "no such payment"', "it may run again"),
)
@session_argument
@click.argument("call")
@click.option("--ran", is_flag=True, help="You found out that it ran.")
@click.option("--did-not-run", is_flag=True, help="You found out that it did not.")
@click.option("--result", help="What it gave, if it ran and you know.")
@click.option("--evidence", help="How you found out; a model is told.")
@click.option("--turn", help="The turn that made the call, where several did.")
@click.option("--replaces", metavar="ENTRY", help="The settlement that was wrong.")
def settle(
    invocation: Invocation,
    session_id: str,
    call: str,
    *,
    ran: bool,
    did_not_run: bool,
    turn: str | None,
    **learnt: str | None,
) -> None:
    """Record what became of a tool call whose outcome is unknown."""
    if ran == did_not_run:
        raise click.UsageError("Say what you found out: --ran or --did-not-run.")
    with invocation.open() as store:
        session = open_session(store, session_id)
        turn_id = turn or _turn_of(session, call)
        outcome = "ran" if ran else "did_not_run"
        receipt = session.settle(turn_id, call, outcome, **learnt)  # type: ignore[arg-type]
        shape = {
            "id": session.id,
            "turn_id": turn_id,
            "call_id": call,
            "outcome": outcome,
            "seq": receipt.seq,
            "repeated": receipt.repeated,
        }
        did = "ran" if ran else "did not run"
        invocation.answer(shape, f"{session.id}: {call} {did}, as you found out")


def _turn_of(session: Session, call_id: str) -> str:
    """Return the newest turn that made a call of this id; one of unknown outcome goes first."""
    made = [
        (tool.state == "unknown", item.seq, item.turn_id)
        for item in session.transcript()
        for tool in item.tools
        if tool.call_id == call_id and item.turn_id is not None
    ]
    if not made:
        raise CallNotFound(f"session {session.id!r} has no tool call {call_id!r}")
    turn_id = max(made)[2]
    assert turn_id is not None
    return turn_id


@command(
    ("killick work -- python agent.py", "continue what broke, for as long as this runs"),
    ("killick work --once -- python agent.py", "what is due now, and leave"),
)
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--once", is_flag=True, help="Leave when nothing is due.")
@click.option(
    "--lease",
    "lease_seconds",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=60.0,
    show_default=True,
    help="Seconds within which COMMAND must have begun its turn.",
)
@click.option(
    "--every",
    "every_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
def work(
    invocation: Invocation,
    words: tuple[str, ...],
    *,
    once: bool,
    lease_seconds: float,
    every_seconds: float,
) -> int:
    """Continue turns that broke: run COMMAND for each.

    COMMAND begins with the work it is given: it finds KILLICK_STORE, KILLICK_SESSION and
    KILLICK_WORK in its environment. One that ends without a completed turn was a failed attempt.
    Several of these may run, on several machines.
    """
    if shutil.which(words[0]) is None:  # else each run would lose an attempt to it
        raise click.ClickException(f"{words[0]} cannot be run: there is no such program")
    where = invocation.where()
    url = where.url if where.file is None else str(where.file.absolute())
    failed, pausing = 0, threading.Event()
    with invocation.open() as store:
        while True:
            for closed in store.close_dead_turns():
                invocation.note(f"{closed.session_id}: its process is gone, so its turn was ended")
            taken = store.take_due(lease_seconds=lease_seconds)
            for session_id in taken.damaged:
                failed += 1
                invocation.note(f"{session_id}: damaged, and skipped; see 'killick doctor'")
            for each in taken:
                variables = {_SESSION_VARIABLE: each.session_id, _WORK_VARIABLE: each.token}
                environment = {**os.environ, STORE_VARIABLE: url, **variables}
                code = _run(words, environment)
                status = _status(store, each)
                failed += status != "completed"
                _tell(invocation, each, code, status)
            if not taken:
                if once:
                    return IN_PART if failed else 0
                pausing.wait(every_seconds)


def _run(words: tuple[str, ...], environment: dict[str, str]) -> int:
    try:
        return subprocess.run(words, env=environment, check=False).returncode
    except OSError as error:
        raise click.ClickException(f"{words[0]} cannot be run: {error.strerror}") from error


def _status(store: Store, taken: DueWork) -> str:
    """Return how the turn ended that this work became; `not begun` if it became none."""
    try:
        session = store.session(taken.session_id)
    except SessionNotFound:
        return "deleted"
    except SessionDamaged:
        return "damaged"
    begun = [turn.status for turn in session.turns() if turn.continues == taken.turn_id]
    return begun[-1] if begun else "not begun"


def _tell(invocation: Invocation, taken: DueWork, code: int, status: str) -> None:
    shape: dict[str, Any] = {
        "id": taken.session_id,
        "turn_id": taken.turn_id,
        "attempt": taken.attempt,
        "exit": code,
        "status": status,
    }
    attempt = f"{taken.session_id}: attempt {taken.attempt}"
    invocation.answer(shape, f"{attempt}, its command ended with {code}: {status}")
