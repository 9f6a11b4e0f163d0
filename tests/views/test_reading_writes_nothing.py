"""Repair happens on reading: the stored bytes are the same afterwards, whatever was asked for."""

import contextlib
from pathlib import Path

import apsw

from killick import Message, Store, Text, ToolCall
from killick.views.context import FORMATS


def stored(path: Path) -> list[object]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [connection.execute(f"SELECT * FROM {t}").fetchall() for t in ("entries", "deltas")]
    finally:
        connection.close()


def test_no_view_changes_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path, indexing=False) as store:
        session = store.create_session()
        with contextlib.suppress(KeyboardInterrupt), session.turn("go") as turn:
            turn.record(Message("assistant", [ToolCall("c", "f", "{}"), Text("now")]))
            raise KeyboardInterrupt
        before = stored(path)
        for format_ in FORMATS:
            assert session.context(format_).repairs  # type: ignore[arg-type]
            assert session.context(format_, max_messages=1, partial="omit")  # type: ignore[arg-type]
        assert session.transcript()
        assert session.timeline()
        assert session.messages()
        assert stored(path) == before
