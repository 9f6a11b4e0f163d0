"""On a terminal: tables that fit, lines that wrap, colours only where they are wanted."""

import io

import pytest
from rich.cells import cell_len

from killick import Store
from killick.cli.output import Column, Printer, Span, fit_cell, fit_columns, line
from tests.cli.running import ESCAPES, run_in_terminal, run_process
from tests.cli.sample import Sample

WIDE = "日本語のタイトル " * 12


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("words", ["sessions", "stats", "show", "show --timeline", "doctor"])
def test_no_line_is_wider_than_the_terminal(sample: Sample, columns: int, words: str) -> None:
    with Store(sample.path) as store:
        store.session(sample.build).rename(WIDE)
    name, *rest = words.split()
    about = [sample.build] if name == "show" else []
    done = run_in_terminal(columns, name, *about, *rest, "--store", str(sample.path))
    assert done.code == 0, done.out
    shown = ESCAPES.sub("", done.out).splitlines()
    assert [one for one in shown if cell_len(one) > columns] == []
    assert not any(one.endswith(" ") for one in shown if one.startswith(" "))


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (40, ["ID", "TITLE"]),
        (80, ["ID", "CHANGED", "STATUS", "TITLE"]),
        (200, ["ID", "CHANGED", "STATUS", "TITLE", "TYPE", "MODEL", "TAGS", "PROJECT"]),
    ],
)
def test_a_wider_terminal_shows_more(sample: Sample, columns: int, names: list[str]) -> None:
    done = run_in_terminal(columns, "sessions", "--store", str(sample.path))
    assert ESCAPES.sub("", done.lines[0]).split() == names


def test_an_id_on_a_terminal_is_a_prefix_that_can_be_used(sample: Sample) -> None:
    done = run_in_terminal(80, "sessions", "--store", str(sample.path))
    shown = [ESCAPES.sub("", row).split()[0] for row in done.lines[1:4]]
    assert [len(one) < len(sample.build) for one in shown] == [True] * 3
    for prefix, whole in zip(shown, (sample.empty, sample.hostile, sample.build), strict=True):
        found = run_process("show", prefix, "--json", "--store", str(sample.path))
        assert found.json["id"] == whole


def test_colours_are_for_terminals_that_want_them(sample: Sample) -> None:
    store = str(sample.path)
    assert "\x1b[" in run_in_terminal(80, "show", sample.build, "--store", store).out
    for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert (
            "\x1b" not in run_in_terminal(80, "show", sample.build, "--store", store, more=more).out
        )
    assert "\x1b" not in run_process("show", sample.build, "--store", store).out


def test_json_is_the_same_on_a_terminal(sample: Sample) -> None:
    words = ["sessions", "--json", "--store", str(sample.path)]
    assert run_in_terminal(40, *words).json == run_process(*words).json


def test_a_line_that_is_wrapped_keeps_its_indent() -> None:
    out = io.StringIO()
    Printer(out, terminal=True, width=20).lines([line("one two three four five", indent=4)])
    assert out.getvalue() == "    one two three\n    four five\n"


def test_a_word_that_is_too_long_is_broken() -> None:
    out = io.StringIO()
    Printer(out, terminal=True, width=20).lines([line("x" * 45)])
    assert [len(one) for one in out.getvalue().splitlines()] == [20, 20, 5]


def test_an_empty_line_is_one_line() -> None:
    out = io.StringIO()
    Printer(out, terminal=True, width=20).lines([line(""), line("x")])
    assert out.getvalue() == "\nx\n"


def test_into_a_pipe_nothing_is_cut() -> None:
    out = io.StringIO()
    printer = Printer(out)
    printer.lines([line("x" * 300)])
    printer.table([Column("A"), Column("B", least=500)], [["y" * 300, "a\tb"]])
    assert out.getvalue() == "x" * 300 + "\n" + "y" * 300 + "\ta\\tb\n"


def test_the_flexible_column_gives_way() -> None:
    columns = [Column("A"), Column("B", flexible=True), Column("C", least=100)]
    assert fit_columns(columns, [["aaa", "b" * 90, "c"]], 40) == [3, 35, None]
    assert fit_columns(columns, [["aaa", "b" * 90, "c"]], 120) == [3, 90, 1]


def test_a_cell_is_as_wide_as_it_is_told_to_be() -> None:
    assert fit_cell("日本語", 5) == "日本…"
    assert fit_cell("ab", 4) == "ab  "
    assert fit_cell("ab", 4, right=True) == "  ab"
    assert Span("x").style == ""
