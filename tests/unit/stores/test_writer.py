"""The one thread that writes, on a real database: each is told its own outcome."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from killick.errors import HandleClosed, InvalidEntry, SessionNotFound, StoreDegraded, StoreReplaced
from killick.journal.redaction import Redactor
from killick.model import entries as e
from killick.model.limits import WINDOW_SECONDS
from killick.model.messages import Image, Text
from killick.stores import engine as ops
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim
from killick.stores.engine import state
from killick.stores.engine.state import EngineState, Op
from killick.stores.engine.turn_ops import TurnStart
from killick.stores.sqlite import SqliteDatabase
from killick.stores.writer import Writer
from tests.waiting import until

SECONDS = 10.0


def hand_over(buffer: StreamBuffer, delta: e.Delta) -> None:
    buffer.add(delta, buffer.admit(delta))


class Bench:
    """A writer on a database of its own, with one session in it."""

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.path = path
        self.database = SqliteDatabase(path)
        self.commits = 0
        self.writer = Writer(self.database, on_commit=self._committed, redactor=redactor)
        self.key = self.do(_create).key

    def _committed(self, _keys: Collection[int]) -> None:
        self.commits += 1

    def submit(self, apply: Callable[[EngineState], Any]) -> Op[Any]:
        return self.writer.submit(Op(apply))

    def do(self, apply: Callable[[EngineState], Any]) -> Any:
        op = self.submit(apply)
        assert op.wait(SECONDS)
        return op.result()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep a commit under way: what is handed over meanwhile shares the next one."""
        busy, go = threading.Event(), threading.Event()

        def hold(_: EngineState) -> None:
            busy.set()
            assert go.wait(SECONDS)

        first = self.submit(hold)
        assert busy.wait(SECONDS)
        yield
        go.set()
        assert first.wait(SECONDS)

    def in_one_commit(self, *applies: Callable[[EngineState], Any]) -> list[Op[Any]]:
        with self.held():
            ops = [self.submit(apply) for apply in applies]
        for op in ops:
            assert op.wait(SECONDS)
        return ops

    def note(self, name: str) -> Callable[[EngineState], Any]:
        return lambda engine: ops.about(engine, self.key, e.Note(id=name, name=name), 1)

    def begin(self, prompt: str = "go") -> Claim:
        message = e.MessageRecorded(id="p", turn_id="t", role="user", parts=(Text(prompt),))
        start = TurnStart(turn_id="t", holder=self.database.holder, prompt=message)
        claim: Claim = self.do(lambda engine: ops.start_turn(engine, self.key, start, 1)).claim
        return claim

    def stream(self, claim: Claim) -> StreamBuffer:
        body = e.MessageStarted(id="m", turn_id="t")
        receipts = self.do(lambda engine: ops.append(engine, self.key, claim, [body], 1))
        return StreamBuffer(key=self.key, seq=receipts[0].seq, claim=claim, wake=self.writer)

    def entries(self) -> list[e.Entry]:
        with self.database.reading() as reader:
            return reader.entries(self.key)

    def names(self) -> list[str]:
        return [entry.body.name for entry in self.entries() if isinstance(entry.body, e.Note)]

    def counts(self) -> dict[str, int]:
        with self.database.reading() as reader:
            return reader.counts()

    def close(self) -> None:
        assert self.writer.close(SECONDS)
        self.database.close()


def _create(engine: EngineState) -> Any:
    return ops.create_session(
        engine, session_id="s", tenant="default", created=e.SessionCreated(), at_us=1
    )


def _refuse(engine: EngineState) -> None:
    ops.about(engine, 999, e.Note(id="x", name="x"), 1)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "work.db")
    yield made
    made.close()


def test_an_operation_s_value_is_its_outcome(bench: Bench) -> None:
    receipt, _ = bench.do(bench.note("a"))
    assert (receipt.seq, receipt.repeated) == (2, False)


def test_what_waits_together_shares_one_commit(bench: Bench) -> None:
    before = bench.commits
    ops = bench.in_one_commit(*[bench.note(str(number)) for number in range(20)])
    assert [op.result()[0].seq for op in ops] == list(range(2, 22))
    assert bench.commits == before + 2


def test_a_refused_operation_never_fails_the_others_in_its_commit(bench: Bench) -> None:
    first, refused, last = bench.in_one_commit(bench.note("a"), _refuse, bench.note("b"))
    with pytest.raises(SessionNotFound):
        refused.result()
    assert (first.result()[0].seq, last.result()[0].seq) == (2, 3)
    assert bench.names() == ["a", "b"]


def test_an_operation_that_fails_after_writing_takes_only_itself_back(bench: Bench) -> None:
    def write_then_fail(engine: EngineState) -> None:
        bench.note("half")(engine)
        raise ZeroDivisionError("after the write")

    first, failed, last = bench.in_one_commit(bench.note("a"), write_then_fail, bench.note("b"))
    with pytest.raises(ZeroDivisionError, match="after the write"):
        failed.result()
    assert (first.error, last.error) == (None, None)
    assert bench.names() == ["a", "b"]
    assert [entry.seq for entry in bench.entries()] == [1, 2, 3]


def test_an_operation_with_a_bug_before_writing_takes_only_itself_back(bench: Bench) -> None:
    def fail(_: EngineState) -> None:
        raise ZeroDivisionError

    first, failed, last = bench.in_one_commit(bench.note("a"), fail, bench.note("b"))
    assert isinstance(failed.error, ZeroDivisionError)
    assert (first.error, last.error) == (None, None)
    assert bench.names() == ["a", "b"]


def test_two_operations_that_fail_after_writing_are_each_told_their_own_failure(
    bench: Bench,
) -> None:
    def failing(error: Exception) -> Callable[[EngineState], None]:
        def apply(engine: EngineState) -> None:
            bench.note("half")(engine)
            raise error

        return apply

    one, good, other = bench.in_one_commit(
        failing(KeyError("one")), bench.note("a"), failing(OSError("other"))
    )
    assert isinstance(one.error, KeyError)
    assert isinstance(other.error, OSError)
    assert good.error is None
    assert bench.names() == ["a"]


def test_a_rolled_back_operation_leaves_no_trace_in_what_the_writer_remembers(
    bench: Bench,
) -> None:
    def write_then_fail(engine: EngineState) -> None:
        bench.note("half")(engine)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench.do(write_then_fail)
    receipt, _ = bench.do(bench.note("a"))
    assert receipt.seq == 2


def test_a_large_body_is_stored_before_its_entry_and_reads_back_equal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 100)
    large = e.Note(id="large", name="x" * 500)
    before = bench.commits
    bench.do(lambda engine: ops.about(engine, bench.key, large, 1))
    assert bench.entries()[-1].body == large
    assert bench.counts()["blobs"] == 1
    assert bench.commits > before + 1


def test_a_large_body_does_not_hold_up_the_others_in_its_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 100)
    ops = bench.in_one_commit(bench.note("a"), bench.note("x" * 500), bench.note("b"))
    assert [op.error for op in ops] == [None, None, None]
    assert sorted(bench.names()) == sorted(["a", "x" * 500, "b"])


def test_a_large_body_written_twice_is_one_blob_and_one_entry(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 100)
    bench.do(bench.note("x" * 500))
    receipt, _ = bench.do(bench.note("x" * 500))
    assert receipt.repeated
    assert bench.counts()["blobs"] == 1


def test_a_large_body_behind_a_small_entry_of_one_operation_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a turn writes two entries; the second of them is the prompt."""
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 300)
    bench.begin("p" * 500)
    body = bench.entries()[-1].body
    assert isinstance(body, e.MessageRecorded)
    assert body.parts == (Text("p" * 500),)


def test_a_stream_that_ends_with_a_large_body_loses_none_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 300)
    claim = bench.begin()
    buffer = bench.stream(claim)
    hand_over(buffer, e.Delta(0, 0, "text", "a" * 500))
    after = e.ModelCallEnded(id="none", turn_id="t")
    bench.do(
        lambda engine: ops.end_message(engine, bench.key, claim, "m", "complete", buffer, after, 1)
    )
    body = bench.entries()[-1].body
    assert isinstance(body, e.MessageEnded)
    assert body.parts == (Text("a" * 500),)


def test_a_flush_makes_the_deltas_of_a_stream_durable(bench: Bench) -> None:
    buffer = bench.stream(bench.begin())
    hand_over(buffer, e.Delta(0, 0, "text", "so far"))
    bench.do(lambda engine: ops.flush(engine, [buffer]))
    with bench.database.reading() as reader:
        assert reader.deltas(bench.key, buffer.seq) == [(1, (e.Delta(0, 0, "text", "so far"),))]


def test_deltas_that_are_flushed_together_are_stored_as_one(bench: Bench) -> None:
    buffer = bench.stream(bench.begin())
    with bench.held():
        hand_over(buffer, e.Delta(0, 0, "text", "so "))
        hand_over(buffer, e.Delta(0, 3, "text", "far"))
        flushed = bench.submit(lambda engine: ops.flush(engine, [buffer]))
    assert flushed.wait(SECONDS)
    with bench.database.reading() as reader:
        assert reader.deltas(bench.key, buffer.seq) == [(1, (e.Delta(0, 0, "text", "so far"),))]


def test_a_redaction_that_fails_for_a_moment_leaves_no_hole_in_a_stream(tmp_path: Path) -> None:
    fails = threading.Event()

    def redact(text: str) -> str:
        if fails.is_set():
            raise OSError("the redaction's own service is away")
        return text

    bench = Bench(tmp_path / "work.db", Redactor(redact))
    claim = bench.begin()
    buffer = bench.stream(claim)
    fails.set()
    hand_over(buffer, e.Delta(0, 0, "text", "one "))
    hand_over(buffer, e.Delta(0, 4, "text", "two"))
    refused = bench.do(lambda engine: ops.flush(engine, [buffer]))
    assert isinstance(refused[id(buffer)], InvalidEntry)
    fails.clear()
    after = e.ModelCallEnded(id="none", turn_id="t")
    bench.do(
        lambda engine: ops.end_message(engine, bench.key, claim, "m", "partial", buffer, after, 1)
    )
    body = bench.entries()[-1].body
    assert isinstance(body, e.MessageEnded)
    assert body.parts == (Text("one two"),)
    assert bench.writer.close(SECONDS)
    bench.database.close()


def test_closing_writes_everything_that_was_handed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "work.db")
    buffer = bench.stream(bench.begin())
    ops = [bench.submit(bench.note(str(number))) for number in range(200)]
    hand_over(buffer, e.Delta(0, 0, "text", "last words"))
    assert bench.writer.close(SECONDS)
    assert all(op.finished and op.error is None for op in ops)
    assert bench.names() == [str(number) for number in range(200)]
    assert bench.counts()["deltas"] == 1
    bench.database.close()


def test_a_closed_writer_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "work.db")
    bench.close()
    with pytest.raises(HandleClosed, match="open it again"):
        bench.submit(_refuse)


def test_what_is_handed_over_while_the_writer_ends_is_refused(tmp_path: Path) -> None:
    """Its caller asked whether the store was closed a moment too early, and must not wait."""
    bench = Bench(tmp_path / "work.db")
    bench.close()
    bench.writer._closed = False
    op = bench.submit(_refuse)
    assert op.wait(SECONDS)
    with pytest.raises(HandleClosed, match="open it again"):
        op.result()


def test_a_wait_that_runs_out_says_so_and_the_operation_goes_on(bench: Bench) -> None:
    go = threading.Event()
    op = bench.submit(lambda _: go.wait(SECONDS))
    assert not op.wait(0.01)
    go.set()
    assert op.wait(SECONDS)
    assert op.result() is True


def test_the_status_is_degraded_while_writes_fail_and_ok_after_one_succeeds(bench: Bench) -> None:
    away = bench.path.with_name("away.db")
    bench.path.rename(away)
    with pytest.raises(StoreReplaced):
        bench.do(bench.note("a"))
    assert bench.writer.status == "degraded"
    away.rename(bench.path)
    bench.do(bench.note("a"))
    assert bench.writer.status == "ok"
    assert bench.names() == ["a"]


def test_a_refusal_does_not_make_the_store_degraded(bench: Bench) -> None:
    with pytest.raises(SessionNotFound):
        bench.do(_refuse)
    assert bench.writer.status == "ok"


def test_a_failed_flush_is_told_to_the_stream_and_its_text_is_written_later(bench: Bench) -> None:
    buffer = bench.stream(bench.begin())
    away = bench.path.with_name("away.db")
    bench.path.rename(away)
    hand_over(buffer, e.Delta(0, 0, "text", "kept"))
    _until(lambda: buffer.error is not None)
    with pytest.raises(StoreDegraded, match="could not be written"):
        hand_over(buffer, e.Delta(0, 4, "text", "more"))
    away.rename(bench.path)
    _until(lambda: buffer.error is None)
    assert bench.counts()["deltas"] == 1


def _until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if holds():
            return
        pause.wait(0.005)
    raise AssertionError("it never came true")


def test_a_transaction_that_cannot_begin_leaves_what_was_written_before_alone(bench: Bench) -> None:
    """Its callers are told why, and a stream whose text was committed goes on."""
    claim = bench.begin()
    buffer = bench.stream(claim)
    hand_over(buffer, e.Delta(part=0, offset=0, text="before", type="text"))
    bench.do(lambda engine: ops.flush(engine, [buffer]))
    whole = bench.database.writing

    def refuse() -> Any:
        raise StoreDegraded("no")

    bench.database.writing = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreDegraded, match="no"):
        bench.do(bench.note("refused"))
    bench.database.writing = whole  # type: ignore[method-assign]
    bench.do(bench.note("after"))
    assert bench.names()[-1] == "after"


def test_a_stream_whose_end_was_refused_is_flushed_in_time(bench: Bench) -> None:
    """Its caller may go on, with the text or without; until then the text is on the disk."""
    claim = bench.begin()
    buffer = bench.stream(claim)
    missing = Image("b2:no-such-blob", "image/png")
    after = e.ModelCallEnded(id="none", turn_id="t")
    with bench.held():
        hand_over(buffer, e.Delta(0, 0, "text", "so far"))
        hand_over(buffer, e.Delta(1, 0, "part", "", missing))
        refused = bench.submit(
            lambda engine: ops.end_message(
                engine, bench.key, claim, "m", "complete", buffer, after, 1
            )
        )
    assert refused.wait(SECONDS)
    with pytest.raises(InvalidEntry, match="no blob"):
        refused.result()
    until(lambda: bench.counts()["deltas"], SECONDS)
    hand_over(buffer, e.Delta(2, 0, "text", " and more"))


def test_slow_commits_shorten_the_time_that_deltas_gather(bench: Bench) -> None:
    """They are to be on the disk within their window, of which the commit takes its part."""
    slow = threading.Event()
    bench.do(lambda _: slow.wait(WINDOW_SECONDS / 2))
    assert bench.writer._gather_seconds() == WINDOW_SECONDS / 2
