"""A damaged session is shown as far as it can be read, and never hides another."""

import apsw
import pytest

from killick import Store
from tests.cli.running import Runner
from tests.cli.sample import Sample


def damage(sample: Sample, seq: int) -> None:
    """Change a byte of one entry of the session about the build."""
    connection = apsw.Connection(str(sample.path))
    connection.execute(
        "UPDATE entries SET body = CAST('x' || substr(body, 2) AS BLOB) WHERE seq = ? AND session ="
        " (SELECT key FROM sessions WHERE CAST(id AS TEXT) = ?)",
        (seq, sample.build),
    )
    assert connection.changes() == 1
    connection.close()


@pytest.mark.parametrize("seq", range(1, 26))
def test_whichever_entry_is_damaged_the_rest_is_shown(
    killick: Runner, sample: Sample, seq: int
) -> None:
    damage(sample, seq)
    for options in ([], ["--timeline"], ["--json"]):
        done = killick("show", sample.build, *options)
        assert done.code == 3
        assert f"is damaged near seq {seq}" in done.err
        assert done.err.count("\n") == 1
        assert done.out
    readable = seq not in (3, 11, 12, 13, 14)
    assert ("Why does the build fail?" in killick("show", sample.build).out) or not readable


def test_other_sessions_are_listed_and_shown(killick: Runner, sample: Sample) -> None:
    damage(sample, 5)
    assert len(killick("sessions", "--json").json) == 3
    assert killick("show", sample.hostile).code == 0


@pytest.mark.parametrize("words", ["context", "tail --after 0 --until-end", "rename"])
def test_what_needs_the_whole_session_refuses(killick: Runner, sample: Sample, words: str) -> None:
    """A model is never sent a part of a conversation as if it were the whole."""
    damage(sample, 5)
    name, *rest = words.split()
    title = ["x"] if name == "rename" else []
    done = killick(name, sample.build, *title, *rest)
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "killick doctor" in done.err


def test_the_doctor_names_the_place_and_what_to_do(killick: Runner, sample: Sample) -> None:
    damage(sample, 5)
    done = killick("doctor", "--json")
    assert done.code == 3
    (finding,) = done.json["findings"]
    assert (finding["kind"], finding["session_id"], finding["seq"]) == ("entry", sample.build, 5)
    assert "backup" in killick("doctor").out


def test_a_row_that_cannot_be_read_is_rebuilt(killick: Runner, sample: Sample) -> None:
    connection = apsw.Connection(str(sample.path))
    connection.execute(
        "UPDATE sessions SET about = CAST('{' AS BLOB) WHERE CAST(id AS TEXT) = ?", (sample.build,)
    )
    connection.close()
    shown = killick("show", sample.build)
    assert (shown.code, "The linker is missing." in shown.out) == (3, True)
    assert len(killick("sessions", "--json").json) == 3
    assert killick("doctor").code == 3
    mended = killick("doctor", "--rebuild")
    assert (mended.code, "mended: " in mended.out) == (0, True)
    with Store(sample.path) as store:
        assert store.session(sample.build).title == "Fix the build"
