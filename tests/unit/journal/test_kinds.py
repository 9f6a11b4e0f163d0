"""One key for each thing in a session, however strange the ids from outside."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from killick.journal.kinds import digest, identity, keyed_id, same_content
from killick.model import entries as e
from killick.model.messages import Text, ToolResult
from tests.unit.journal.making import answered, late, opened, quick, ran, said

tricky = st.text(st.sampled_from("a/1:m"), min_size=1, max_size=8) | st.sampled_from(
    ["m/1/tool_started/x", "x/message", "m/message", "a/1/tool_started/b", "b/17/tool_started/y"]
)


def message(id: str) -> e.Body:  # noqa: A002
    return said(id=id)


def message_end(id: str) -> e.Body:  # noqa: A002
    return e.MessageEnded(id=id, turn_id="t", state="complete", parts=())


def late_text(id: str) -> e.Body:  # noqa: A002
    return e.LateText(turn_id="t", message_id=id, deltas=())


def note(id: str) -> e.Body:  # noqa: A002
    return e.Note(id=id, name="n")


def queued(id: str) -> e.Body:  # noqa: A002
    return e.PromptWaiting(id=id, role="user", parts=())


def called(message_id: str, call_id: str) -> e.Body:
    return e.ToolCalled(turn_id="t", message_id=message_id, call_id=call_id, name="n")


def started(message_id: str, call_id: str) -> e.Body:
    return ran(call_id, message_id)


def printed(message_id: str, call_id: str) -> e.Body:
    return e.ToolOutput(turn_id="t", message_id=message_id, call_id=call_id, output="o")


def result(message_id: str, call_id: str) -> e.Body:
    return answered("r", call_id, message_id)


of_one = st.tuples(st.sampled_from([message, message_end, late_text, note, queued]), tricky)
of_two = st.tuples(st.sampled_from([called, started, printed, result]), tricky, tricky)
things = of_one | of_two


@quick
@given(things, things)
@example((message, "m/1/tool_started/x"), (started, "m", "x/message"))
@example((started, "a", "b/18/tool_started/y"), (started, "a/1/tool_started/b", "y"))
def test_distinct_things_have_distinct_keys(left: tuple[..., ...], right: tuple[..., ...]) -> None:  # type: ignore[misc]
    same = identity(left[0](*left[1:])) == identity(right[0](*right[1:]))
    assert same == (left == right)


def test_ids_that_contain_the_separator_are_kept_apart() -> None:
    assert identity(ran("b/c", "a")) != identity(ran("c", "a/b"))


def test_a_message_id_made_to_look_like_a_tool_start_is_kept_apart_from_it() -> None:
    assert identity(said(id="m/1/tool_started/x")) != identity(ran("x/message", "m"))


def test_a_message_id_made_to_look_like_another_call_is_kept_apart_from_it() -> None:
    outer = ran("b/18/tool_started/y", "a")
    inner = ran("y", "a/1/tool_started/b")
    assert len("a/1/tool_started/b") == 18
    assert identity(outer) != identity(inner)


def test_a_streamed_and_a_recorded_message_of_one_id_are_the_same_message() -> None:
    assert identity(opened("m")) == identity(said(id="m"))


def test_a_result_has_one_key_whether_it_is_late_or_not() -> None:
    assert identity(answered()) == identity(late())


def test_one_call_id_in_two_messages_is_two_calls() -> None:
    assert identity(ran("c1", "m1")) != identity(ran("c1", "m2"))


def test_unknown_entries_are_told_apart_by_their_bytes() -> None:
    one, other = (e.Unknown(name="x", version=1, data=data) for data in (b"1", b"2"))
    assert identity(one) != identity(other)
    assert identity(one) == identity(e.Unknown(name="x", version=1, data=b"1"))


def test_the_same_key_in_the_same_session_is_the_same_id() -> None:
    assert keyed_id("turn", "s", "k") == keyed_id("turn", "s", "k")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("turn", "s", "k"), ("turn", "s", "l")),
        (("turn", "s", "k"), ("msg", "s", "k")),
        (("turn", "a", "bc"), ("turn", "ab", "c")),
        (("turn", "1:a", "b"), ("turn", "1", ":ab")),
        (("turn", "s", "\ud800"), ("turn", "s", "\udc00")),
        (("turn", "s", ""), ("turn", "s", "\0")),
    ],
)
def test_another_key_session_or_prefix_is_another_id(
    left: tuple[str, str, str], right: tuple[str, str, str]
) -> None:
    assert keyed_id(*left) != keyed_id(*right)


def test_a_digest_names_its_algorithm_and_depends_on_every_byte() -> None:
    assert digest(b"a").startswith("b2:")
    assert len({digest(b""), digest(b"a"), digest(b"a\0")}) == 3


def test_a_repeated_turn_start_is_the_same_when_its_prompt_is() -> None:
    one = e.TurnStarted(turn_id="t", fence=1, holder="a", key="k", prompt_hash="h")
    again = e.TurnStarted(turn_id="t", fence=9, holder="b", key="k", prompt_hash="h")
    other = e.TurnStarted(turn_id="t", fence=1, holder="a", key="k", prompt_hash="i")
    assert same_content(one, again)
    assert not same_content(one, other)


def test_a_result_is_the_same_whether_it_came_late_or_with_other_output() -> None:
    with_output = e.ToolFinished(
        turn_id="t", message_id="m1", result=ToolResult("c1", "done"), output="…"
    )
    assert same_content(with_output, late())
    assert not same_content(with_output, late("other"))


def test_an_error_result_is_not_the_same_as_a_result_with_its_text() -> None:
    one = e.LateResult(turn_id="t", message_id="m", result=ToolResult("c", "x", is_error=True))
    other = e.LateResult(turn_id="t", message_id="m", result=ToolResult("c", "x"))
    assert not same_content(one, other)


def test_a_repeated_message_is_the_same_whatever_model_call_it_names() -> None:
    one = e.MessageRecorded(id="m", turn_id="t", role="user", parts=(Text("x"),), model_call_id="c")
    assert same_content(
        one, e.MessageRecorded(id="m", turn_id="t", role="user", parts=(Text("x"),))
    )


def test_a_message_of_another_role_is_other_content() -> None:
    one = e.MessageRecorded(id="m", turn_id="t", role="user", parts=())
    assert not same_content(one, e.MessageRecorded(id="m", turn_id="t", role="system", parts=()))
