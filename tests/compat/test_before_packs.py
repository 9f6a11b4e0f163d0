"""A store of the format before packs, in which every flush of a stream was a row of its own.

`before_packs/` was made by the last version of that format: a session with a completed turn, and
twenty whose process was killed while all of them streamed.
"""

import gzip
from pathlib import Path

import apsw
import pytest

from killick import Store, StoreNewer
from killick.stores.sqlite import migrate

BEFORE = Path(__file__).parent / "before_packs" / "store.gz"
STREAMS = [f"ses_open_{number:02}" for number in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(BEFORE.read_bytes()))
    return path


def test_a_file_is_brought_up_to_date(path: Path) -> None:
    """Every stream that was cut off has the text that was stored."""
    with Store(path) as store:
        assert store.counts()["deltas"] == 3 * len(STREAMS)
        for name in STREAMS:
            session = store.session(name)
            assert session.turns()[-1].status == "interrupted"
            assert session.messages()[-1].text == "one two three "
            assert store.examine_session(name) == []
        assert store.session("ses_before").messages()[-1].text == "Yes."
        assert store.counts()["deltas"] == 0
        assert store.check_file() == []
    assert not path.with_name("store.db-backup-5").exists()


def test_streams_share_rows_in_it_from_then_on(path: Path) -> None:
    with Store(path) as store:
        sessions = [store.session(name) for name in STREAMS]
        turns = [session.turn("And now?").begin() for session in sessions]
        streams = [turn.stream().begin() for turn in turns]
        for stream in streams:
            stream.text("four ")
        for turn, stream in zip(turns, streams, strict=True):
            stream.end()
            turn.end()
        assert {session.messages()[-1].text for session in sessions} == {"four "}
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM packs").get == 0
    connection.close()


def test_older_versions_may_not_open_a_file_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would not see the text that streams share a row for."""
    with Store(path) as store:
        store.create_session()
    known = migrate.migrations()[:5]
    monkeypatch.setattr(migrate, "migrations", lambda: known)
    with pytest.raises(StoreNewer, match=r"format \d+, this one knows 5"):
        Store(path)
