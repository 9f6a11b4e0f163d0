"""Changing a session, and every way to ask for a change that cannot be made."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Store
from tests.cli.running import Runner
from tests.cli.sample import Sample, make_sample

PROGRAMS_WORDS = ("store.", "session.", "message.seq", "entry.seq", "if_busy", "Traceback")


def head(sample: Sample) -> int:
    with Store(sample.path) as store:
        return store.session(sample.build).head


def test_a_session_is_renamed_by_a_prefix_of_its_id(killick: Runner, sample: Sample) -> None:
    done = killick("rename", sample.build[:-4], "Another title", "--json")
    assert (done.code, done.json["title"]) == (0, "Another title")
    assert done.json["seq"] == head(sample)
    assert killick("rename", sample.build, "--none", "--json").json["title"] is None


def test_tags_are_put_on_and_taken_off(killick: Runner, sample: Sample) -> None:
    done = killick("tag", sample.build, "a", "b", "--remove", "release", "--json")
    assert done.json["tags"] == ["a", "b"]
    assert "none" in killick("tag", sample.build, "--remove", "a", "--remove", "b").out


@pytest.mark.parametrize(("name", "field"), [("archive", "archived"), ("pin", "pinned")])
def test_what_is_switched_on_can_be_switched_off(
    killick: Runner, sample: Sample, name: str, field: str
) -> None:
    assert killick(name, sample.build, "--json").json[field] is True
    assert killick(name, sample.build, "--off", "--json").json[field] is False


def test_a_deleted_session_can_be_restored(killick: Runner, sample: Sample) -> None:
    deleted = killick("delete", sample.build, "--reason", "a mistake", "--json")
    assert deleted.json["deleted_at"] is not None
    shown = killick("show", sample.build)
    assert (shown.code, "killick restore" in shown.err) == (4, True)
    assert killick("restore", sample.build, "--json").json["deleted_at"] is None
    assert killick("show", sample.build).code == 0


def test_a_fork_begins_with_the_entries_of_the_other(killick: Runner, sample: Sample) -> None:
    fork = killick("fork", sample.build, "--at", "5", "--title", "Another way", "--json").json
    assert (fork["title"], fork["fork"]) == ("Another way", {"session_id": sample.build, "at": 5})
    assert "Why does the build fail?" in killick("show", fork["id"]).out


def test_the_last_turns_are_rewound_by_their_number(killick: Runner, sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.build)
        for text in ("Third", "Fourth"):
            with session.turn(text):
                pass

    def prompts() -> list[str]:
        shown = killick("show", sample.build, "--json").json["transcript"]
        return [item["text"] for item in shown if item["role"] == "user"]

    assert prompts() == ["Why does the build fail?", "Install it.", "Third", "Fourth"]
    assert killick("rewind", sample.build, "--last", "1").code == 0
    assert prompts() == ["Why does the build fail?", "Install it.", "Third"]
    assert killick("rewind", sample.build, "--last", "2").code == 0
    assert prompts() == ["Why does the build fail?"]
    with Store(sample.path) as store, store.session(sample.build).turn("Fifth"):
        pass
    assert killick("rewind", sample.build, "--last", "1").code == 0
    assert prompts() == ["Why does the build fail?"]
    assert killick("undo", sample.build).code == 0
    assert prompts() == ["Why does the build fail?", "Fifth"]
    done = killick("rewind", sample.build, "--last", "2", "--json")
    assert (done.code, prompts()) == (0, [])
    assert "has 0 turns in view" in killick("rewind", sample.build, "--last", "1").err


def test_a_rewind_can_be_undone(killick: Runner, sample: Sample) -> None:
    assert killick("rewind", sample.build, "--through", "3").code == 0
    assert "The linker is missing." not in killick("show", sample.build).out
    assert killick("undo", sample.build).code == 0
    assert "The linker is missing." in killick("show", sample.build).out


def test_a_summary_can_come_from_a_file(killick: Runner, sample: Sample, tmp_path: Path) -> None:
    file = tmp_path / "summary.txt"
    file.write_text("It was the linker.", encoding="utf-8")
    done = killick("compact", sample.build, "--through", "8", "--summary-file", str(file))
    assert done.code == 0, done.err
    assert "It was the linker." in killick("context", sample.build).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("rewind ID --through 999", 2, "through=999: no such seq"),
        ("rewind ID --through -1", 2, "-1 is not in the range"),
        ("rewind ID --through three", 2, "'three' is not a valid integer"),
        ("rewind ID", 2, "give --through SEQ or --last N, one of them"),
        ("rewind ID --through 3 --last 1", 2, "give --through SEQ or --last N, one of them"),
        ("rewind ID --last 3", 2, "has 2 turns in view"),
        ("rewind ID --last 0", 2, "0 is not in the range"),
        ("compact ID --through 999 --summary x", 2, "through=999: no such seq"),
        ("compact ID --through 3 --first 9 --summary x", 2, "upside down"),
        ("compact ID --through 1 --summary x", 2, "nothing to compact from 1 to 1"),
        ("compact ID --through 8 --keep 2 --summary x", 2, "keep=2 is no message"),
        ("compact ID --through 8 --summary=", 2, "the summary is empty"),
        ("compact ID --through 8", 2, "give --summary or --summary-file"),
        ("compact ID --through 8 --summary-file /nowhere/x", 2, "No such file or directory"),
        ("tail ID --after 9999999999999999999999", 2, "is not in the range"),
        ("fork ID --at 999", 2, "at=999: no such seq"),
        ("hide ID 2", 2, "there is no message at seq 2"),
        ("hide ID 999", 2, "no such seq"),
        ("hide ID 3 --from nobody", 2, "'nobody' is not one of"),
        ("undo ID", 5, "nothing to undo"),
        ("undo ID 3", 2, "no compaction or rewind at seq 3"),
        ("stop ID", 1, "none to stop"),
        ("rename ID", 2, "give a title"),
        ("tag ID", 2, "give a tag"),
        ("tag ID LONG", 2, "a tag has 10000 characters; at most 100"),
        ("rename ID LONG", 2, "10000 characters"),
        ("tail ID --after -1", 2, "-1 is not in the range"),
        ("context ID --format nonsense", 2, "'nonsense' is not one of"),
        ("context ID --max-tokens 0", 2, "0 is not in the range"),
        ("show ID --last 0", 2, "0 is not in the range"),
        ("stats --by nonsense", 2, "'nonsense' is not one of"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(
    killick: Runner, sample: Sample, words: str, code: int, said: str
) -> None:
    before = head(sample)
    meant = {"ID": sample.build, "LONG": "x" * 10_000}
    done = killick(*(meant.get(word, word) for word in words.split()))
    assert said in done.err
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert [one for one in PROGRAMS_WORDS if one in done.err] == []
    assert head(sample) == before


def test_a_running_turn_is_not_rewound(killick: Runner, sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.build)
        with session.turn("And now?"):
            before = session.head
            done = killick("rewind", sample.build, "--through", "3")
            assert done.code == 5
            assert "'killick stop ID' asks it to end" in done.err
            assert session.entries()[-1].seq == before


def test_a_running_turn_can_be_stopped(killick: Runner, sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.build)
        with session.turn("And now?") as turn:
            done = killick("stop", sample.build, "--reason", "wrong branch", "--json")
            expected = {"id": sample.build, "asked": True, "reason": "wrong branch"}
            assert done.json == {**expected, "cause": "stopped"}
            asked = [entry for entry in session.entries() if entry.kind == "stop_asked"]
            assert [entry.body.turn_id for entry in asked] == [turn.id]  # type: ignore[union-attr]


def test_an_undo_that_would_mix_two_conversations_names_the_fork(
    killick: Runner, sample: Sample
) -> None:
    seq = killick("rewind", sample.build, "--through", "3", "--json").json["seq"]
    with Store(sample.path) as store, store.session(sample.build).turn("Another way."):
        pass
    done = killick("undo", sample.build)
    assert done.code == 5
    assert f"'killick fork ID --at {seq - 1}'" in done.err
    assert [one for one in PROGRAMS_WORDS if one in done.err] == []


@pytest.fixture
def readable_only() -> Iterator[Sample]:
    """A store that may be read and not written; its folder is one that anybody may enter."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    sample = make_sample(folder / "work.db")
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    yield sample
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words", ["rename ID x", "delete ID", "compact ID --through 8 --summary x"]
)
def test_a_store_that_may_not_be_written_is_said_to_be(readable_only: Sample, words: str) -> None:
    """Root may write everywhere, so the command gives that up before it runs."""
    before = readable_only.path.read_bytes()
    arguments = [readable_only.build if word == "ID" else word for word in words.split()]
    program = (
        "import os, sys; from killick.cli import argv, main; import killick.stores.sqlite\n"
        "for name in argv.MODULES: argv.make_group().get_command(None, name)\n"
        "if os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
        f"sys.exit(main({['--store', str(readable_only.path), *arguments]!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (6, "", 1)
    assert "another file" in done.stderr
    assert readable_only.path.read_bytes() == before


def test_words_for_a_turn_wait_where_none_runs(killick: Runner, sample: Sample) -> None:
    done = killick("steer", sample.build, "also check the tests", "--json")
    assert (done.code, done.json["queued"], done.json["turn_id"]) == (0, True, None)
    assert "waits for the next" in killick("steer", sample.build, "and this").out
    assert killick("steer", sample.build, " ").code != 0


def test_news_are_of_all_sessions(killick: Runner, sample: Sample) -> None:
    told = killick("news", "--after", "0", "--json")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert (told.code, {line["kind"] for line in lines} >= {"turn_ended"}) == (0, True)
    rest = killick("news", "--after", lines[0]["cursor"], "--json").out.splitlines()
    assert [json.loads(line) for line in rest] == lines[1:]
    waiting = killick("news")
    assert (waiting.code, waiting.out.count("\n") < len(lines)) == (0, True)
    refused = killick("news", "--after", "yesterday")
    assert (refused.code != 0, "cursor" in refused.err) == (True, True)
