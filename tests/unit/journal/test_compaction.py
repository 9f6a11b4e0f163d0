"""What a change of history keeps: whole messages, calls with their results, nothing half."""

import pytest

from killick.errors import InvalidEntry, UndoRefused
from killick.journal.compaction import (
    Compacting,
    check_undo,
    plan_compaction,
    plan_fork,
    plan_rewind,
    plan_visibility,
)
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import Text, ToolCall, ToolResult
from tests.unit.journal.making import (
    TURN,
    answered,
    begun,
    closed,
    ended,
    entries,
    late,
    no_deltas,
    opened,
    ran,
    said,
)

CALL = ToolCall("c1", "shell", "{}")
PROMPT = e.MessageRecorded(id="p", turn_id=TURN, role="user", parts=(Text("go"),))
SYSTEM = e.MessageRecorded(id="s", turn_id=TURN, role="system", parts=(Text("be"),))
WITH_TOOL: list[e.Body] = [
    begun(),
    PROMPT,
    opened(),
    closed(CALL),
    ran(),
    answered(started=5),
    ended(),
]


def compacted(*bodies: e.Body, through: int, keep: tuple[int, ...] = ()) -> Compacting:
    return plan_compaction(entries(*bodies), History(), first=1, through=through, chosen=keep)


def test_a_compaction_takes_the_rest_of_what_began_by_then() -> None:
    """The end of the message at 3, its tool, its result, and the ending that nothing is left of."""
    assert compacted(*WITH_TOOL, through=3) == Compacting(keep=(), rest=(4, 5, 6, 7))


def test_an_ending_stays_when_something_of_its_turn_does() -> None:
    assert compacted(*WITH_TOOL, through=2) == Compacting(keep=(), rest=())


def test_what_began_before_the_range_stays_whole() -> None:
    """The message at 3 ends inside the range, and so does its turn."""
    later = e.MessageRecorded(id="q", turn_id=TURN, role="assistant", parts=(Text("Well."),))
    cut: list[e.Body] = [begun(), PROMPT, opened(), later, closed(CALL), ran(), ended("failed")]
    plan = plan_compaction(entries(*cut), History(), first=4, through=7, chosen=())
    assert plan.keep == (5, 6, 7)


def test_in_a_running_turn_what_was_not_finished_stays() -> None:
    running = WITH_TOOL[:-1]
    assert compacted(*running, through=5) == Compacting(keep=(3, 4, 5), rest=())
    assert compacted(*running, through=6) == Compacting(keep=(), rest=())


def test_system_messages_stay() -> None:
    assert compacted(begun(), SYSTEM, PROMPT, ended(), through=3).keep == (2,)


def test_a_chosen_message_stays_with_its_tools() -> None:
    assert compacted(*WITH_TOOL, through=7, keep=(3,)).keep == (3, 4, 5, 6)
    assert compacted(*WITH_TOOL, through=7, keep=(5,)).keep == (3, 4, 5, 6), "by its result"


def test_what_is_said_of_an_open_call_depends_on_the_ending() -> None:
    cut: list[e.Body] = [begun(), PROMPT, said(CALL), ran(), ended("interrupted", "crashed")]
    assert compacted(*cut, through=5, keep=(3,)).keep == (3, 4, 5)


def test_results_in_a_message_of_their_own_go_with_the_call() -> None:
    result = e.MessageRecorded(id="r", turn_id=TURN, role="tool", parts=(ToolResult("c1", "done"),))
    turn: list[e.Body] = [begun(), PROMPT, said(CALL), result, ended()]
    assert compacted(*turn, through=3).rest == (4, 5)
    assert compacted(*turn, through=4, keep=(3,)).keep == (3, 4)
    assert plan_rewind(entries(*turn), through=3) == (4, 5)


@pytest.mark.parametrize("keep", [(1,), (99,)])
def test_only_messages_of_the_range_can_be_chosen(keep: tuple[int, ...]) -> None:
    with pytest.raises(InvalidEntry, match="no message in the range"):
        compacted(*WITH_TOOL, through=3, keep=keep)


def test_a_rewind_keeps_the_rest_of_what_began() -> None:
    assert plan_rewind(entries(*WITH_TOOL), through=3) == (4, 5, 6, 7)
    assert plan_rewind(entries(*WITH_TOOL), through=2) == (), "its ending is of what went"
    assert plan_rewind(entries(*WITH_TOOL), through=7) == ()


def test_a_late_result_of_a_turn_before_is_kept() -> None:
    """Its message is not among the entries given, so it began before them."""
    other = e.TurnStarted(turn_id="turn_2", fence=2, holder="here")
    asked = e.MessageRecorded(id="q", turn_id="turn_2", role="user", parts=())
    assert plan_rewind(entries(other, asked, late(message_id="before")), through=1) == (3,)


def carried(*bodies: e.Body, at: int) -> list[e.Body]:
    return [body for body, _ in plan_fork(entries(*bodies), at=at, deltas=no_deltas)]


def test_a_fork_where_nothing_is_open_begins_with_nothing() -> None:
    assert carried(*WITH_TOOL, at=7) == []


def test_a_fork_in_a_message_has_all_of_it_and_the_turn_s_own_ending() -> None:
    """Places move: what stood at 5 in the source stands at 6, behind the fork's beginning."""
    bodies = carried(*WITH_TOOL, at=3)
    assert bodies == [closed(CALL), ran(), answered(started=6), ended()]


def test_a_fork_that_leaves_something_of_the_turn_interrupts_it() -> None:
    more: list[e.Body] = [*WITH_TOOL[:-1], said(Text("more"), id="m2"), ended()]
    *_, ending = carried(*more, at=3)
    assert ending == ended("interrupted", "forked", "forked")


def test_a_fork_of_what_still_streams_has_what_came() -> None:
    def deltas(seq: int) -> list[e.Delta]:
        return [e.Delta(0, 0, "text", "so far")] if seq == 3 else []

    bodies = plan_fork(entries(begun(), PROMPT, opened()), at=3, deltas=deltas)
    partial = closed(Text("so far"), state="partial")
    assert bodies == [(partial, None), (ended("interrupted", "forked", "forked"), None)]


def test_what_a_fork_has_from_its_source_keeps_its_time() -> None:
    journal = entries(*WITH_TOOL)
    times = [entry.at_us for entry in journal]
    assert len(set(times)) == len(times)
    assert [at for _, at in plan_fork(journal, at=3, deltas=no_deltas)] == times[3:]


def test_a_fork_does_not_count_what_was_spent_again() -> None:
    asked = e.ModelCallStarted(id="x", turn_id=TURN, model="m")
    told = e.ModelCallEnded(id="x", turn_id=TURN, usage=e.Usage(input=9))
    bodies = carried(begun(), PROMPT, asked, opened(), closed(Text("a")), told, ended(), at=4)
    assert [body.usage for body in bodies if isinstance(body, e.ModelCallEnded)] == [None]


def test_a_message_is_hidden_with_everything_of_it() -> None:
    assert plan_visibility(entries(*WITH_TOOL), 3) == ("m1", (3, 4, 5, 6))
    assert plan_visibility(entries(*WITH_TOOL), 2) == ("p", (2,))


def test_a_result_hides_its_content_only() -> None:
    assert plan_visibility(entries(*WITH_TOOL), 5) == ("m1/c1", ())


@pytest.mark.parametrize("seq", [1, 4, 6, 7])
def test_what_is_no_message_cannot_be_hidden(seq: int) -> None:
    with pytest.raises(InvalidEntry, match="no message at seq"):
        plan_visibility(entries(*WITH_TOOL), seq)


def test_the_newest_operation_in_effect_is_undone() -> None:
    first, second = (e.Compacted(id=i, summary="s", first=1, through=1) for i in "ab")
    undone = e.Undone(id="b", seq=2)
    assert check_undo(entries(first, second), None, 0) == undone
    assert check_undo(entries(first, second, undone), None, 0) == e.Undone(id="a", seq=1)
    with pytest.raises(UndoRefused, match="nothing to undo"):
        check_undo([], None, 0)
    with pytest.raises(InvalidEntry, match="at seq 9"):
        check_undo(entries(first), 9, 0)


def test_a_rewind_is_not_undone_after_a_turn() -> None:
    rewind = entries(e.Rewound(id="r", through=0), first=5)
    assert check_undo(rewind, 5, newest_turn=4) == e.Undone(id="r", seq=5)
    with pytest.raises(UndoRefused, match=r"fork\(at=4\)"):
        check_undo(rewind, 5, newest_turn=6)


def test_a_rewind_is_not_undone_under_a_summary_that_does_not_know_what_it_took() -> None:
    rewind = e.Rewound(id="r", through=3)
    compaction = e.Compacted(id="c", summary="s", first=1, through=5)
    journal = entries(begun(), PROMPT, said(), ended(), rewind, compaction)
    with pytest.raises(UndoRefused, match=r"undo that one first: session.undo\(6\)"):
        check_undo(journal, 5, newest_turn=4)
    undone = entries(*[one.body for one in journal], e.Undone(id="c", seq=6))
    assert check_undo(undone, 5, newest_turn=4) == e.Undone(id="r", seq=5)


def test_a_turn_whose_ending_was_rewound_is_over() -> None:
    """A call of it that has no result is not waited for: it can be compacted."""
    rewind = e.Rewound(id="r", through=3)
    journal = entries(begun(), PROMPT, said(CALL), rewind)
    plan = plan_compaction(journal, History(), first=1, through=3, chosen=())
    assert plan == Compacting(keep=(), rest=())


def test_a_fork_gives_each_tool_what_it_printed_itself() -> None:
    """Started after the fork's place, they stand elsewhere in the fork than their output does."""
    calls = [ToolCall("c1", "shell", "{}"), ToolCall("c2", "shell", "{}")]
    printed = {4: "one", 5: "two"}
    bodies = plan_fork(
        entries(begun(), PROMPT, said(*calls), ran("c1"), ran("c2")),
        at=3,
        deltas=lambda seq: [e.Delta(0, 0, "output", printed[seq])],
    )
    output = {body.call_id: body.output for body, _ in bodies if isinstance(body, e.ToolOutput)}
    assert output == {"c1": "one", "c2": "two"}


@pytest.mark.parametrize(("first", "through", "allowed"), [(1, 9, True), (4, 9, False)])
def test_a_compaction_is_not_undone_under_one_that_knows_half_of_it(
    first: int, through: int, *, allowed: bool
) -> None:
    """What lies in both ranges would be sent by neither summary."""
    earlier = e.Compacted(id="a", summary="a", first=1, through=5)
    later = e.Compacted(id="b", summary="b", first=first, through=through)
    journal = [e.Entry(10, 0, earlier), e.Entry(11, 0, later)]
    if allowed:
        assert check_undo(journal, 10, newest_turn=2).seq == 10
    else:
        with pytest.raises(UndoRefused, match=r"session.undo\(11\)"):
            check_undo(journal, 10, newest_turn=2)


def test_a_message_that_was_compacted_before_cannot_be_kept() -> None:
    """The error says what to do; a seq that is no message has another."""
    earlier = e.Compacted(id="c", first=1, through=2, summary="Before.", rest=(), keep=())
    journal = entries(*WITH_TOOL, earlier)
    history = History(journal)
    with pytest.raises(InvalidEntry, match="keep=2 was compacted before; undo that first"):
        plan_compaction(journal, history, first=3, through=7, chosen=(2,))
    with pytest.raises(InvalidEntry, match="keep=1 is no message"):
        plan_compaction(journal, History(), first=1, through=7, chosen=(1,))
