"""SQLite moves rows between pages and leaves the old bytes there: erasing finds these too."""

import re
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from killick import Message, Session, Store, Text, UsageError
from killick.stores.sqlite import pages
from killick.stores.sqlite.frozen import DatabaseFile


def raw(path: Path) -> bytes:
    """Every byte of the store's file and of its log, which is copied into the file first."""
    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    connection.close()
    log = Path(f"{path}-wal")
    return path.read_bytes() + (log.read_bytes() if log.exists() else b"")


def secrets_in(path: Path) -> set[bytes]:
    return set(re.findall(rb"secret\d{4}", raw(path)))


def leave_in_gaps(path: Path, words: bytes) -> int:
    """Put words where SQLite leaves rows that it moved: between a page's pointers and its rows.

    Which rows SQLite moves is its own affair, and words seldom lie in what is left of them.
    """
    raw(path)  # copies the log into the file
    left = 0
    with closing(DatabaseFile(path)) as file:
        header = file.header()
        for number, data, at in file.pages(header, None):
            if number == 1 or not pages.is_tree(data, at):
                continue
            kind, cells = data[at], int.from_bytes(data[at + 3 : at + 5], "big")
            first = (8 if kind > 5 else 12) + 2 * cells
            rows = int.from_bytes(data[at + 5 : at + 7], "big")
            if rows - first >= len(words):
                file._opened.xWrite(words, (number - 1) * header.page_size + rows - len(words))
                left += 1
    return left


def crowd(store: Store, number: int) -> list[Session]:
    """Sessions that grow by turns, so that rows in the middle of tables move to other pages."""
    sessions = [store.create_session(id=f"s{n}", title="t", tags=["a"]) for n in range(number)]
    for size in (20, 200, 900):
        for n, session in enumerate(sessions):
            session.rename(f"secret{n:04d} " + "title " * (size // 6))
            with session.turn(f"secret{n:04d} asked {size}") as turn:
                with turn.stream(model="m") as reply:
                    reply.text(f"secret{n:04d} answered " + f"word{n * size} " * (size // 20))
                turn.record(Message("assistant", [Text(f"secret{n:04d} " + "more " * size)]))
    store.search("asked", wait_seconds=60)
    return sessions


def test_rows_that_were_moved_before_they_were_erased_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        crowd(store, 60)
        gone = range(0, 60, 3)
        for n in gone:
            receipt = store.erase_session(f"s{n}", verify=False)
            assert receipt.verified is None
            assert "verify --erased" in receipt.to_do[0]
        names = {b"secret%04d" % n for n in gone}
        assert leave_in_gaps(path, b"secret0003 moved"), "no page has room for what was moved"
        assert secrets_in(path) & names, "no row was moved: the test shows nothing"
        receipt = store.verify_erased()
        assert receipt.verified
        assert receipt.cleared > 0
        assert set(receipt.sessions) == {f"s{n}" for n in gone}
        assert secrets_in(path) & names == set()
        assert len(secrets_in(path)) == 40
        assert store.check_file() == []
        for n in range(1, 60, 3):
            assert store.session(f"s{n}").messages()[0].text == f"secret{n:04d} asked 20"
        assert len(store.search("asked", limit=1_000, wait_seconds=60)) == 120
    assert secrets_in(path) & names == set()
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')")
    connection.close()


def test_every_byte_of_a_file_is_accounted_for_after_an_erasure(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path) as store:
        crowd(store, 30)
        assert store.erase_session("s7").verified
    data = path.read_bytes()
    header = pages.read_header(data)
    for number in range(1, header.pages + 1):
        at, head = (number - 1) * header.page_size, 100 if number == 1 else 0
        if pages.is_tree(data, at + head):
            dirty = pages.leftovers(data, at, head, header.usable)
            # What is counted and noted afterwards leaves pointers and numbers of rows behind.
            assert not any(b"secret" in data[at + a : at + b] for a, b in dirty), number


@pytest.mark.parametrize("substrings", [False, True])
def test_no_page_of_the_search_index_is_found_by_a_word_that_is_gone(
    tmp_path: Path, substrings: bool
) -> None:
    """Words that differ in their last letter only: pages are found by the whole of such a word."""
    path = tmp_path / "work.db"
    with Store(path, indexing=False) as store:
        store.rebuild_search(substrings=substrings)
        for n in range(40):
            words = " ".join(f"zsecret{n:04d}{word:03d}" for word in range(100))
            with store.create_session(id=f"s{n}").turn(words):
                pass
            store.search("nothing", wait_seconds=60)
        for n in range(0, 40, 2):
            store.erase_session(f"s{n}", verify=False)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        terms = [bytes(term) for (term,) in connection.execute("SELECT term FROM search_words_idx")]
        connection.close()
        whole = [term for term in terms if len(term) == len("0zsecret0000000")]
        assert whole
        assert [term for term in whole if int(term[8:12]) % 2 == 0] == []
        assert store.verify_erased().verified
        for n in range(40):
            assert len(store.search(f"zsecret{n:04d}017")) == n % 2
            if substrings:
                assert len(store.search(f"secret{n:04d}01", substring=True)) == n % 2
    assert set(re.findall(rb"zsecret(\d{4})", raw(path))) == {b"%04d" % n for n in range(1, 40, 2)}


def test_words_that_a_later_text_replaced_are_gone_too(tmp_path: Path) -> None:
    """A message is indexed as it was cut off, then once more with the rest of it."""
    path = tmp_path / "work.db"
    with Store(path, indexing=False) as store:
        session = store.create_session(id="one")
        with (
            suppress(KeyboardInterrupt),
            session.turn("Go.") as turn,
            turn.stream() as reply,
        ):
            reply.text("zyxfirst ")
            raise KeyboardInterrupt
        assert len(store.search("zyxfirst", wait_seconds=30)) == 1
        session.add_late_text(turn.id, reply.id, "zyxfirst zyxsecond")
        assert len(store.search("zyxfirst", wait_seconds=30)) == 1
        assert len(store.search("zyxsecond", wait_seconds=30)) == 1
        assert store.erase_session("one").verified
        assert len(store.search("zyxfirst", wait_seconds=30)) == 0
    assert b"zyx" not in raw(path)


def test_only_what_was_erased_from_this_store_is_looked_at_again(tmp_path: Path) -> None:
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        for store in (one, two):
            with store.create_session(id="said").turn("Hello."):
                pass
        receipt = one.erase_session("said")
        assert one.verify_erased("said").verified
        assert one.verify_erased(receipt=receipt).verified
        with pytest.raises(UsageError, match="not erased"):
            one.verify_erased("never")
        with pytest.raises(UsageError, match="not erased"):
            two.verify_erased("said")
        with pytest.raises(UsageError, match="not of this store"):
            two.verify_erased(receipt=receipt)
        assert two.verify_erased().sessions == ()


def test_an_erasure_for_which_there_is_no_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from killick.errors import StoreDegraded
    from killick.stores.sqlite import maintain

    with Store(tmp_path / "work.db") as store:
        session = store.create_session(id="one")
        with session.turn("Hello."):
            pass
        monkeypatch.setattr(maintain, "_ROOM_BYTES", 2**62)
        with pytest.raises(StoreDegraded, match="nothing was erased"):
            store.erase_session("one")
        with session.turn("Still there?"):
            pass
        assert len(session.messages()) == 2
