"""The embedded store: one SQLite file for all sessions, through apsw."""

from killick.stores.sqlite.database import SqliteDatabase

__all__ = ["SqliteDatabase"]
