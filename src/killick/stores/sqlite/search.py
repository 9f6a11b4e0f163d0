"""The search index in SQLite: words in FTS5 tables, documents by number beside them.

Nothing in here may stop a write or a read of anything else: whatever is wrong with the index is
raised as SearchDamaged, and all of it can be dropped and made again.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import apsw

from killick.errors import InvalidQuery, SearchDamaged
from killick.journal.codec import CodecError, decode_body, to_bytes
from killick.model.entries import Entry
from killick.search.port import Batch, Document, Lineage, Made, Search, Unindexed
from killick.search.query import Either, Every, Phrase, Query
from killick.search.words import indexed, unbroken
from killick.stores.sql import load

SQL: Final = load("killick.stores.sqlite")

_ROLES: Final = ("user", "assistant", "tool", "system", "summary")
_LARGEST: Final = 2**62
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""What a slice holds in memory, about: entries can be large."""

_BY_RANK: Final = ("ORDER BY word.rowid", "ORDER BY word.rank, word.rowid")
_TABLES: Final = ("search_words", "search_substrings", "search_documents", "search_state")


class SqliteSearch:
    """Searches, on a connection that the database opened."""

    connection: apsw.Connection

    def index_behind(self) -> int:
        with _damage():
            mark, newest = self._mark()
        return max(0, newest - mark)

    def has_substrings(self) -> bool:
        with _damage():
            return bool(self._state()[3])

    def _state(self) -> Any:
        state = self.connection.execute(SQL.search_state).fetchone()
        if state is None:
            raise SearchDamaged(f"the search index has lost its state; {_REBUILD}")
        if state[4] is not None:
            raise SearchDamaged(f"the search index is damaged: {state[4]}; {_REBUILD}")
        return state

    def _mark(self) -> tuple[int, int]:
        """Return the row of the last entry that was indexed, and that of the newest.

        Rows may have been renumbered, or removed and their numbers given out again. The mark is
        taken for what it says only if that row is still the same entry; else all are looked at
        once more, which finds those that are indexed.
        """
        mark, session, seq, _, _, newest = self._state()
        if session and self.connection.execute(SQL.row_of_entry, (session, seq)).get != mark:
            mark = 0
        return mark, newest

    def index_mark(self) -> int:
        with _damage():
            return self._mark()[0]

    def unindexed(self, limit: int) -> list[Unindexed]:
        with _damage():
            mark, newest = self._mark()
        if newest <= mark:
            return []
        try:
            return self._next_rows(mark, limit)
        except apsw.CorruptError:
            last = min(mark + limit, newest)
            return [self._one_row(row) for row in range(mark + 1, last + 1)]

    def _next_rows(self, mark: int, limit: int) -> list[Unindexed]:
        waiting: list[Unindexed] = []
        size = 0
        for row in self.connection.execute(SQL.unindexed, (mark, limit)):
            entry, length = self._unindexed(row)
            waiting.append(entry)
            size += length
            if size > _BATCH_BYTES:
                break
        return waiting

    def _one_row(self, row: int) -> Unindexed:
        """Return an entry near a damaged page of the journal, if it can still be read."""
        try:
            stored = self.connection.execute(SQL.unindexed_one, (row,)).fetchone()
        except apsw.CorruptError:
            stored = None
        return Unindexed(row, 0, 0, None) if stored is None else self._unindexed(stored)[0]

    def _unindexed(self, row: Any) -> tuple[Unindexed, int]:
        """Return an entry that waits, and its size."""
        number, key, seq, at_us, crc, body, blob = row
        entry = None
        try:
            if blob is not None:
                body = self.connection.execute(SQL.blob_by_key, (blob,)).get
            if body is not None and zlib.crc32(body) == crc:
                entry = Entry(seq, at_us, decode_body(body))
        except (CodecError, apsw.CorruptError):
            pass  # reading the session raises
        return Unindexed(number, key, seq, entry), len(body or b"")

    def find_documents(
        self, search: Search, lineage: Sequence[Lineage] | None
    ) -> list[tuple[int, int]]:
        sql, words = SQL.search_newest, _compiled(search)
        if isinstance(search.query, str):
            sql = _for_substrings(sql)
        if search.order == "best":
            sql = sql.replace(*_BY_RANK)
        with _damage():
            if isinstance(search.query, str) and not self.has_substrings():
                raise InvalidQuery(
                    "this store has no index of parts of words; make one with "
                    "store.rebuild_search(substrings=True), or search for word*"
                )
            reach = self._reach(lineage)
            if reach is None:
                return []
            bindings = {**_filters(search), **reach, "words": words}
            rows: Any = self.connection.execute(sql, bindings).fetchall()
            return list(rows)

    def _reach(self, lineage: Sequence[Lineage] | None) -> dict[str, Any] | None:
        """Return the sessions to look in, with the range of their documents; None for none."""
        if lineage is None:
            return {"lineage": None, "first": 0, "last": _LARGEST}
        pairs = json.dumps([(session.key, session.through) for session in lineage])
        reach: Any = self.connection.execute(SQL.reach_of_session, (pairs,)).fetchone()
        first, last = reach
        return None if first is None else {"lineage": pairs, "first": first, "last": last}


class SqliteIndex(SqliteSearch):
    """Writes to the index, on the writer's connection, inside a transaction."""

    writes: int
    known_substrings: bool | None = None
    """True if there is an index of parts of words; None until this transaction has looked."""

    def put_document(self, key: int, document: Document) -> None:
        about = (document.seq, document.at_us, _ROLES.index(document.role))
        partial = document.state == "partial"
        with _damage():
            if self.connection.execute(SQL.row_of_entry, (key, document.seq)).get is None:
                return
            stored: Any = self.connection.execute(
                SQL.find_document, (key, document.place)
            ).fetchone()
            if stored is None:
                self._change(SQL.put_document, (key, document.place, *about, partial))
                number = self.connection.last_insert_rowid()
            elif stored[1] < document.seq:
                number = stored[0]
                self._change(SQL.replace_document, (*about, partial, number))
            else:
                return  # it is there, as it is or as something later made it
            texts = (document.text, document.reasoning)
            self._change(SQL.put_words, (number, *map(indexed, texts)))
            if self._with_substrings():
                folded = (unbroken(text) for text in texts)
                self._change(_for_substrings(SQL.put_words), (number, *folded))

    def take_slice(self, batch: Batch) -> Made:
        return batch.entries if self.index_mark() == batch.mark else ()

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        last = done[-1]
        with _damage():
            self._change(SQL.save_search_mark, (last.place, last.key, last.seq))
            self._flush()

    def _flush(self) -> None:
        self._change(SQL.flush_words, ())
        if self._with_substrings():
            self._change(_for_substrings(SQL.flush_words), ())

    def _with_substrings(self) -> bool:
        if self.known_substrings is None:
            self.known_substrings = bool(self._state()[3])
        return self.known_substrings

    def unindex(self, key: int) -> None:
        try:
            with _damage():
                self._unindex(key)
        except SearchDamaged:
            self.reset_index(substrings=None, forget=True)

    def _unindex(self, key: int) -> None:
        mark, session, *_ = self._state()
        for (number,) in self.connection.execute(SQL.documents_of, (key,)).fetchall():
            self._change(SQL.drop_words, (number,))
            if self._with_substrings():
                self._change(_for_substrings(SQL.drop_words), (number,))
        self._change(SQL.drop_documents, (key,))
        if session == key:  # the mark may not lie on an entry that goes
            before = self.connection.execute(SQL.mark_before, (mark, key)).fetchone()
            self._change(SQL.save_search_mark, before or (0, 0, 0))
        self._flush()

    def tidy_index(self) -> None:
        with _damage():
            self._change(SQL.tidy_words, ())
            if self._with_substrings():
                self._change(_for_substrings(SQL.tidy_words), ())

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        if substrings is None:
            substrings = self._kept_setting()
        self.known_substrings = substrings
        if forget:
            self._forget()
        else:
            with _damage():
                self._drop()
        self._change(_schema(), ())
        if substrings:
            self._change(SQL.create_substrings, ())
            self._change(SQL.save_substrings, (1,))

    def _kept_setting(self) -> bool:
        """True if there was an index of parts of words, also when the state cannot be read."""
        names = [name for (name,) in self.connection.execute(SQL.search_schema)]
        return "search_substrings" in names

    def _drop(self) -> None:
        for name in _TABLES:
            self._change(f"DROP TABLE IF EXISTS {name}", ())

    def _forget(self) -> None:
        """Drop tables that are too damaged for DROP; their pages are free after the next VACUUM.

        A DROP that failed would leave a transaction in which nothing works any more, this neither.
        """
        self.connection.pragma("writable_schema", 1)
        try:
            self._change(SQL.forget_search_schema, ())
        finally:
            self.connection.execute("PRAGMA writable_schema = RESET")

    def index_is_damaged(self, reason: str) -> None:
        with _damage():
            self._change(SQL.save_search_damage, (reason,))

    def _change(self, sql: str, bindings: Sequence[Any]) -> None:
        self.writes += 1
        self.connection.execute(sql, bindings)


_REBUILD: Final = "writing and reading go on; store.rebuild_search() makes it anew"


@contextmanager
def _damage() -> Iterator[None]:
    """Raise SQLite's errors of a broken index as SearchDamaged; a full disk stays one."""
    try:
        yield
    except (apsw.CorruptError, apsw.SQLError, apsw.FormatError, apsw.MismatchError) as error:
        if "no such table: search_state" in str(error):
            message = "this store has no search index; open it where it may be written"
        else:
            message = f"the search index is damaged: {error}"
        raise SearchDamaged(f"{message}; {_REBUILD}") from error


def _schema() -> str:
    folder = files("killick.stores.sqlite").joinpath("migrations")
    return folder.joinpath("0003_search.sql").read_text(encoding="utf-8")


def _for_substrings(sql: str) -> str:
    return sql.replace("search_words", "search_substrings")


def _compiled(search: Search) -> str:
    """Compile a query for FTS5. Every word is quoted, so none is taken for an operator."""
    query = search.query
    if isinstance(query, str):
        quoted = query.replace('"', '""')
        compiled = f'"{quoted}"'
    else:
        compiled = _expression(query)
    return compiled if search.reasoning else f"{{text}} : ({compiled})"


def _expression(query: Query) -> str:
    match query:
        case Phrase():
            return f'"{" ".join(query.words)}"' + ("*" if query.prefix else "")
        case Either():
            return f"({' OR '.join(map(_expression, query.choices))})"
        case Every():
            wanted = f"({' AND '.join(map(_expression, query.wanted))})"
            if not query.unwanted:
                return wanted
            return f"({wanted} NOT ({' OR '.join(map(_expression, query.unwanted))}))"


def _filters(search: Search) -> dict[str, Any]:
    return {
        "tenant": to_bytes(search.tenant),
        "role": None if search.role is None else _ROLES.index(search.role),
        "partial": None if search.state is None else search.state == "partial",
        "project": None if search.project is None else to_bytes(search.project),
        "interrupted": search.interrupted,
        "since_us": search.since_us,
        "until_us": search.until_us,
        "limit": search.limit,
    }
