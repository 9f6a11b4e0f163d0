"""`killick verify`: what fits, what does not, and links that were kept elsewhere."""

import json
from pathlib import Path

import apsw

from tests.cli.running import Runner
from tests.cli.sample import Sample


def test_a_store_as_it_was_written_is_proved(killick: Runner, sample: Sample) -> None:
    done = killick("verify")
    assert done.code == 0
    assert "everything fits" in done.out
    printed = killick("verify", "--json").json
    assert printed["proved"] is True
    assert all(len(one["link"]) == 64 for one in printed["sessions"])


def test_a_changed_entry_is_named(killick: Runner, sample: Sample) -> None:
    with apsw.Connection(str(sample.path)) as connection:
        connection.execute("UPDATE entries SET at_us = at_us + 1 WHERE session = 1 AND seq = 3")
    done = killick("verify", "--json")
    assert done.code == 3
    found = [finding for one in done.json["sessions"] for finding in one["findings"]]
    assert [(one["kind"], one["seq"]) for one in found] == [("link", 3)]
    assert "1 thing wrong" in killick("verify").err


def test_links_are_compared_with_those_that_were_kept(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    kept = tmp_path / "links.json"
    kept.write_text(json.dumps(killick("verify", "--json").json))
    assert killick("verify", "--expect", str(kept)).code == 0
    changed = json.loads(kept.read_text())
    changed["sessions"][0]["link"] = "0" * 64
    kept.write_text(json.dumps(changed))
    done = killick("verify", "--expect", str(kept))
    assert done.code == 3
    assert "not the expected one" in done.out
    kept.write_text("{}")
    refused = killick("verify", "--expect", str(kept))
    assert refused.code not in (0, 3)
    assert "verify --json" in refused.err


def test_what_was_erased_can_be_looked_at_again(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    done = killick("erase", sample.build, "--yes", "--no-verify", "--json")
    assert (done.code, done.json["verified"]) == (0, None)
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(done.json))
    assert killick("doctor").code == 3
    again = killick("verify", "--erased", "--json").json
    assert (again["verified"], again["sessions"]) == (True, [sample.build])
    assert killick("doctor").code == 0
    assert killick("verify", "--erased", sample.build).code == 0
    assert killick("verify", "--erased", str(receipt)).code == 0
    assert b"The linker is missing." not in sample.path.read_bytes()


def test_looking_again_is_refused_for_what_was_not_erased_here(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    receipt = tmp_path / "receipt.json"
    erased = killick("erase", sample.build, "--yes", "--json").json
    receipt.write_text(json.dumps({**erased, "store": erased["store"] + 1}))
    for what, said in ((sample.hostile, "not erased"), (str(receipt), "not of this store")):
        done = killick("verify", "--erased", what)
        assert done.code == 2
        assert said in done.err
    receipt.write_text("{}")
    assert killick("verify", "--erased", str(receipt)).code == 2
    assert killick("verify", sample.build).code == 2
