"""A rewind keeps what belongs to something that began before it, and nothing else."""

import pytest

from killick import Message, Session, Store, Text
from killick.model import entries as e


@pytest.mark.parametrize("answered", [False, True])
def test_a_rewind_to_the_start_of_a_turn_takes_its_prompt_and_its_ending(
    tmp_path: object, *, answered: bool
) -> None:
    with Store(f"{tmp_path}/work.db") as store:
        session = store.create_session()
        with session.turn("Go.") as turn:
            if answered:
                turn.record(Message("assistant", [Text("Yes.")]))
        session.rewind(started(session))
        rewound = session.entries()[-1].body
        assert isinstance(rewound, e.Rewound)
        assert rewound.keep == ()
        assert session.messages() == []


def started(session: Session) -> int:
    return next(one.seq for one in session.entries() if isinstance(one.body, e.TurnStarted))
