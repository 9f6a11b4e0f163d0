"""Bodies and deltas to bytes and back: exactly, or with an error that says so."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from killick.journal import codec
from killick.journal.codec import CodecError
from killick.model import entries as e
from killick.model.messages import Opaque, Text, ToolCall
from killick.model.sessions import Description
from tests.unit.journal.making import any_text, bodies, parts, quick

HARD_TEXTS = [
    pytest.param("", id="empty"),
    pytest.param("a\0b", id="nul"),
    pytest.param("\ud800", id="lone-high-surrogate"),
    pytest.param("x\udfffy", id="lone-low-surrogate"),
    pytest.param("\ud83d\ude00", id="a-pair-kept-as-two-surrogates"),
    pytest.param("\ude00\ud83d", id="a-pair-in-the-wrong-order"),
    pytest.param("\ud83d\ude00 and \U0001f600", id="both-forms-of-one-character"),
    pytest.param("\u202eabc\u200f\u2067", id="right-to-left-marks"),
    pytest.param("'\"\\/`", id="quotes"),
    pytest.param("a\u2028b\u2029c\x85d", id="line-separators"),
    pytest.param("\\ud800", id="what-looks-like-an-escape"),
    pytest.param(" leading space", id="leading-space"),
]


@quick
@given(bodies)
@example(e.Note(id="a", name="\ud83d\ude00"))
def test_every_body_comes_back_as_it_was(body: e.KnownBody) -> None:
    assert codec.decode_body(codec.encode(body)) == body


@pytest.mark.parametrize(
    ("stored", "cause"),
    [
        ('"status":"completed"', None),
        ('"status":"failed","reason":"crashed"', "failed"),
        ('"status":"interrupted","reason":"crashed"', "crashed"),
        ('"status":"interrupted","reason":"keyboard_interrupt"', "cancelled"),
        ('"status":"interrupted","reason":"the server was shut down"', "shut_down"),
        ('"status":"interrupted","reason":"awaiting_approval","detail":"crashed"', "crashed"),
        ('"status":"interrupted","reason":"crashed","detail":"left"', "crashed"),
        ('"status":"interrupted","reason":"I had enough"', "other"),
        ('"status":"interrupted","reason":"crashed","cause":"stopped"', "stopped"),
        ('"status":"interrupted","reason":"x","cause":"of a newer version"', "of a newer version"),
    ],
)
def test_an_ending_of_before_there_were_causes_is_read_with_one(
    stored: str, cause: str | None
) -> None:
    data = f'{{"kind":"turn_ended","turn_id":"t",{stored}}}'.encode()
    body = codec.decode_body(data)
    assert isinstance(body, e.TurnEnding)
    assert body.cause == cause
    assert codec.decode_body(codec.encode(body)) == body


def test_an_entry_without_its_cause_is_read_back_with_one() -> None:
    ended = e.TurnEnding(turn_id="t", status="interrupted", reason="crashed")
    assert codec.read_back(ended, codec.encode(ended)) == msgspec.structs.replace(
        ended, cause="crashed"
    )
    asked = e.StopAsked(id="s", turn_id="t", reason="enough")
    body = codec.read_back(asked, codec.encode(asked))
    assert isinstance(body, e.StopAsked)
    assert body.cause == "other"


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_a_hard_text_comes_back_as_it_was(text: str) -> None:
    body = e.Note(id=text, name=text, data={text: [text]})
    assert codec.decode_body(codec.encode(body)) == body


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_a_hard_text_in_a_delta_comes_back_as_it_was(text: str) -> None:
    deltas = (e.Delta(0, 3, "arguments", text, ToolCall(text, text), text, text),)
    assert codec.decode_deltas(codec.encode(deltas)) == deltas


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_a_hard_text_comes_back_from_an_id(text: str) -> None:
    assert codec.to_text(codec.to_bytes(text)) == text


@quick
@given(any_text, any_text)
def test_two_ids_are_one_in_bytes_only_if_they_are_one(left: str, right: str) -> None:
    assert (codec.to_bytes(left) == codec.to_bytes(right)) == (left == right)


@quick
@given(
    st.lists(
        st.builds(e.Delta, st.integers(0, 9), st.integers(0, 9), st.just("part"), any_text, parts)
    )
)
def test_every_delta_comes_back_as_it_was(deltas: list[e.Delta]) -> None:
    assert codec.decode_deltas(codec.encode(tuple(deltas))) == tuple(deltas)


@quick
@given(st.binary())
def test_opaque_bytes_come_back_beside_a_lone_surrogate(data: bytes) -> None:
    body = e.MessageRecorded(
        id="m", turn_id="t", role="assistant", parts=(Opaque("p", data), Text("\ud800"))
    )
    assert codec.decode_body(codec.encode(body)) == body


def test_a_note_without_blobs_has_the_bytes_of_before_it_could_name_any() -> None:
    body = e.Note(id="n", name="x", data=1)
    assert codec.encode(body) == b'{"kind":"note","id":"n","name":"x","data":1}'


def test_the_bytes_are_json_that_any_tool_can_read() -> None:
    body = e.Note(id="n", name="\ud800", data={"a": 1})
    read = json.loads(codec.encode(body))
    assert (read["kind"], read["name"], read["data"]) == ("note", "\ud800", {"a": 1})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"kind":"dreamed","v":3,"of":["sheep", 1.50]}', id="plain"),
        pytest.param(b'{ "kind" : "dreamed",  "v":3 }', id="odd-spacing"),
        pytest.param(b'{"of":1,"v":3,"kind":"dreamed"}', id="kind-last"),
        pytest.param(b' {"kind":"dreamed","v":3,"of":"\\ud800"}', id="with-a-lone-surrogate"),
        pytest.param(b' {"kind":"dreamed","v":3,"of":"\\ud83d"}', id="with-half-a-pair"),
    ],
)
def test_an_unknown_kind_is_passed_through_byte_for_byte(data: bytes) -> None:
    body = codec.decode_body(data)
    assert body == e.Unknown(name="dreamed", version=3, data=data)
    assert codec.encode(body) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"restored","v":2,"id":"x","since":{"a":[1]}}',
        b' {"kind":"restored","v":2,"id":"x","why":"\\ud800"}',
    ],
)
def test_a_newer_version_of_a_known_kind_is_read_without_its_new_fields(data: bytes) -> None:
    assert codec.decode_body(data) == e.Restored(id="x", v=2)


def test_a_newer_part_type_in_a_known_kind_is_not_taken_for_another_part() -> None:
    data = b'{"kind":"message","id":"m","turn_id":"t","role":"user","parts":[{"type":"smell"}]}'
    with pytest.raises(CodecError):
        codec.decode_body(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"x",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b" \xff",
        b" [1]",
        b'{"kind":5}',
        b'{"kind":"note"}',
        b'{"kind":"note","id":1,"name":"x"}',
        b'{"kind":"restored","id":"x"',
        b' {"kind":"dreamed"',
        b'{"kind":"restored","id":"x"}trailing',
        pytest.param(b"[" * 100_000, id="very-deep"),
        pytest.param(b" " + b"[" * 100_000, id="very-deep-and-escaped"),
    ],
)
def test_garbage_raises_a_codec_error(data: bytes) -> None:
    with pytest.raises(CodecError, match="not an entry"):
        codec.decode_body(data)


@quick
@given(st.binary(max_size=60))
def test_random_bytes_are_never_taken_for_a_known_entry(data: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode_body(data)


@quick
@given(bodies, st.data())
def test_an_entry_cut_short_never_decodes(body: e.KnownBody, data: st.DataObject) -> None:
    whole = codec.encode(body)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CodecError):
        codec.decode_body(whole[:cut])


@pytest.mark.parametrize("data", [b"x", b" x", b"{}", b'[["a"]]', b"", b'[[0,0,"smell","x"]]'])
def test_garbage_in_place_of_deltas_raises_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        codec.decode_deltas(data)


@quick
@given(any_text, st.dictionaries(any_text, any_text, max_size=3))
def test_a_description_comes_back_as_it_was(title: str, extra: dict[str, Any]) -> None:
    about = Description(title=title, extra=extra)
    assert codec.decode(codec.encode(about), Description) == about
