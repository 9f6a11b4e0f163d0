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
