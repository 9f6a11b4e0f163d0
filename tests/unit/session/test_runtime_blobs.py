"""Blobs that nothing refers to are gone once their writer is, without anybody asking."""

from pathlib import Path

from killick import Image, Message, Store, Text
from killick.testing.faults import crash


def test_a_blob_whose_writer_died_before_it_was_used_is_collected(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    dead = Store(path)
    dead.put_blob(b"never used")
    kept = dead.put_blob(b"used")
    with dead.create_session().turn("look") as turn:
        turn.record(Message("assistant", [Text("this"), Image(kept, "image/png")]))
    crash(dead)
    with Store(path) as store:
        assert store.counts()["blobs"] == 2
    with Store(path) as store:
        assert store.counts()["blobs"] == 1
        assert store.blob(kept) == b"used"


def test_a_blob_that_was_put_again_is_kept_for_whoever_did(tmp_path: Path) -> None:
    """Who put it first is dead. Who put it again was told that it is stored, so it is."""
    path = tmp_path / "work.db"
    dead = Store(path)
    dead.put_blob(b"bytes")
    crash(dead)
    with Store(path) as store, store.create_session().turn("look") as turn:
        name = store.put_blob(b"bytes")
        with Store(path) as other:
            assert other.collect_blobs() == 0
        turn.record(Message("assistant", [Image(name, "image/png")]))
        assert store.blob(name) == b"bytes"
