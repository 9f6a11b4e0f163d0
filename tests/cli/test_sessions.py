"""Listing sessions, with every filter; what they cost; where they lie."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from killick import Project, Store
from tests.cli.running import Runner
from tests.cli.sample import Sample


def ids(killick: Runner, *filters: str) -> list[str]:
    done = killick("sessions", *filters, "--json")
    assert done.code == 0, done.err
    return [one["id"] for one in done.json]


def test_sessions_are_listed_newest_first_one_line_each(killick: Runner, sample: Sample) -> None:
    done = killick("sessions")
    cells = [row.split("\t") for row in done.lines]
    assert [row[0] for row in cells] == [sample.empty, sample.hostile, sample.build]
    assert cells[2][2:] == [
        "interrupted",
        "Fix the build",
        "user",
        "small, big",
        "release",
        "/srv/build",
    ]


def test_a_session_without_a_title_is_listed_by_how_it_begins(
    killick: Runner, sample: Sample
) -> None:
    killick("rename", sample.build, "--none")
    killick("rename", sample.empty, "--none")
    titles = {row.split("\t")[0]: row.split("\t")[3] for row in killick("sessions").lines}
    assert titles[sample.build] == "Why does the build fail?"
    assert titles[sample.empty] == "(no title)"


def test_a_fork_in_which_nothing_was_asked_yet_is_not_empty(
    killick: Runner, sample: Sample
) -> None:
    fork = killick("fork", sample.build, "--json").json["id"]
    states = {row.split("\t")[0]: row.split("\t")[2] for row in killick("sessions").lines}
    assert (states[fork], states[sample.empty]) == ("forked", "empty")


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("--type scheduled", ["hostile"]),
        ("--project /srv/build", ["build"]),
        ("--tag release", ["build"]),
        ("--model big", ["build"]),
        ("--interrupted", ["build"]),
        ("--not-interrupted", ["empty", "hostile"]),
        ("--title THE", ["build"]),
        ("--pinned", []),
        ("--not-pinned", ["empty", "hostile", "build"]),
        ("--since 1h", ["empty", "hostile", "build"]),
        ("--until 1h", []),
        ("--since 2001-01-01 --until 2002-01-01T10:00", []),
        ("--archived", []),
        ("--deleted", []),
    ],
)
def test_filters(killick: Runner, sample: Sample, filters: str, found: list[str]) -> None:
    assert ids(killick, *filters.split()) == [getattr(sample, name) for name in found]


def test_archived_pinned_and_deleted_ones_are_found_when_asked_for(
    killick: Runner, sample: Sample
) -> None:
    killick("archive", sample.build)
    killick("pin", sample.hostile)
    killick("delete", sample.empty)
    assert ids(killick) == [sample.hostile]
    assert ids(killick, "--archived") == [sample.build]
    assert set(ids(killick, "--all")) == {sample.hostile, sample.build}
    assert ids(killick, "--pinned") == [sample.hostile]
    assert ids(killick, "--deleted") == [sample.empty]


def test_forks_are_found_by_a_prefix_of_what_they_come_from(
    killick: Runner, sample: Sample
) -> None:
    fork = killick("fork", sample.build, "--json").json["id"]
    assert ids(killick, "--fork-of", sample.build[:-2]) == [fork]


def test_a_project_may_be_named_by_a_relative_path(
    killick: Runner, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(sample.path) as store:
        here = store.create_session(project=Project(root=str(tmp_path.resolve()))).id
    monkeypatch.chdir(tmp_path)
    assert ids(killick, "--project", ".") == [here]


def test_pages_follow_each_other_without_gap_or_repeat(killick: Runner, sample: Sample) -> None:
    assert ids(killick, "--limit", "2") == [sample.empty, sample.hostile]
    assert ids(killick, "--limit", "2", "--before", sample.hostile) == [sample.build]
    done = killick("sessions", "--limit", "2")
    assert f"--before {sample.hostile}" in done.err


def test_pages_of_deleted_sessions_too(killick: Runner, sample: Sample) -> None:
    for one in (sample.build, sample.hostile):
        killick("delete", one)
    assert ids(killick, "--deleted", "--limit", "1") == [sample.hostile]
    assert ids(killick, "--deleted", "--before", sample.hostile) == [sample.build]


def test_that_nothing_matches_is_said_beside_the_output(killick: Runner) -> None:
    done = killick("sessions", "--title", "no such title")
    assert (done.code, done.out) == (0, "")
    assert "no sessions" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--since 2026-01-02 --until 2026-01-01", "--until lies before --since"),
        ("--limit 0", "0 is not in the range"),
        ("--before zzz", "no session 'zzz'"),
    ],
)
def test_what_cannot_be_asked_is_refused(killick: Runner, words: str, said: str) -> None:
    done = killick("sessions", *words.split())
    assert done.code in (2, 4)
    assert said in done.err


def test_stats_add_up_tokens_and_cost(killick: Runner, sample: Sample) -> None:
    value = killick("stats", "--session", sample.build, "--json").json
    assert value["total"]["input"] == 1200
    assert value["total"]["cost"] == 0.25
    assert {one["name"]: one["calls"] for one in value["usage"]} == {"small": 2, "big": 1}
    assert value["counts"]["sessions"] == 3


@pytest.mark.parametrize("by", ["model", "session", "project", "day", "all"])
def test_stats_can_be_asked_by_anything(killick: Runner, by: str) -> None:
    done = killick("stats", "--by", by)
    assert done.code == 0
    assert done.lines[-1].startswith("total\t4\t1,200\t34")


def test_stats_of_days_before_anything_was_recorded(killick: Runner) -> None:
    assert killick("stats", "--until", "2001-01-01", "--json").json["usage"] == []


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_password_is_not_shown(killick: Runner, json: list[str]) -> None:
    url = "postgresql://me:s3cr@et@db.example/x?schema=a&password=s3cr@et&sslpassword=s3cr@et"
    done = killick("where", "--store", url, *json)
    shown = done.json["store"] if json else done.out
    assert "postgresql://me:…@db.example/x?schema=a&password=…&sslpassword=…" in shown
    for words in (["where", *json], ["sessions"]):
        done = killick(*words, "--store", "mysql://me:s3cr@et@db.example/x")
        assert "s3cr" not in done.out + done.err


def test_where_says_which_file_and_why(
    killick: Runner, sample: Sample, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert killick("where").lines[::2] == [str(sample.path), "because --store names it"]
    other = tmp_path / "other.db"
    value = killick("where", "--store", f"sqlite:///{other}", "--json").json
    assert (value["store"], value["exists"], value["bytes"]) == (str(other), False, None)
    assert not other.exists()


def test_the_hour_is_shown_as_it_is_here(killick: Runner, sample: Sample) -> None:
    with Store(sample.path) as store:
        at = store.session(sample.empty).info().updated_at
    assert killick("sessions").lines[0].split("\t")[1] == at.isoformat()
    assert at.utcoffset() == timedelta(0)


DYING = """
import os, signal, sys
from killick import Store

with Store(sys.argv[1]).session(sys.argv[2]).turn("Go."):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("filters", [(), ("--interrupted",)])
def test_what_a_crash_cut_off_is_listed_as_interrupted_at_once(
    killick: Runner, sample: Sample, filters: tuple[str, ...]
) -> None:
    died = subprocess.run([sys.executable, "-c", DYING, str(sample.path), sample.empty])
    assert died.returncode == -signal.SIGKILL
    with Store(sample.path) as store, store.session(sample.hostile).turn("Go."):
        listed = killick("sessions", *filters, "--json").json
    statuses = {one["id"]: one["status"] for one in listed}
    assert statuses.pop(sample.hostile, "running") == "running"  # this one is alive
    assert statuses == dict.fromkeys([sample.empty, sample.build], "interrupted")
