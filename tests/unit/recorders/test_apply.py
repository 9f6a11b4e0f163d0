"""Server-sent events, read from bytes or text in any pieces: what JSON is, Python's parser says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.recorders.apply import EventLines

_CHARACTERS = st.characters() | st.sampled_from('\ud83d\udc4d\n\r\\"é€😀\x00\u2028')
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(_CHARACTERS, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def _fed(data: bytes | str, cuts: list[int]) -> list[Any]:
    lines, found, before = EventLines(), [], 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        found += lines.feed(data[before:cut])
        before = cut
    return found


@given(_VALUES, st.booleans(), st.lists(st.integers(0, 60), max_size=4), st.sampled_from("\n\r"))
def test_an_event_is_what_pythons_parser_reads(
    value: Any, ascii_only: bool, cuts: list[int], end: str
) -> None:
    text = json.dumps({"a": value}, ensure_ascii=ascii_only)
    end = "\n\n" if end == "\n" else "\r\n\r\n"
    expected = [json.loads(text)]
    assert repr(_fed(f"data: {text}{end}", cuts)) == repr(expected)
    sent = text.encode("utf-8", "replace") if ascii_only else text.encode("utf-8", "surrogatepass")
    expected = [json.loads(sent.decode("utf-8", "replace"))]
    assert repr(_fed(b"data: " + sent + end.encode() * 2, cuts)) == repr(expected)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": "\xff\xe2\x82"}', [{"a": "\ufffd\ufffd"}]),
        (b'{"a": 1e400}', [{"a": float("inf")}]),
        (b'{"a": 1, "a": 2}', [{"a": 2}]),
        (b'{"a":\ndata: 1}', [{"a": 1}]),
        (b'{"a": "\x01"}', []),
        (b"[DONE]", []),
        (b"[1]", []),
        (b"\xef\xbb\xbf{}", []),
        (b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", []),
        (b'{"a": ' + b"9" * 5_000 + b"}", []),
    ],
)
def test_what_is_and_is_no_event(data: bytes, expected: list[Any]) -> None:
    assert EventLines().feed(b"data: " + data + b"\n\n") == expected
