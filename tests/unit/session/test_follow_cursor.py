"""A cursor goes on where a follower was, in the middle of a message too."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick import FollowedDelta, InvalidCursor, Message, Store
from killick.journal.assembly import assemble
from killick.model.entries import Entry, MessageEnded, ToolFinished
from killick.model.messages import ToolCall
from killick.session.follow import Cursor, Followed
from killick.session.sync import Session


def nothing() -> None:
    pass


def take(
    session: Session, after: int | str, until: str, on_delta: Callable[[], object] = nothing
) -> list[tuple[Followed, str]]:
    """What a follower that begins there shows, with its cursors, until an entry of this kind."""
    seen: list[tuple[Followed, str]] = []
    following = session.follow(after=after)
    for item in following:
        seen.append((item, following.cursor))
        if item.kind == "delta":
            on_delta()
        if item.kind == until:
            return seen
    raise AssertionError("the store was closed")


def told(items: list[Followed]) -> list[object]:
    """What was said, however it was cut: entries by seq, text by message, call and part."""
    texts: dict[object, str] = {}
    order: list[object] = []
    for item in items:
        if isinstance(item, Entry):
            order.append(item.seq)
            for name, text in carried(item):
                assert texts.setdefault(name, text) == text, "the ending says something else"
            continue
        name = item.message_id, item.call_id, item.part
        assert item.offset == len(texts.get(name, "")), "a gap or a repeat"
        texts[name] = texts.get(name, "") + item.text
    return [*order, texts]


def carried(entry: Entry) -> list[tuple[object, str]]:
    """The text that an ending carries, for those who were shown no delta of it."""
    match entry.body:
        case MessageEnded() as body:
            texts = [getattr(part, "text", getattr(part, "arguments", "")) for part in body.parts]
            return [((body.id, None, number), text) for number, text in enumerate(texts)]
        case ToolFinished() as body:
            output = body.output if body.output is not None else str(body.result.content)
            return [((body.message_id, body.result.call_id, 0), output)]
        case _:
            return []


def script(session: Session, wait: Callable[[], object] = nothing) -> None:
    """A turn with everything that streams: reasoning, text, arguments, output of two tools."""
    with session.turn("go") as turn:
        with turn.stream() as reply:
            reply.reasoning("Let me ")
            wait()
            reply.reasoning("think.", signature="sig")
            wait()
            for word in ("one ", "two ", "three "):
                reply.text(word)
                wait()
            reply.tool_call("a", name="shell", arguments='{"x":')
            wait()
            reply.tool_call("a", arguments=" 1}")
            reply.tool_call("b", name="shell", arguments="{}")
        with turn.tool("a") as first, turn.tool("b") as second:
            first.output("a1 ")
            wait()
            second.output("b1 ")
            wait()
            first.output("a2 ")
            second.finish("b1 done")
            first.finish("a done")
        turn.record(Message(role="assistant", parts=[ToolCall("c", "shell", "{}")]))


def test_going_on_from_every_cursor_of_a_live_follower_misses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001, durability="normal") as store:
        session = store.create_session()
        shown = threading.Semaphore(0)
        agent = threading.Thread(target=script, args=(session, shown.acquire))
        agent.start()
        live = take(session, 0, "turn_ended", shown.release)
        agent.join()
        whole = told([item for item, _ in live])
        assert sum(isinstance(item, FollowedDelta) for item, _ in live) >= 8
        for number, (_, cursor) in enumerate(live[:-1]):
            rest = take(session, cursor, "turn_ended")
            before = [item for item, _ in live[: number + 1]]
            assert told([*before, *(item for item, _ in rest)]) == whole, cursor


def test_the_signature_that_closes_reasoning_is_not_shown_again(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            with turn.stream() as reply:
                reply.reasoning("so", signature="sig")
                following = session.follow(after=session.head)
                first = next(following)
                assert isinstance(first, FollowedDelta)
                again = session.follow(after=following.cursor)
                reply.text("then")
                second = next(again)
                assert isinstance(second, FollowedDelta)
            assert second.part == 1
            assert assemble([first.delta, second.delta]) == session.messages()[-1].parts


def test_what_is_taken_twice_is_shown_once(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        script(session)
        seen = take(session, 0, "turn_ended")
        place = Cursor(0)
        once = [one.item for item, _ in seen for one in place.take(item)]
        assert once == [item for item, _ in seen]
        assert [one for item, _ in seen for one in place.take(item)] == []


@given(st.text(max_size=40))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    try:
        place = Cursor(text)
    except InvalidCursor:
        return
    assert Cursor(str(place)).after == place.after


@pytest.mark.parametrize("text", ["", "-1", "1~", "1~2", "1~2.3", "x", "1 ", "9" * 30, "1~2.0:5x"])
def test_these_are_no_cursors(text: str) -> None:
    with pytest.raises(InvalidCursor, match="no cursor"):
        Cursor(text)


def test_a_cursor_that_names_streams_which_are_none_is_harmless(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        script(session)
        after = f"{session.head - 1}~1.0:5~2.7:9s~900.0:1"
        assert [item.kind for item, _ in take(session, after, "turn_ended")] == ["turn_ended"]


@pytest.mark.parametrize("after", [3, 10**9, "3", "4~2.0:5"], ids=repr)
def test_a_cursor_beyond_the_end_is_refused_and_not_waited_for(
    tmp_path: Path, after: int | str
) -> None:
    """What comes next would be passed over until the journal is that long."""
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        session.rename("so it has two entries")
        with pytest.raises(InvalidCursor, match="beyond the end of this session, which has 2"):
            next(session.follow(after=after))
        feed = store.feed()
        feed.follow(session, after=after)
        (fed,) = next(feed)
        assert isinstance(fed.error, InvalidCursor)


@pytest.mark.parametrize("after", [None, 1.5, True, b"1", -1], ids=repr)
def test_a_place_that_is_none_is_refused(tmp_path: Path, after: Any) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with pytest.raises((TypeError, ValueError), match="after"):
            session.follow(after=after)
