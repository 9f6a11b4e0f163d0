"""The table of kinds, and one key for each thing in a session, however strange its ids."""

from typing import get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from killick.errors import InvalidEntry
from killick.journal import kinds
from killick.journal.kinds import (
    HISTORY,
    KINDS,
    TURNS,
    digest,
    identity,
    keyed_id,
    same_content,
)
from killick.model import entries as e
from killick.model.messages import File, Image, Text, ToolResult
from killick.model.sessions import Fork
from tests.unit.journal.making import answered, late, opened, quick, ran, said

PARTS = (Text("t"), Image("b2:i", "image/png"), ToolResult("c/1", (File("b2:f", "text/plain"),)))
RESULT = ToolResult("c/1", (Text("t"), Image("b2:i", "image/png")))

STORED: list[tuple[e.Body, str, str, str | None]] = [
    (e.SessionCreated(), "session", "session_created", None),
    (e.SessionCreated(fork=Fork("s/1", 7)), "s%2F1/fork/7", "session_created", None),
    (e.Renamed(id="x/1", title="t"), "x%2F1/renamed", "x/1", None),
    (e.LimitsSet(id="x/1"), "x%2F1/limits", "x/1", None),
    (
        e.LimitHit(id="x/1", turn_id="t/1", limit="calls", amount=1, spent=1),
        "x%2F1/limit_reached",
        "x/1",
        None,
    ),
    (e.Archived(id="x/1"), "x%2F1/archived", "x/1", None),
    (e.Pinned(id="x/1"), "x%2F1/pinned", "x/1", None),
    (e.Tagged(id="x/1", add=("a",)), "x%2F1/tagged", "x/1", None),
    (e.Moved(id="x/1"), "x%2F1/moved", "x/1", None),
    (e.Deleted(id="x/1"), "x%2F1/deleted", "x/1", None),
    (e.Restored(id="x/1"), "x%2F1/restored", "x/1", None),
    (e.Note(id="x/1", name="n", blobs=("b2:n",)), "x%2F1/note", "x/1", None),
    (e.Imported(id="x/1", source="s", origin="o"), "x%2F1/imported", "x/1", None),
    (e.TurnStarted(turn_id="t/1", fence=1, holder="h"), "t%2F1/turn", "t/1", None),
    (e.StopAsked(id="x/1", turn_id="t/1", reason="r"), "x%2F1/stop_asked", "x/1", None),
    (e.TurnEnding(turn_id="t/1", status="failed"), "t%2F1/turn-end", "t/1", None),
    (
        e.WorkTaken(id="x/1", turn_id="t/1", attempt=1, taker="h", until_us=1),
        "x%2F1/work_taken",
        "x/1",
        None,
    ),
    (e.AttemptsUsed(turn_id="t/1", attempts=1), "t%2F1/attempts_used", "t/1", None),
    (e.ResumeAt(id="x/1", at_us=1), "x%2F1/resume_at", "x/1", None),
    (e.Paused(id="x/1", why="w"), "x%2F1/paused", "x/1", None),
    (e.PromptWaiting(id="x/1", role="user", parts=PARTS), "x%2F1/prompt_queued", "x/1", None),
    (e.PromptTaken(id="x/1", turn_id="t/1"), "x%2F1/prompt_taken", "x/1", None),
    (e.PromptWithdrawn(id="x/1"), "x%2F1/prompt_withdrawn", "x/1", None),
    (
        e.ModelCallStarted(id="x/1", turn_id="t/1", system="b2:s", tools="b2:t"),
        "x%2F1/model_call_started",
        "x/1",
        None,
    ),
    (e.ModelCallEnded(id="x/1", turn_id="t/1"), "x%2F1/model_call_ended", "x/1", None),
    (
        e.MessageRecorded(id="m%1", turn_id="t/1", role="user", parts=PARTS),
        "m%251/message",
        "m%1",
        "m%1",
    ),
    (e.MessageStarted(id="m%1", turn_id="t/1"), "m%251/message", "m%1", "m%1"),
    (
        e.MessageEnded(id="m%1", turn_id="t/1", state="partial", parts=PARTS),
        "m%251/message-end",
        "m%1",
        "m%1",
    ),
    (
        e.ToolCalled(turn_id="t/1", message_id="m%1", call_id="c/1", name="n"),
        "m%251/tool_called/c%2F1",
        "c/1",
        "m%1",
    ),
    (
        e.ToolStarted(turn_id="t/1", message_id="m%1", call_id="c/1"),
        "m%251/tool_started/c%2F1",
        "c/1",
        "m%1",
    ),
    (
        e.ToolStarted(turn_id="t/1", message_id="m%1", call_id="c/1", effect="none", number=2),
        "m%251/tool_started/c%2F1/2",
        "c/1",
        "m%1",
    ),
    (
        e.Settled(id="x/1", turn_id="t/1", message_id="m%1", call_id="c/1", outcome="ran"),
        "x%2F1/settled",
        "c/1",
        "m%1",
    ),
    (
        e.LateResult(turn_id="t/1", message_id="m%1", result=RESULT, second=2),
        "m%251/result/c%2F1/2",
        "c/1",
        "m%1",
    ),
    (
        e.ToolOutput(turn_id="t/1", message_id="m%1", call_id="c/1", output="o"),
        "m%251/tool_output/c%2F1",
        "c/1",
        "m%1",
    ),
    (
        e.ToolFinished(turn_id="t/1", message_id="m%1", result=RESULT),
        "m%251/result/c%2F1",
        "c/1",
        "m%1",
    ),
    (
        e.ApprovalAsked(
            id="x/1", turn_id="t/1", message_id="m%1", call_id="c/1", arguments_hash="h"
        ),
        "x%2F1/approval_asked",
        "x/1",
        "m%1",
    ),
    (
        e.ApprovalDecided(id="x/1", turn_id="t/1", arguments_hash="h", approved=True),
        "x%2F1/approval_decided",
        "x/1",
        None,
    ),
    (e.Compacted(id="x/1", summary="s", first=1, through=2), "x%2F1/compaction", "x/1", None),
    (e.Rewound(id="x/1", through=2), "x%2F1/rewind", "x/1", None),
    (e.Undone(id="x/1", seq=3), "x%2F1/undone", "x/1", None),
    (e.Visibility(id="x/1", seq=3, message_id="m%1"), "x%2F1/visibility", "x/1", None),
    (
        e.LateResult(turn_id="t/1", message_id="m%1", result=RESULT),
        "m%251/result/c%2F1",
        "c/1",
        "m%1",
    ),
    (e.LateText(turn_id="t/1", message_id="m%1", deltas=()), "m%251/late_text", "m%1", "m%1"),
    (
        e.LateText(turn_id="t/1", message_id="m%1", deltas=(), call_id="c/1"),
        "m%251/late_text/c%2F1",
        "m%1",
        "m%1",
    ),
    (
        e.Unknown(name="new/kind", version=2, data=b"{}"),
        "2afb9b83f9314e5d029766197f539792/new%2Fkind",
        "new/kind",
        None,
    ),
]
"""A body of each kind; its identity, subject and message as the code of 2026-11-15 gave them."""

WRITTEN = (
    *("parts", "result", "output", "deltas", "title", "summary", "data", "extra", "settings"),
    *("reason", "detail", "error", "report", "tags", "add", "remove", "evidence", "why"),
)
"""The names of fields that hold text from outside, in whichever kind they occur."""


def test_every_kind_has_a_row_and_nothing_else_has() -> None:
    assert set(KINDS) == set(get_args(e.Body))


def test_every_kind_is_among_the_stored() -> None:
    assert {type(body) for body, *_ in STORED} == set(KINDS)


@pytest.mark.parametrize(("body", "key", "subject", "message"), STORED)
def test_identities_are_those_of_stored_journals(
    body: e.Body, key: str, subject: str, message: str | None
) -> None:
    assert identity(body) == key
    assert kinds.subject(body) == subject
    assert kinds.message_of(body) == message


def test_identities_by_name_are_those_of_the_entries() -> None:
    of = {type(body): key for body, key, *_ in STORED[:-3]}
    assert kinds.turn_identity("t/1") == of[e.TurnStarted]
    assert kinds.ending_identity("t/1") == of[e.TurnEnding]
    assert kinds.message_identity("m%1") == of[e.MessageStarted]
    assert kinds.message_end_identity("m%1") == of[e.MessageEnded]
    assert kinds.result_identity("m%1", "c/1") == of[e.ToolFinished]
    assert kinds.named_identity("x/1", "note") == of[e.Note]
    assert kinds.late_text_identity("m%1") == STORED[-3][1]


def test_only_messages_results_requests_and_notes_name_blobs() -> None:
    named = {type(body): kinds.blobs_of(body) for body, *_ in STORED if kinds.blobs_of(body)}
    assert named == {
        e.Note: ["b2:n"],
        e.PromptWaiting: ["b2:i", "b2:f"],
        e.MessageRecorded: ["b2:i", "b2:f"],
        e.MessageEnded: ["b2:i", "b2:f"],
        e.ModelCallStarted: ["b2:s", "b2:t"],
        e.ToolFinished: ["b2:i"],
        e.LateResult: ["b2:i"],
    }


def test_turns_and_changes_of_history_are_found_by_their_class() -> None:
    found = {type(body): kinds.lookup_class(body) for body, *_ in STORED}
    assert {kind for kind in found if found[kind] == TURNS} == {e.TurnStarted, e.TurnEnding}
    history = {e.Compacted, e.Rewound, e.Undone, e.Visibility}
    assert {kind for kind in found if found[kind] == HISTORY} == history


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not e.Unknown])
def test_a_redaction_touches_every_field_with_text_from_outside(kind: type[msgspec.Struct]) -> None:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert set(KINDS[kind].redacts) == fields.intersection(WRITTEN)


def test_only_kinds_that_name_their_turn_are_fenced() -> None:
    fenced = {type(body) for body, *_ in STORED if KINDS[type(body)].fenced}
    assert all("turn_id" in kind.__annotations__ for kind in fenced)


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


def test_an_id_that_is_no_text_is_refused_as_one() -> None:
    with pytest.raises(InvalidEntry, match="an id is text"):
        identity(e.Renamed(id=5, title="Kelp"))  # type: ignore[arg-type]
