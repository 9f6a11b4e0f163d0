"""Messages found by their words."""

import apsw
import pytest

from killick import Message, Store, Text
from tests.bad_input.helpers import read_only
from tests.cli.running import Runner
from tests.cli.sample import FORBIDDEN, Sample
from tests.docs.pages import DOCS


def test_a_message_is_found_with_its_place(killick: Runner, sample: Sample) -> None:
    done = killick("search", "linker")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0].startswith(f"{sample.build}  #12 assistant")
    assert done.lines[1] == "  The linker is missing."


def test_words_need_not_be_quoted(killick: Runner) -> None:
    hits = killick("search", "linker", "missing", "--json").json["hits"]
    assert [hit["snippet"] for hit in hits] == ["The linker is missing."]


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["build", "--role", "user"], 1),
        (["build", "--role", "tool"], 0),
        (["log", "--no-reasoning"], 0),
        (["log"], 1),
        (["link*", "--session", "ID", "--order", "best"], 1),
        (["linker", "--since", "1h", "--interrupted"], 1),
        (["linker", "--until", "1h"], 0),
        (["linker", "--not-interrupted"], 0),
        (["linker", "--project", "/srv/build", "--limit", "1"], 1),
        (["linker", "--project", "/srv/other"], 0),
    ],
)
def test_filters(killick: Runner, sample: Sample, words: list[str], number: int) -> None:
    done = killick("search", *(sample.build if w == "ID" else w for w in words), "--json")
    assert done.code == 0, done.err
    assert len(done.json["hits"]) == number


def test_that_nothing_was_found_is_said(killick: Runner) -> None:
    done = killick("search", "nowhere")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"killick: nothing was found in {killick.store}\n"
    assert killick("search", "nowhere", "--json").json == {"hits": [], "behind": 0, "ranked": None}


@pytest.mark.parametrize("words", ['"" **', '"', "*", "()", ""])
def test_a_query_without_a_word_is_refused_in_one_line(killick: Runner, words: str) -> None:
    done = killick("search", words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_what_is_found_is_harmless(killick: Runner) -> None:
    done = killick("search", "exe")
    assert done.code == 0
    assert done.out
    assert [char for char in FORBIDDEN if char in done.out] == []


def test_an_index_that_is_damaged_can_be_made_anew(killick: Runner, sample: Sample) -> None:
    connection = apsw.Connection(str(sample.path))
    connection.execute("UPDATE search_state SET damage = 'a test'")
    connection.close()
    done = killick("search", "linker")
    assert (done.code, done.out, done.err.count("\n")) == (6, "", 1)
    assert "'killick doctor --rebuild-search'" in done.err
    assert killick("doctor", "--rebuild-search").code == 0
    assert len(killick("search", "linker", "--json").json["hits"]) == 1


def test_after_a_burst_the_search_waits_for_the_index(killick: Runner, sample: Sample) -> None:
    with Store(sample.path, indexing=False) as store, store.create_session().turn("go") as turn:
        for number in range(60):
            text = " ".join(f"word{number}x{place}" for place in range(4_000))
            turn.record(Message("assistant", [Text(f"{text} needle")]))
    done = killick("search", "needle", "--limit", "100", "--json")
    assert (done.code, done.json["behind"], len(done.json["hits"])) == (0, 0, 60)


def test_what_was_not_looked_at_is_said_and_the_exit_code_is_3(
    killick: Runner, sample: Sample
) -> None:
    with Store(sample.path, indexing=False) as store, store.create_session().turn("needle"):
        pass
    with read_only(sample.path.parent):
        said = killick("search", "needle")
        done = killick("search", "needle", "--json")
    assert (said.code, done.code) == (3, 3)
    assert "entries are not indexed yet and were not looked at" in said.err
    assert done.json["hits"] == []
    assert done.json["behind"] >= 4


def test_json_has_the_fields_that_the_page_names(killick: Runner) -> None:
    page = (DOCS / "command.md").read_text(encoding="utf-8")
    (hit,) = killick("search", "linker", "--json").json["hits"]
    (row,) = [line for line in page.splitlines() if line.startswith("| a hit |")]
    assert set(hit) == {name.strip(" `") for name in row.split("|")[2].split(",")}
