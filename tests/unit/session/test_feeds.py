"""Many sessions followed together, and reads for those who show a store."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from killick import FollowedDelta, Message, SessionNotFound, Store, Text, TurnStopped
from killick.model.messages import ToolCall
from killick.session.sync import Session


def say(session: Session, text: str) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text(text)


def test_a_feed_gives_what_is_new_in_any_of_its_sessions(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        one, two, other = (store.create_session() for _ in range(3))
        feed = store.feed()
        for session in (one, two):
            feed.follow(session, after=session.head)
        for session in (one, other, two):
            say(session, session.id)
        kinds: dict[str, list[str]] = {one.id: [], two.id: []}
        while not all("turn_ended" in kind for kind in kinds.values()):
            for fed in next(feed):
                kinds[fed.session_id] += [seen.item.kind for seen in fed.seen]
        for session in (one, two):
            entries = [entry.kind for entry in session.entries(after=1)]
            assert [kind for kind in kinds[session.id] if kind != "delta"] == entries


def test_a_session_that_is_erased_leaves_the_others_of_a_feed_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        gone, stays = store.create_session(), store.create_session()
        feed = store.feed()
        for session in (gone, stays):
            feed.follow(session, after=session.head)
        store.erase_session(gone.id)
        [fed] = next(feed)
        assert (fed.session_id, type(fed.error)) == (gone.id, SessionNotFound)
        stays.note("still")
        [fed] = next(feed)
        assert (fed.session_id, [seen.item.kind for seen in fed.seen]) == (stays.id, ["note"])


def test_a_session_that_is_left_out_says_nothing_more(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        one, two = store.create_session(), store.create_session()
        feed = store.feed()
        feed.follow(one, after=one.head)
        feed.follow(two, after=two.head)
        feed.unfollow(one.id)
        one.note("a")
        two.note("b")
        assert [fed.session_id for fed in next(feed)] == [two.id]


def test_changes_are_the_messages_that_a_reader_does_not_have_yet(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        say(session, "first")
        head = session.head
        assert session.changes(after=head).messages == []
        with session.turn("more") as turn:
            with turn.stream() as reply:
                reply.text("Let me see.")
                reply.tool_call("a", name="shell", arguments="{}")
                during = session.head
                following = session.follow(after=during)
                while not isinstance(next(following), FollowedDelta):
                    pass
                streaming = session.changes(after=during).messages
                assert [(one.id, one.state) for one in streaming] == [(reply.id, "streaming")]
            ended = session.changes(after=during).messages
            assert [(one.id, one.state) for one in ended] == [(reply.id, "complete")]
            with turn.tool("a") as call:
                began = session.head
                call.finish("done")
            assert [one.role for one in session.changes(after=began).messages] == ["tool"]
        assert [one.seq for one in session.changes(after=0).messages] == [
            one.seq for one in session.messages()
        ]
        changed = session.changes(after=head)
        assert [one.role for one in changed.messages] == ["user", "assistant", "tool"]
        assert (changed.whole, changed.head) == (False, session.head)


def test_a_late_result_changes_a_message_of_a_turn_long_ago(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall("a", "shell", "{}")]))
        say(session, "later")
        head = session.head
        session.finish_tool(turn.id, "a", "at last")
        assert [one.role for one in session.changes(after=head).messages] == ["tool"]


def test_changed_history_gives_all_messages_anew(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        say(session, "one")
        kept = session.head
        say(session, "two")
        head = session.head
        session.rewind(through=kept)
        changed = session.changes(after=head)
        assert changed.whole
        assert [one.text for one in changed.messages] == ["go", "one"]


def test_queued_prompts_are_there_until_a_turn_takes_them(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        assert session.queued() == []
        for text in ("first", "second"):
            session.queue(text)
        assert [one.text for one in session.queued()] == ["first", "second"]
        with session.turn() as turn:
            assert session.queued() == []
            session.queue("third")
            assert [one.text for one in session.queued()] == ["third"]
            assert turn.id


def test_a_session_begins_with_the_first_prompt_that_a_person_sees(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        empty, asked, hidden, rewound = (store.create_session() for _ in range(4))
        for session in (asked, hidden, rewound):
            with session.turn("first\n  words"):
                pass
            with session.turn("then " * 100):
                pass
        hidden.hide(3, model=False)
        rewound.rewind(through=1)
        ids = [one.id for one in (empty, asked, hidden, rewound)]
        assert store.openings([*ids, "none"]) == {
            asked.id: "first words",
            hidden.id: ("then " * 100)[:120],
        }


def test_what_waits_for_a_person_is_there_until_it_is_decided(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall("a", "shell", "{}")]))
            asked = turn.ask_approval("a", "{}")
            assert session.approvals() == [asked]
            session.decide_approval(asked, approved=True)
            assert session.approvals() == []


@pytest.mark.parametrize(
    ("error", "waits"),
    [(SystemExit(), True), (TurnStopped("stop", reason="stopped"), False), (OSError(), False)],
)
def test_what_a_turn_asked_waits_after_it_only_if_its_process_ended(
    tmp_path: Path, error: BaseException, waits: bool
) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with suppress(type(error)), session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall("a", "shell", "{}")]))
            asked = turn.ask_approval("a", "{}")
            raise error
        assert session.approvals() == ([asked] if waits else [])
        say(session, "something else")
        assert session.approvals() == []


def test_activity_counts_each_day_and_inherits_nothing(tmp_path: Path) -> None:
    now = [datetime(2026, 3, 1, 12, tzinfo=UTC)]

    def clock() -> int:
        return int(now[0].timestamp() * 1_000_000)

    with Store(tmp_path / "work.db", clock=clock) as store:
        session = store.create_session()
        say(session, "one")
        now[0] = datetime(2026, 3, 3, 12, tzinfo=UTC)
        try:
            with session.turn("two") as turn:
                turn.record(Message(role="assistant", parts=[Text("so")]))
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        session.fork()
        days = {one.day: one for one in store.activity()}
        assert set(days) == {"2026-03-01", "2026-03-03"}
        first, second = days["2026-03-01"], days["2026-03-03"]
        assert (first.sessions, first.turns, first.completed, first.interrupted) == (1, 1, 1, 0)
        assert (second.sessions, second.turns, second.completed, second.interrupted) == (1, 1, 0, 1)
        assert store.activity(until=datetime(2026, 2, 1).date()) == []  # noqa: DTZ001


def test_figures_count_what_was_written_and_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session(id="s")
        before = store.figures
        session.note("a")
        with session.turn("go"):
            assert store.figures.turns == 1
        after = store.figures
        assert after.operations >= before.operations + 3
        assert sum(after.commit_seconds.counts) == sum(after.commit_sizes.counts) > 0
        assert (after.turns, after.recovered) == (0, 0)
