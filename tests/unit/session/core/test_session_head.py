"""A session that is opened in a race for a dead turn knows where its journal ends."""

from pathlib import Path

import pytest

from killick import Store
from killick.session.core.session import open_session
from killick.session.drive.steps import Read, Write, run
from killick.testing.faults import crash


def test_the_loser_of_a_race_for_a_dead_turn_knows_the_head(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    doomed = Store(path)
    session = doomed.create_session()
    session.turn("lost").__enter__()
    crash(doomed)
    with Store(path) as slow, Store(path) as fast:
        runtime = slow._core.runtime()
        flow = open_session(slow._core, session.id)
        look = next(flow)
        assert isinstance(look, Read)
        recovery = flow.send(runtime.read(look.read))
        assert isinstance(recovery, Write)
        journal = fast.session(session.id).entries()
        with pytest.raises(StopIteration) as opened:
            flow.send(run(runtime, recovery))
        assert opened.value.value.head == journal[-1].seq
