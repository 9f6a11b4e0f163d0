"""An imported turn's ending has a typed cause: who or what ended it, as far as the source says."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from killick import Store
from killick.exchange.formats.claude_code import claude_code
from killick.exchange.formats.codex import codex
from killick.exchange.records import (
    BeginRecord,
    MessageRecord,
    Record,
    Source,
    SourceLocation,
    TurnEndRecord,
)
from killick.model.causes import Cause
from killick.model.messages import Text
from tests.exchange.sources import bring, jsonl

HERE = SourceLocation("made.up")


def records(*endings: TurnEndRecord | None) -> list[Record]:
    """One turn for each ending; None is a turn without one."""
    made: list[Record] = [BeginRecord(location=HERE, at_us=1, native_id="one")]
    for number, ending in enumerate(endings):
        made.append(
            MessageRecord(
                location=HERE,
                at_us=10 * (number + 1),
                role="user",
                parts=(Text(f"prompt {number}"),),
                key=f"m{number}",
                begins_turn=True,
            )
        )
        made += [] if ending is None else [ending]
    return made


def source(made: Iterable[Record], *, settled: bool = True) -> Source:
    return Source("made-up", "one", "made.up", made, settled)


def ending(status: str, cause: Cause | None = None, reason: str = "why") -> TurnEndRecord:
    return TurnEndRecord(location=HERE, status=status, reason=reason, cause=cause)  # type: ignore[arg-type]


def causes(store: Store, session_id: str) -> list[tuple[str, str | None]]:
    return [(turn.status, turn.cause) for turn in store.session(session_id).turns()]


def test_a_cut_off_session_crashed_and_an_unknown_interruption_is_other(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        made = records(
            ending("interrupted", "stopped"),
            ending("interrupted"),
            ending("failed"),
            ending("completed"),
            None,
            None,
        )
        report = bring(store, source(made))
        assert causes(store, report.sessions[0].session_id) == [
            ("interrupted", "stopped"),
            ("interrupted", "other"),
            ("failed", "failed"),
            ("completed", None),
            ("interrupted", "other"),  # another turn followed: the source does not say why
            ("interrupted", "crashed"),  # nothing followed: it was cut off
        ]


def test_a_reason_that_is_one_of_our_words_decides_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        report = bring(store, source(records(ending("interrupted", reason="crashed"))))
        assert causes(store, report.sessions[0].session_id) == [("interrupted", "other")]


def test_importing_again_what_was_imported_before_there_were_causes_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = records(ending("interrupted", "stopped", "user"), ending("failed"), None)
    with Store(tmp_path / "s.db") as store:
        with monkeypatch.context() as before:
            none: dict[str, Cause] = {}
            before.setattr("killick.exchange.compose._CAUSES", none)
            old = [
                msgspec.structs.replace(one, cause=None) if isinstance(one, TurnEndRecord) else one
                for one in made
            ]
            first = bring(store, source(old))
        assert causes(store, first.sessions[0].session_id)[0] == ("interrupted", "other")
        again = bring(store, source(made))
        assert [one.action for one in again.sessions] == ["unchanged"]


def test_claude_code_says_that_a_person_interrupted(tmp_path: Path) -> None:
    lines = [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"content": "Go."}},
        {
            "type": "user",
            "uuid": "b",
            "parentUuid": "a",
            "message": {"content": "[Request interrupted by user]"},
        },
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*lines))
    with Store(tmp_path / "s.db") as store:
        report = bring(store, *claude_code(path, settled=True))
        assert causes(store, report.sessions[0].session_id) == [("interrupted", "stopped")]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("interrupted", "stopped"), ("replaced", "stopped"), ("review_ended", "other")],
)
def test_codex_says_why_a_turn_was_aborted(tmp_path: Path, reason: str, cause: str) -> None:
    lines = [
        {"type": "session_meta", "payload": {"id": "one"}},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}},
        {"type": "event_msg", "payload": {"type": "turn_aborted", "reason": reason}},
    ]
    path = tmp_path / "rollout-one.jsonl"
    path.write_bytes(jsonl(*lines))
    with Store(tmp_path / "s.db") as store:
        report = bring(store, codex(path, settled=True))
        assert causes(store, report.sessions[0].session_id) == [("interrupted", cause)]
