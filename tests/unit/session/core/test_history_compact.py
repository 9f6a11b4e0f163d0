"""A compaction is planned outside its transaction; what others do meanwhile is not lost on it."""

from pathlib import Path

import pytest

from killick import InvalidEntry, Message, Store, Text
from killick.session.core.history import HistoryCore


def test_a_rewind_that_comes_first_is_not_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written after the rewind, the summary would tell the model what was taken out."""
    with Store(tmp_path / "work.db") as store, Store(tmp_path / "work.db") as other:
        session = store.create_session()
        for number in range(3):
            with session.turn(f"ask {number}") as turn:
                turn.record(Message("assistant", [Text("answer")]))
        messages = session.messages()
        plan, planned = HistoryCore._plan, list[int]()

        def and_then_rewind(core: HistoryCore, *given: object) -> object:
            outcome = plan(core, *given)  # type: ignore[arg-type]
            planned.append(1)
            if len(planned) == 1:
                other.session(session.id).rewind(through=messages[1].seq)
            return outcome

        monkeypatch.setattr(HistoryCore, "_plan", and_then_rewind)
        with pytest.raises(InvalidEntry, match="was rewound"):
            session.compact("They asked ask 1 and ask 2.", through=messages[5].seq)
        assert "They asked" not in str(session.context("anthropic").messages)
