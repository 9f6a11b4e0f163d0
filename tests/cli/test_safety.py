"""Nothing that was recorded is obeyed by a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick.views.escape import escape, escape_json, escape_line, one_line
from tests.cli.running import ESCAPES, Runner, run_in_terminal
from tests.cli.sample import FORBIDDEN, HOSTILE, Sample

EVERY_WAY = [
    "show",
    "context",
    "context --repairs",
    "tail --after 0 --until-end",
    "show --timeline",
]


def test_what_a_terminal_would_obey_is_shown_as_an_escape() -> None:
    assert escape("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert escape("\u202e\x9b\ud800") == "\\u202e\\x9b\\ud800"


def test_newlines_and_tabs_stay_in_a_text_and_not_in_a_line() -> None:
    assert escape("a\tb\r\nc\n") == "a\tb\nc\n"
    assert escape_line("a\tb\nc") == "a\\tb\\nc"
    assert one_line(" a\n  b ") == "a b"


def test_letters_of_all_scripts_and_joined_emoji_stay() -> None:
    text = "日本語 עברית می‌خواهم 👩‍💻 é"
    assert escape_line(text) == text


@given(st.text(st.characters()))
def test_no_text_leaves_anything_hostile(text: str) -> None:
    assert not any(char in escape_line(text) for char in (*FORBIDDEN, "\n", "\t", "\r"))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_made_harmless_is_the_same_json(text: str) -> None:
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("words", [*EVERY_WAY, "sessions", "stats", "stats --by session"])
def test_no_command_prints_what_is_hostile(killick: Runner, sample: Sample, words: str) -> None:
    name, *rest = words.split()
    about = [] if name in {"sessions", "stats"} else [sample.hostile]
    done = killick(name, *about, *rest)
    assert done.code == 0, done.err
    assert [char for char in FORBIDDEN if char in done.out] == []
    done = killick(name, *about, *rest, "--json")
    assert [char for char in FORBIDDEN if char in done.out] == []
    assert done.out.isascii()


def test_errors_are_harmless_too(killick: Runner) -> None:
    done = killick("show", HOSTILE)
    assert [char for char in FORBIDDEN if char in done.err] == []
    assert len(done.err.splitlines()) == 1


def test_json_gives_back_what_was_recorded(killick: Runner, sample: Sample) -> None:
    shown = killick("show", sample.hostile, "--json").json
    assert shown["title"] == HOSTILE
    assert shown["transcript"][0]["text"] == HOSTILE


@pytest.mark.parametrize("words", ["show", "show --timeline", "tail --after 0 --until-end"])
def test_on_a_terminal_the_only_escapes_are_colours(sample: Sample, words: str) -> None:
    name, *rest = words.split()
    done = run_in_terminal(80, name, sample.hostile, *rest, "--store", str(sample.path))
    assert done.code == 0, done.out
    plain = ESCAPES.sub("", done.out)
    assert [char for char in FORBIDDEN if char in plain] == []
    assert "\\x1b]0;title\\x07" in plain
