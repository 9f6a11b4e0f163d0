"""Content over a limit is refused; large content under it is kept whole."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

from pathlib import Path

import pytest

from killick import (
    IdConflict,
    Image,
    InvalidEntry,
    Message,
    Opaque,
    Session,
    Store,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
)
from killick.journal import checks
from killick.stores.engine import state
from tests.bad_input.helpers import calling, is_usable, nothing_stored, raw, saying, texts, until

LARGE = "large " * 100


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may have a thousand bytes and more than two hundred go apart."""
    monkeypatch.setattr(state, "BODY_BYTES_MAX", 1_000)
    monkeypatch.setattr(checks, "BODY_BYTES_MAX", 1_000)
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 200)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of more than three hundred bytes go apart."""
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 300)


def test_ten_thousand_parts_in_one_message_are_refused(store: Store, session: Session) -> None:
    parts = [Text("x")] * 10_000
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match=r"10000 parts; at most 4096.*record it as several"):
            turn.record(Message(role="assistant", parts=parts))
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        with session.turn(parts):
            pass
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        session.queue(parts)
    assert is_usable(session)


def test_ten_thousand_parts_in_one_stream_are_refused_and_the_first_are_kept(
    session: Session,
) -> None:
    with pytest.raises(InvalidEntry, match="begin another message"), session.turn("go") as turn:
        with turn.stream() as reply:
            for _ in range(5_000):
                reply.text("a")
                reply.reasoning("b")
    assert len(session.messages()[-1].parts) == 4_096
    assert is_usable(session)


def test_ten_thousand_parts_in_one_result_are_refused(store: Store, session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            with nothing_stored(session, store), pytest.raises(InvalidEntry):
                call.finish([Text("x")] * 10_000)
            call.finish("fewer")


@pytest.mark.usefixtures("small_limit")
def test_a_body_over_the_limit_is_refused(store: Store, session: Session) -> None:
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match=r"bytes; at most 1000"):
            turn.record(saying("x" * 2_000))
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        with session.turn("x" * 2_000):
            pass
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        session.note("n", "x" * 2_000)
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        store.put_blob(b"x" * 2_000)
    assert is_usable(session)


@pytest.mark.usefixtures("small_limit")
def test_a_result_over_the_limit_is_refused_and_a_shorter_one_is_taken(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            with nothing_stored(session), pytest.raises(InvalidEntry):
                call.finish("x" * 2_000)
            call.finish("shorter")
    assert session.messages()[-1].parts == (ToolResult("c1", "shorter"),)


@pytest.mark.usefixtures("small_limit")
def test_a_stream_over_the_limit_does_not_leave_its_turn_without_an_ending(
    store: Store, session: Session
) -> None:
    with pytest.raises(InvalidEntry), session.turn("go") as turn, turn.stream() as reply:
        for _ in range(20):
            reply.text("x" * 100)
        until(lambda: store.counts()["deltas"] > 0)
    (ended,) = session.turns()
    assert ended.status == "failed"
    assert store.counts()["deltas"] == 0
    assert is_usable(session)


@pytest.mark.usefixtures("small_limit")
def test_output_over_the_limit_does_not_leave_its_turn_without_an_ending(
    store: Store, session: Session
) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.output("x" * 2_000)
            until(lambda: store.counts()["deltas"] > 0)
            raise KeyboardInterrupt
    (ended,) = session.turns()
    assert ended.status == "interrupted"
    assert is_usable(session)


def test_arguments_that_nest_without_end_do_not_leave_the_turn_without_an_ending(
    session: Session,
) -> None:
    """A model that repeats itself writes such things; stopping it must work."""
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn, turn.stream() as reply:
        reply.text("kept")
        reply.tool_call("c1", name="n", arguments='{"a":' + "[" * 5_000)
        raise KeyboardInterrupt
    assert session.turns()[-1].status == "interrupted"
    assert texts(session)[-1] == "kept"
    assert is_usable(session)


def test_whole_arguments_that_nest_too_deeply_do_not_break_the_stream(session: Session) -> None:
    deep = '{"a":' + "[" * 5_000 + "]" * 5_000 + "}"
    with session.turn("go") as turn, turn.stream() as reply:
        reply.tool_call("c1", name="n", arguments=deep)
    assert session.messages()[-1].tool_calls == [ToolCall("c1", "n", deep)]
    assert is_usable(session)


def test_opaque_parts_that_are_durable_do_not_fill_the_buffer(path: Path) -> None:
    with Store(path, window_seconds=0.001, buffer_bytes=10_000) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn, turn.stream() as reply:
            for number in range(5):
                reply.part(Opaque("p", bytes(4_000)))
                until(lambda number=number: store.counts()["deltas"] == number + 1)  # type: ignore[misc]
        assert len(session.messages()[-1].parts) == 5


@pytest.mark.parametrize("key", ["", "k" * 1_025, "é" * 600])
def test_an_empty_or_overlong_key_or_id_is_refused(
    store: Store, session: Session, key: str
) -> None:
    with nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match="key"):
            session.turn("go", key=key)
        with pytest.raises(InvalidEntry, match="session id"):
            store.create_session(id=key)
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(InvalidEntry, match="tool call id"):
            reply.tool_call(key, name="n", arguments="{}")


@pytest.mark.parametrize("key", ["", "k" * 1_025])
def test_keys_of_notes_and_queued_prompts_are_held_to_the_same_limits(
    store: Store, session: Session, key: str
) -> None:
    with nothing_stored(session, store):
        with pytest.raises(InvalidEntry):
            session.note("n", key=key)
        with pytest.raises(InvalidEntry):
            session.queue("p", key=key)


def test_an_overlong_title_is_refused(store: Store, session: Session) -> None:
    with nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match="at most 1000"):
            session.rename("t" * 1_001)
        with pytest.raises(InvalidEntry):
            store.create_session(title="t" * 1_001)


def test_a_body_of_more_than_a_megabyte_is_kept_whole(path: Path) -> None:
    text = "0123456789abcdef" * 70_000
    with Store(path, buffer_bytes=4 * len(text)) as store:
        session = store.create_session(id="s")
        with session.turn(text) as turn:
            turn.record(saying(text + "!"))
            with turn.stream() as reply:
                for start in range(0, len(text), 200_000):
                    reply.text(text[start : start + 200_000])
    with Store(path) as store:
        assert texts(store.session("s")) == [text, text + "!", text]


@pytest.mark.usefixtures("apart")
def test_a_large_prompt_message_and_note_are_stored_apart_and_read_back_equal(
    store: Store, session: Session
) -> None:
    with session.turn(LARGE) as turn:
        turn.record(saying(LARGE + "!"))
    session.note("n", LARGE)
    assert texts(session) == [LARGE, LARGE + "!"]
    assert store.counts()["blobs"] == 3


@pytest.mark.usefixtures("apart")
def test_a_large_body_is_durable_before_its_entry_in_a_transaction_of_its_own(
    path: Path, store: Store, session: Session
) -> None:
    session.note("n", LARGE)
    with raw(path) as connection:
        (body, blob), *_ = connection.execute(
            "SELECT body, blob FROM entries ORDER BY seq DESC LIMIT 1"
        )
        assert (body, blob is not None) == (b"", True)


@pytest.mark.usefixtures("apart")
def test_a_large_streamed_message_is_kept_whole(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text(LARGE)
        reply.finish(usage=Usage(input=1))
    assert texts(session)[-1] == LARGE


@pytest.mark.usefixtures("apart")
def test_a_large_partial_message_is_kept_whole(store: Store, session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn, turn.stream() as reply:
        reply.text(LARGE)
        raise KeyboardInterrupt
    assert texts(session)[-1] == LARGE
    assert session.messages()[-1].state == "partial"
    assert session.turns()[-1].status == "interrupted"
    assert store.counts()["deltas"] == 0


@pytest.mark.usefixtures("apart")
def test_large_output_becomes_the_result_whole(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.output(LARGE)
            call.finish()
    assert session.messages()[-1].parts == (ToolResult("c1", LARGE),)


@pytest.mark.usefixtures("apart")
def test_large_output_of_a_tool_left_unfinished_is_kept_whole(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.output(LARGE)
            raise KeyboardInterrupt
    outputs = [entry.body for entry in session.entries() if entry.kind == "tool_output"]
    assert [getattr(body, "output", None) for body in outputs] == [LARGE]


@pytest.mark.usefixtures("apart")
def test_a_large_late_result_is_kept_whole(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
    session.finish_tool(turn.id, "c1", LARGE)
    assert session.messages()[-1].parts == (ToolResult("c1", LARGE),)


@pytest.mark.usefixtures("apart")
def test_the_rest_of_a_stream_whose_turn_was_taken_over_is_kept_whole(path: Path) -> None:
    with Store(path, window_seconds=60) as store:
        session = store.create_session(id="s")
        with pytest.raises(TurnEnded), session.turn("go") as turn, turn.stream() as reply:
            reply.text(LARGE)
            with store.session("s").turn("mine", if_busy="take_over"):
                pass
        assert texts(session) == ["go", LARGE, "mine"]


def test_a_blob_that_nothing_refers_to_is_collected_once_its_writer_is_gone(path: Path) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        used = store.put_blob(b"used")
        with session.turn([Image(used, "image/png")]):
            pass
        store.put_blob(b"loose")
        assert store.collect_blobs() == 0
    with Store(path) as store:
        assert store.collect_blobs() == 1
        assert store.counts()["blobs"] == 1
        assert store.blob(used) == b"used"


@pytest.mark.usefixtures("apart")
def test_a_large_body_whose_entry_was_refused_is_collected(path: Path) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn:
            turn.record(saying("small", id="mine"))
            with nothing_stored(session), pytest.raises(IdConflict):
                turn.record(saying(LARGE, id="mine"))
    with Store(path) as store:
        store.collect_blobs()
        assert store.counts()["blobs"] == 0


@pytest.mark.usefixtures("apart")
def test_a_large_body_that_an_entry_names_is_never_collected(path: Path) -> None:
    with Store(path) as store:
        store.create_session(id="s").note("n", LARGE)
    with Store(path) as store:
        assert store.collect_blobs() == 0
        assert store.session("s").entries()[-1].kind == "note"


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input=2**62),
        Usage(output=2**63),
        Usage(cached=-(2**63)),
        Usage(cost=float("nan")),
        Usage(cost=float("inf")),
        Usage(cost=1e300),
    ],
)
def test_usage_that_cannot_be_added_up_is_refused_where_it_is_said(
    session: Session, usage: Usage
) -> None:
    """Refused when the block is left, it would cost the answer its completeness."""
    with session.turn("go") as turn, turn.stream(model="m") as reply:
        reply.text("an answer")
        with pytest.raises(InvalidEntry, match=r"usage\."):
            reply.finish(usage=usage)
    assert session.messages()[-1].state == "complete"
    with pytest.raises(InvalidEntry, match=r"usage\."):
        session.compact("short", through=session.head, usage=usage)
