"""Our own format: everything comes back, and what is damaged is named."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from killick import Message, Store, Text
from killick.exchange.export import export_session
from killick.exchange.formats.jsonl import export_lines, import_lines
from killick.exchange.importer import import_paths
from killick.exchange.records import Report
from killick.journal.codec import decode_body, encode, to_bytes
from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints
from killick.testing.strategies import journals
from tests.exchange.checks import check_sound, converse
from tests.exchange.mutations import mutated


def exported(store: Store, session_id: str) -> bytes:
    return b"".join(export_lines(store, session_id))


def bring(store: Store, folder: Path, data: bytes) -> Report:
    path = folder / "session.jsonl"
    path.write_bytes(data)
    report = Report()
    import_lines(store, path, report)
    return report


def test_export_import_export_gives_the_same_bytes(
    store: Store, other: Store, tmp_path: Path
) -> None:
    """Entries, times, ids, blobs and text that UTF-8 does not have."""
    data = exported(store, converse(store))
    report = bring(other, tmp_path, data)
    assert [(one.action, one.session_id) for one in report.sessions] == [("new", "ses_1")]
    assert report.problems == []
    assert exported(other, "ses_1") == data
    assert other.session("ses_1").messages() == store.session("ses_1").messages()
    assert other.sessions() == store.sessions()
    check_sound(other)


def test_a_fork_comes_back_as_a_session_of_its_own(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.session(converse(store))
    fork = session.fork(session.messages()[1].seq, id="fork")
    with fork.turn("Another way."):
        pass
    data = exported(store, "fork")
    bring(other, tmp_path, data)
    assert exported(other, "fork") == data
    assert other.session_ids() == ["fork"]
    check_sound(other)


def test_importing_again_changes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    data = exported(store, converse(store))
    bring(other, tmp_path, data)
    before = other.counts()
    assert [one.action for one in bring(other, tmp_path, data).sessions] == ["unchanged"]
    assert other.counts() == before


def test_what_was_added_about_the_session_here_does_not_stand_in_the_way(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.session(converse(store))
    bring(other, tmp_path, exported(store, session.id))
    other.session(session.id).tag("mine")
    with session.turn("More.") as turn:
        turn.record(_answer("Yes."))
    session.compact("All of it.", through=session.messages()[-1].seq)
    report = bring(other, tmp_path, exported(store, session.id))
    assert [one.action for one in report.sessions] == ["grown"]
    texts = [message.text for message in other.session(session.id).messages()]
    assert texts[-2:] == ["More.", "Yes."]
    assert "mine" in other.session(session.id).info().tags
    summary = other.session(session.id).context("anthropic").messages
    assert summary == session.context("anthropic").messages
    check_sound(other)


def test_a_session_continued_on_both_sides_becomes_a_fork(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.session(converse(store))
    bring(other, tmp_path, exported(store, session.id))
    for side, text in ((store, "There."), (other, "Here.")):
        with side.session(session.id).turn(text):
            pass
    report = bring(other, tmp_path, exported(store, session.id))
    (outcome,) = report.sessions
    assert (outcome.action, outcome.fork_of) == ("forked", session.id)
    assert other.session(session.id).messages()[-1].text == "Here."
    assert other.session(outcome.session_id).messages()[-1].text == "There."
    assert bring(other, tmp_path, exported(store, session.id)).sessions[0].action == "unchanged"
    with session.turn("And on."):
        pass
    again = bring(other, tmp_path, exported(store, session.id)).sessions[0]
    assert (again.action, again.session_id) == ("grown", outcome.session_id)
    assert len(other.session_ids()) == 2
    check_sound(other)


def test_a_running_turn_is_left_out_until_it_is_over(
    store: Store, other: Store, tmp_path: Path
) -> None:
    session = store.session(converse(store))
    with session.turn("Wait.") as turn:
        lines = list(export_lines(store, session.id))
        assert json.loads(lines[-1])["running"] == turn.id
        bring(other, tmp_path, b"".join(lines))
    assert [one.text for one in other.session(session.id).messages()][-1] != "Wait."
    assert bring(other, tmp_path, exported(store, session.id)).sessions[0].action == "grown"
    assert exported(other, session.id) == exported(store, session.id)


def test_a_session_that_was_deleted_here_stays_deleted(
    store: Store, other: Store, tmp_path: Path
) -> None:
    data = exported(store, converse(store))
    bring(other, tmp_path, data)
    other.delete_session("ses_1")
    outcome = bring(other, tmp_path, data).sessions[0]
    assert (outcome.action, outcome.why) == ("left", "it was deleted here")


def test_a_dry_run_writes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(exported(store, converse(store)))
    report = Report()
    import_lines(other, path, report, dry_run=True)
    assert report.sessions[0].action == "new"
    assert report.sessions[0].entries == store.session("ses_1").head
    assert other.session_ids() == []


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(journal=journals())
def test_every_journal_survives(journal: list[e.Entry], tmp_path: Path) -> None:
    """Whatever a store has written, in whole turns, comes back byte for byte."""
    whole = _whole_turns(journal)
    with Store(MemoryDisk().open()) as store, Store(MemoryDisk().open()) as other:
        store.put_blob(b"s")  # the system prompt of every generated journal
        assert store.import_entries("ses_1", whole).seq == len(whole)
        assert store.import_entries("ses_1", whole).repeated
        data = exported(store, "ses_1")
        report = bring(other, tmp_path, data)
        assert report.problems == []
        assert exported(other, "ses_1") == data
        assert other.examine_session("ses_1") == store.examine_session("ses_1") == []


@pytest.mark.parametrize("block", range(30))
def test_damage_is_named_and_takes_nothing_else_along(
    store: Store, tmp_path: Path, block: int
) -> None:
    """Every line is either in the journal afterwards, or named in the report."""
    data = exported(store, converse(store))
    for seed in range(block * 10, block * 10 + 10):
        with Store(MemoryDisk().open()) as other:
            damaged = mutated(data, seed)
            report = bring(other, tmp_path, damaged)
            check_sound(other)
            _check_accounted(other, damaged, report)


def _check_accounted(store: Store, data: bytes, report: Report) -> None:
    named = {problem.location.line for problem in report.problems}
    stored = {
        encode(entry.body) for name in store.session_ids() for entry in store.salvage(name).entries
    }
    for number, line in enumerate(data.split(b"\n"), start=1):
        if number in named or not store.session_ids():
            continue
        try:
            record = json.loads(line)
            body = record["body"] if "body" in record else json.loads(record["text"])
            found = decode_body(
                to_bytes(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if not isinstance(found, e.Compacted | e.ToolFinished | e.LateResult):  # seqs differ
            assert encode(found) in stored, (number, line)


def _whole_turns(journal: list[e.Entry]) -> list[e.Entry]:
    starts = [one for one in journal if isinstance(one.body, e.TurnStarted)]
    ended = {one.body.turn_id for one in journal if isinstance(one.body, e.TurnEnding)}
    open_ = [one.seq for one in starts if one.body.turn_id not in ended]  # type: ignore[union-attr]
    return journal[: open_[0] - 1] if open_ else journal


def _answer(text: str) -> Message:
    return Message("assistant", [Text(text)])


def test_whatever_run_of_lines_is_lost_importing_again_changes_nothing(
    store: Store, tmp_path: Path
) -> None:
    """A compaction may name what was lost; it is the same one each time."""
    lines = exported(store, converse(store)).splitlines(keepends=True)
    for width in (1, 4, 9, 12, 13, 20):
        for first in range(1, len(lines) - width):
            data = b"".join([*lines[:first], *lines[first + width :]])
            with Store(MemoryDisk().open()) as fresh:
                before = bring(fresh, tmp_path, data)
                again = bring(fresh, tmp_path, data)
                assert [one.action for one in before.sessions] == ["new"], (width, first)
                assert [one.action for one in again.sessions] == ["unchanged"], (width, first)


def test_one_entry_with_a_wrong_seq_takes_no_other_with_it(store: Store, tmp_path: Path) -> None:
    lines = exported(store, converse(store)).splitlines(keepends=True)
    at = next(place for place, line in enumerate(lines) if b'"seq":13,' in line)
    for wrong in (b'"seq":1,', b'"seq":21,', b'"seq":4000000000,'):
        data = b"".join([*lines[:at], lines[at].replace(b'"seq":13,', wrong), *lines[at + 1 :]])
        with Store(MemoryDisk().open()) as fresh:
            report = bring(fresh, tmp_path, data)
            assert [one.location.line for one in report.skipped] == [at + 1]
            assert (
                len(fresh.session("ses_1").entries()) == len(store.session("ses_1").entries()) - 1
            )


def test_a_store_that_cannot_be_written_is_no_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with Store(MemoryDisk().open()) as source:
        session = source.create_session()
        with session.turn("Go."):
            pass
        path.write_bytes(exported(source, session.id))
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as target:
        disk.fail_at = 0
        report = import_paths(target, [path])
        disk.fail_at = None
    [problem] = report.skipped
    assert problem.reason == "the session could not be taken over: injected"


# -- links -----------------------------------------------------------------------------------------


def linked(store: Store, session_id: str) -> list[bytes | None]:
    return [entry.link for entry in store.linked_entries(session_id, limit=10_000)]


def made(store: Store) -> None:
    session = store.create_session(id="s")
    for word in ("one", "two"):
        with session.turn(word) as turn:
            turn.record(Message("assistant", [Text(word * 3)]))


def brought(store: Store, path: Path, lines: list[bytes]) -> Report:
    path.write_bytes(b"".join(lines))
    report = Report()
    import_lines(store, path, report)
    return report


def test_an_import_keeps_its_links(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        made(source)
        source.session("s").fork(at=5, id="f")
        for name in ("s", "f"):
            report = brought(target, tmp_path / "s.jsonl", list(export_lines(source, name)))
            assert report.problems == []
            assert linked(target, name) == linked(source, name)
            assert target.verify_session(name).findings == []


def test_a_line_that_was_changed_is_named_and_begins_a_new_chain(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        made(source)
        lines = [line.replace(b"oneoneone", b"oneonetwo") for line in export_lines(source, "s")]
        report = brought(target, tmp_path / "s.jsonl", lines)
        where = next(n for n, line in enumerate(lines, 1) if b"oneonetwo" in line)
        assert report.exit_code == 3
        assert [problem.kind for problem in report.problems] == ["skipped", "repaired"]
        assert report.problems[0].location.line == where
        assert "link does not fit" in report.problems[0].reason
        assert "new chain" in report.problems[1].reason
        assert linked(target, "s")[:3] == linked(source, "s")[:3]
        assert target.verify_session("s").findings == []


def test_an_import_that_closes_up_around_damage_says_that_a_new_chain_begins(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        made(source)
        lines = list(export_lines(source, "s"))
        del lines[4:6]
        report = brought(target, tmp_path / "s.jsonl", lines)
        assert [problem.location.line for problem in report.skipped] == [5]
        assert "entries 4 to 5 are missing before it" in report.skipped[0].reason
        assert any("new chain" in problem.reason for problem in report.repaired)
        assert report.exit_code == 3
        assert target.verify_session("s").findings == []


def test_an_export_without_secrets_carries_the_links(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "x" * 30
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        session = source.create_session(id="s")
        with session.turn(f"my key is {secret}"):
            pass
        data = b"".join(export_session(source, "s", redact=True))
        assert secret.encode() not in data
        named = [json.loads(line).get("link") for line in data.splitlines()]
        kept = [link.hex() for link in linked(source, "s") if link is not None]
        assert [link for link in named if link] == kept
        assert data.count(b'"hash"') == 1
        lines = data.splitlines(keepends=True)
        report = brought(target, tmp_path / "s.jsonl", lines)
        assert [problem.kind for problem in report.problems] == ["repaired"], "the chain is sound"
        assert "new chain" in report.problems[0].reason
        broken = [re.sub(rb'("at_us":\d+)\d,', rb"\g<1>9,", line, count=1) for line in lines]
    with Store(tmp_path / "c.db") as other:
        assert brought(other, tmp_path / "s.jsonl", broken).exit_code == 3


def test_a_request_whose_secrets_an_export_took_out_is_no_finding(tmp_path: Path) -> None:
    """What the model was sent cannot be computed again; nothing else was sent either."""
    secret = "sk-ant-api03-" + "x" * 30
    with Store(tmp_path / "a.db") as source, Store(tmp_path / "b.db") as target:
        session = source.create_session(id="s")
        for prompt in ("nothing in here", f"my key is {secret}"):
            with session.turn(prompt) as turn:
                request = {"messages": session.context("anthropic").messages}
                with turn.stream(request=request) as reply:
                    reply.text("yes")
        data = b"".join(export_session(source, "s", redact=True))
        brought(target, tmp_path / "s.jsonl", data.splitlines(keepends=True))
        verified = target.verify_session("s")
        assert (verified.requests, verified.findings) == ({"equal": 1, "redacted": 1}, [])
