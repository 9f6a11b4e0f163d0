"""What is about the end of a session does not read the turns before it."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import Message, Session, Store, Text
from killick.model.effects import Outcome
from killick.model.entries import Settled
from killick.session.core import queries
from killick.session.core.history import HistoryCore
from killick.stores import engine as ops
from killick.stores.contract import Reader
from killick.stores.engine.state import EngineState, ended_turn
from killick.stores.sqlite.database import SqliteDatabase
from tests.growth.stores import steps_of

SIZES = (50, 500)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Session]]:
    made = []
    for size in SIZES:
        path = tmp_path_factory.mktemp("turns") / f"{size}.db"
        with Store(path, indexing=False) as store:
            session = store.create_session(id="s")
            for n in range(size):
                if n == 2:
                    session.compact(summary="It began.", through=session.head)
                with session.turn(f"prompt {n}") as turn:
                    turn.record(Message(role="assistant", parts=[Text("answer")]))
            made.append((path, store.session("s")))
    return made


READS: dict[str, Callable[[Session, Reader], Any]] = {
    "changes": lambda s, reader: queries._changes(s._core, reader, s.head - 5),
    "approvals": lambda s, reader: queries._approvals(s._core, reader),
    "fork": lambda s, reader: HistoryCore(s._core)._plan_fork(reader, s.head - 3),
    "hide": lambda s, reader: HistoryCore(s._core)._plan_visibility(reader, s.head - 1),
    "rewind": lambda s, reader: HistoryCore(s._core)._plan_rewind(reader, s.head - 6),
}


@pytest.mark.parametrize("name", READS)
def test_the_same_steps_are_taken_after_ten_times_as_many_turns(
    sessions: list[tuple[Path, Session]], name: str
) -> None:
    small, large = (_steps(path, session, READS[name]) for path, session in sessions)
    assert large <= small * 1.1


def _steps(path: Path, session: Session, read: Callable[[Session, Reader], Any]) -> int:
    return steps_of(path, lambda reader: read(session, reader))[0]


def test_undoing_takes_the_same_steps_inside_of_its_transaction(
    sessions: list[tuple[Path, Session]],
) -> None:
    small, large = (_steps_of_undoing(path, session) for path, session in sessions)
    assert large <= small * 1.1


def _steps_of_undoing(path: Path, session: Session) -> int:
    return _steps_inside(path, lambda engine: ops.undo(engine, session._core.key, None, 1))


def _steps_inside(path: Path, operation: Callable[[EngineState], Any]) -> int:
    steps = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    database, engine = SqliteDatabase(path), EngineState()
    with database.writing() as tx:
        engine.begin(tx)
        tx.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        operation(engine)
        tx.connection.trace_v2(0, None)
    database.close()
    return steps


@pytest.mark.parametrize("outcome", ["did_not_run", "ran"])
def test_settling_takes_the_same_steps_inside_of_its_transaction(
    tmp_path: Path, outcome: Outcome
) -> None:
    """The turn is read before it begins, by the caller."""
    small, large = (_steps_of_settling(tmp_path / f"{n}.db", n, outcome) for n in SIZES)
    assert large <= small * 1.1


def _steps_of_settling(path: Path, size: int, outcome: Outcome) -> int:
    with Store(path, indexing=False, durability="normal") as store:
        session = store.create_session(id="s")
        with suppress(KeyboardInterrupt), session.turn("go") as turn:
            turn.record_all([Message("assistant", [Text("answer")]) for _ in range(size)])
            with turn.stream() as reply:
                reply.tool_call("c", name="pay", arguments="{}")
            with turn.tool("c"):
                raise KeyboardInterrupt
        core, key = session._core, session._core.key
        turns = core.runtime().read(lambda r: ended_turn(r, core.row(r), turn.id))
        assert len(turns) == 1
    body = Settled(id="", turn_id=turn.id, message_id="", call_id="c", outcome=outcome)
    return _steps_inside(path, lambda engine: ops.settle(engine, key, body, 1, turns))
