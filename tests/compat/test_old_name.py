"""Stores and exports that were made before the renaming open as they are.

`old/` was made by the last version of the old name: one session with a completed turn and its tool,
a compaction, a part of our own that is opaque, an interrupted turn, and the receipt of an erased
session. `shown.json` is what that version showed of it.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from killick import Opaque, SessionNotFound, Store, StoreNotOurs
from killick.exchange.formats.jsonl import export_lines
from killick.exchange.importer import import_paths
from killick.model.messages import OWN_PROVIDER
from killick.stores.postgres import migrate
from killick.stores.sqlite.migrate import APPLICATION_ID
from tests.postgres_fixtures import Shared, shared

OLD = Path(__file__).parent / "old"
FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")


def shown(store: Store) -> dict[str, Any]:
    session = store.session("ses_old")
    contexts = {name: session.context(name) for name in FORMATS}  # type: ignore[arg-type]
    return {
        "title": session.title,
        "head": session.head,
        "messages": [
            {
                "id": message.id,
                "role": message.role,
                "state": message.state,
                "seq": message.seq,
                "turn_id": message.turn_id,
                "parts": json.loads(msgspec.json.encode(message.parts)),
            }
            for message in session.messages()
        ],
        "turns": [
            {"id": turn.id, "status": turn.status, "reason": turn.reason}
            for turn in session.turns()
        ],
        "contexts": {
            name: {"messages": context.messages, "system": context.system}
            for name, context in contexts.items()
        },
        "found": [hit.session_id for hit in store.search("linker")],
    }


def check_same(store: Store) -> None:
    """It shows what the old version showed, and takes a new turn."""
    text = (OLD / "shown.json").read_text(encoding="utf-8")
    then = json.loads(text.replace("the user interrupted it.", "it was cancelled."))
    assert {"shown": shown(store)} == then, "but for the words of a cause"
    with pytest.raises(SessionNotFound):
        store.session("ses_gone")
    session = store.session("ses_old")
    kept = [part for m in session.messages() for part in m.parts if isinstance(part, Opaque)]
    assert [part.provider for part in kept] == [OWN_PROVIDER]
    assert store.examine_session("ses_old") == []
    with session.turn("And today?"):
        pass
    assert [turn.status for turn in session.turns()] == ["completed", "interrupted", "completed"]


def exported() -> bytes:
    return (OLD / "session.jsonl").read_bytes()


def unpack(name: str) -> bytes:
    return gzip.decompress((OLD / name).read_bytes())


# -- a file --------------------------------------------------------------------------------------


def test_a_file_opens(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    with Store(path) as store:
        check_same(store)
    assert [file.name for file in tmp_path.glob("*-backup-*")] == []


def test_the_format_before_is_brought_up_to_date_and_its_entries_stay(tmp_path: Path) -> None:
    """Tables are added to the file; a journal's bytes are the same."""
    path, data = tmp_path / "store.db", unpack("store.db.gz")
    path.write_bytes(data)
    before = rows_of(path)
    with Store(path) as store:
        shown(store)
        assert b"".join(_body(export_lines(store, "ses_old"))) == b"".join(_body(_lines()))
        proof = store.verify_session("ses_old")
        assert (proof.linked, proof.findings) == (0, []), "nothing can be proved of old entries"
    assert rows_of(path) == before
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.pragma("application_id") == APPLICATION_ID == 0x484C4446
    assert connection.execute("SELECT count(*) FROM erasures").fetchall() == [(1,)]
    connection.close()


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    sql = "SELECT session, seq, identity, at_us, crc, body, blob, mark FROM entries ORDER BY 1, 2"
    rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
    connection.close()
    return rows


# -- an export -----------------------------------------------------------------------------------


def _lines() -> Iterator[bytes]:
    yield from exported().splitlines(keepends=True)


def _body(lines: Iterable[bytes]) -> list[bytes]:
    """All but the head, which names the program, causes, which are read from old reasons, and
    links, which are made when an entry is written."""
    without = (re.sub(rb'"link":"[0-9a-f]{64}",', b"", line) for line in lines)
    return [line.replace(b',"cause":"cancelled"', b"") for line in without][1:]


def test_an_export_comes_in_and_goes_out_the_same(tmp_path: Path) -> None:
    assert exported().startswith(b'{"holdfast":1,')
    with Store(tmp_path / "new.db") as store:
        report = import_paths(store, [OLD / "session.jsonl"])
        assert [(one.action, one.session_id) for one in report.sessions] == [("new", "ses_old")]
        assert report.problems == []
        assert report.sessions[0].source == "killick"
        lines = list(export_lines(store, "ses_old"))
        assert lines[0] == b'{"killick":2,"session":"ses_old"}\n'
        assert _body(lines) == _body(_lines())
        again = import_paths(store, [OLD / "session.jsonl"])
        assert [one.action for one in again.sessions] == ["unchanged"]
        check_same(store)


# -- a server ------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Shared:
    return shared("18")


@pytest.fixture
def url(server: Shared) -> Iterator[str]:
    """A database in which only the old version has made a store."""
    server.server.execute("CREATE DATABASE renamed")
    url = f"postgresql://postgres@127.0.0.1:{server.server.port}/renamed"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(unpack("postgres.sql.gz"))
    yield url
    server.server.execute("DROP DATABASE renamed WITH (FORCE)")


def schemas(url: str) -> list[str]:
    sql = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_)' ORDER BY 1"
    return [name for (name,) in ask(url, sql)]


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def test_the_old_schema_is_used_as_it_is(url: str) -> None:
    columns = "session, seq, at_us, crc, mark, identity, blob, body"
    before = ask(url, f"SELECT {columns} FROM holdfast.entries ORDER BY session, seq")
    with Store(url) as store:
        shown(store)
        holders = ask(url, "SELECT count(*) FROM holdfast.holders WHERE holder NOT LIKE '%lock@%'")
        assert holders == [(1,)], "what every opening writes"
    after = ask(url, f"SELECT {columns} FROM holdfast.entries ORDER BY session, seq")
    assert after == before
    with Store(url) as store:
        check_same(store)
    assert schemas(url) == ["holdfast", "public"]
    assert ask(url, "SELECT max(number) FROM holdfast.migrations") == [(len(migrate.migrations()),)]
    assert ask(url, "SELECT count(*) FROM holdfast.erasures") == [(1,)]


def test_a_schema_of_the_new_name_comes_first(url: str) -> None:
    with Store(f"{url}?schema=killick") as store:
        assert store.sessions() == [], "a schema that is named is used, whatever else there is"
        store.create_session(id="ses_new")
    with Store(url) as store:
        assert store.session_ids() == ["ses_new"]
    with Store(f"{url}?schema=holdfast") as store:
        assert store.session_ids() == ["ses_old"]
    with Store(f"{url}?schema=third") as store:
        assert store.session_ids() == []
    assert schemas(url) == ["holdfast", "killick", "public", "third"]


def test_a_schema_that_only_has_the_old_name_is_left_alone(url: str) -> None:
    """Another program has that name too."""
    ask(url, "DROP TABLE holdfast.meta, holdfast.migrations")
    with Store(url) as store:
        assert store.sessions() == []
    assert schemas(url) == ["holdfast", "killick", "public"]
    with pytest.raises(StoreNotOurs):
        Store(f"{url}?schema=holdfast")


def test_both_versions_take_the_same_lock_to_make_a_store() -> None:
    assert migrate._lock("holdfast") == 1228497096212384754
