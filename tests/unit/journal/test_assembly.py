"""Deltas to parts: however they were cut, joined or repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.journal.assembly import assemble, merge, output_text
from killick.model.entries import Delta
from killick.model.messages import File, Opaque, Part, Reasoning, Text, ToolCall
from tests.unit.journal.making import any_text, quick

words = any_text.filter(bool)
streamed: st.SearchStrategy[Part] = (
    st.builds(Text, words)
    | st.builds(Reasoning, words, st.none() | words, st.none() | words)
    | st.builds(ToolCall, words, words, any_text)
    | st.builds(File, words, words)
)


def deltas_of(parts: list[Part], data: st.DataObject) -> list[Delta]:
    """The parts as a stream might have handed them over."""
    return [delta for number, part in enumerate(parts) for delta in _cut(number, part, data)]


def _cut(number: int, part: Part, data: st.DataObject) -> list[Delta]:
    if isinstance(part, Text):
        return [Delta(number, at, "text", text) for at, text in _pieces(part.text, data)]
    if isinstance(part, Reasoning):
        cut = [Delta(number, at, "reasoning", text) for at, text in _pieces(part.text, data)]
        last = Delta(number, len(part.text), "reasoning", "", None, part.signature, part.encrypted)
        return [*cut, last] if part.signature or part.encrypted else cut
    if isinstance(part, ToolCall):
        head = ToolCall(part.id, part.name, "", part.tool_type)
        cut = [Delta(number, at, "arguments", text) for at, text in _pieces(part.arguments, data)]
        return [Delta(number, 0, "arguments", "", head), *cut]
    return [Delta(number, 0, "part", "", part)]


def _pieces(text: str, data: st.DataObject) -> list[tuple[int, str]]:
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, len(text)), max_size=3))})
    ends = [*cuts[1:], len(text)]
    return [(start, text[start:end]) for start, end in zip(cuts, ends, strict=True)]


@quick
@given(st.lists(streamed, max_size=5), st.data())
def test_any_splitting_makes_the_same_parts(parts: list[Part], data: st.DataObject) -> None:
    assert assemble(deltas_of(parts, data)) == tuple(parts)


@quick
@given(st.lists(streamed, max_size=5), st.data())
def test_merged_deltas_make_the_same_parts(parts: list[Part], data: st.DataObject) -> None:
    deltas = deltas_of(parts, data)
    merged = merge(deltas)
    assert assemble(merged) == tuple(parts)
    assert len(merged) <= len(deltas)


@quick
@given(st.lists(streamed, max_size=4), st.data())
def test_flushes_merged_apart_make_the_same_parts(parts: list[Part], data: st.DataObject) -> None:
    deltas = deltas_of(parts, data)
    cut = data.draw(st.integers(0, len(deltas)))
    assert assemble([*merge(deltas[:cut]), *merge(deltas[cut:])]) == tuple(parts)


@quick
@given(st.lists(streamed, max_size=4), st.data())
def test_a_repeated_delta_is_harmless(parts: list[Part], data: st.DataObject) -> None:
    deltas = deltas_of(parts, data)
    cut = data.draw(st.integers(0, len(deltas)))
    back = data.draw(st.integers(0, cut))
    assert assemble([*deltas[:cut], *deltas[back:]]) == tuple(parts)


@quick
@given(st.lists(streamed, max_size=4), st.data())
def test_a_flush_written_again_with_more_in_it_is_harmless(
    parts: list[Part], data: st.DataObject
) -> None:
    deltas = deltas_of(parts, data)
    cut = data.draw(st.integers(0, len(deltas)))
    assert assemble([*merge(deltas[:cut]), *merge(deltas)]) == tuple(parts)


@quick
@given(words, st.data())
def test_a_repeated_delta_is_harmless_before_merging_too(text: str, data: st.DataObject) -> None:
    deltas = deltas_of([Text(text)], data)
    assert assemble(merge([*deltas, *deltas])) == (Text(text),)


@quick
@given(words, words, st.data())
def test_late_deltas_continue_a_stored_text(stored: str, rest: str, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, len(stored)))
    late = Delta(0, overlap, "text", stored[overlap:] + rest)
    assert assemble([late], onto=(Text(stored),)) == (Text(stored + rest),)


def test_late_deltas_continue_stored_arguments() -> None:
    stored = (Text("let me"), ToolCall("c", "shell", '{"a"'))
    late = [Delta(1, 4, "arguments", ": 1}")]
    assert assemble(late, onto=stored) == (Text("let me"), ToolCall("c", "shell", '{"a": 1}'))


def test_late_deltas_add_parts_behind_the_stored_ones() -> None:
    assert assemble([Delta(1, 0, "text", "b")], onto=(Reasoning("a"),)) == (
        Reasoning("a"),
        Text("b"),
    )


def test_a_late_signature_closes_stored_reasoning() -> None:
    late = [Delta(0, 3, "reasoning", "", None, "sig", None)]
    assert assemble(late, onto=(Reasoning("abc"),)) == (Reasoning("abc", signature="sig"),)


def test_a_late_repeat_of_a_whole_part_changes_nothing() -> None:
    stored = (Opaque("p", b"\0"),)
    assert assemble([Delta(0, 0, "part", "", Opaque("p", b"\0"))], onto=stored) == stored


def test_no_deltas_leave_what_is_stored() -> None:
    assert assemble([], onto=(Text("a"),)) == (Text("a"),)
    assert assemble([]) == ()


def test_parts_come_in_the_order_of_their_numbers() -> None:
    deltas = [Delta(1, 0, "text", "b"), Delta(0, 0, "reasoning", "a"), Delta(1, 1, "text", "c")]
    assert assemble(deltas) == (Reasoning("a"), Text("bc"))


def test_a_part_in_which_nothing_came_is_left_out() -> None:
    assert assemble([Delta(0, 0, "text", ""), Delta(1, 0, "text", "x")]) == (Text("x"),)


def test_reasoning_that_is_only_a_signature_is_kept() -> None:
    assert assemble([Delta(0, 0, "reasoning", "", None, "sig")]) == (Reasoning("", "sig"),)


def test_a_call_without_arguments_is_kept() -> None:
    assert assemble([Delta(0, 0, "arguments", "", ToolCall("c", "n"))]) == (ToolCall("c", "n"),)


def test_the_kind_of_tool_survives_its_arguments() -> None:
    head = ToolCall("c", "n", "", "custom")
    deltas = [Delta(0, 0, "arguments", "", head), Delta(0, 0, "arguments", "x")]
    assert assemble(deltas) == (ToolCall("c", "n", "x", "custom"),)


def test_merging_keeps_what_was_signed_apart_from_what_follows() -> None:
    deltas = [Delta(0, 0, "reasoning", "a", None, "s"), Delta(1, 0, "reasoning", "b")]
    assert assemble(merge(deltas)) == (Reasoning("a", "s"), Reasoning("b"))


def test_merging_joins_all_neighbours_of_one_part_into_one() -> None:
    deltas = [Delta(0, number, "text", "x") for number in range(100)]
    assert merge(deltas) == (Delta(0, 0, "text", "x" * 100),)


@quick
@given(any_text, st.data())
def test_output_is_the_same_in_any_splitting_and_with_repeats(
    text: str, data: st.DataObject
) -> None:
    deltas = [Delta(0, at, "output", piece) for at, piece in _pieces(text, data)]
    back = data.draw(st.integers(0, len(deltas)))
    assert output_text([*deltas, *deltas[back:]]) == text


@pytest.mark.parametrize("merged", [False, True])
def test_parts_of_two_calls_that_come_interleaved_are_kept_apart(merged: bool) -> None:
    deltas = [
        Delta(0, 0, "arguments", "{", ToolCall("a", "x")),
        Delta(1, 0, "arguments", "[", ToolCall("b", "y")),
        Delta(0, 1, "arguments", "}"),
        Delta(1, 1, "arguments", "]"),
    ]
    made = assemble(merge(deltas) if merged else deltas)
    assert made == (ToolCall("a", "x", "{}"), ToolCall("b", "y", "[]"))
