"""The piece of a text that shows why it was found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.search.query import Phrase, parse, phrases
from killick.search.results import SNIPPET_CHARS, snippet, substring_snippet


def shown(text: str, query: str) -> str | None:
    found = snippet(text, phrases(parse(query)))
    if found is None:
        return None
    piece, ranges = found
    for start, end in reversed(ranges):
        piece = f"{piece[:start]}[{piece[start:end]}]{piece[end:]}"
    return piece


@pytest.mark.parametrize(
    ("text", "query", "piece"),
    [
        ("The linker is missing.", "linker", "The [linker] is missing."),
        ("a b a", "a", "[a] b [a]"),
        ("one two three two three", '"two three"', "one [two three] [two three]"),
        ("東京都に行く", "京都", "東[京都]に行く"),
        ("The Straße", "strasse", "The [Straße]"),
        ("nothing here", "linker", None),
        ("linking, linked", "link*", "[linking], [linked]"),
    ],
)
def test_what_was_found_is_shown_and_marked(text: str, query: str, piece: str | None) -> None:
    assert shown(text, query) == piece


def test_a_long_text_is_cut_around_the_first_match() -> None:
    text = "before " * 100 + "linker " + "after " * 100
    piece = shown(text, "linker") or ""
    assert piece.startswith("…")
    assert piece.endswith("…")
    assert "[linker]" in piece
    assert len(piece) <= SNIPPET_CHARS + 4


@pytest.mark.parametrize(
    "text", ["\x1b[31mred linker", "up\r\n\tlinker", "turn \u202e linker", "l\u2028linker"]
)
def test_what_moves_other_text_about_is_a_space(text: str) -> None:
    piece = shown(text, "linker") or ""
    assert piece.isprintable()
    assert "[linker]" in piece


def test_a_substring_is_shown_where_it_is() -> None:
    assert substring_snippet("The Linker", "inke") == ("The Linker", ((5, 9),))
    assert substring_snippet("The Linker", "none") is None
    assert substring_snippet("Crème", "creme") == ("Crème", ())


@given(st.text(), st.lists(st.text(alphabet="ab é京\n\ud800", max_size=8)))
def test_every_snippet_can_be_printed_and_its_places_lie_in_it(
    around: str, words: list[str]
) -> None:
    text = around + " needle ".join(["", *words, ""]) + around
    found = snippet(text, [Phrase(("needle",))])
    if "needle" not in text:
        return
    assert found is not None
    piece, ranges = found
    piece.encode("utf-8")
    assert all(0 <= start < end <= len(piece) for start, end in ranges)
    assert all("needle" in piece[start:end].lower() for start, end in ranges[:1])
