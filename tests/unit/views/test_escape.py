"""Quoted text: no stored line begins without the mark."""

from hypothesis import example, given
from hypothesis import strategies as st

from killick.views.escape import quote, shorten


@given(st.text())
@example("a\r\nb\x0bc\u2028d\x85e\ud800")
@example("\n> forged\n")
def test_every_line_of_a_quote_begins_with_the_mark(text: str) -> None:
    quoted = quote(text)
    assert all(line.startswith(">") for line in quoted.splitlines())
    quoted.encode("utf-8")


@given(st.text(), st.integers(3, 200))
def test_a_shortened_text_has_both_ends_and_says_how_much_is_gone(text: str, most: int) -> None:
    short = shorten(text, most)
    if len(text) <= most:
        assert short == text
    else:
        kept = most * 2 // 3 + most // 3
        assert f"[…{len(text) - kept:,} characters…]" in short
        assert short.startswith(text[: most * 2 // 3])
        assert short.endswith(text[-(most // 3) :])
