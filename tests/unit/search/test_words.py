"""Text to the words that an index holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.search.words import WORD_CHARS_MAX, fold, indexed, unbroken, words

ASCII = st.characters(max_codepoint=127)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The linker is missing.", "the linker is missing"),
        ("no_such-file: ld.so (x86_64)", "no such file ld so x86 64"),
        ("Crème brûlée, ΑΓΓΈΛΟΥ, Straße", "creme brulee αγγελου strasse"),
        ("e\u0301tude and étude", "etude and etude"),
        ("\ufb01le \uff57\uff49\uff44\uff45 5", "file wide 5"),
        ("שָׁלוֹם مُحَمَّد", "שלום محمد"),
        ("हिन्दी में", "हिन्दी में"),
        ("nul \0 and \ud800 lone", "nul and lone"),
        ("🦀 crab", "crab"),
        ("", ""),
        ("*** ---", ""),
    ],
)
def test_words_are_folded_and_apart(text: str, found: str) -> None:
    assert indexed(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("東京都", "東京 京都 都"),
        ("京", "京"),
        ("in東京tower", "in 東京 京 tower"),
        ("สวัสดี", "สว วั ัส สด ดี ี"),
        ("한국어", "한국 국어 어"),
        ("ｶﾀｶﾅ", "カタ タカ カナ ナ"),
        ("東京 都", "東京 京 都"),
    ],
)
def test_scripts_without_spaces_are_cut_into_pairs(text: str, found: str) -> None:
    assert indexed(text) == found


def test_what_is_longer_than_a_word_may_be_is_cut_into_several() -> None:
    assert [len(word.text) for word in words("a" * 150)] == [WORD_CHARS_MAX, WORD_CHARS_MAX, 22]
    assert [len(word.text) for word in words("é" * 150)] == [WORD_CHARS_MAX, WORD_CHARS_MAX, 22]


@pytest.mark.parametrize("text", ["The linker", "Crème brûlée x", "in 東京都 and สวัสดี"])
def test_a_word_knows_where_it_stands(text: str) -> None:
    for word in words(text):
        assert fold(text[word.start : word.end]) == word.text


def test_a_word_whose_length_changed_stands_for_its_whole_run() -> None:
    (word,) = words("Straße")
    assert (word.text, word.start, word.end) == ("strasse", 0, 6)


@pytest.mark.parametrize("text", ["plain ASCII, x86_64 " * 3, "A" * 200, "a_b__c-9"])
def test_plain_text_is_cut_as_any_other(text: str) -> None:
    beside = "é " + text
    assert indexed(beside) == "e " + indexed(text)
    assert indexed(text) == " ".join(word.text for word in words(text))


@given(st.lists(st.text(ASCII) | st.integers(60, 140).map("aB3".__mul__), max_size=5).map("".join))
def test_plain_text_is_cut_at_once_as_it_is_word_by_word(text: str) -> None:
    assert indexed(text) == " ".join(word.text for word in words(text))


def test_unbroken_text_can_be_given_to_a_database() -> None:
    assert unbroken("Nul\0 Lone\ud800 Ä") == "nul  lone? a"
